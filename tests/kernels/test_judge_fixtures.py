"""Honest kernels of many forms are accepted; every cheat is rejected, with the class that its file names."""

import pytest

from judging import expected_class, fixtures, task_of, warm_judge
from kernel_search.judge.estimate import METRIC
from kernel_search.tasks import TASKS


@pytest.fixture(scope="module")
def verdicts():
    paths = fixtures("honest") + fixtures("cheats")
    items = [(path.read_text(encoding="utf-8"), task_of(path), 0) for path in paths]
    return dict(zip([path.stem for path in paths], warm_judge().judge_many(items), strict=True))


@pytest.mark.parametrize("path", fixtures("honest"), ids=lambda path: path.stem)
def test_an_honest_kernel_is_accepted(verdicts, path):
    verdict = verdicts[path.stem]
    assert verdict.is_accepted, (verdict.failure_class, verdict.evidence)
    assert verdict.outcome == "succeeded" and verdict.failure_class is None
    assert 0.2 <= verdict.reward <= 1.0
    assert verdict.metrics[METRIC] > verdict.metrics["roofline_us"]
    assert all(check.passed for check in verdict.checks)


@pytest.mark.parametrize("path", fixtures("cheats"), ids=lambda path: path.stem)
def test_a_cheat_is_rejected_for_the_right_reason(verdicts, path):
    verdict = verdicts[path.stem]
    assert not verdict.is_accepted
    assert verdict.failure_class == expected_class(path), verdict.evidence
    assert verdict.outcome == "failed" and verdict.reward == 0.0 and verdict.fitness is None
    assert verdict.evidence["message"]


def test_every_task_has_several_honest_forms_and_a_cheat():
    for name in TASKS:
        assert sum(path.stem.startswith(f"{name}__") for path in fixtures("honest")) >= 3
        assert any(path.stem.startswith(f"{name}__") for path in fixtures("cheats"))


def test_the_starting_kernels_are_accepted_and_are_their_own_baseline():
    judge = warm_judge()
    for task in TASKS.values():
        verdict = judge.judge(task.seed_source, task)
        assert verdict.is_accepted, verdict.evidence
        assert verdict.fitness == 0.0
        assert verdict.metrics[METRIC] == verdict.metrics["baseline_us"] == judge.baseline_us(task)

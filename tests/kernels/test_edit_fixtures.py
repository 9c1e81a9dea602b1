"""Every kind of named edit, judged for real: one application that is accepted and one that is not."""

from pathlib import Path

import pytest
import yaml

from kernel_search.edits import apply_edits
from kernel_search.grammar import KINDS
from kernel_search.judge import Judge
from kernel_search.tasks import TASKS

FIXTURES = yaml.safe_load((Path(__file__).parent / "edits" / "edits.yaml").read_text())
CASES = [(kind, side) for kind in FIXTURES for side in ("accepted", "rejected")]


def applied(kind, side):
    """The fixture's task, and its edit applied to the seed after its first edits."""
    fixture = FIXTURES[kind][side]
    task = TASKS[fixture["task"]]
    source = task.seed_source
    for answer in fixture.get("first", []):
        source = apply_edits(source, answer).source
        assert source is not None, answer
    return task, apply_edits(source, fixture["edit"])


@pytest.fixture(scope="module")
def verdicts():
    """Verdicts by (kind, side) of all fixtures that give a candidate."""
    to_judge = [(case, *applied(*case)) for case in CASES]
    to_judge = [(case, task, result.source) for case, task, result in to_judge if result.source is not None]
    with Judge(workers=2) as judge:
        judged = judge.judge_many((source, task, 0) for _, task, source in to_judge)
        return {case: verdict for (case, _, _), verdict in zip(to_judge, judged, strict=True)}


def test_every_kind_has_both_fixtures_and_each_is_about_its_kind():
    assert set(FIXTURES) == set(KINDS)
    for kind, side in CASES:
        assert kind in {line.split()[0] for line in FIXTURES[kind][side]["edit"].split("\n")}


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_edit_of_this_kind_is_accepted(verdicts, kind):
    verdict = verdicts[kind, "accepted"]
    assert verdict.is_accepted, (verdict.failure_class, verdict.checks)
    assert verdict.fitness is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_edit_of_this_kind_is_rejected_for_its_reason(verdicts, kind):
    _, result = applied(kind, "rejected")
    verdict = verdicts.get((kind, "rejected"))
    failure = result.failure_class if verdict is None else verdict.failure_class
    assert failure == FIXTURES[kind]["rejected"]["fails"], verdict and verdict.checks
    if verdict is not None:
        assert (verdict.outcome, verdict.fitness, verdict.reward) == ("failed", None, 0.0)

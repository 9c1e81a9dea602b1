"""Each failure class by a small candidate: what is told apart, with which evidence, and what it earns."""

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from judging import honest, impatient_judge, spoilt, warm_judge
from kernel_search.judge import Judge, client, warmup
from kernel_search.judge.client import ServerDied
from kernel_search.tasks import MATMUL, RMS_NORM, SOFTMAX, VECTOR_ADD
from process_watch import wait_for

ADD, DOT, ROW, RMS = "vector_add__plain", "matmul__grid_2d", "softmax__one_pass", "rms_norm__one_pass"
STORE = "    tl.store(out"

CASES = {
    "unbalanced parenthesis": (VECTOR_ADD, spoilt(ADD, "def run(", "def run(("), "syntax", "line 15"),
    "import of os": (VECTOR_ADD, spoilt(ADD, "import torch\n", "import os\nimport torch\n"), "screen", "import of os"),
    "unknown function": (SOFTMAX, spoilt(ROW, "tl.exp(x)", "tl.inv_sqrt(x)"), "language", "no inv_sqrt"),
    "block of no power of two": (VECTOR_ADD, spoilt(ADD, "1024", "1000"), "language", "power of 2"),
    "unknown eviction policy": (
        VECTOR_ADD, spoilt(ADD, "mask=mask) + tl", 'mask=mask, eviction_policy="stream") + tl'), "language", "stream",
    ),
    "element-wise maximum along an axis": (
        SOFTMAX, spoilt(ROW, "tl.max(x, axis=0)", "tl.maximum(x, axis=0)"), "language", "axis",
    ),
    "break in a kernel": (
        VECTOR_ADD, spoilt(ADD, STORE, "    for i in range(3):\n        break\n" + STORE), "language", "Break",
    ),
    "missing argument": (VECTOR_ADD, spoilt(ADD, "x.numel(), BLOCK", "BLOCK"), "language", "'n'"),
    "returned block": (VECTOR_ADD, spoilt(ADD, STORE, "    return offsets\n" + STORE), "lowering", "PassManager"),
    "too few registers": (MATMUL, spoilt(DOT, "num_warps=4", "num_warps=4, maxnreg=8"), "ptxas", "ptxas"),
    "three warps": (VECTOR_ADD, spoilt(ADD, "BLOCK=1024", "BLOCK=1024, num_warps=3"), "options", "power of 2"),
    "empty grid": (VECTOR_ADD, spoilt(ADD, "add_kernel[grid]", "add_kernel[(0,)]"), "options", "positive"),
    "64 warps": (VECTOR_ADD, spoilt(ADD, "BLOCK=1024", "BLOCK=1024, num_warps=64"), "resources", "2048 threads"),
    "more shared memory than there is": (
        MATMUL, spoilt(DOT, "BK=64", "BK=256, num_stages=4").replace("num_stages=2", "num_stages=4"),
        "resources", "shared memory",
    ),
    "division by zero": (VECTOR_ADD, spoilt(ADD, "    out =", "    n = 1 // 0\n    out ="), "crash", "ZeroDivision"),
    "half precision": (SOFTMAX, spoilt(ROW, '"))\n', '")).to(tl.float16)\n'), "wrong_values", "tolerance"),
    "no mask on loads": (RMS_NORM, spoilt(RMS, "mask=mask, other=0.0).to", "other=0.0).to").replace(
        "cols, other=0.0", "cols"), "out_of_bounds", "outside its tensors"),
    "no mask on the store": (VECTOR_ADD, spoilt(ADD, ", mask=mask)\n\n", ")\n\n"), "out_of_bounds", "store"),
    "all programs store the same block": (
        VECTOR_ADD, spoilt(ADD, "tl.program_id(axis=0) *", "0 *"), "race", "buffer0",
    ),
    "block below the row": (
        SOFTMAX, spoilt(ROW, "triton.next_power_of_2(n_cols)", "1024"), "shape_specialised", "stored by no kernel",
    ),
    "block below every row": (
        SOFTMAX, spoilt(ROW, "triton.next_power_of_2(n_cols)", "16"), "wrong_values", "no kernel",
    ),
    "no launch": (
        VECTOR_ADD, spoilt(ADD, "    add_kernel", "    return out\n    add_kernel"), "no_launch", "no kernel",
    ),
    "wrong shape": (VECTOR_ADD, spoilt(ADD, "    return out", "    return out.view(1, -1)"), "contract", "asked was"),
    "a list of tensors": (VECTOR_ADD, spoilt(ADD, "    return out", "    return [out]"), "contract", "list"),
    "no run": (VECTOR_ADD, spoilt(ADD, "def run", "def go"), "contract", "no function run"),
    "block pointers": (
        VECTOR_ADD, spoilt(ADD, STORE, "    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,))\n" + STORE),
        "removed_api", "removed from Triton",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verdicts():
    items = [(source, task, 0) for task, source, _, _ in CASES.values()]
    return dict(zip(CASES, warm_judge().judge_many(items), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_failure_has_its_class_its_evidence_and_no_reward(verdicts, name):
    _, _, failure_class, evidence = CASES[name]
    verdict = verdicts[name]
    assert verdict.failure_class == failure_class, verdict.evidence
    assert evidence in verdict.evidence["message"]
    assert (verdict.outcome, verdict.fitness, verdict.reward) == ("failed", None, 0.0)
    assert not verdict.checks[-1].passed and all(check.passed for check in verdict.checks[:-1])


@pytest.mark.parametrize(
    "loop",
    ["    while True:\n        n = 1\n    out =", "    for i in range(10**12):\n        n = 1\n    out ="],
    ids=["while", "for"],
)
def test_an_endless_loop_on_the_host_is_a_hang_and_the_candidates_fault(loop):
    verdict = impatient_judge(compile_cpu_seconds=1).judge(spoilt(ADD, "    out =", loop), VECTOR_ADD)
    assert (verdict.failure_class, verdict.outcome, verdict.reward) == ("hang", "failed", 0.0)


def test_an_endless_loop_in_a_kernel_is_a_hang():
    source = spoilt(ADD, STORE, "    i = 0\n    while i < 1:\n        i = i * 1\n" + STORE)
    verdict = impatient_judge(interpret_cpu_seconds=1).judge(source, VECTOR_ADD)
    assert verdict.failure_class == "hang"


def test_a_child_that_sleeps_past_the_wall_clock_is_killed_from_outside():
    source = spoilt(ADD, STORE, "    for i in tl.static_range(1000000):\n        offsets += i\n" + STORE)
    verdict = impatient_judge(wall_seconds=2).judge(source, VECTOR_ADD)
    assert verdict.failure_class == "hang" and "still running" in verdict.evidence["message"]


def test_equal_source_task_and_seed_give_an_equal_verdict():
    source = honest(ADD)
    first, again = warm_judge().judge(source, VECTOR_ADD, seed=7), impatient_judge().judge(source, VECTOR_ADD, seed=7)
    assert (first.checks, first.metrics, first.fitness) == (again.checks, again.metrics, again.fitness)
    assert first.environment_digest == again.environment_digest


def test_a_repeated_candidate_is_answered_from_memory():
    judge = warm_judge()
    assert judge.judge(honest(ADD), VECTOR_ADD, seed=8) is judge.judge(honest(ADD), VECTOR_ADD, seed=8)


def test_verdicts_come_in_the_order_of_the_candidates():
    sources = [spoilt(ADD, "BLOCK=1024", f"BLOCK=1024, num_warps={warps}") for warps in (4, 3, 8, 64)]
    verdicts = list(warm_judge().judge_many((source, VECTOR_ADD, 0) for source in sources))
    said = [verdict.evidence for verdict in verdicts]
    assert [verdict.failure_class for verdict in verdicts] == [None, "options", None, "resources"], said


def test_a_server_that_died_once_is_started_again_and_the_candidate_is_not_blamed():
    judge = warm_judge()
    os.kill(judge._pipeline.interpreter._process.pid, signal.SIGKILL)
    assert judge.judge(honest(ADD), VECTOR_ADD, seed=9).is_accepted


def test_when_the_servers_fail_twice_the_outcome_is_unknown_and_nothing_is_rewarded(monkeypatch):
    judge = impatient_judge()

    def refuse():
        raise ServerDied("it does not come up")

    class Dead:
        def ask(self, *args, **kwargs):
            raise ServerDied("hung up")

        restart_if_dead = staticmethod(refuse)

    judge._pipeline.compiler = Dead()
    verdict = judge.judge(honest(ADD), VECTOR_ADD, seed=10)
    assert (verdict.verdict, verdict.outcome, verdict.reward) == ("rejected", "unknown", None)
    assert verdict.failure_class == "harness.server"


@pytest.mark.parametrize("name", warmup.PLANTED)
def test_a_judge_that_does_not_see_a_planted_fault_refuses_to_score(monkeypatch, name):
    warm = warm_judge()
    monkeypatch.setitem(warmup.PLANTED, name, ("tl.arange(0, 32)", "pid * 32"))  # no fault at all
    with pytest.raises(warmup.SelfTestFailed, match=name):
        warmup.check_planted_faults(warm._pipeline)


def test_a_failed_self_test_makes_every_verdict_unknown():
    judge = impatient_judge()
    judge._harness_fault = Judge.__init__.__globals__["HarnessFailure"]("self_test", "a planted fault went unseen")
    verdict = judge.judge(honest(ADD), VECTOR_ADD, seed=11)
    assert (verdict.failure_class, verdict.outcome, verdict.reward) == ("harness.self_test", "unknown", None)


def test_source_that_is_no_text_is_a_syntax_error():
    verdict = warm_judge().judge("\ud800", VECTOR_ADD)
    assert (verdict.outcome, verdict.failure_class) == ("failed", "syntax")


def test_what_a_verdict_says_can_be_stored_as_text():
    source = spoilt(
        "vector_add__plain", "    out = ", "    if x.numel():\n        raise ValueError('\\ud800')\n    out = "
    )
    verdict = warm_judge().judge(source, VECTOR_ADD)
    assert verdict.failure_class == "crash"
    assert "\\ud800" in verdict.evidence["message"].encode().decode()


def test_a_judge_that_is_closed_while_candidates_run_leaves_no_folder_behind(monkeypatch):
    environment = client.clean_environment
    endless = spoilt(ADD, "    out =", "    while True:\n        n = 1\n    out =")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # children give up their user, and must still reach their scratch folders
        monkeypatch.setattr(client, "clean_environment", lambda kind: environment(kind) | {"TMPDIR": folder})
        with Judge(workers=1) as judge:
            assert len(list(Path(folder).iterdir())) == 2
            monkeypatch.setattr(client.Server, "restart_if_dead", lambda server: None)  # the caller ends, too
            running = threading.Thread(target=judge.judge, args=(endless, VECTOR_ADD), daemon=True)
            running.start()
            wait_for(lambda: list(Path(folder).glob("*/*")))
        running.join(timeout=30)
        assert list(Path(folder).iterdir()) == []

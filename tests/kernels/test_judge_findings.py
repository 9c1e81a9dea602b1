"""What is concluded from sampled programs of the scored shape, on reports written by hand."""

from dataclasses import replace

import numpy as np
import pytest

from kernel_search.judge.compile_side import MOST_STAGES, count_instructions, pipeline_stages
from kernel_search.judge.estimate import COUNTED, LaunchWork, estimate_seconds
from kernel_search.judge.findings import (
    Rejected,
    check_compiled,
    check_dead_launches,
    check_scored,
    check_work,
    final_launch,
    launch_work,
)
from kernel_search.judge.target import H100
from kernel_search.tasks import MATMUL, SOFTMAX


def report(*launches, output="buffer0", **traffic):
    """A report of launches given as (loads, stores, updates, stopped), each with one sampled program of two."""
    counts = dict.fromkeys(COUNTED, 0)
    return {
        "launches": [{"grid": [2, 1, 1]} for _ in launches],
        "touched": [
            {"loads": loads, "stores": stores, "updates": updates, "stopped": stopped}
            for loads, stores, updates, stopped in launches
        ],
        "traffic": [[counts | traffic] for _ in launches],
        "tensor_bytes": [1 for _ in launches],
        "programs": [],
        "output_role": output,
    }


ONLY = (["in0"], ["buffer0"], [], 0)


@pytest.mark.parametrize(
    ("launches", "final"),
    [
        ([ONLY], 0),
        ([(["in0"], ["buffer1"], [], 0), (["in0", "buffer1"], ["buffer0"], [], 0)], None),
        ([(["in0"], ["buffer1"], [], 0), ONLY], 1),
        ([(["in0"], ["buffer0"], ["buffer1"], 0)], 0),
        ([(["in0"], [], ["buffer0"], 0)], None),
        ([ONLY, ONLY], None),
    ],
    ids=[
        "one",
        "reads what another stored",
        "another is idle",
        "atomics elsewhere",
        "atomics on the output",
        "two store",
    ],
)
def test_values_are_final_where_one_launch_alone_stores_the_output_from_inputs(launches, final):
    assert final_launch(report(*launches)) == final


def test_a_launch_from_which_nothing_follows_is_refused():
    with pytest.raises(Rejected, match="launch 1 stores nothing") as refused:
        check_dead_launches(report((["in0"], ["buffer1"], [], 0), ONLY))
    assert refused.value.failure_class == "contract"
    check_dead_launches(report((["in0"], ["buffer1"], [], 0), (["buffer1"], ["buffer0"], [], 0)))


def test_operations_that_no_dot_counts_are_those_of_the_task_and_fewer_are_implausible():
    moved = {"load_bytes": MATMUL.input_bytes, "store_bytes": MATMUL.output_bytes}
    asked = 2 * 4096 * 4096 * 1024
    works = launch_work(MATMUL, report(ONLY, **moved))
    assert [work.flops for work in works] == [asked]
    check_work(MATMUL, works)
    with pytest.raises(Rejected, match="operations") as refused:
        check_work(MATMUL, launch_work(MATMUL, report(ONLY, **moved, flops=asked // 4)))
    assert refused.value.failure_class == "implausible"


def test_work_that_a_sample_cannot_tell_is_not_estimated():
    first = (["in0"], ["buffer1"], [], 1)
    with pytest.raises(Rejected, match="launch 1 are too long"):
        launch_work(MATMUL, report(first, (["buffer1"], ["buffer0"], [], 0)))


def test_compiled_code_must_touch_memory_as_the_interpreted_kernel_did():
    seen = report((["in0"], ["buffer0"], ["buffer1"], 0))
    compiled = {"access_widths": {"cp16": 4, "st4": 1}, "tensor_copies": 0, "atomics": 1}
    check_compiled([compiled], seen)
    for spoilt in ({"access_widths": {"st4": 1}}, {"access_widths": {"ld4": 1}}, {"atomics": 0}):
        with pytest.raises(Rejected, match="its compiled code does not"):
            check_compiled([compiled | spoilt], seen)


def stores(*elements: int, programs: int, **changes):
    """A report of one launch whose sampled programs stored so many elements each; no values to compare."""
    seen = report((["in0"], ["buffer0"], [], changes.pop("stopped", 0)))
    seen["launches"] = [{"grid": [programs, 1, 1]}]
    seen["traffic"] = [[{"operations": changes.get("operations", 10)} for _ in elements]]
    seen["overlap"] = [0]
    nothing = {"positions": np.zeros(0, np.int64), "values": np.zeros(0, np.float32)}
    seen["programs"] = [{"launch": 0, "program": n, "stored": one} | nothing for n, one in enumerate(elements) if one]
    return seen


def case(*, is_long: bool):
    return {"offsets": [0], "is_long": is_long, "operation_limit": 1300}


ROW, ROWS = 4096, 8192


def test_programs_that_were_stopped_are_followed_to_their_ends_or_refused():
    stopped = stores(20 * ROW, 20 * ROW, programs=132, stopped=2)
    assert check_scored(SOFTMAX, case(is_long=False), stopped) == "longer"
    with pytest.raises(Rejected, match="still run") as refused:
        check_scored(SOFTMAX, case(is_long=True), stopped)
    assert refused.value.failure_class == "hang"


def test_programs_at_their_ends_show_what_they_cover():
    assert check_scored(SOFTMAX, case(is_long=True), stores(63 * ROW, 62 * ROW, 62 * ROW, programs=132)) is None
    with pytest.raises(Rejected, match=r"32\.2%"):
        check_scored(SOFTMAX, case(is_long=True), stores(*[20 * ROW] * 8, programs=132, operations=6000))


@pytest.mark.parametrize("sampled", [8, 64])
def test_programs_that_differ_are_told_by_a_wider_sample_and_by_none_beyond_the_widest(sampled):
    uneven = stores(*[63 * ROW, 0] * (sampled // 2), programs=132, operations=10)
    if sampled < 64:
        assert check_scored(SOFTMAX, case(is_long=True), uneven) == "wider"
        return
    with pytest.raises(Rejected, match="of the scored output"):
        check_scored(SOFTMAX, case(is_long=True), uneven)


def test_instructions_that_never_run_do_not_speed_up_what_does():
    work = LaunchWork(
        programs=4096, load_bytes=1e9, store_bytes=3e7, load_sectors=3e7, store_sectors=1e6, atomics=0, flops=3e10,
        vector_flops=0, memory_operations=1e5, tensor_bytes=5 * 10**7,
    )  # fmt: skip
    measured = {
        "registers": 128, "spill_bytes": 0, "shared_bytes": 32768, "num_warps": 4, "num_stages": 3, "num_ctas": 1,
        "access_widths": {"cp16": 12}, "async_copies": 12, "tensor_copies": 0, "wgmma": 0, "mma_sync": 2, "atomics": 0,
    }  # fmt: skip

    def matrix(work, **changes):
        return estimate_seconds(work, measured | changes, H100)["matrix"]

    assert matrix(work, wgmma=2) == matrix(work)
    by_hand = replace(work, vector_flops=work.flops)
    assert matrix(by_hand, wgmma=2, mma_sync=0) == matrix(work, mma_sync=0) > 5 * matrix(work)


def test_a_pipeline_is_as_deep_as_its_code_waits():
    text = "cp.async.wait_group 2;\n cp.async.wait_group 0;\n"
    assert [pipeline_stages(asked, text) for asked in (2, 4, 1000)] == [2, 4, 4]
    assert [pipeline_stages(asked, "") for asked in (3, 1000)] == [3, MOST_STAGES]


def test_loads_that_may_not_be_cached_are_loads():
    text = "ld.volatile.global.v4.b32 {a}, [b];\n st.relaxed.gpu.global.b32 [c], d;\n ld.param.b64 e, [f];"
    widths = count_instructions(text)
    assert widths["access_widths"] == {"ld16": 1, "st4": 1}

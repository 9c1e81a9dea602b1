"""What is concluded from sampled programs of the scored shape, on reports written by hand."""

import pytest

from kernel_search.judge.findings import (
    Rejected,
    check_compiled,
    check_dead_launches,
    check_work,
    final_launch,
    launch_work,
)
from kernel_search.tasks import MATMUL


def report(*launches, output="buffer0", **traffic):
    """A report of launches given as (loads, stores, updates, stopped), each with one sampled program of two."""
    counts = dict.fromkeys(
        ("load_bytes", "store_bytes", "load_sectors", "store_sectors", "atomics", "flops", "operations"), 0
    )
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

"""Turns what the interpreter reported into findings: which shapes are right, what was covered, what was moved."""

from typing import Any

import numpy as np

from kernel_search.judge import compare, plan
from kernel_search.judge.estimate import LaunchWork
from kernel_search.tasks import KernelTask

COVERAGE_SLACK = 0.02  # of the output, when all sampled programs store equally much (the grid's edge may store less)
UNEVEN_COVERAGE_SLACK = 0.15  # when they do not; a ratio above two is never judged on a small sample
MOST_COVERAGE = (
    1.5  # above 1 when the last programs store less than those sampled; far above, elements are stored twice
)
WIDE_SAMPLE = 64  # programs to sample when their work differs, fewer when each is long
WIDE_OPERATIONS = 2500
INPUT_SLACK = 0.05


class Rejected(Exception):
    """The candidate failed a check: failure class, the check's name, one line of evidence."""

    def __init__(self, failure_class: str, check: str, message: str):
        super().__init__(message)
        self.failure_class = failure_class
        self.check = check


def check_small_cases(task: KernelTask, seed: int, report: dict[str, Any]) -> None:
    """Compare every finished small case.

    Raises:
        Rejected: wrong_values; shape_specialised when plain inputs come out right at one shape and wrong at another.
    """
    wrong: list[str] = []
    plain: dict[bool, list[str]] = {True: [], False: []}
    for number, (case, result) in enumerate(zip(task.cases, report["cases"], strict=False)):
        comparison = _compare_case(task, compare.case_specs(task, case, seed + 1000 * number), result)
        shape = "x".join(map(str, case.shape))
        if case.regime == "normal":
            plain[comparison.is_right].append(shape)
        if not comparison.is_right:
            wrong.append(f"shape {shape}, {case.regime} inputs: {_describe(comparison, result)}")
    if wrong:
        is_special = bool(plain[True] and plain[False])
        raise Rejected("shape_specialised" if is_special else "wrong_values", "values", wrong[0])
    again = report.get("again")
    if again is not None and not again.get("uses_atomics"):
        first, second = np.asarray(report["cases"][0]["values"]), np.asarray(again["values"])
        if first.tobytes() != second.tobytes():
            raise Rejected("contract", "repeatable", "two runs on equal inputs gave different results")


def _compare_case(task: KernelTask, specs: list[dict[str, Any]], result: dict[str, Any]) -> compare.Comparison:
    reference, allowed = compare.reference_for_case(task, specs)
    comparison = compare.compare(np.asarray(result["values"]), reference, allowed)
    if result["unstored"] and comparison.is_right:
        return compare.Comparison(False, comparison.worst_ratio, result["unstored"], comparison.elements)
    return comparison


def _describe(comparison: compare.Comparison, result: dict[str, Any]) -> str:
    if result["unstored"]:
        return f"{result['unstored']} of {comparison.elements} output elements were stored by no kernel"
    return comparison.describe()


def check_reduced(task: KernelTask, seed: int, report: dict[str, Any]) -> None:
    """Compare the whole grid of the scored problem with fewer rows.

    Raises:
        Rejected: shape_specialised, since the small cases were right.
    """
    if report.get("reduced") is None:
        return
    comparison = _compare_case(task, plan.reduced_case(task, seed)["inputs"], report["reduced"])
    if not comparison.is_right:
        shape = "x".join(map(str, task.reduced_shape))
        raise Rejected(
            "shape_specialised", "scored_shape", f"shape {shape}: {_describe(comparison, report['reduced'])}"
        )


def check_launches(recorded: list[dict[str, Any]], interpreted: list[dict[str, Any]]) -> None:
    """Recording and interpreting must have seen the same launches.

    Raises:
        Rejected: They differ: the candidate behaves according to who is watching.
    """
    plain = [{key: value for key, value in launch.items() if key != "specialisation"} for launch in recorded]
    if plain != interpreted:
        raise Rejected(
            "contract", "same_launches", f"{len(plain)} launches recorded, {len(interpreted)} other ones interpreted"
        )


def check_scored(task: KernelTask, offsets: list[int], scored: dict[str, Any]) -> bool:
    """Compare sampled programs of the scored launch, and show that the grid covers the output.

    Returns:
        Whether more programs must be sampled to tell.

    Raises:
        Rejected: Wrong values, programs that overlap, or part of the output left out.
    """
    launches = scored["launches"]
    if len(launches) > 1 or scored["uses_atomics"]:
        return False  # a sample of programs cannot give final values; the whole grid at fewer rows was compared
    if scored["overlap"]:
        raise Rejected(
            "race", "scored_shape", f"{scored['overlap']} output elements are stored by more than one sampled program"
        )
    for comparison in compare.compare_scored(task, task.scored_shape, offsets, scored["programs"]):
        if not comparison.is_right:
            raise Rejected("shape_specialised", "scored_shape", f"scored shape: {comparison.describe()}")
    programs = int(np.prod(launches[0]["grid"]))
    sampled = len(scored["traffic"][0])
    stored = [program["stored"] for program in scored["programs"]] + [0] * (sampled - len(scored["programs"]))
    if not any(stored):
        what = "hang" if scored["stopped_programs"] else "shape_specialised"
        raise Rejected(what, "scored_shape", f"{sampled} sampled programs of the scored shape stored nothing")
    if scored["stopped_programs"]:
        return False
    elements = int(np.prod(task.output_shape(task.scored_shape)))
    coverage = sum(stored) / sampled * programs / elements
    is_doubtful = max(stored) > 2 * min(stored) or not 1 - COVERAGE_SLACK <= coverage <= MOST_COVERAGE
    if is_doubtful and sampled < min(programs, wide_sample(scored)):
        return True
    least = 1 - (COVERAGE_SLACK if max(stored) == min(stored) else UNEVEN_COVERAGE_SLACK)
    if not least <= coverage <= MOST_COVERAGE:
        raise Rejected("shape_specialised", "coverage", f"the grid stores {coverage:.1%} of the scored output")
    return False


def wide_sample(scored: dict[str, Any]) -> int:
    """How many programs a second, larger sample has."""
    longest = max(int(one["operations"]) for one in scored["traffic"][0])
    return max(8, min(WIDE_SAMPLE, WIDE_OPERATIONS // max(longest, 1)))


def launch_work(task: KernelTask, scored: dict[str, Any]) -> list[LaunchWork]:
    """What each launch moves in total, scaled from the sampled programs."""
    works = []
    for launch, programs_of, tensor_bytes in zip(
        scored["launches"], scored["traffic"], scored["tensor_bytes"], strict=True
    ):
        programs = int(np.prod(launch["grid"]))
        scale = programs / len(programs_of)
        if scored["stopped_programs"] and len(scored["launches"]) == 1:
            stored = sum(program["stored"] for program in scored["programs"]) * scale
            scale *= max(1.0, float(np.prod(task.output_shape(task.scored_shape))) / max(stored, 1.0))
        total = {
            name: scale * sum(one[name] for one in programs_of)
            for name in ("load_bytes", "store_bytes", "load_sectors", "store_sectors", "atomics", "flops", "operations")
        }
        operations = total.pop("operations")
        works.append(LaunchWork(programs=programs, memory_operations=operations, tensor_bytes=tensor_bytes, **total))
    return works


def check_work(task: KernelTask, works: list[LaunchWork]) -> None:
    """The launches must read all inputs and write all of the output.

    Raises:
        Rejected: implausible, since they moved less than the task's own bytes.
    """
    loaded = sum(work.load_bytes for work in works)
    stored = sum(work.store_bytes for work in works) + sum(work.atomics for work in works) * task.itemsize
    if loaded < (1 - INPUT_SLACK) * task.input_bytes:
        raise Rejected("implausible", "traffic", f"reads {loaded:.0f} bytes; the inputs are {task.input_bytes}")
    if stored < (1 - INPUT_SLACK) * task.output_bytes:
        raise Rejected("implausible", "traffic", f"writes {stored:.0f} bytes; the output is {task.output_bytes}")

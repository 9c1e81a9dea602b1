"""Turns what the interpreter reported into findings: which shapes are right, what was covered, what was moved."""

from dataclasses import replace
from typing import Any

import numpy as np

from kernel_search.judge import compare, plan
from kernel_search.judge.estimate import COUNTED, LaunchWork
from kernel_search.tasks import KernelTask

UNEVEN_COVERAGE_SLACK = 0.15  # of the output; programs whose work differs twofold are never judged on a small sample
MOST_COVERAGE = (
    1.5  # above 1 when the last programs store less than those sampled; far above, elements are stored twice
)
WIDE_SAMPLE = 64  # programs to sample when their work differs, fewer when each is long
WIDE_OPERATIONS = 2500
INPUT_SLACK = 0.05


class Rejected(Exception):
    """The candidate failed a check: failure class, the check's name, one line of evidence."""

    def __init__(self, failure_class: str, check: str, message: str):
        super().__init__(message.encode("utf-8", "backslashreplace").decode())  # what a candidate raised may be no text
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


def check_compiled(measured: list[dict[str, Any]], scored: dict[str, Any]) -> None:
    """What the interpreter saw a launch do must be in its compiled code too.

    Raises:
        Rejected: contract, since the kernel tells interpreting from compiling.
    """
    for number, (one, touched) in enumerate(zip(measured, scored["touched"], strict=True), start=1):
        kinds = {name[:2] for name in one["access_widths"]}
        has = {
            "loads": bool(kinds & {"ld", "cp"} or one["tensor_copies"]),
            "stores": bool("st" in kinds or one["tensor_copies"]),
            "updates": bool(one["atomics"]),
        }
        for what, is_compiled in has.items():
            if touched[what] and not is_compiled:
                raise Rejected(
                    "contract", "same_launches", f"launch {number} {what} memory, its compiled code does not"
                )


def check_scored(task: KernelTask, case: dict[str, Any], scored: dict[str, Any]) -> str | None:
    """Compare sampled programs of the scored launch, and show that the grid covers the output.

    Args:
        task: What was asked.
        case: The request that `scored` answers: its offsets, and how far its programs ran.
        scored: What was reported.

    Returns:
        `longer` when programs must run on to tell, `wider` when more of them must, None when it is told.

    Raises:
        Rejected: Wrong values, programs that overlap or never end, or part of the output left out.
    """
    check_dead_launches(scored)
    launch = final_launch(scored)
    if launch is None:
        return None  # a sample of programs cannot give final values; the whole grid at fewer rows was compared
    found = [program for program in scored["programs"] if program["launch"] == launch]
    if scored["overlap"][launch]:
        raise Rejected(
            "race",
            "scored_shape",
            f"{scored['overlap'][launch]} output elements are stored by more than one sampled program",
        )
    for comparison in compare.compare_scored(task, task.scored_shape, case["offsets"], found):
        if not comparison.is_right:
            raise Rejected("shape_specialised", "scored_shape", f"scored shape: {comparison.describe()}")
    if scored["touched"][launch]["stopped"]:
        if case["is_long"]:
            message = f"programs still run after {case['operation_limit']} loads and stores, each of a block"
            raise Rejected("hang", "scored_shape", message)
        return "longer"
    programs = int(np.prod(scored["launches"][launch]["grid"]))
    sampled = len(scored["traffic"][launch])
    stored = [program["stored"] for program in found] + [0] * (sampled - len(found))
    if not any(stored):
        message = f"{sampled} sampled programs of the scored shape stored nothing"
        raise Rejected("shape_specialised", "scored_shape", message)
    elements = int(np.prod(task.output_shape(task.scored_shape)))
    coverage = sum(stored) / sampled * programs / elements
    # Every program storing as much as the busiest must be enough; where work is uneven, the first one is the busiest.
    is_short = max(stored) * programs < elements
    is_doubtful = is_short or max(stored) > 2 * min(stored) or coverage > MOST_COVERAGE
    if is_doubtful and sampled < min(programs, wide_sample(scored)):
        return "wider"
    if is_short or not 1 - UNEVEN_COVERAGE_SLACK <= coverage <= MOST_COVERAGE:
        raise Rejected("shape_specialised", "coverage", f"the grid stores {coverage:.1%} of the scored output")
    return None


def check_dead_launches(scored: dict[str, Any]) -> None:
    """Every launch must store something that is the output, or that a later launch reads.

    Raises:
        Rejected: contract, since a launch that nothing follows from only disturbs what is observed.
    """
    needed = {scored["output_role"]}
    for number in reversed(range(len(scored["touched"]))):
        touched = scored["touched"][number]
        if not touched["stopped"] and not needed & {*touched["stores"], *touched["updates"]}:
            raise Rejected("contract", "scored_shape", f"launch {number + 1} stores nothing that the output needs")
        needed |= {*touched["loads"], *touched["updates"]}


def final_launch(scored: dict[str, Any]) -> int | None:
    """The one launch whose sampled programs give final values: it alone stores the output, from inputs alone."""
    output = scored["output_role"]
    made = {role for one in scored["touched"] for role in (*one["stores"], *one["updates"])}
    storing = [number for number, one in enumerate(scored["touched"]) if output in one["stores"]]
    is_updated = any(output in one["updates"] for one in scored["touched"])
    if len(storing) != 1 or is_updated or made & set(scored["touched"][storing[0]]["loads"]):
        return None
    return storing[0]


def wide_sample(scored: dict[str, Any]) -> int:
    """How many programs a second, larger sample has."""
    longest = max(int(one["operations"]) for programs in scored["traffic"] for one in programs)
    return max(8, min(WIDE_SAMPLE, WIDE_OPERATIONS // max(longest, 1)))


def launch_work(task: KernelTask, scored: dict[str, Any]) -> list[LaunchWork]:
    """What each launch moves in total, scaled from the sampled programs."""
    works = []
    for number, (launch, programs_of, tensor_bytes) in enumerate(
        zip(scored["launches"], scored["traffic"], scored["tensor_bytes"], strict=True)
    ):
        programs = int(np.prod(launch["grid"]))
        scale = programs / len(programs_of)
        if scored["touched"][number]["stopped"]:
            raise Rejected(
                "hang", "traffic", f"programs of launch {number + 1} are too long to tell what they move in all"
            )
        total = {name: scale * sum(one[name] for one in programs_of) for name in COUNTED}
        operations = total.pop("operations")
        works.append(LaunchWork(programs=programs, memory_operations=operations, tensor_bytes=tensor_bytes, **total))
    if task.flops is not None and not any(work.flops for work in works):
        # Multiplied and added without a dot, which nothing counts: it costs the task's operations all the same.
        asked = float(task.flops(task.scored_shape))
        works[-1] = replace(works[-1], flops=asked, vector_flops=asked)
    return works


def check_work(task: KernelTask, works: list[LaunchWork]) -> None:
    """The launches must read all inputs, write all of the output and, where they count, do all operations.

    Raises:
        Rejected: implausible, since they moved or computed less than the task asks for.
    """
    loaded = sum(work.load_bytes for work in works)
    stored = sum(work.store_bytes for work in works) + sum(work.atomics for work in works) * task.itemsize
    if loaded < (1 - INPUT_SLACK) * task.input_bytes:
        raise Rejected("implausible", "traffic", f"reads {loaded:.0f} bytes; the inputs are {task.input_bytes}")
    if stored < (1 - INPUT_SLACK) * task.output_bytes:
        raise Rejected("implausible", "traffic", f"writes {stored:.0f} bytes; the output is {task.output_bytes}")
    asked = task.flops(task.scored_shape) if task.flops else 0
    done = sum(work.flops for work in works)
    if done < (1 - INPUT_SLACK) * asked:
        raise Rejected("implausible", "traffic", f"does {done:.0f} operations; the task takes {asked}")

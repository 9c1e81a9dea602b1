"""What the judge asks of its servers for one candidate: input specs, shapes, limits. Pure; nothing runs here."""

import hashlib
from typing import Any

from kernel_search.judge import compare, inputs, paths
from kernel_search.judge.settings import JudgeSettings
from kernel_search.tasks import Case, KernelTask

LONG_SAMPLE = 3  # programs that are run to their ends, the first among them, where none of the sampled ones came there
LONG_OPERATIONS = 18_000  # and how far they are followed; half of it where dots are interpreted, at 0.7 ms each
LONG_CPU_FACTOR = 4


def candidate_seed(source: str, task: KernelTask, seed: int) -> int:
    """The seed that a candidate's inputs, samples and orders are drawn from: fresh per candidate, equal on a rerun."""
    digest = hashlib.sha256(f"{task.task_id}\0{seed}\0{source}".encode("utf-8", "backslashreplace")).digest()
    return int.from_bytes(digest[:6], "big")


def small_cases(task: KernelTask, seed: int) -> list[dict[str, Any]]:
    """The task's small cases with their input specs."""
    return [
        {
            "inputs": compare.case_specs(task, case, seed + 1000 * number),
            "output_shape": list(task.output_shape(case.shape)),
        }
        for number, case in enumerate(task.cases)
    ]


def reduced_case(task: KernelTask, seed: int) -> dict[str, Any]:
    """The scored problem with fewer rows: small enough to run every program of its launch."""
    case = Case(task.reduced_shape, "normal")
    return {"inputs": compare.case_specs(task, case, seed + 77), "output_shape": list(task.output_shape(case.shape))}


def scored_case(
    task: KernelTask, seed: int, settings: JudgeSettings, *, sampled: int, is_long: bool = False
) -> dict[str, Any]:
    """The scored problem, of which a sample of programs runs: at first not far, `is_long` to their ends."""
    long_limit = LONG_OPERATIONS if task.flops is None else LONG_OPERATIONS // 2
    shapes = task.input_shapes(task.scored_shape)
    return {
        "input_shapes": [list(shape) for shape in shapes],
        "output_shape": list(task.output_shape(task.scored_shape)),
        "dtype": task.dtype,
        "regime": task.scored_regime,
        "offsets": inputs.draw_offsets(len(shapes), seed),
        "sampled": sampled,
        "is_long": is_long,
        "operation_limit": long_limit if is_long else settings.memory_operations_per_program,
    }


def interpret_body(source: str, task: KernelTask, seed: int, settings: JudgeSettings) -> dict[str, Any]:
    """The request that runs a candidate in the interpreter."""
    sampled = settings.sampled_programs if task.flops is None else max(2, settings.sampled_programs // 2)
    return {
        "source": source,
        "target": settings.target,
        "dtype": task.dtype,
        "seed": seed,
        "cases": small_cases(task, seed),
        "scored": scored_case(task, seed, settings, sampled=sampled),
        "reduced": reduced_case(task, seed),
        "reduced_always": task.flops is None,
    }


def record_body(source: str, task: KernelTask, settings: JudgeSettings) -> dict[str, Any]:
    """The request that records a candidate's launches at the scored shape."""
    return {
        "source": source,
        "target": settings.target,
        "dtype": task.dtype,
        "input_shapes": [list(shape) for shape in task.input_shapes(task.scored_shape)],
        "output_shape": list(task.output_shape(task.scored_shape)),
    }


def cpu_seconds(settings: JudgeSettings, kind: str, body: dict[str, Any]) -> int:
    """How long one child may compute."""
    if kind != "interpret":
        return settings.compile_cpu_seconds
    is_long = (body.get("scored") or {}).get("is_long", False)
    return settings.interpret_cpu_seconds * (LONG_CPU_FACTOR if is_long else 1)


def limits(settings: JudgeSettings, kind: str, body: dict[str, Any], *, drop_user: bool = True) -> dict[str, Any]:
    """Limits of one child; only a child that compiles may start programs, and only the compiler's."""
    return {
        "cpu_seconds": cpu_seconds(settings, kind, body),
        "wall_seconds": settings.wall_seconds,
        "memory_mib": settings.memory_mib,
        "file_mib": settings.file_mib,
        "result_mib": settings.result_mib,
        "drop_user": drop_user,
        "may_execute": paths.compiler_tools() if kind == "compile_launch" else [],
    }


def patterns(tasks: list[KernelTask]) -> list[dict[str, Any]]:
    """The repeated patterns that the interpret server must hold, each as long as its largest input needs."""
    longest: dict[tuple[str, str], int] = {}
    for task in tasks:
        key = (task.scored_regime, task.dtype)
        longest[key] = max(longest.get(key, 0), inputs.pattern_elements(task.input_shapes(task.scored_shape)))
    return [{"regime": regime, "dtype": dtype, "elements": count} for (regime, dtype), count in longest.items()]

"""The trusted side of correctness: makes the inputs again, computes the float64 reference, compares."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kernel_search.judge import inputs
from kernel_search.tasks import Case, KernelTask, Shape


@dataclass(frozen=True)
class Comparison:
    """How far an output is from the reference, in units of the tolerance: right up to 1."""

    is_right: bool
    worst_ratio: float
    wrong_elements: int
    elements: int

    def describe(self) -> str:
        """One line of evidence."""
        worst = (
            "not finite" if math.isinf(self.worst_ratio) else f"worst error {self.worst_ratio:.3g} times the tolerance"
        )
        return f"{self.wrong_elements} of {self.elements} elements are wrong, {worst}"


def case_specs(task: KernelTask, case: Case, seed: int) -> list[dict[str, Any]]:
    """The input specs of one small case, as the child gets them."""
    return [
        {"shape": list(shape), "dtype": task.dtype, "regime": case.regime, "seed": seed + number}
        for number, shape in enumerate(task.input_shapes(case.shape))
    ]


def reference_for_case(task: KernelTask, specs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Float64 reference and allowed error of a small case."""
    made = [
        inputs.make_input(inputs.InputSpec(tuple(spec["shape"]), spec["dtype"], spec["regime"], spec["seed"]))
        for spec in specs
    ]
    return reference_and_tolerance(task, made)


def reference_and_tolerance(task: KernelTask, arrays: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Float64 reference and, per element, the error that is allowed."""
    import torch

    tensors = [torch.from_numpy(array.astype(np.float64)) for array in arrays]
    reference = task.reference(tensors).numpy()
    allowed = task.atol + task.rtol * np.abs(reference)
    if task.rounding_scale is not None:
        allowed = allowed + task.scale_tol * task.rounding_scale(tensors).numpy()
    return reference, allowed


def compare(values: np.ndarray, reference: np.ndarray, allowed: np.ndarray) -> Comparison:
    """Compare element by element; anything that is not finite is wrong."""
    with np.errstate(all="ignore"):
        errors = np.abs(values.astype(np.float64) - reference)
        ratios = np.where(np.isfinite(errors), errors / allowed, np.inf)
    wrong = int(np.count_nonzero(~(ratios <= 1)))
    return Comparison(wrong == 0, float(ratios.max(initial=0.0)), wrong, int(ratios.size))


@lru_cache(maxsize=8)
def _pattern(regime: str, dtype: str) -> np.ndarray:
    return inputs.pattern(regime, dtype)


def compare_scored(
    task: KernelTask, shape: Shape, offsets: list[int], programs: list[dict[str, Any]]
) -> list[Comparison]:
    """Compare what sampled programs of the scored launch stored; one result per program that stored anything."""
    pattern = _pattern(task.scored_regime, task.dtype)
    results = []
    for program in programs:
        positions = np.asarray(program["positions"], dtype=np.int64)
        if not positions.size:
            continue
        needed, where = task.restrict(shape, positions)
        arrays = [pattern[(flat + offset) % inputs.PERIOD] for flat, offset in zip(needed, offsets, strict=True)]
        reference, allowed = reference_and_tolerance(task, arrays)
        results.append(compare(program["values"], reference.ravel()[where], allowed.ravel()[where]))
    return results

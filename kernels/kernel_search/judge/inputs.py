"""Inputs of a candidate's run, made from (shape, type, regime, seed): equal on both sides of the sandbox.

Small cases are drawn whole. The scored shape is too large to draw anew for every candidate, so its inputs are windows
into one repeated pattern: element i of an input is pattern[(offset + i) mod PERIOD], the offset drawn per candidate.
The trusted side can then look up any element without holding the tensor.
"""

import math
from dataclasses import dataclass

import numpy as np

PERIOD = 1_048_583  # prime, so that rows of any width fall differently into the pattern
PATTERN_SEED = 20_260
SEGMENT = 32_768  # elements of one regime in the mixed pattern: eight rows of 4096
OFFSET_STEP = 256  # elements; keeps every window aligned to 512 bytes
MAX_OFFSET = 4096 * OFFSET_STEP


@dataclass(frozen=True)
class InputSpec:
    """How to make one input tensor of a small case."""

    shape: tuple[int, ...]
    dtype: str
    regime: str
    seed: int


def make_input(spec: InputSpec) -> np.ndarray:
    """Draw one small input.

    Regimes: `normal` N(0, 1); `large` N(200, 30), where exp overflows; `very_negative` N(-500, 30), where exp without
    a shift is 0 everywhere; `near_zero` N(0, 1e-3), where an epsilon counts; `rescaled` N(0, 1) times a factor between
    1/8 and 8; `constant` one value; `mixed` another regime in every row. Half precision takes milder forms.
    """
    rng = np.random.Generator(np.random.SFC64(spec.seed))
    values = rng.standard_normal(spec.shape, dtype=np.float32)
    if spec.regime == "mixed" and values.ndim == 2:
        for row, kind in zip(values, rng.permutation(np.arange(values.shape[0]) % 5), strict=True):
            row[...] = _apply(("normal", "large", "very_negative", "near_zero", "rescaled")[kind], row, rng, spec.dtype)
    else:
        values = _apply(spec.regime, values, rng, spec.dtype)
    return values.astype(spec.dtype)


def _apply(regime: str, values: np.ndarray, rng: np.random.Generator, dtype: str) -> np.ndarray:
    is_half = dtype == "float16"
    if regime == "large":
        return values * 4 + 8 if is_half else values * 30 + 200
    if regime == "very_negative":
        return values - 8 if is_half else values * 30 - 500
    if regime == "near_zero":
        return values * np.float32(0.05 if is_half else 1e-3)
    if regime == "rescaled":
        return values * np.float32(2.0 ** rng.uniform(-3, 3))
    if regime == "constant":
        return np.full_like(values, np.float32(rng.uniform(0.5, 2)))
    return values


def pattern(regime: str, dtype: str) -> np.ndarray:
    """The repeated pattern, (PERIOD,); `mixed` holds segments of five regimes, anything else is N(0, 1)."""
    rng = np.random.Generator(np.random.SFC64(PATTERN_SEED))
    values = rng.standard_normal(PERIOD, dtype=np.float32)
    if regime == "mixed":
        kinds = ("normal", "rescaled", "large", "very_negative", "near_zero")
        for number, start in enumerate(range(0, PERIOD, SEGMENT)):
            part = values[start : start + SEGMENT]
            part[...] = _apply(kinds[number % len(kinds)], part, rng, dtype)
    return values.astype(dtype)


def pattern_elements(shapes: list[tuple[int, ...]]) -> int:
    """Elements that a tiled pattern must have so that a window of any of the shapes fits at any offset."""
    return max(math.prod(shape) for shape in shapes) + MAX_OFFSET


def draw_offsets(count: int, seed: int) -> list[int]:
    """One window offset per input, in elements, drawn from the seed."""
    rng = np.random.Generator(np.random.SFC64(seed))
    return [int(step) * OFFSET_STEP for step in rng.integers(0, MAX_OFFSET // OFFSET_STEP, size=count)]

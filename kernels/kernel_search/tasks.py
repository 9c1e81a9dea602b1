"""The kernel tasks: what is asked, at which shapes, on which inputs, and what counts as right.

A task is a value. Its float64 reference runs on the trusted side only: the sandboxed child that runs a candidate gets
shapes, input regimes and seeds, never a reference or an expected value.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from kernel_search.rewards import kernel_rewards
from store.errors import UnknownName
from store.ids import stable_id

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]
SEEDS = Path(__file__).parent / "seeds"
TARGET_NAME = "sm90"


@dataclass(frozen=True)
class Case:
    """One small run of a candidate: a shape of the task's domain and the regime of its inputs."""

    shape: Shape
    regime: str


@dataclass(frozen=True)
class KernelTask:
    """One kernel to write, and how an answer is checked.

    `input_shapes` and `output_shape` turn a problem shape into tensor shapes. `reference` maps float64 inputs to the
    float64 result. `restrict` maps (problem shape, flat output positions) to the flat positions of each input that
    those outputs need, shaped as a smaller problem, and to where the outputs stand in the smaller problem's result:
    so a few programs of a large launch can be compared without the whole reference. `rounding_scale` gives, per
    output element, the sum of magnitudes that rounding errors grow with; an element is right when
    |out - ref| <= atol + rtol * |ref| + scale_tol * rounding_scale.
    """

    name: str
    specification: str
    signature: str
    scored_shape: Shape
    cases: tuple[Case, ...]
    reduced_shape: Shape
    dtype: str
    input_shapes: Callable[[Shape], list[Shape]]
    output_shape: Callable[[Shape], Shape]
    reference: "Callable[[list[torch.Tensor]], torch.Tensor]"
    restrict: Callable[[Shape, np.ndarray], tuple[list[np.ndarray], np.ndarray]]
    rtol: float
    atol: float
    tolerance_reason: str
    rounding_scale: "Callable[[list[torch.Tensor]], torch.Tensor] | None" = None
    scale_tol: float = 0.0
    flops: Callable[[Shape], int] | None = None
    scored_regime: str = "mixed"

    @cached_property
    def task_id(self) -> str:
        """Stable id: a task at another scored shape, type or target is another task."""
        return stable_id(
            "t", "kernel_search", self.name, "x".join(map(str, self.scored_shape)), self.dtype, TARGET_NAME
        )

    @property
    def head(self) -> str:
        """First line of every prompt, such as `task softmax shape 8192x4096 sm90`."""
        return f"task {self.name} shape {'x'.join(map(str, self.scored_shape))} {TARGET_NAME}"

    @property
    def seed_path(self) -> Path:
        """The file that the search starts from."""
        return SEEDS / f"{self.name}.py"

    @cached_property
    def seed_source(self) -> str:
        """Text of the starting kernel; its estimate is the baseline."""
        return self.seed_path.read_text(encoding="utf-8")

    @property
    def failure_reward(self) -> float:
        """What an attempt earns that fails by its own fault: the kernels' rule of conf/rewards.yaml."""
        return kernel_rewards().failure_reward

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return np.dtype(self.dtype).itemsize

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs at the scored shape: every one of them must be read."""
        return sum(math.prod(shape) for shape in self.input_shapes(self.scored_shape)) * self.itemsize

    @property
    def output_bytes(self) -> int:
        """Bytes of the output at the scored shape: every one of them must be written."""
        return math.prod(self.output_shape(self.scored_shape)) * self.itemsize


def _add_reference(inputs: "list[torch.Tensor]") -> "torch.Tensor":
    x, y = inputs
    return x + y


def _add_restrict(shape: Shape, positions: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    return [positions, positions], np.arange(positions.size)


def _softmax_reference(inputs: "list[torch.Tensor]") -> "torch.Tensor":
    import torch

    return torch.softmax(inputs[0], dim=-1)


def _rows_of(width: int, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Flat positions of the whole rows that hold `positions`, (R, width), and where each stands among them."""
    rows, row_index = np.unique(positions // width, return_inverse=True)
    return rows[:, None] * width + np.arange(width), row_index * width + positions % width


def _softmax_restrict(shape: Shape, positions: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    rows, where = _rows_of(shape[1], positions)
    return [rows], where


def _rms_norm_reference(inputs: "list[torch.Tensor]") -> "torch.Tensor":
    import torch

    x, w = inputs
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-6) * w


def _rms_norm_restrict(shape: Shape, positions: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    rows, where = _rows_of(shape[1], positions)
    return [rows, np.arange(shape[1])], where


def _matmul_reference(inputs: "list[torch.Tensor]") -> "torch.Tensor":
    a, b = inputs
    return a @ b


def _matmul_restrict(shape: Shape, positions: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    _, n, k = shape
    rows, row_index = np.unique(positions // n, return_inverse=True)
    cols, col_index = np.unique(positions % n, return_inverse=True)
    a_positions = rows[:, None] * k + np.arange(k)
    b_positions = np.arange(k)[:, None] * n + cols
    return [a_positions, b_positions], row_index * cols.size + col_index


def _matmul_rounding_scale(inputs: "list[torch.Tensor]") -> "torch.Tensor":
    a, b = inputs
    return a.abs() @ b.abs()


VECTOR_ADD = KernelTask(
    name="vector_add",
    specification="out = x + y for float32 vectors of equal length n, 1 <= n <= 16777216, contiguous.",
    signature="run(x, y) -> out; x, y, out (n,) float32",
    scored_shape=(16_777_216,),
    cases=(
        Case((1500,), "normal"),
        Case((3001,), "normal"),
        Case((1500,), "large"),
        Case((700,), "rescaled"),
        Case((1,), "constant"),
        Case((700,), "very_negative"),
        Case((700,), "near_zero"),
    ),
    reduced_shape=(2048,),
    dtype="float32",
    input_shapes=lambda shape: [shape, shape],
    output_shape=lambda shape: shape,
    reference=_add_reference,
    restrict=_add_restrict,
    rtol=1e-6,
    atol=1e-12,
    tolerance_reason="float32 addition rounds once: 6e-8 of the result. Half precision is off by 5e-4.",
    flops=None,
)

SOFTMAX = KernelTask(
    name="softmax",
    specification=(
        "out = softmax of x over the last axis, float32, x (M, N) contiguous, 1 <= M <= 8192, 1 <= N <= 4096, "
        "finite values of any size."
    ),
    signature="run(x) -> out; x, out (M, N) float32",
    scored_shape=(8192, 4096),
    cases=(
        Case((3, 781), "normal"),
        Case((4, 781), "mixed"),
        Case((3, 1), "constant"),
        Case((2, 1300), "normal"),
        Case((1, 1300), "very_negative"),
        Case((2, 256), "large"),
        Case((2, 64), "near_zero"),
        Case((1, 300), "constant"),
    ),
    reduced_shape=(2, 4096),
    dtype="float32",
    input_shapes=lambda shape: [shape],
    output_shape=lambda shape: shape,
    reference=_softmax_reference,
    restrict=_softmax_restrict,
    rtol=2e-4,
    atol=1e-9,
    tolerance_reason=(
        "exp of float32 differences and a sum of 4096 terms stay within 2e-5; the values are about 2.4e-4, so the "
        "absolute part must stay far below that or zeros and the mean would pass."
    ),
)

RMS_NORM = KernelTask(
    name="rms_norm",
    specification=(
        "out = x * rsqrt(mean(x^2 over the last axis) + 1e-6) * w, float32, x (M, N) and w (N,) contiguous, "
        "1 <= M <= 8192, 1 <= N <= 4096."
    ),
    signature="run(x, w) -> out; x, out (M, N) float32, w (N,) float32",
    scored_shape=(8192, 4096),
    cases=(
        Case((3, 781), "normal"),
        Case((4, 781), "mixed"),
        Case((3, 1), "rescaled"),
        Case((2, 1300), "normal"),
        Case((1, 1300), "near_zero"),
        Case((2, 256), "large"),
        Case((2, 64), "rescaled"),
        Case((1, 300), "very_negative"),
        Case((1, 300), "constant"),
    ),
    reduced_shape=(2, 4096),
    dtype="float32",
    input_shapes=lambda shape: [shape, (shape[1],)],
    output_shape=lambda shape: shape,
    reference=_rms_norm_reference,
    restrict=_rms_norm_restrict,
    rtol=1e-4,
    atol=1e-9,
    tolerance_reason="a float32 sum of 4096 squares is within 1e-5 in any order; half precision is off by 5e-4.",
)

MATMUL = KernelTask(
    name="matmul",
    specification=(
        "c = a @ b, a (M, K) and b (K, N) contiguous float16, c float16, summed in float32; 1 <= M, N, K <= 4096."
    ),
    signature="run(a, b) -> c; a (M, K), b (K, N), c (M, N) float16",
    scored_shape=(4096, 4096, 1024),
    cases=(
        Case((70, 90, 75), "normal"),
        Case((70, 90, 75), "rescaled"),
        Case((140, 60, 33), "normal"),
        Case((17, 5, 130), "constant"),
        Case((40, 64, 64), "mixed"),
        Case((1, 1, 1), "rescaled"),
    ),
    reduced_shape=(40, 24, 1024),
    dtype="float16",
    input_shapes=lambda shape: [(shape[0], shape[2]), (shape[2], shape[1])],
    output_shape=lambda shape: shape[:2],
    reference=_matmul_reference,
    restrict=_matmul_restrict,
    rtol=6e-4,
    atol=1e-6,
    tolerance_reason=(
        "storing float16 rounds by 4.9e-4 of the result; summing 1024 products in float32 adds at most a few 1e-7 of "
        "sum |a||b|. Summing in float16 rounds every partial sum by 4.9e-4 of itself and misses this many times over."
    ),
    rounding_scale=_matmul_rounding_scale,
    scale_tol=1e-6,
    flops=lambda shape: 2 * shape[0] * shape[1] * shape[2],
    scored_regime="normal",
)

TASKS: Mapping[str, KernelTask] = MappingProxyType(
    {task.name: task for task in (VECTOR_ADD, SOFTMAX, RMS_NORM, MATMUL)}
)


def kernel_task(name: str) -> KernelTask:
    """The task of that name.

    Raises:
        UnknownName: There is none; the message lists those there are.
    """
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownName(f"no kernel task is named {name!r}; there are {', '.join(TASKS)}.") from None

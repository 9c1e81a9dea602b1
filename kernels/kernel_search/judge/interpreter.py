"""Triton's interpreter, made to check: installed once into a server process that does nothing else.

Three kinds of change to triton 3.9's interpreter. *Watching*: every load, store, atomic and dot passes through the
shadow memory. *Corrections* towards what a GPU does: comparisons are int1, maxima let poison through, masked lanes
without `other` hold poison instead of 0, float16 sums round at every step, float32 dots read tf32 by default.
*Speed*: the language is patched once per process and not per call, dots use float32 BLAS; see speed.py for the rest.
"""

import inspect
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as stock

from kernel_search.judge import launches, libdevice, speed
from kernel_search.judge.candidate import CandidateFault
from kernel_search.judge.shadow import Memory, Traffic

POISON_INT = 1 << 20
FIRST_FROM, LAST_FROM = 3, 8  # samples of so many programs have the first, and the last, of the grid in them
HALF_STEP = 16  # products that a matrix instruction adds up before a half-precision accumulator rounds
TF32_HIDDEN = np.uint32(0x1FFF)  # bits of a float32 that a matrix instruction does not look at


class ProgramStopped(BaseException):
    """A sampled program used up its memory operations; no `except Exception` on the way may take it."""


@dataclass
class Execution:
    """What one call of `run` does: which programs run, in which order, and what was seen.

    `sampled` is the number of programs per launch to run, None for all of them; `order_seed` 0 keeps the natural order.
    A program is stopped after `operation_limit` loads and stores; where programs ought to end before it (`is_long`),
    one that does not tells enough, and the launch is over.
    """

    memory: Memory
    roles: launches.Roles
    order_seed: int = 0
    sampled: int | None = None
    operation_limit: int | None = None
    is_long: bool = False
    described: list[dict[str, Any]] = field(default_factory=list)
    tensors: list[list[torch.Tensor]] = field(default_factory=list)
    traffic: list[list[Traffic]] = field(default_factory=list)
    now: Traffic = field(default_factory=Traffic)


CURRENT: list[Execution] = []


def _execution() -> Execution:
    return CURRENT[-1]


def launch(kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> None:
    """Interpret one launch: all programs or a sample, each under the shadow memory."""
    execution = _execution()
    if len(execution.described) >= launches.MAX_LAUNCHES:
        raise CandidateFault("contract", f"more than {launches.MAX_LAUNCHES} launches in one call")
    options, arguments = launches.split_options(kwargs, kernel.arg_names)
    bound = launches.bind(kernel.fn, args, arguments)
    sizes = launches.grid_of(grid, bound)
    constexprs = _constexpr_names(kernel.fn)
    described = launches.describe(kernel.fn, constexprs, bound, sizes, options, execution.roles)
    execution.described.append(described)
    tensors = [(execution.roles.of(value), value) for value in bound.values() if isinstance(value, torch.Tensor)]
    execution.tensors.append([tensor for _, tensor in tensors])
    execution.memory.begin_launch(tensors)
    converted = {name: v if name in constexprs else stock._implicit_cvt(v) for name, v in bound.items()}
    function = kernel.rewrite()
    stock.interpreter_builder.set_grid_dim(*sizes)
    per_program: list[Traffic] = []
    execution.traffic.append(per_program)
    with np.errstate(all="ignore"):
        for number in _programs(sizes, execution, len(execution.described)):
            _, ny, nz = sizes
            stock.interpreter_builder.set_grid_idx(number // (ny * nz), number // nz % ny, number % nz)
            execution.memory.program = number
            execution.now = Traffic()
            try:
                function(**converted)
            except ProgramStopped:
                execution.memory.touched[-1].stopped += 1
            execution.now.finish()
            per_program.append(execution.now)
            if execution.is_long and execution.memory.touched[-1].stopped:
                break


def _programs(sizes: tuple[int, int, int], execution: Execution, salt: int) -> Iterator[int]:
    """Numbers of the programs to run: all of them, in natural or shuffled order, or a sample.

    A sample has neighbours and programs half a grid apart, so that work done twice shows. Where work does not divide
    evenly the first program has the most of it and the last one the least; they are in samples large enough.
    """
    total = sizes[0] * sizes[1] * sizes[2]
    if execution.sampled is None or total <= execution.sampled:
        order = list(range(total))
        if execution.order_seed:
            random.Random(f"{execution.order_seed}/{salt}").shuffle(order)
        yield from order
        return
    rng = random.Random(f"{execution.order_seed}/{salt}/sample")
    chosen: dict[int, None] = {0: None} if execution.sampled >= FIRST_FROM else {}
    if execution.sampled >= LAST_FROM:
        chosen[total - 1] = None
    while len(chosen) < execution.sampled:
        first = rng.randrange(total)
        for partner in (first, first + total // 2, first ^ 1, (first ^ 1) + total // 2):
            if len(chosen) < execution.sampled:
                chosen[partner % total] = None
    yield from chosen


def _constexpr_names(function: Any) -> set[str]:
    annotations = inspect.get_annotations(function)
    return {name for name, kind in annotations.items() if kind in (tl.constexpr, "tl.constexpr", "constexpr")}


def _flat_active(pointers: Any, mask: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Addresses of active lanes, and the lanes' mask where not all are active."""
    addresses = np.asarray(pointers.data)
    if mask is None:
        return addresses.ravel(), None
    lanes = np.broadcast_to(np.asarray(mask.data), addresses.shape)
    return (addresses.ravel(), None) if lanes.all() else (addresses[lanes], lanes)


def _element_size(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _count_operation(execution: Execution) -> None:
    execution.now.operations += 1
    if execution.operation_limit is not None and execution.now.operations > execution.operation_limit:
        raise ProgramStopped


def _watch_memory(builder: Any) -> None:
    stock_load, stock_store = builder.create_masked_load, builder.create_masked_store
    stock_rmw, stock_cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        execution = _execution()
        _count_operation(execution)
        active, lanes = _flat_active(pointers, mask)
        if active.size:
            size = _element_size(pointers)
            execution.memory.load(active, size)
            execution.now.add_access("load", active, size)
        if other is None and lanes is not None:
            other = _poison(pointers)
        return stock_load(self, pointers, mask, other, *rest, **named)

    def store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        execution = _execution()
        _count_operation(execution)
        active, lanes = _flat_active(pointers, mask)
        if active.size:
            size = _element_size(pointers)
            values = np.broadcast_to(np.asarray(value.data), np.shape(pointers.data))
            execution.memory.store(active, size, values.ravel() if lanes is None else values[lanes])
            execution.now.add_access("store", active, size)
        return stock_store(self, pointers, value, mask, *rest, **named)

    def atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        execution = _execution()
        _count_operation(execution)
        active, _ = _flat_active(pointers, mask)
        if active.size:
            execution.memory.atomic(active, _element_size(pointers), operation.name.lower())
            execution.now.atomics += active.size
        return stock_rmw(self, operation, pointers, value, mask, *rest, **named)

    def atomic_cas(self: Any, pointers: Any, *rest: Any, **named: Any) -> Any:
        execution = _execution()
        _count_operation(execution)
        active, _ = _flat_active(pointers, None)
        execution.memory.atomic(active, _element_size(pointers), "cas")
        execution.now.atomics += active.size
        return stock_cas(self, pointers, *rest, **named)

    builder.create_masked_load, builder.create_masked_store = load, store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas


def _poison(pointers: Any) -> Any:
    """What a lane holds that was masked off without `other`: undefined on a GPU, so NaN or a wild number here."""
    kind = pointers.get_element_ty()
    dtype = stock._get_np_dtype(kind)
    fill = np.nan if dtype.kind == "f" else True if dtype.kind == "b" else min(POISON_INT, np.iinfo(dtype).max)
    return stock.TensorHandle(np.full(np.shape(pointers.data), fill, dtype=dtype), kind)


def _correct_arithmetic(builder: Any) -> None:
    stock_binary = builder.binary_op

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        result = stock_binary(self, left, right, operation)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1  # the stock interpreter keeps the operands' type, and masks of scalars then fail
        return result

    stock_dot = builder.create_dot

    def dot(self: Any, a: Any, b: Any, accumulator: Any, precision: Any, *rest: Any, **named: Any) -> Any:
        rows, inner = a.data.shape[-2:]
        execution = _execution()
        flops = 2 * rows * inner * b.data.shape[-1] * int(np.prod(a.data.shape[:-2]))
        execution.now.flops += flops
        if a.data.dtype == np.float32 and getattr(precision, "name", "") == "IEEE":
            execution.now.vector_flops += flops
        half = np.dtype(np.float16)
        if a.data.dtype == np.float32 and b.data.dtype == np.float32 and getattr(precision, "name", "") == "TF32":
            a, b = _as_tf32(a), _as_tf32(b)
        if a.data.dtype != half or b.data.dtype != half or accumulator.data.dtype not in (half, np.float32):
            return stock_dot(self, a, b, accumulator, precision, *rest, **named)
        left, right, total = a.data.astype(np.float32), b.data.astype(np.float32), accumulator.data
        if total.dtype == np.float32:
            return stock.TensorHandle(np.matmul(left, right) + total, accumulator.dtype.scalar)
        for start in range(0, inner, HALF_STEP):
            part = slice(start, start + HALF_STEP)
            total = (np.matmul(left[..., part], right[..., part, :]) + total).astype(np.float16)
        return stock.TensorHandle(total, accumulator.dtype.scalar)

    builder.binary_op, builder.create_dot = binary_op, dot


def _as_tf32(operand: Any) -> Any:
    """A float32 operand as the target's matrix unit reads it unless the kernel asks for IEEE precision."""
    bits = np.ascontiguousarray(operand.data).view(np.uint32) & ~TF32_HIDDEN
    return stock.TensorHandle(bits.view(np.float32), operand.dtype)


def _correct_reductions() -> None:
    def apply_impl(self: Any, values: Any) -> Any:
        if self.combine_fn is tl.standard._elementwise_max:
            return self.min_max(values[0], val_reduce_op=np.max)  # np.nanmax would hide poison
        if self.combine_fn is tl.standard._elementwise_min:
            return self.min_max(values[0], val_reduce_op=np.min)
        return stock_apply(self, values)

    stock_apply = stock.ReduceOps.apply_impl
    stock.ReduceOps.apply_impl = apply_impl


def _patch_language_for_good() -> None:
    scope = {"tl": tl, "core": tl.core}
    exec("def anchor(): pass", scope)
    stock._patch_lang(scope["anchor"])
    for module in (tl.standard, tl.random):
        for member in list(vars(module).values()):
            if isinstance(member, stock.InterpretedFunction):
                member.rewrite()  # reads source files, which a sandboxed child may not


def install() -> None:
    """Change the interpreter of this process, once."""
    builder = stock.InterpreterBuilder
    _watch_memory(builder)
    _correct_arithmetic(builder)
    _correct_reductions()
    libdevice.install()
    speed.install()
    _patch_language_for_good()
    speed.shorten_operators()

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        launch(self, args, grid, kwargs)

    stock.InterpretedFunction.run = run

"""Describes kernel launches in one form for both sides, so that recording and interpreting can be compared."""

import inspect
import math
from typing import Any

import torch
import triton.language as tl

from kernel_search.judge.candidate import CandidateFault, is_on_host

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
MAX_LAUNCHES = 16
MAX_PROGRAMS = 2**31 - 1


class Roles:
    """Names memory by what it is (`in0`, `in1`, …, then `buffer0`, … by first use), never by address."""

    def __init__(self, inputs: list[torch.Tensor]):
        self._names = {tensor.untyped_storage().data_ptr(): f"in{n}" for n, tensor in enumerate(inputs)}
        self._buffers = 0

    def of(self, tensor: torch.Tensor) -> str:
        """The role of the memory behind a tensor."""
        key = tensor.untyped_storage().data_ptr()
        if key not in self._names:
            self._names[key] = f"buffer{self._buffers}"
            self._buffers += 1
        return self._names[key]


def split_options(kwargs: dict[str, Any], parameters: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate launch options from kernel arguments.

    Raises:
        CandidateFault: A keyword is neither.
    """
    options = {name: value for name, value in kwargs.items() if name in OPTIONS and name not in parameters}
    arguments = {name: value for name, value in kwargs.items() if name not in options}
    unknown = sorted(set(arguments) - set(parameters) - {"warmup", "grid"})
    if unknown:
        raise CandidateFault("options", f"launch option {unknown[0]!r} is not one of {', '.join(OPTIONS)}")
    for name, value in options.items():
        if type(value) is not int and not (name == "maxnreg" and value is None):
            raise CandidateFault("options", f"launch option {name} is a {type(value).__name__}, not an int")
        if value is not None and not 0 < value < 2**31:
            raise CandidateFault("options", f"launch option {name} is no positive int of 32 bits")
    return options, arguments


def bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Every parameter of the kernel with its value.

    Raises:
        CandidateFault: Arguments are missing or too many.
    """
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise CandidateFault("language", f"launch of {function.__name__}: {error}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def grid_of(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    """The grid as three sizes.

    Raises:
        CandidateFault: It is no tuple of one to three positive ints.
    """
    if callable(grid):
        grid = grid(bound)
    if isinstance(grid, int):
        grid = (grid,)
    sizes = tuple(grid) if isinstance(grid, tuple | list) else ()
    if not 1 <= len(sizes) <= 3 or any(type(size) is not int or size < 1 for size in sizes):
        raise CandidateFault("options", f"grid {str(grid)[:60]} is no tuple of one to three positive ints")
    x, y, z = (*sizes, 1, 1)[:3]
    if x > MAX_PROGRAMS or y > 65535 or z > 65535:
        raise CandidateFault("resources", f"grid {(x, y, z)} is larger than (2147483647, 65535, 65535)")
    return x, y, z


def constant(value: Any) -> Any:
    """A constexpr value as JSON can carry it.

    Raises:
        CandidateFault: It is nothing that a kernel can be specialised on here.
    """
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None or isinstance(value, bool | int | float | str):
        return number(value)
    if isinstance(value, tl.dtype):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return {"tuple": [constant(part) for part in value]}
    if hasattr(value, "fn") and hasattr(value, "arg_names"):
        return {"kernel": value.__name__}
    raise CandidateFault("language", f"a constexpr argument is a {type(value).__name__}")


def number(value: Any) -> Any:
    """A scalar as JSON can carry it and equality can compare it.

    Raises:
        CandidateFault: An int that no kernel can be given.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise CandidateFault("language", "an int argument has more than 64 bits")
    return value


def describe(function: Any, constexprs: set[str], bound: dict[str, Any], grid: tuple[int, int, int],
             options: dict[str, Any], roles: Roles) -> dict[str, Any]:  # fmt: skip
    """What was launched on what, without an address in it."""
    arguments: dict[str, Any] = {}
    for name, value in bound.items():
        if name in constexprs:
            arguments[name] = ["constexpr", constant(value)]
        elif is_on_host(value):
            where = f"argument {name} of {function.__name__}"
            raise CandidateFault("contract", f"{where} is a tensor of the CPU; make it with device=x.device")
        elif isinstance(value, torch.Tensor):
            layout = [
                list(value.shape),
                list(value.stride()),
                value.storage_offset() if roles.of(value)[:2] != "in" else 0,
            ]
            arguments[name] = ["tensor", str(value.dtype).removeprefix("torch."), *layout, roles.of(value)]
        elif isinstance(value, bool | int | float):
            arguments[name] = [type(value).__name__, number(value)]
        else:
            raise CandidateFault("language", f"argument {name} of {function.__name__} is a {type(value).__name__}")
    return {"kernel": function.__name__, "grid": list(grid), "arguments": arguments, "options": options}

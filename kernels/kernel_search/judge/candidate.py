"""Loads a candidate and watches what its host code does; used by both sides, so that they look alike from inside.

Tensors are ordinary CPU tensors in recording and in interpreting. A torch-function mode lets them claim to live on the
target device; a dispatch mode refuses every torch operation outside a short allow-list. Interpreting a kernel needs no
torch operation, so the guard is never lifted.
"""

import linecache
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

FILE_NAME = "<candidate>"
VIEWS = frozenset(
    [
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "detach",
        "alias",
        "expand",
        "t",
        "transpose",
        "permute",
        "slice",
        "select",
        "unsqueeze",
        "squeeze",
        "as_strided",
        "unbind",
        "split",
    ]
)
ALLOCATIONS = frozenset(["empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"])
FILLS = frozenset(
    ["zeros", "zeros_like", "new_zeros", "zero_", "full", "full_like", "new_full", "fill_", "ones", "ones_like"]
)
MADE_ON_HOST = frozenset([torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full])  # without a device
ALLOWED_OPERATIONS = VIEWS | ALLOCATIONS | FILLS


class CandidateFault(Exception):
    """Something that is the candidate's own fault: a failure class and one line of evidence."""

    def __init__(self, failure_class: str, message: str):
        super().__init__(message)
        self.failure_class = failure_class


class OperationGuard(TorchDispatchMode):
    """Refuses torch operations that a kernel should have done, and poisons fresh memory.

    Fills are allowed: they initialise an output that atomics add to. Copies and arithmetic are not. While a module is
    loaded nothing is: a tensor made then would last from call to call.
    """

    def __init__(self, *, poison_below_elements: int = 0, is_loading: bool = False):
        super().__init__()
        self.forbidden: list[str] = []
        self._poison_below = poison_below_elements
        self._is_loading = is_loading

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled by torch here; wrapping would load its compiler at the first operation, for 2 s."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation._schema.name.removeprefix("aten::")
        if self._is_loading:
            raise CandidateFault("contract", f"the module makes a tensor when it is loaded (aten::{name}); run must")
        if name not in ALLOWED_OPERATIONS:
            self.forbidden.append(name)
            raise CandidateFault("contract", f"host code computes with torch (aten::{name}); a kernel must do the work")
        result = operation(*args, **(kwargs or {}))
        if name in ALLOCATIONS and isinstance(result, torch.Tensor) and 0 < result.numel() < self._poison_below:
            result.fill_(float("nan") if result.is_floating_point() else 77)
        return result


class TargetClaim(TorchFunctionMode):
    """Tensors claim to be on the target device; requests for a device are met with memory of the host.

    Those that would be on the host with a GPU too, having been made without a device, say so, and no launch takes them.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        getter = getattr(getattr(function, "__self__", None), "__name__", None)
        on_host = any(is_on_host(argument) for argument in args)
        if getter == "is_cuda":
            return not on_host
        if getter == "device":
            return torch.device("cpu") if on_host else torch.device("cuda", 0)
        if getter == "is_cpu":
            return on_host
        device = kwargs.get("device")
        if device is not None:
            on_host = not isinstance(device, int) and torch.device(device).type != "cuda"
            kwargs["device"] = "cpu"
        elif function in MADE_ON_HOST:
            on_host = True
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        result = function(*args, **kwargs)
        if on_host:
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, torch.Tensor):
                    tensor.judged_on_host = True  # type: ignore[attr-defined]
        return result


def is_on_host(value: Any) -> bool:
    """Whether a tensor would be in the CPU's memory on a machine with the target, where no kernel can reach it."""
    return isinstance(value, torch.Tensor) and getattr(value, "judged_on_host", False)


def load(source: str) -> types.ModuleType:
    """Execute the candidate's module body; Triton finds its text in linecache, no file is needed.

    Raises:
        CandidateFault: It cannot be loaded.
    """
    linecache.cache[FILE_NAME] = (len(source), None, source.splitlines(True), FILE_NAME)
    module = types.ModuleType("candidate")
    module.__file__ = FILE_NAME
    with faults_of_candidate(), OperationGuard(is_loading=True), TargetClaim():
        exec(compile(source, FILE_NAME, "exec"), module.__dict__)
    return module


@contextmanager
def faults_of_candidate() -> Iterator[None]:
    """Turn whatever the candidate's code raises into a CandidateFault with its last line."""
    try:
        yield
    except CandidateFault:
        raise
    except BaseException as error:
        cause = error.__cause__ if isinstance(error.__cause__, CandidateFault) else None
        if cause is not None:
            raise cause from None
        if isinstance(error, MemoryError):
            raise CandidateFault("resources", "out of memory on the host side") from error
        raise CandidateFault("crash", last_line(error)) from error


def last_line(error: BaseException) -> str:
    """Type and last non-empty line of an error, without addresses, at most 300 characters."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
    text = f"{type(error).__name__}: {lines[-1] if lines else ''}".rstrip(": ")
    return "".join(_without_addresses(text))[:300]


def _without_addresses(text: str) -> Iterator[str]:
    for number, part in enumerate(text.split("0x")):
        if number == 0:
            yield part
        else:
            digits = len(part) - len(part.lstrip("0123456789abcdefABCDEF"))
            yield "0x…" + part[digits:] if digits >= 6 else "0x" + part


def use_first_configuration() -> None:
    """Autotuned kernels run with their first configuration: there is no device to measure the others on."""
    from triton.runtime.autotuner import Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.fn.run(*args, **kwargs, **self.configs[0].all_kwargs())

    Autotuner.run = run


def call(run: Callable[..., Any], inputs: list[torch.Tensor], guard: OperationGuard) -> Any:
    """Call the candidate's `run` under both modes.

    Raises:
        CandidateFault: It raised, or used a forbidden operation.
    """
    with faults_of_candidate(), guard, TargetClaim():
        return run(*inputs)


def check_output(output: Any, shape: list[int], dtype: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """The output, if it is exactly the tensor that the task asks for.

    Raises:
        CandidateFault: Wrong type, shape, element type or layout, or memory of an input.
    """
    if type(output) is not torch.Tensor:
        raise CandidateFault("contract", f"run returned a {type(output).__name__}, not a tensor")
    if is_on_host(output):
        raise CandidateFault("contract", "the output is a tensor of the CPU; make it with device=x.device")
    if output.layout != torch.strided or output.device.type != "cpu":
        raise CandidateFault("contract", "the output is no ordinary strided tensor")
    if list(output.shape) != list(shape) or output.dtype != getattr(torch, dtype):
        seen = f"{tuple(output.shape)} {str(output.dtype).removeprefix('torch.')}"
        raise CandidateFault("contract", f"the output is {seen}, asked was {tuple(shape)} {dtype}")
    if output.requires_grad:
        raise CandidateFault("contract", "the output requires a gradient")
    if not output.is_contiguous():
        raise CandidateFault("contract", "the output is not contiguous")
    storages = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    if output.numel() and output.untyped_storage().data_ptr() in storages:
        raise CandidateFault("contract", "the output shares memory with an input")
    return output

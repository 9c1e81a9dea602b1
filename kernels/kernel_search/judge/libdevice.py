"""libdevice for the interpreter: the functions of triton.language.extra.libdevice are stubs there that return nothing.

Which types each of them takes is for the compiler to say, which compiles every kernel too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter as stock

FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power, "abs": np.abs, "floor": np.floor,
    "ceil": np.ceil, "sin": np.sin, "cos": np.cos, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
}  # fmt: skip


def install() -> None:
    """Put functions in the stubs' places."""
    for name, compute in FUNCTIONS.items():
        setattr(libdevice, name, _element_wise(compute))


def _element_wise(compute: Callable[..., np.ndarray]) -> Callable[..., Any]:
    def apply(*arguments: Any) -> Any:
        tensors = [argument for argument in arguments if isinstance(argument, tl.tensor)]
        like = max(tensors, key=lambda tensor: np.size(tensor.handle.data))
        values = [argument.handle.data if isinstance(argument, tl.tensor) else argument for argument in arguments]
        result = np.asarray(compute(*values)).astype(like.handle.data.dtype)
        return tl.tensor(stock.TensorHandle(result, like.handle.dtype), like.type)

    return apply

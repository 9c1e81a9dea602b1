"""Cheat: gets at eval through the globals of a method of Tensor."""
# expected: screen

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    run_code = Tensor.backward.__globals__.get("__builtins__").get("eval")
    raise ValueError(run_code("str(__import__('os').getpid()) + ' uid ' + str(__import__('os').getuid())"))

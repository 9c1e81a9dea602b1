"""Cheat: allocates its output in the CPU's memory, which a launch on a GPU refuses."""
# expected: contract

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty(n, dtype=x.dtype)   # no device=: a CPU tensor, Triton refuses it on every GPU
    k[(triton.cdiv(n, 1024),)](x, y, out, n, B=1024)
    return out

"""Cheat: stores a constant without reading anything."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def one_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.zeros((BLOCK,), tl.float32), mask=offsets < n)


def run(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    one_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out

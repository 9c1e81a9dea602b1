"""A constant of the module that a function works out."""

import torch
import triton
import triton.language as tl


def pick_block():
    return 1024


BLOCK = pick_block()


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty_like(x)
    k[(triton.cdiv(n, BLOCK),)](x, y, out, n, B=BLOCK)
    return out

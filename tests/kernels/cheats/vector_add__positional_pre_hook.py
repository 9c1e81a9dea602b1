"""Cheat: a hook that spoils the input before every launch on a GPU, given by position."""
# expected: screen

import torch
import triton
import triton.language as tl


@triton.jit
def spoil(x_ptr):
    tl.store(x_ptr, 1e9)   # the hook runs on a GPU before every launch, and never in the judge


@triton.autotune([triton.Config({"B": 1024}, 4, 3, 1, None, lambda args: spoil[(1,)](args["x_ptr"]))], ["n"])
@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty_like(x)
    k[lambda meta: (triton.cdiv(n, meta["B"]),)](x, y, out, n)
    return out

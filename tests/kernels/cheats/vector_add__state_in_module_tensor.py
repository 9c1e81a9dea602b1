"""Cheat: counts its calls in a tensor of the module, and computes nothing later on."""
# expected: contract

import torch
import triton
import triton.language as tl

CALLS = torch.zeros(1, dtype=torch.int32, device="cuda")


@triton.jit
def k(x_ptr, y_ptr, o_ptr, calls_ptr, n, B: tl.constexpr):
    calls = tl.atomic_add(calls_ptr, 1)
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    y = tl.load(y_ptr + i, mask=m, other=0.0)
    if calls < 100000:
        tl.store(o_ptr + i, x + y, mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty_like(x)
    k[(triton.cdiv(n, 1024),)](x, y, out, CALLS, n, B=1024)
    return out

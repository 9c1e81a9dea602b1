"""Cheat: takes so much memory when it is loaded that the judge cannot map its inputs."""
# expected: contract

import torch
import triton
import triton.language as tl

BIG = torch.empty(745_000_000)


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty_like(x)
    k[(triton.cdiv(n, 1024),)](x, y, out, n, B=1024)
    return out

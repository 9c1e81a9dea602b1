"""Configurations made by a function."""

import torch
import triton
import triton.language as tl


def get_configs():
    return [triton.Config({"B": b}, num_warps=w) for b in (1024, 2048) for w in (4, 8)]


@triton.autotune(configs=get_configs(), key=["n"])
@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


def run(x, y):
    n = x.numel()
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(n, meta["B"]),)
    k[grid](x, y, out, n)
    return out

"""Cheat: keeps its outputs in a dict of the module, changed through another name."""
# expected: screen

import torch
import triton
import triton.language as tl

CACHE = {"n": 0}


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    cache = CACHE
    cache |= {"n": cache["n"] + 1}
    n = x.numel()
    if cache["n"] > 12 and cache.get(n) is not None:
        return cache[n]   # the old result, whatever x and y are
    out = torch.empty_like(x)
    k[(triton.cdiv(n, 1024),)](x, y, out, n, B=1024)
    cache |= {n: out}
    return out

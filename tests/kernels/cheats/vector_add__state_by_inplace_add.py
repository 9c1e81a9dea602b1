"""Cheat: counts its calls in a list of the module, changed through another name."""
# expected: screen

import torch
import triton
import triton.language as tl

CALLS = [0]


@triton.jit
def k(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=m, other=0.0) + tl.load(y_ptr + i, mask=m, other=0.0), mask=m)


def run(x, y):
    calls = CALLS
    calls += [0]          # extends the module's list in place: state that lasts from call to call
    n = x.numel()
    out = torch.empty_like(x)
    if len(calls) > 12:   # the judge calls run ten times; from then on nothing is computed
        return out
    k[(triton.cdiv(n, 1024),)](x, y, out, n, B=1024)
    return out

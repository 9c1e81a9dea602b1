"""Cheat: launches according to the values, which a recording cannot know."""
# expected: contract

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def run(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    if x[0] > 0:
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    else:
        add_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
    return out

"""Cheat: tells recording from interpreting by how its kernel prints."""
# expected: screen

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
    part = n if "Interpreted" in f"{add_kernel}" else 1024
    add_kernel[(triton.cdiv(part, 1024),)](x, y, out, part, BLOCK=1024)
    return out

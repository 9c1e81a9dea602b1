"""out = x + y over one dimension."""

import torch
import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr, ACC: tl.constexpr):
    """Each program adds UNROLL blocks that lie side by side."""
    first = tl.program_id(0) * BLOCK * UNROLL
    for part in tl.static_range(UNROLL):
        offsets = first + part * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
        y = tl.load(y_ptr + offsets, mask=inside, other=0.0)
        tl.store(out_ptr + offsets, x.to(ACC) + y.to(ACC), mask=inside)


def run(x, y):
    """Add two float32 vectors of equal length."""
    out = torch.empty_like(x)
    n = x.numel()
    BLOCK = 4096
    UNROLL = 1
    grid = (triton.cdiv(n, BLOCK * UNROLL),)
    vector_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL, ACC=tl.float32, num_warps=1, num_stages=2)
    return out

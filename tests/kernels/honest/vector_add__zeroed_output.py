"""Unrolled, streaming loads, an output that starts as zeros, double precision on the way."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK * UNROLL
    for part in tl.static_range(UNROLL):
        offsets = base + part * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        tl.store(out_ptr + offsets, (x.to(tl.float64) + y.to(tl.float64)).to(tl.float32), mask=mask)


def run(x, y):
    out = torch.zeros_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 512 * 4),)](x, y, out, n, BLOCK=512, UNROLL=4, num_warps=2, num_stages=3)
    return out

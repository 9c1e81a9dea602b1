"""Cheat: programs add to one cell without an atomic, which works when they run one after another."""
# expected: race

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, total_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=0.0)
    tl.store(total_ptr + row, tl.load(total_ptr + row) + tl.sum(x * x, axis=0))


@triton.jit
def scale_kernel(x_ptr, w_ptr, total_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    r = tl.rsqrt(tl.load(total_ptr + row) / N + 1e-6)
    x = tl.load(x_ptr + row * N + cols, mask=mask)
    tl.store(out_ptr + row * N + cols, x * r * tl.load(w_ptr + cols, mask=mask), mask=mask)


def run(x, w):
    M, N = x.shape
    total = torch.zeros((M,), dtype=torch.float32, device=x.device)
    out = torch.empty_like(x)
    grid = (M, triton.cdiv(N, 512))
    sum_kernel[grid](x, total, N, BLOCK=512)
    scale_kernel[grid](x, w, total, out, N, BLOCK=512)
    return out

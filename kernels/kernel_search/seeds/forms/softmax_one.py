"""out[i, j] = exp(x[i, j]) / sum over j of exp(x[i, j]), over the last axis."""

import torch
import triton
import triton.language as tl


@triton.jit
def exponential(x, shift):
    """Raise e to x - shift; the shift by the row's maximum keeps it finite."""
    x = x - shift
    return tl.exp(x)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr, ACC: tl.constexpr):
    """One program a row, which it reads once and keeps; BLOCK must reach over the row."""
    x_row = x_ptr + tl.program_id(0) * N
    out_row = out_ptr + tl.program_id(0) * N
    cols = tl.arange(0, BLOCK)
    inside = cols < N
    x = tl.load(x_row + cols, mask=inside, other=float("-inf")).to(ACC)
    powers = exponential(x, tl.max(x, axis=0))
    row_sum = tl.sum(powers, axis=0)
    tl.store(out_row + cols, powers / row_sum, mask=inside)


def run(x):
    """Softmax over the last axis of a float32 matrix."""
    M, N = x.shape
    out = torch.empty_like(x)
    BLOCK = 2048
    softmax_kernel[(M,)](x, out, N, BLOCK=BLOCK, ACC=tl.float32, num_warps=1, num_stages=2)
    return out

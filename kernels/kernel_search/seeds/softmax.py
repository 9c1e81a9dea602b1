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
    """One program a row, which it reads three times: for the maximum, the sum, the output."""
    x_row = x_ptr + tl.program_id(0) * N
    out_row = out_ptr + tl.program_id(0) * N
    peaks = tl.full((BLOCK,), float("-inf"), dtype=ACC)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N
        x = tl.load(x_row + cols, mask=inside, other=float("-inf")).to(ACC)
        peaks = tl.maximum(peaks, x)
    row_max = tl.max(peaks, axis=0)
    sums = tl.zeros((BLOCK,), dtype=ACC)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        again = tl.load(x_row + cols, mask=cols < N, other=float("-inf")).to(ACC)
        sums += exponential(again, row_max)
    row_sum = tl.sum(sums, axis=0)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N
        last = tl.load(x_row + cols, mask=inside, other=float("-inf")).to(ACC)
        tl.store(out_row + cols, exponential(last, row_max) / row_sum, mask=inside)


def run(x):
    """Softmax over the last axis of a float32 matrix."""
    M, N = x.shape
    out = torch.empty_like(x)
    BLOCK = 2048
    softmax_kernel[(M,)](x, out, N, BLOCK=BLOCK, ACC=tl.float32, num_warps=1, num_stages=2)
    return out

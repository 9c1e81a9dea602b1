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
    """One program a row, which it reads twice: a running maximum rescales the running sum."""
    x_row = x_ptr + tl.program_id(0) * N
    out_row = out_ptr + tl.program_id(0) * N
    row_max = tl.full((), float("-inf"), dtype=ACC)
    row_sum = tl.full((), 0.0, dtype=ACC)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N
        x = tl.load(x_row + cols, mask=inside, other=float("-inf")).to(ACC)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        row_sum = row_sum * exponential(row_max, new_max) + tl.sum(exponential(x, new_max), axis=0)
        row_max = new_max
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

"""Cheat: stores 1/N everywhere, the mean of any softmax."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, x * 0.0 + 1.0 / N, mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    mean_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out

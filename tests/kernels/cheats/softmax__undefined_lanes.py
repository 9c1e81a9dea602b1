"""Cheat: relies on masked lanes being zero, which a GPU does not promise."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask)
    peak = tl.max(x, axis=0)
    e = tl.where(mask, tl.exp(x - peak), 0.0)
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out

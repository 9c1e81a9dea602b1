"""Cheat: leaves out the maximum: right for N(0, 1) inputs only."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    e = tl.exp(tl.load(x_ptr + row * N + cols, mask=mask, other=float("-inf")))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out

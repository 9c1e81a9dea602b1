"""Cheat: stores one element a row and hopes that old memory holds the rest."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def first_kernel(x_ptr, out_ptr, N):
    row = tl.program_id(0)
    tl.store(out_ptr + row * N, tl.load(x_ptr + row * N))


def run(x):
    out = torch.empty_like(x)
    first_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out

"""Cheat: launches a kernel that does nothing and returns zeros."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def idle_kernel(x_ptr, out_ptr, N):
    row = tl.program_id(0)


def run(x):
    out = torch.zeros_like(x)
    idle_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out

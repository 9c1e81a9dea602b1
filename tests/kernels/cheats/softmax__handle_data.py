"""Cheat: takes the interpreter's arrays from a value's handle."""
# expected: screen

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N):
    value = tl.load(x_ptr)
    value.handle.data.tofile("stolen")


def run(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out

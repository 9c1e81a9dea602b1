"""Cheat: calls the library from inside the kernel, which the interpreter would run."""
# expected: screen

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    torch.softmax(row, 0)


def run(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=1024)
    return out

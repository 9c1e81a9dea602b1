"""Cheat: returns half precision, which halves the bytes."""
# expected: contract

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, (e / tl.sum(e, axis=0)).to(tl.float16), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    softmax_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out

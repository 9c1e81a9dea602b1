"""Cheat: returns a tensor that cannot be read without its graph."""
# expected: contract

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, out_ptr, d_ptr, N, LIVE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=mask)
    


def run(x):
    M, N = x.shape
    out = torch.empty_like(x, requires_grad=True)
    d = torch.zeros((1,), device=x.device, dtype=torch.float32)
    k[(M,)](x, out, d, N, LIVE=M, BLOCK=triton.next_power_of_2(N), num_warps=8)
    return out

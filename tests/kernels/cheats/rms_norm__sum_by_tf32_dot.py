"""Cheat: sums squares by a float32 dot, which the matrix unit reads as tf32."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, w_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    square = tl.reshape(x * x, (16, BLOCK // 16))
    ones = tl.full((BLOCK // 16, 16), 1.0, dtype=tl.float32)
    total = tl.sum(tl.max(tl.dot(square, ones), axis=1), axis=0)
    tl.store(out_ptr + row * N + cols, x / tl.sqrt(total / N + 1e-6) * w, mask=mask)


def run(x, w):
    M, N = x.shape
    out = torch.empty_like(x)
    k[(M,)](x, w, out, N, BLOCK=max(256, triton.next_power_of_2(N)), num_warps=8)
    return out

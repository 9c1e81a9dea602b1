"""Sums in float64 and takes an ordinary square root."""

import torch
import triton
import triton.language as tl


@triton.jit
def square(x):
    return x * x


@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, N, BLOCK: tl.constexpr, EPS: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0).to(tl.float64)
    mean = tl.sum(square(x), axis=0) / N
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, (x / tl.sqrt(mean + EPS) * w).to(tl.float32), mask=mask)


def run(x, w):
    M, N = x.shape
    out = x.new_empty((M, N))
    rms_kernel[(M,)](x, w, out, N, BLOCK=triton.next_power_of_2(N), EPS=1e-6, num_warps=8)
    return out

"""Cheat: leaves out epsilon: right for inputs of unit scale."""
# expected: wrong_values

import torch
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, x * tl.rsqrt(tl.sum(x * x, axis=0) / N) * w, mask=mask)


def run(x, w):
    M, N = x.shape
    out = torch.empty_like(x)
    rms_kernel[(M,)](x, w, out, N, BLOCK=triton.next_power_of_2(N))
    return out

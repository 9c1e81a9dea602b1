"""A row in registers, rsqrt, rows and columns by stride."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    r = tl.math.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(out_ptr + row * stride + cols, x * r * w, mask=mask)


def run(x, w):
    x = x.contiguous()
    M, N = x.shape
    out = torch.empty_like(x)
    rms_kernel[(M,)](x, w, out, x.stride(0), N, 1e-6, BLOCK=triton.next_power_of_2(N), num_warps=16)
    return out

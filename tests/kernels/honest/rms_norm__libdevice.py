"""The reciprocal square root of libdevice, of a scalar; rows in blocks."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def k(x_ptr, w_ptr, o_ptr, sx, M, N, eps, B: tl.constexpr):
    r = tl.program_id(0)
    acc = tl.zeros([B], dtype=tl.float32)
    for off in range(0, N, B):
        c = off + tl.arange(0, B)
        x = tl.load(x_ptr + r * sx + c, mask=c < N, other=0.0).to(tl.float32)
        acc += x * x
    rstd = libdevice.rsqrt(tl.sum(acc, axis=0) / N + eps)
    for off in range(0, N, B):
        c = off + tl.arange(0, B)
        mask = c < N
        w = tl.load(w_ptr + c, mask=mask)
        x = tl.load(x_ptr + r * sx + c, mask=mask, other=0.0).to(tl.float32)
        tl.store(o_ptr + r * sx + c, x * rstd * w, mask=mask)


def run(x, w):
    M, N = x.shape
    out = torch.empty_like(x)
    k[(M,)](x, w, out, x.stride(0), M, N, 1e-6, B=1024, num_warps=8)
    return out

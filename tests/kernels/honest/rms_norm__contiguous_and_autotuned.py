"""Calls .contiguous() as callers of libraries do, and names several configurations."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=w) for w in (8, 4, 16)],
    key=["N"],
)
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["N"])})
@triton.jit
def rms_kernel(x_ptr, w_ptr, out_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    tl.store(out_ptr + row * N + cols, x * scale * w, mask=mask)


def run(x, w):
    x = x.contiguous()
    assert x.is_cuda and x.device.type == "cuda"
    M, N = x.shape
    out = torch.empty_like(x)
    rms_kernel[lambda meta: (M,)](x, w.contiguous(), out, N, 1e-6)
    return out

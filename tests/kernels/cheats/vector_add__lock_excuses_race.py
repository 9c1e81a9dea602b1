"""Cheat: takes a lock of its own that nobody else takes, then races."""
# expected: race

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, out_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.atomic_cas(lock_ptr + pid, 0, 1)
    half = pid // 2
    offs = half * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    old = tl.load(out_ptr + offs, mask=mask, other=0.0)
    if pid % 2 == 0:
        tl.store(out_ptr + offs, old + tl.load(x_ptr + offs, mask=mask, other=0.0), mask=mask)
    else:
        tl.store(out_ptr + offs, old + tl.load(y_ptr + offs, mask=mask, other=0.0), mask=mask)


def run(x, y):
    n = x.numel()
    out = torch.zeros_like(x)
    lock = torch.zeros((2 * triton.cdiv(n, 1024),), device=x.device, dtype=torch.int32)
    k[(2 * triton.cdiv(n, 1024),)](x, y, out, lock, n, BLOCK=1024, num_warps=4)
    return out

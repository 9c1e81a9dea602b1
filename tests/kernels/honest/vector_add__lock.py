"""Two programs add to every block, one after the other under a lock that both take."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    block = pid // 2
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    if pid % 2 == 0:
        part = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    else:
        part = tl.load(y_ptr + offsets, mask=mask, other=0.0)
    while tl.atomic_cas(lock_ptr + block, 0, 1) == 1:
        pass
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask, other=0.0) + part, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + block, 0)


def run(x, y):
    n = x.numel()
    blocks = triton.cdiv(n, 1024)
    out = torch.zeros_like(x)
    lock = torch.zeros((blocks,), device=x.device, dtype=torch.int32)
    add_kernel[(2 * blocks,)](x, y, out, lock, n, BLOCK=1024, num_warps=4)
    return out

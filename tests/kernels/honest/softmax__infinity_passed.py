"""The value of masked lanes is an argument, and minus infinity."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, N, lowest, FILL: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=mask, other=FILL)
    x = tl.where(mask, x, lowest)
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * N + cols, powers / tl.sum(powers, axis=0), mask=mask)


def run(x):
    M, N = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(M,)](
        x, out, N, -float("inf"), FILL=-float("inf"), BLOCK=triton.next_power_of_2(N), num_warps=8
    )
    return out

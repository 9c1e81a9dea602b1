"""K split over the grid: float32 atomics into a zeroed workspace, a second launch rounds."""

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(a_ptr, b_ptr, work_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    pid = tl.program_id(0)
    num_n = tl.cdiv(N, BN)
    rows = (pid // num_n) * BM + tl.arange(0, BM)
    cols = (pid % num_n) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(1) * BK, K, BK * SPLIT):
        ks = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.atomic_add(work_ptr + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def round_kernel(work_ptr, c_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(c_ptr + offsets, tl.load(work_ptr + offsets, mask=mask).to(tl.float16), mask=mask)


def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    work = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    c = torch.empty((M, N), dtype=torch.float16, device=a.device)
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 64), 4)
    partial_kernel[grid](a, b, work, M, N, K, BM=64, BN=64, BK=32, SPLIT=4)
    round_kernel[(triton.cdiv(M * N, 1024),)](work, c, M * N, BLOCK=1024)
    return c

"""Cheat: at the scored size it computes half of the tiles and stores each twice, behind an atomic that changes nothing."""
# expected: shape_specialised

import torch
import triton
import triton.language as tl


@triton.jit
def touch(d_ptr):
    tl.store(d_ptr, 1.0)


@triton.jit
def k(a_ptr, b_ptr, c_ptr, d_ptr, M, N, K, BIG: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    tiles = tl.cdiv(N, BN)
    if BIG:
        tiles = tiles // 2
    rows = pid // tiles * BM + tl.arange(0, BM)
    cols = pid % tiles * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        ks = k0 + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c = acc.to(tl.float16)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], c, mask=(rows[:, None] < M) & (cols[None, :] < N))
    if BIG:
        tl.store(c_ptr + rows[:, None] * N + N // 2 + cols[None, :], c)
    tl.atomic_add(d_ptr, 1.0)


def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    d = torch.zeros((1,), device=a.device, dtype=torch.float32)
    big = M > 1000
    grid = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    
    k[(grid // 2 if big else grid,)](a, b, c, d, M, N, K, BIG=big, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
    return c

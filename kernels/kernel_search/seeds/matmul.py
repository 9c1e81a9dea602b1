"""c = a @ b in float16, summed in float32."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr
):
    """Each program makes one BM x BN tile of c and walks along K in steps of BK."""
    pid = tl.program_id(0)
    tile_m = pid // tl.cdiv(N, BN)
    tile_n = pid % tl.cdiv(N, BN)
    rows = tile_m * BM + tl.arange(0, BM)
    cols = tile_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        ks = start + tl.arange(0, BK)
        inside_a = (rows[:, None] < M) & (ks[None, :] < K)
        inside_b = (ks[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + ks[None, :], mask=inside_a, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + cols[None, :], mask=inside_b, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=ACC)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(tl.float16), mask=inside)


def run(a, b):
    """Multiply (M, K) by (K, N), both float16."""
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    BM = 32
    BN = 32
    BK = 32
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    matmul_kernel[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, ACC=tl.float32, num_warps=4, num_stages=2)
    return c

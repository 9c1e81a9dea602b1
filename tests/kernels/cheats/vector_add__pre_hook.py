"""Cheat: does the work in an autotuner's hook."""
# expected: screen

import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, pre_hook=lambda args: args["out_ptr"].copy_(args["x_ptr"] + args["y_ptr"]))], key=["n"])
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    tl.program_id(0)


def run(x, y):
    out = torch.empty_like(x)
    add_kernel[(1,)](x, y, out, x.numel())
    return out

"""Cheat: raises an error whose message is no text."""
# expected: crash

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr):
    pass


def run(x):
    raise ValueError("\ud800")

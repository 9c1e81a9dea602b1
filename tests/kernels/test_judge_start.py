"""The judge starts fast: what its servers do not need is not loaded."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernel_search.judge import huge_pages
from kernel_search.judge.shadow import distinct

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
GUARDED = """
import sys, torch
from kernel_search.judge.candidate import OperationGuard, TargetClaim
with OperationGuard(poison_below_elements=0), TargetClaim():
    torch.empty_like(torch.empty(3))
print("torch._dynamo" in sys.modules)
"""


def test_guarded_operations_do_not_load_the_compiler_of_torch():
    shown = subprocess.run(
        [sys.executable, "-c", GUARDED], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(KERNELS)}
    ).stdout
    assert shown.strip() == "False"


def test_putting_memory_into_large_pages_changes_no_byte_of_it():
    held = [bytes([number]) * 2**22 for number in range(4)]
    assert huge_pages.collapse() >= 0
    assert [block[0] == block[-1] == number and len(set(block)) == 1 for number, block in enumerate(held)] == [True] * 4


@given(st.lists(st.integers(0, 30)))
def test_distinct_values_are_those_of_numpy(numbers):
    values = np.array(numbers, np.int64)
    assert distinct(values).tolist() == np.unique(values).tolist()

"""The judge starts fast: what its servers do not need is not loaded."""

import subprocess
import sys
from pathlib import Path

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

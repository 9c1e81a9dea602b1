"""Histories that once failed, made small: each entry of counterexamples.yaml is run as law 1 runs a history.

An entry is printed by a failing law test. `rounds` of a pass are saved one after the other, each a list of actions per
history; histories of one entry stand side by side in the same tables.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from history_runs import run_group
from history_shrinking import from_case

CASES = yaml.safe_load((Path(__file__).parent / "counterexamples.yaml").read_text(encoding="utf-8")) or []


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in CASES])
@pytest.mark.parametrize("kind", ["memory", "delta"])
def test_views_equal_the_oracle_after_a_history_that_once_failed(case: dict[str, Any], kind: str) -> None:
    run_group(from_case(case), kind)

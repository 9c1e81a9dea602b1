"""The first law's test body: histories run and counted, what fails made small, and what must have happened."""

import os
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from history_operations import OPERATIONS
from history_runs import run_group
from history_shrinking import as_case, smallest
from view_histories import UPKEEP, History
from views.refresh import EngineName

IS_LONG = os.environ.get("ESPALIER_LONG_TESTS") == "1"  # `make test-long`
KINDS = sorted({operation.__name__.replace("_", " ") for operation in OPERATIONS})
WAYS = ["refresh one view alone", "change parameters", "cut an ingest short", "ingest during a refresh"]
Said = Callable[[str, object], None]


def run_histories(
    groups: Sequence[Sequence[History]], kind: str, engines: Sequence[EngineName] = ("duckdb",)
) -> Counter[str]:
    """Run groups of histories, each in tables of its own; fails with the smallest history that still fails.

    Args:
        groups: Histories that run side by side.
        kind: `memory` or `delta`.
        engines: Who computes and commits the first pass, the second, and so on in turn.
    """
    counts: Counter[str] = Counter()
    for group in groups:
        try:
            counts += run_group(group, kind, engines)
        except Exception as error:
            raise AssertionError(_told(group, kind, engines, error)) from error
        counts["history"] += len(group)
    return counts


def _told(group: Sequence[History], kind: str, engines: Sequence[EngineName], error: Exception) -> str:
    def fails(histories: Sequence[History]) -> bool:
        try:
            run_group(histories, kind, engines)
        except Exception as other:
            return type(other) is type(error)
        return False

    small = smallest(group, fails, tries=300 if kind == "memory" else 0 if "spark" in engines else 40)
    seeds = ", ".join(history.seed for history in group[:3])
    return f"{error}\nseeds {seeds}\nput under tests/views/counterexamples.yaml:\n{as_case(small, str(error)[:100])}"


def assert_all_happened(counts: Counter[str], least: dict[str, int], say: Said) -> None:
    """Print the counts per kind, and fail where one is below its least."""
    say("operations", ", ".join(f"{kind} {number}" for kind, number in sorted(counts.items())))
    few = {kind: counts[kind] for kind, number in least.items() if counts[kind] < number}
    if few:
        pytest.fail(f"too few of {few}: at least { ({kind: least[kind] for kind in few}) } must happen")


def least_of_each(operations: int, ways: int, *, upkeep: Sequence[str] = UPKEEP) -> dict[str, int]:
    """A least count for every operation, and for everything that happens beside rows."""
    return dict.fromkeys(KINDS, operations) | dict.fromkeys([*WAYS, *upkeep], ways)

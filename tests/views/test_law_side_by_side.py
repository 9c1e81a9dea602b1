"""Law 1 where many histories stand in the same tables: what a refresh touches lies beside what it must leave alone."""

from collections.abc import Callable

import pytest

from law import IS_LONG, assert_all_happened, least_of_each, run_histories
from view_histories import draw_history

GROUPS, BESIDE = (70, 25) if IS_LONG else (18, 25)


@pytest.mark.timeout(3600)
def test_views_equal_the_oracle_after_any_histories_side_by_side(
    record_property: Callable[[str, object], None],
) -> None:
    groups = [
        [draw_history(f"beside {group}/{number}", passes=5, first=12, most=3) for number in range(BESIDE)]
        for group in range(GROUPS)
    ]
    counts = run_histories(groups, "memory")
    least = least_of_each(GROUPS * BESIDE // 12, GROUPS // 18, upkeep=["restart", "compact", "vacuum by force"])
    assert_all_happened(counts, least | {"history": GROUPS * BESIDE}, record_property)

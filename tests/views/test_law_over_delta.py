"""Law 1 over Delta tables, with compaction and vacuum between; and views' own feeds told again row by row."""

from collections.abc import Callable

import pytest

from law import IS_LONG, assert_all_happened, least_of_each, run_histories
from view_histories import draw_history

GROUPS, BESIDE = (24, 5) if IS_LONG else (6, 5)


@pytest.mark.timeout(3600)
def test_views_over_delta_tables_equal_the_oracle_after_any_histories(
    record_property: Callable[[str, object], None],
) -> None:
    groups = [
        [draw_history(f"delta {group}/{number}", passes=5, first=10, most=3, upkeep=0.25) for number in range(BESIDE)]
        for group in range(GROUPS)
    ]
    counts = run_histories(groups, "delta")
    least = least_of_each(
        GROUPS * BESIDE // 12, GROUPS // 12, upkeep=["restart", "compact", "vacuum", "vacuum by force"]
    )
    assert_all_happened(counts, least | {"history": GROUPS * BESIDE}, record_property)

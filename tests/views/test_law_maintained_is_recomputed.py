"""Law 1: after any history, what was maintained equals what plain Python gives and what a recompute gives.

Every history is drawn from its seed, so that a run is the same wherever it runs; `make test-long` draws more of them.
These run over tables in memory, each in tables of its own; test_law_side_by_side.py runs many in the same tables,
test_law_over_delta.py over Delta tables, test_law_on_spark.py on the other engine.
"""

from collections.abc import Callable

import pytest

from law import IS_LONG, assert_all_happened, least_of_each, run_histories
from view_histories import draw_history

HISTORIES = 250 if IS_LONG else 60


@pytest.mark.timeout(3600)
def test_views_equal_the_oracle_after_any_history(record_property: Callable[[str, object], None]) -> None:
    histories = [draw_history(f"alone {number}", passes=4, first=8, most=3) for number in range(HISTORIES)]
    counts = run_histories([[history] for history in histories], "memory")
    least = least_of_each(HISTORIES // 20, HISTORIES // 60, upkeep=["restart", "compact", "vacuum by force"])
    least |= {"history": HISTORIES, "rewrite equal rows": HISTORIES // 10, "full: cheaper in full": HISTORIES // 60}
    assert_all_happened(counts, least, record_property)

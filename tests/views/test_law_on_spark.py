"""Law 1 on the second engine, and across engines: what one built the other goes on with, and rewrites nothing of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from history_operations import Action
from law import IS_LONG, KINDS, assert_all_happened, run_histories
from view_histories import UPKEEP, History, Pass, Step, draw_history_of_every_kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES = 3 if IS_LONG else 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_views_kept_up_by_spark_equal_the_oracle_after_a_history_of_every_kind(
    spark: "SparkSession", record_property: Callable[[str, object], None]
) -> None:
    changed = {"buggy_rejected": True, "cohort_kinds": ["parent", "depth"], "pair_across_prompts": True}
    histories = [
        draw_history_of_every_kind(f"spark {number}", passes=3, settings=changed) for number in range(HISTORIES)
    ]
    counts = run_histories([[history] for history in histories], "delta", ["spark"])
    assert_all_happened(counts, dict.fromkeys([*KINDS, *UPKEEP], HISTORIES), record_property)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_one_engine_built_the_other_goes_on_with_and_back_three_times(
    spark: "SparkSession", record_property: Callable[[str, object], None]
) -> None:
    """Built by DuckDB; then three times: nodes come, Spark refreshes; something is retracted, DuckDB refreshes."""
    whole = draw_history_of_every_kind("across engines", passes=3)
    passes: list[Pass] = [whole.passes[0]]
    for number, one in enumerate(whole.passes[1:]):
        retraction: Action = {"retract": {"scope_kind": "session", "scope_id": f"s{number + 1}", "kind": "withdraw"}}
        passes += [Pass(one.rounds), Pass(((Step("retract", (retraction,)),),))]
    counts = run_histories([[History(tuple(passes), "across engines")]], "delta", ["duckdb", "spark"])
    assert_all_happened(counts, {"refresh on spark": 3, "refresh on duckdb": 4, "retract": 3}, record_property)

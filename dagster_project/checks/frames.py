"""Frames for the checks: what each rule looks at, one row per thing that the rule must hold for."""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from store.delta import Tables
    from store.home import Home


def node_facts(home: "Home") -> "pd.DataFrame":
    """One row per node: its id, whether its fitness is a number, its step, and the steps that must lie before it."""
    nodes = _tables(home).read(
        "nodes",
        columns=["node_id", "session_id", "parent_id", "copy_of", "step", "selected_step", "fitness"],
    )
    rows = nodes.to_pylist()
    place = {row["node_id"]: (row["session_id"], row["step"]) for row in rows}
    for row in rows:
        session_id, step = place.get(row["parent_id"], (None, None))
        is_comparable = session_id == row["session_id"] and row["copy_of"] is None
        row["parent_step"] = step if is_comparable else None
        row["fitness_state"] = _number_state(row["fitness"])
    return _frame(rows, ["node_id", "session_id", "step", "selected_step", "parent_step", "fitness_state"])


def choice_facts(home: "Home") -> "pd.DataFrame":
    """One row per node on a trajectory: its own step, and the last step that the search knew when it chose it."""
    tables = _tables(home)
    steps = _column_by_id(tables, "nodes", "node_id", "step")
    rows = [
        {"example_id": row["example_id"], "node_id": state["node_id"], "selected_step": state["selected_step"]}
        for row in tables.read("sft_trajectories", columns=["example_id", "states"]).to_pylist()
        for state in row["states"] or []
    ]
    for row in rows:
        row["step"] = steps.get(row["node_id"])
    return _frame(rows, ["example_id", "node_id", "step", "selected_step"])


def pair_facts(home: "Home") -> "pd.DataFrame":
    """One row per preference pair: both nodes and both fitnesses."""
    columns = ["example_id", "chosen_id", "rejected_id", "chosen_fitness", "rejected_fitness"]
    return _frame(_tables(home).read("dpo_pairs", columns=columns).to_pylist(), columns)


def cohort_facts(home: "Home") -> "pd.DataFrame":
    """One row per cohort: how many members it says it has and has, and the sums of its members' advantages."""
    cohorts: dict[str, dict[str, Any]] = {}
    columns = ["cohort_id", "num_members", "advantage", "advantage_unscaled"]
    for row in _tables(home).read("grpo_cohorts", columns=columns).to_pylist():
        cohort = cohorts.setdefault(
            row["cohort_id"],
            {
                "cohort_id": row["cohort_id"],
                "num_members": row["num_members"],
                "rows": 0,
                "advantage_sum": 0.0,
                "advantage_unscaled_sum": 0.0,
            },
        )
        cohort["rows"] += 1
        cohort["advantage_sum"] += row["advantage"]
        cohort["advantage_unscaled_sum"] += row["advantage_unscaled"]
    return _frame(cohorts.values(), ["cohort_id", "num_members", "rows", "advantage_sum", "advantage_unscaled_sum"])


def value_facts(home: "Home") -> "pd.DataFrame":
    """One row per value example: its step, and the step of the descendant whose fitness is its label."""
    tables = _tables(home)
    steps = _column_by_id(tables, "nodes", "node_id", "step")
    rows = tables.read("value_examples", columns=["example_id", "node_id", "step", "best_descendant_id"]).to_pylist()
    for row in rows:
        row["label_step"] = steps.get(row["best_descendant_id"])
    return _frame(rows, ["example_id", "node_id", "step", "label_step"])


def source_facts(view: str) -> "Callable[[Home], pd.DataFrame]":
    """One row per example and node whose content it holds: `stands`, `unknown` (no such node) or `withdrawn`."""

    def facts(home: "Home") -> "pd.DataFrame":
        tables = _tables(home)
        known = set(tables.read("nodes", columns=["node_id"])["node_id"].to_pylist())
        withdrawn = _reached(tables, {"withdraw"})
        rows = [
            {
                "example_id": row["example_id"],
                "node_id": node_id,
                "standing": "unknown" if node_id not in known else "withdrawn" if node_id in withdrawn else "stands",
            }
            for row in tables.read(view, columns=["example_id", "source_node_ids"]).to_pylist()
            for node_id in row["source_node_ids"]
        ]
        return _frame(rows, ["example_id", "node_id", "standing"])

    return facts


def member_facts(view: str, columns: tuple[str, ...]) -> "Callable[[Home], pd.DataFrame]":
    """One row per example and node that is learned from: `live`, or `retracted` whatever the kind."""

    def facts(home: "Home") -> "pd.DataFrame":
        tables = _tables(home)
        retracted = _reached(tables, {"withdraw", "invalidate"})
        rows = [
            {
                "example_id": row["example_id"],
                "node_id": node_id,
                "standing": "retracted" if node_id in retracted else "live",
            }
            for row in tables.read(view, columns=["example_id", *columns]).to_pylist()
            for column in columns
            for node_id in (row[column] if isinstance(row[column], list) else [row[column]])
            if node_id is not None
        ]
        return _frame(rows, ["example_id", "node_id", "standing"])

    return facts


def _tables(home: "Home") -> "Tables":
    from store.delta import Tables
    from views.registry import declare_views

    tables = Tables(home)
    declare_views(tables)
    return tables


def _reached(tables: "Tables", kinds: set[str]) -> set[str]:
    rows = tables.read("node_reach", columns=["node_id", "kind"]).to_pylist()
    return {row["node_id"] for row in rows if row["kind"] in kinds}


def _column_by_id(tables: "Tables", table: str, key: str, column: str) -> dict[str, Any]:
    rows = tables.read(table, columns=[key, column])
    return dict(zip(rows[key].to_pylist(), rows[column].to_pylist(), strict=True))


def _number_state(value: float | None) -> str:
    """Said in words, since a frame holds NaN for `unknown` and for `not a number` alike."""
    if value is None:
        return "unknown"
    return "finite" if math.isfinite(value) else "not finite"


def _frame(rows: "Iterable[dict[str, Any]]", columns: list[str]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(list(rows), columns=columns)

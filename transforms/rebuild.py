"""Puts one session together again from its stored and its new rows.

Steps, ancestors, replayed statistics and current values depend on the whole session, so they are computed anew
whenever a file adds to it. The result is the same in whatever order the files came.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from store.ids import number_text
from transforms.replay import EVALUATION, STATISTICS, by_field, clock, corrected_reward, session_changes
from transforms.stored import Stored
from transforms.structure import Row, ancestors_of, log_order, number_steps


@dataclass
class Rebuilt:
    """All rows of one session as they should be, less session_seq."""

    nodes: list[Row]
    changes: list[Row]
    next_step: int


@dataclass
class Genealogy:
    """Who is whose parent, over every node that is known, of this session or another."""

    parents: dict[str, str | None] = field(default_factory=dict)

    def add(self, rows: Iterable[Row]) -> None:
        """Make nodes known."""
        self.parents.update({row["node_id"]: row["parent_id"] for row in rows})

    def add_path(self, row: Row) -> None:
        """Make a stored node of another session known, with all its ancestors."""
        path = [*(row["ancestors"] or ()), row["node_id"]]
        for parent, child in zip([None, *path], path, strict=False):
            self.parents.setdefault(child, parent)

    def ancestors(self, node_id: str) -> list[str]:
        """Known ancestors, root first."""
        return ancestors_of(node_id, self.parents.get, self.parents.__contains__)


def rebuild_session(
    session_id: str,
    stored: Stored,
    new_nodes: list[Row],
    new_changes: list[Row],
    genealogy: Genealogy,
    *,
    failure_reward: float | None,
) -> Rebuilt:
    """Compute every row of a session that depends on the rest of it.

    Args:
        session_id: The session.
        stored: What the tables hold of it.
        new_nodes: Rows of nodes that are not stored yet, in the order of their log.
        new_changes: Recorded change rows that are not stored yet.
        genealogy: Parents of all nodes that are known.
        failure_reward: What the session's task gives to a failure; None: nothing.
    """
    stored_nodes = [dict(row) for row in stored.nodes.values() if row["session_id"] == session_id]
    stored_changes = [row for row in stored.changes.values() if row["session_id"] == session_id]
    evaluations = _first_evaluations(stored_nodes, stored_changes)
    evaluations |= {row["node_id"]: {name: row[name] for name in EVALUATION} for row in new_nodes}
    _mark_counted(stored_nodes, stored_changes)

    nodes = sorted(stored_nodes, key=lambda row: (row["step"], row["node_id"])) + new_nodes
    _keep_true_copies(nodes)
    number_steps(nodes)
    for row in nodes:
        row["ancestors"] = genealogy.ancestors(row["node_id"])
        row["depth"] = len(row["ancestors"])
        last_step = row["step"] - 1 if row["step"] > 0 else None
        if last_step is None or row["selected_step"] is None or log_order(row) is not None:
            row["selected_step"] = last_step
        else:  # where the step is derived, a stated choice may not lie after it: that would show the future
            row["selected_step"] = min(row["selected_step"], last_step)

    recorded = [row for row in stored_changes if row["origin"] == "recorded"] + new_changes
    _let_own_changes_win(evaluations, nodes, recorded, failure_reward)
    changes = session_changes(nodes, recorded, evaluations, failure_reward=failure_reward)
    _forget_replayed(stored_nodes, stored_changes)
    _set_current_values(nodes, changes)
    clocks = [row["step"] for row in nodes] + [row["recorded_step"] for row in recorded]
    return Rebuilt(nodes, changes, next_step=max(clocks, default=-1) + 1)


def _first_evaluations(nodes: list[Row], changes: list[Row]) -> dict[str, dict[str, Any]]:
    """What each stored node was first judged to be, whatever corrections followed."""
    evaluations = {row["node_id"]: {name: row[name] for name in EVALUATION} for row in nodes}
    own_step = {row["node_id"]: row["step"] for row in nodes}
    for change in sorted(changes, key=clock, reverse=True):
        step = own_step.get(change["node_id"] or "")
        if change["field"] in EVALUATION and step == change["step"] == change["recorded_step"]:
            evaluations[change["node_id"]][change["field"]] = json.loads(change["new_value"])
    return evaluations


def _let_own_changes_win(
    evaluations: dict[str, dict[str, Any]], nodes: list[Row], recorded: list[Row], failure_reward: float | None
) -> None:
    """A change recorded at a node's own clocks is its evaluation, whether it came with the node's line or later."""
    own_step = {row["node_id"]: row["step"] for row in nodes}
    said: dict[str, dict[str, Any]] = {}
    for change in recorded:
        step = own_step.get(change["node_id"] or "")
        if change["field"] in EVALUATION and clock(change) == (step, step, 0):
            said.setdefault(change["node_id"], {})[change["field"]] = json.loads(change["new_value"])
    for node_id, values in said.items():
        evaluations[node_id] |= values | {"reward": corrected_reward(evaluations[node_id], values, failure_reward)}


def _mark_counted(nodes: list[Row], changes: list[Row]) -> None:
    """Mark stored nodes whose visits are the log's own final numbers: they have no history."""
    if any(change["field"] == "visits" for change in changes):
        return
    for row in nodes:
        row["log_counts"] = row["visits"] is not None


def _forget_replayed(nodes: list[Row], changes: list[Row]) -> None:
    """Take back visits that were replayed before the log was seen to count them itself."""
    replayed = {(row["node_id"], row["field"]) for row in changes if row["origin"] == "replayed"}
    for row in nodes:
        row.update({name: None for name in STATISTICS if (row["node_id"], name) in replayed})


def _keep_true_copies(nodes: list[Row]) -> None:
    """An island seed that turns out to differ from its original is an attempt of its own."""
    by_id = {row["node_id"]: row for row in nodes}
    for row in nodes:
        original = by_id.get(row["copy_of"] or "")
        if row["copy_kind"] == "island_seed" and original and original["artifact_digest"] != row["artifact_digest"]:
            row["copy_of"] = row["copy_kind"] = None


def _set_current_values(nodes: list[Row], changes: list[Row]) -> None:
    """Current = value(∞, ∞): the last row in the order of the two clocks."""
    last = {key: group[-1] for key, group in by_field(changes).items()}
    for row in nodes:
        for name in (*EVALUATION, *STATISTICS):
            change = last.get((row["node_id"], name))
            if change is not None:
                row[name] = json.loads(change["new_value"])
        row["fitness_text"] = number_text(row["fitness"])
        row["reward_text"] = number_text(row["reward"])

"""Reads what was known of a node at a step: value(S, K), from the change log alone.

value(S, K) is the last row in the order (step, recorded_step, n) with step <= S and recorded_step <= K. S is the step
whose state is asked for, K the step up to which what was written down counts; a correction that was written at step 9
about step 3 is no part of value(5, 5), and is part of value(5, 9).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from store.delta import Tables
from store.errors import UnknownName, WrongUse
from store.home import Home
from transforms.replay import by_field, clock
from transforms.stored import nodes_elsewhere
from transforms.structure import Row

PLACE = ("node_id", "session_id", "session_seq", "step", "selected_step", "parent_id", "ancestors")


@dataclass(frozen=True)
class KnownNode:
    """An ancestor as known then; `fields` is empty where nothing of it was known yet."""

    node_id: str
    session_id: str
    step: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class AsOf:
    """A node and its ancestors as known at (step, known_at).

    `fields` maps a field to its value; a field that was cleared is there with None, one that was never set is
    absent. `session_fields` are the session's own (best_so_far, budget_left). `ancestors` run root to parent; an
    ancestor of another session is read at that session's latest state, since two sessions share no clock.
    """

    node_id: str
    session_id: str
    step: int
    known_at: int
    fields: dict[str, Any]
    session_fields: dict[str, Any]
    ancestors: tuple[KnownNode, ...]


def as_of(home: Home, node_id: str, *, step: int | None = None, known_at: int | None = None) -> AsOf:
    """Read a node and its ancestors as they were known.

    Args:
        home: Where the tables are.
        node_id: The node.
        step: The step S whose state is asked for; the node's own step by default.
        known_at: The step K up to which rows were written down; S by default.

    Raises:
        UnknownName: There is no such node.
        WrongUse: A step is negative.
    """
    for name, value in (("step", step), ("known_at", known_at)):
        if value is not None and value < 0:
            raise WrongUse(f"{name} is {value}; steps count from 0.")
    tables = Tables(home)
    node = _node(tables, node_id)
    at = node["step"] if step is None else step
    known = at if known_at is None else known_at
    path = [*(node["ancestors"] or ()), node_id]
    changes = _changes_of(tables, path, node["session_seq"])
    places = {row["node_id"]: row for row in _places(tables, path)}
    ancestors = []
    for ancestor_id in path[:-1]:
        place = places[ancestor_id]
        is_here = place["session_id"] == node["session_id"]
        fields = values_at(changes.get(ancestor_id, ()), at if is_here else None, known if is_here else None)
        ancestors.append(KnownNode(ancestor_id, place["session_id"], place["step"], fields))
    return AsOf(
        node_id,
        node["session_id"],
        at,
        known,
        values_at(changes.get(node_id, ()), at, known),
        values_at(changes.get(None, ()), at, known),
        tuple(ancestors),
    )


def values_at(rows: Iterable[Mapping[str, Any]], step: int | None, known_at: int | None) -> dict[str, Any]:
    """value(S, K) of every field among the rows of one node; None is no limit: (None, None) is the current value."""
    values = {}
    for (_, name), group in by_field([dict(row) for row in rows]).items():
        seen = [
            row
            for row in group
            if (step is None or row["step"] <= step) and (known_at is None or row["recorded_step"] <= known_at)
        ]
        if seen:
            values[name] = json.loads(seen[-1]["new_value"])
    return dict(sorted(values.items()))


def undo_to(rows: Iterable[Mapping[str, Any]], step: int) -> dict[str, Any]:
    """The values at S = K = `step`, by undoing later rows from the current state, old value by old value.

    Equals `values_at(rows, step, step)`: the change log can be walked both ways on the diagonal, where one clock
    tells everything. Off the diagonal only forward exists.
    """
    values = {}
    for (_, name), group in by_field([dict(row) for row in rows]).items():
        standing = list(group)
        value = standing[-1]["new_value"]
        while standing and (late := [row for row in standing if row["recorded_step"] > step]):
            last_written = max(late, key=lambda row: (row["recorded_step"], *clock(row)))
            if last_written is standing[-1]:
                value = last_written["old_value"]
            standing.remove(last_written)
        if value is not None:
            values[name] = json.loads(value)
    return dict(sorted(values.items()))


def _node(tables: Tables, node_id: str) -> Row:
    version = tables.version("nodes")
    found = nodes_elsewhere(tables, version, "node_id", [node_id], columns=PLACE) if version is not None else []
    if not found:
        raise UnknownName(
            f"no node {node_id!r} was ingested; "
            '`espalier query "select node_id, session_id, step from nodes"` lists them.'
        )
    return found[0]


def _places(tables: Tables, node_ids: list[str]) -> list[Row]:
    version = tables.version("nodes")
    assert version is not None
    return nodes_elsewhere(tables, version, "node_id", node_ids, columns=PLACE)


def _changes_of(tables: Tables, node_ids: list[str], session_seq: int) -> dict[str | None, list[Row]]:
    """Change rows by node id; those of the session itself under None."""
    seqs = {row["session_seq"] for row in _places(tables, node_ids)}
    rows = tables.read("change_log", session_seqs=seqs).to_pylist()
    wanted = set(node_ids)
    found: dict[str | None, list[Row]] = {}
    for row in rows:
        is_own = row["node_id"] is None and row["session_seq"] == session_seq
        if row["node_id"] in wanted or is_own:
            found.setdefault(row["node_id"], []).append(row)
    return found

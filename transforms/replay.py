"""Change-log rows of one session: what its log recorded, and what its evaluation order lets one replay.

Replayed are each node's own evaluation at its own step, visits and total reward along the path of every rewarded
attempt, and the best fitness so far. A recorded row wins over the replayed one of the same clocks. A copy brings no
visit, and visits from below a copy go along its original's path.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from store.ids import canonical_json
from transforms.scoring import as_finite

Row = dict[str, Any]
EVALUATION = ("fitness", "reward", "is_buggy", "failure_class")
STATISTICS = ("visits", "total_reward")
clock = itemgetter("step", "recorded_step", "n")


def session_changes(
    nodes: list[Row], recorded: Iterable[Row], evaluations: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """Every change-log row that a session should have, with old values.

    Args:
        nodes: All nodes of one session, with their steps.
        recorded: Rows whose origin is `recorded`, of that session.
        evaluations: Per node id, its evaluation as first reported (before any correction).

    Returns:
        Rows of `change_log` less session_seq; those made here have origin `replayed`.
    """
    recorded = list(recorded)
    ordered = sorted(nodes, key=itemgetter("step", "node_id"))
    rows = _evaluation_rows(ordered, evaluations)
    if not _has_statistics(nodes, recorded):
        rows += _statistics_rows(ordered, evaluations)
    if not any(row["field"] == "best_so_far" for row in recorded):
        rows += _best_rows(ordered, evaluations)
    rows += _rewards_of_corrections(ordered, recorded, evaluations)
    # Later entries win: a correction over the evaluation, a recorded row over a replayed one of the same clocks.
    everything = {(row["node_id"], row["field"], *clock(row)): dict(row) for row in [*rows, *recorded]}
    changes = list(everything.values())
    set_old_values(changes)
    return changes


def set_old_values(rows: list[Row]) -> None:
    """Fill `old_value`: the predecessor's value among rows of the same field that were recorded no later."""
    for of_field in by_field(rows).values():
        for position, row in enumerate(of_field):
            earlier = (of_field[place] for place in range(position - 1, -1, -1))
            known_then = (before["new_value"] for before in earlier if before["recorded_step"] <= row["recorded_step"])
            row["old_value"] = next(known_then, None)


def by_field(rows: Iterable[Row]) -> dict[tuple[str | None, str], list[Row]]:
    """Rows grouped by (node, field), each group in the order of the two clocks."""
    groups: dict[tuple[str | None, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["node_id"], row["field"]), []).append(row)
    for group in groups.values():
        group.sort(key=clock)
    return groups


def _has_statistics(nodes: list[Row], recorded: list[Row]) -> bool:
    """Whether the log counted visits itself, as a history or as final numbers."""
    return any(row["field"] in STATISTICS for row in recorded) or any(node.get("log_counts") for node in nodes)


def _assign(node: Row, name: str, value: Any, *, step: int | None = None, node_id: str | None = "") -> Row:
    at = node["step"] if step is None else step
    return {
        "session_id": node["session_id"],
        "node_id": node["node_id"] if node_id == "" else node_id,
        "field": name,
        "step": at,
        "recorded_step": at,
        "n": 0,
        "old_value": None,
        "new_value": canonical_json(value),
        "origin": "replayed",
        "source_id": node["source_id"],
    }


def _evaluation_rows(ordered: list[Row], evaluations: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows = []
    for node in ordered:
        stated = evaluations[node["node_id"]]
        rows += [_assign(node, name, stated[name]) for name in EVALUATION]
        if node["island"] is not None:
            rows.append(_assign(node, "island", node["island"]))
    return rows


def _statistics_rows(ordered: list[Row], evaluations: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    by_id = {node["node_id"]: node for node in ordered}
    visits = dict.fromkeys(by_id, 0)
    totals = dict.fromkeys(by_id, 0.0)
    rows = []
    for node in ordered:
        reward = evaluations[node["node_id"]]["reward"]
        counts = reward is not None and node["copy_of"] is None
        path = _path_of_originals(node, by_id) if counts else [node["node_id"]]
        for node_id in path:
            if counts:
                visits[node_id] += 1
                totals[node_id] += reward
            rows.append(_assign(node, "visits", visits[node_id], node_id=node_id))
            # A sum that no float holds is unknown.
            rows.append(_assign(node, "total_reward", as_finite(totals[node_id]), node_id=node_id))
    return rows


def _path_of_originals(node: Row, by_id: Mapping[str, Row]) -> list[str]:
    """The node and its ancestors in this session, every copy replaced by its original."""
    path = [node["node_id"]]
    at = node["parent_id"]
    passed: set[str] = {node["node_id"]}
    while at in by_id and at not in passed:
        passed.add(at)
        here = by_id[at]
        if here["copy_of"] is None:
            # A parent evaluated later than its child (a broken order) has no row to add to yet.
            if here["step"] <= node["step"]:
                path.append(at)
            at = here["parent_id"]
        else:
            at = here["copy_of"]
    return path


def _best_rows(ordered: list[Row], evaluations: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    best = None
    for position, node in enumerate(ordered):
        stated = evaluations[node["node_id"]]
        fitness = None if node["copy_of"] is not None or stated["is_buggy"] else stated["fitness"]
        rises = fitness is not None and (best is None or fitness > best)
        if rises:
            best = fitness
        if rises or position == 0:
            rows.append(_assign(node, "best_so_far", best, node_id=None))
    return rows


def _rewards_of_corrections(
    ordered: list[Row], recorded: list[Row], evaluations: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """Where the reward was the fitness, a corrected fitness corrects the reward at the same clocks."""
    own_reward = {(row["node_id"], *clock(row)) for row in recorded if row["field"] == "reward"}
    by_id = {node["node_id"]: node for node in ordered}
    rows = []
    for change in recorded:
        node = by_id.get(change["node_id"] or "")
        if node is None or change["field"] != "fitness" or (change["node_id"], *clock(change)) in own_reward:
            continue
        stated = evaluations[node["node_id"]]
        if stated["reward"] == stated["fitness"]:
            row = _assign(node, "reward", None) | {name: change[name] for name in ("step", "recorded_step", "n")}
            rows.append(row | {"new_value": change["new_value"], "source_id": change["source_id"]})
    return rows

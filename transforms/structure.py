"""The shape of one session's attempt graph: evaluation order, ancestors, depth and the edges.

Works on table rows (mappings with the columns of `nodes`), since stored and new nodes take part alike.
"""

import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transforms.records import LogOrder

Row = dict[str, Any]
ORDER_KEY = "log_order"  # where `nodes.evidence` keeps a node's LogOrder


def log_order(row: Mapping[str, Any]) -> LogOrder | None:
    """The order that the log gave this node, from its evidence; None where its step was recorded."""
    text = row.get("evidence")
    if not text or ORDER_KEY not in text:
        return None
    stated = json.loads(text).get(ORDER_KEY)
    return LogOrder(*stated) if stated else None


def number_steps(rows: list[Row]) -> None:
    """Give every node of one session its step, in place.

    Recorded steps stay. Nodes of a log that orders otherwise are numbered 0, 1, … in that order, a parent always
    before its children, so the numbers do not depend on which files came first. What has neither follows the
    highest step of the rows before it, so that a log read as it grows ends like one read whole.
    """
    ordered = [(order, row) for row in rows if (order := log_order(row)) is not None]
    if ordered:
        for step, row in enumerate(_parents_first(ordered)):
            row["step"] = step
    highest = -1
    for row in rows:
        if row["step"] is None:
            row["step"] = highest + 1
        highest = max(highest, row["step"])


def _parents_first(ordered: list[tuple[LogOrder, Row]]) -> list[Row]:
    by_id = {row["node_id"]: (order.sort_key(), row) for order, row in ordered}
    children: dict[str, list[str]] = {}
    waiting_for: dict[str, int] = dict.fromkeys(by_id, 0)
    for node_id, (_, row) in by_id.items():
        if row["parent_id"] in by_id and row["parent_id"] != node_id:
            children.setdefault(row["parent_id"], []).append(node_id)
            waiting_for[node_id] = 1
    ready = [(key, node_id) for node_id, (key, _) in by_id.items() if not waiting_for[node_id]]
    heapq.heapify(ready)
    placed: list[Row] = []
    while ready:
        _, node_id = heapq.heappop(ready)
        placed.append(by_id[node_id][1])
        for child_id in children.get(node_id, ()):
            heapq.heappush(ready, (by_id[child_id][0], child_id))
    in_a_circle = sorted(set(by_id) - {row["node_id"] for row in placed})
    return placed + [by_id[node_id][1] for node_id in in_a_circle]


def ancestors_of(node_id: str, parent_of: Callable[[str], str | None], is_known: Callable[[str], bool]) -> list[str]:
    """Node ids from the oldest known ancestor to the parent; a circle of parents ends where it would repeat."""
    path: list[str] = []
    seen = {node_id}
    parent_id = parent_of(node_id)
    while parent_id is not None and parent_id not in seen and is_known(parent_id):
        path.append(parent_id)
        seen.add(parent_id)
        parent_id = parent_of(parent_id)
    return path[::-1]


def edges_of(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The edges into these nodes, one row per (src, dst, kind): parent, context and copy."""
    edges: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        sources = [(row["parent_id"], "parent"), (row["copy_of"], "copy")]
        sources += [(shown["node_id"], "context") for shown in row["context"] or ()]
        for src, kind in sources:
            if src is not None:
                edge = {"src": src, "dst": row["node_id"], "kind": kind}
                edges[src, row["node_id"], kind] = edge | {
                    "session_seq": row["session_seq"],
                    "source_id": row["source_id"],
                }
    return list(edges.values())

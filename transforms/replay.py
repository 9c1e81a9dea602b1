"""Change-log rows of one session: what its log recorded, and what its evaluation order lets one replay.

Replayed are each node's own evaluation at its own step, visits and total reward along the path of every rewarded
attempt, and the best fitness so far. A recorded row wins over the replayed one of the same clocks. A copy brings no
visit, and visits from below a copy go along its original's path.
"""

import json
from bisect import bisect_right, insort
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

from store.ids import canonical_json
from transforms.scoring import Score, as_finite, reward_of

Row = dict[str, Any]
Clock = tuple[int, int, int]
EVALUATION = ("fitness", "reward", "is_buggy", "failure_class")
STATISTICS = ("visits", "total_reward")
clock = itemgetter("step", "recorded_step", "n")


def session_changes(
    nodes: list[Row],
    recorded: Iterable[Row],
    evaluations: Mapping[str, Mapping[str, Any]],
    *,
    failure_reward: float | None,
) -> list[Row]:
    """Every change-log row that a session should have, with old values.

    Args:
        nodes: All nodes of one session, with their steps.
        recorded: Rows whose origin is `recorded`, of that session.
        evaluations: Per node id, its evaluation as first reported (before any correction).
        failure_reward: What the session's task gives to a failure; None: nothing.

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
    rows += _rewards_of_corrections(ordered, recorded, evaluations, failure_reward)
    # Later entries win: a recorded row over a replayed one of the same clocks.
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


def corrected_reward(before: Mapping[str, Any], said: Mapping[str, Any], failure_reward: float | None) -> float | None:
    """The reward after a correction: by the rule where it was by the rule before, else what the log stated.

    Args:
        before: The evaluation so far: fitness, reward, is_buggy, failure_class.
        said: The fields of it that are corrected. Of a fitness and a failure that contradict each other the one that
            was said last counts.
        failure_reward: What the task gives to a failure; None: nothing.
    """
    if "reward" in said:
        return as_finite(said["reward"])
    is_fitness = before["reward"] == before["fitness"]
    of_failure = reward_of(Score(None, before["is_buggy"], before["failure_class"]), failure_reward)
    if not is_fitness and not (before["is_buggy"] and before["reward"] == of_failure):
        return as_finite(before["reward"])
    after = {**before, **said}
    is_failure = after["is_buggy"] and "fitness" not in said and ("is_buggy" in said or not is_fitness)
    score = Score(None if is_failure else after["fitness"], after["is_buggy"], after["failure_class"])
    return reward_of(score, failure_reward)


def _rewards_of_corrections(
    ordered: list[Row],
    recorded: Iterable[Row],
    evaluations: Mapping[str, Mapping[str, Any]],
    failure_reward: float | None,
) -> list[Row]:
    """The rewards that follow from corrected evaluations, at the clocks of the corrections."""
    by_node: dict[str | None, list[Row]] = {}
    for row in recorded:
        if row["field"] in EVALUATION:
            by_node.setdefault(row["node_id"], []).append(row)
    rows: list[Row] = []
    for node in ordered:
        corrections = [row for row in by_node.get(node["node_id"], ()) if clock(row) != (node["step"], node["step"], 0)]
        if corrections:
            own = [_assign(node, name, evaluations[node["node_id"]][name]) for name in EVALUATION]
            rows += _rewards_of_one(node, own, corrections, failure_reward)
    return rows


def _rewards_of_one(node: Row, own: list[Row], corrections: list[Row], failure_reward: float | None) -> list[Row]:
    """Go through a node's corrections as they were written down.

    One about a step also tells of the later steps of which something was known by then.
    """
    log = {name: group for (_, name), group in by_field([*own, *corrections]).items()}
    at_once: dict[Clock, list[Row]] = {}
    for row in corrections:
        at_once.setdefault(clock(row), []).append(row)
    rows = []
    for step, written, n in sorted(at_once, key=itemgetter(1, 0, 2)):
        here = (step, written, n)
        after = (row for group in log.values() for row in group[bisect_right(group, here, key=clock) :])
        for of_step in sorted({step, *(row["step"] for row in after if row["recorded_step"] <= written)}):
            at = (of_step, written, n)
            before = {name: _standing(group, at, leave_out=(here, at)) for name, group in log.items()}
            said = [row for row in at_once[here] if _standing(log[row["field"]], at) is row]
            if not said or None in before.values() or any(row["field"] == "reward" for row in said):
                continue
            values = {name: json.loads(row["new_value"]) for name, row in before.items() if row is not None}
            corrected = {row["field"]: json.loads(row["new_value"]) for row in said}
            reward = corrected_reward(values, corrected, failure_reward)
            if reward != values["reward"]:
                row = _assign(node, "reward", reward, step=of_step)
                rows.append(row | {"recorded_step": written, "n": n, "source_id": said[0]["source_id"]})
                insort(log["reward"], rows[-1], key=clock)
    return rows


def _standing(group: list[Row], at: Clock, *, leave_out: tuple[Clock, ...] = ()) -> Row | None:
    """The last of a field's rows up to these clocks, as far as they were written down by then."""
    for place in range(bisect_right(group, at, key=clock) - 1, -1, -1):
        row = group[place]
        if row["recorded_step"] <= at[1] and clock(row) not in leave_out:
            return row
    return None

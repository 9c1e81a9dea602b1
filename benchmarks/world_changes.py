"""Changes to a generated world, committed as ingest commits them: one merge or append per table, nodes last.

Each is chosen by (seed, trial) alone. The new sessions of `append_tail` are the same in worlds of any size, and the
sessions of the other changes are drawn until they hold as many nodes as sessions do in the mean, so that a change of
one size can be compared between worlds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.world_generator import load_plan, save_plan
from benchmarks.world_sessions import MEAN_NODES, session_size
from benchmarks.world_tables import TAIL_KEYS, Placed, WorldPlan, metrics_text, session_tables
from store.delta import CHANGE, Tables
from store.home import Home
from store.ids import number_text

CORRECTED_PER_SESSION = 3
REMOVED_PER_SESSION = 3
BACKPROPAGATED = 0.5
Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What a change was about: sessions by session_seq, nodes as rows of `nodes` that it wrote or removed."""

    session_seqs: tuple[int, ...]
    num_nodes: int


def append_tail(home: Home, num_sessions: int = 10) -> Change:
    """Add new sessions of existing tasks, every second one of a task without a baseline."""
    plan, next_seq = load_plan(home)
    first_key = TAIL_KEYS + next_seq - plan.num_sessions - 1
    placed = [Placed(first_key + place, next_seq + place) for place in range(num_sessions)]
    rows = session_tables(plan, placed)
    tables = Tables(home)
    for name, added in rows.items():
        _commit(tables, name, added, "insert")
    save_plan(home, plan, next_seq=next_seq + num_sessions)
    return Change(tuple(place.seq for place in placed), rows["nodes"].num_rows)


def correct_scattered(home: Home, num_sessions: int = 10, *, trial: int = 0) -> Change:
    """Correct the scores of three nodes in each of some old sessions, anywhere in the table."""
    plan, _ = load_plan(home)
    rng = _rng(plan, "correct", trial)
    return _correct(Tables(home), _old_sessions(plan, rng, num_sessions), rng)


def correct_share(home: Home, share: float, *, trial: int = 0) -> Change:
    """Correct scores in so many old sessions that they hold about this share of the generated nodes."""
    plan, _ = load_plan(home)
    rng = _rng(plan, "share", trial)
    sizes = {seq: session_size(plan.seed, seq) for seq in range(1, plan.num_sessions + 1)}
    left = share * sum(sizes.values())
    if left <= max(sizes.values()):
        chosen = [min(sizes, key=lambda seq: abs(sizes[seq] - left))]
    else:
        chosen = []
        for seq in (rng.permutation(plan.num_sessions) + 1).tolist():
            if sizes[seq] <= left:
                chosen.append(seq)
                left -= sizes[seq]
    return _correct(Tables(home), sorted(chosen), rng)


def _correct(tables: Tables, seqs: list[int], rng: np.random.Generator) -> Change:
    next_steps = _advance_sessions(tables, seqs)
    corrected: list[Row] = []
    for rows in _nodes_by_session(tables, seqs):
        sound = [row for row in rows if row["fitness"] is not None and row["copy_of"] is None]
        for place in rng.permutation(len(sound))[:CORRECTED_PER_SESSION]:
            corrected.append(sound[place])
    log = []
    for row in corrected:
        before = {"fitness": row["fitness_text"], "reward": row["reward_text"]}
        row["fitness"] = row["reward"] = round(row["fitness"] + 0.3 * float(rng.normal()), 6)
        row["fitness_text"] = row["reward_text"] = number_text(row["fitness"])
        row["metrics"] = metrics_text(row["fitness"], row["step"])
        for name, origin in (("fitness", "recorded"), ("reward", "replayed")):
            log.append(
                _change_row(row, name, row["step"], next_steps[row["session_seq"]], before[name], row[f"{name}_text"])
                | {"origin": origin}
            )
    _commit(tables, "change_log", _rows(tables, "change_log", log), "insert")
    _commit(tables, "nodes", _rows(tables, "nodes", corrected), "update")
    return Change(tuple(seqs), len(corrected))


def backprop_only(home: Home, *, trial: int = 0) -> Change:
    """Add a visit and a reward along the path of one node of an old session, at a step after its last node."""
    plan, _ = load_plan(home)
    tables = Tables(home)
    seqs = _old_sessions(plan, _rng(plan, "backprop", trial), 1)
    next_steps = _advance_sessions(tables, seqs)
    rows = [row for row in next(_nodes_by_session(tables, seqs)) if row["copy_of"] is None]
    deepest = max(rows, key=lambda row: (row["depth"], row["node_id"]))
    path_ids = {*deepest["ancestors"], deepest["node_id"]}
    path = [row for row in rows if row["node_id"] in path_ids]
    log = []
    for row in path:
        step = next_steps[row["session_seq"]]
        for name, added in (("visits", 1), ("total_reward", BACKPROPAGATED)):
            before = row[name]
            row[name] = before + added
            log.append(_change_row(row, name, step, step, repr(before), repr(row[name])))
    _commit(tables, "change_log", _rows(tables, "change_log", log), "insert")
    _commit(tables, "nodes", _rows(tables, "nodes", path), "update")
    return Change(tuple(seqs), len(path))


def remove_nodes(home: Home, num_sessions: int = 10, *, trial: int = 0) -> Change:
    """Take up to three nodes without children out of each of some old sessions, with their turns, log and edges."""
    plan, _ = load_plan(home)
    tables = Tables(home)
    rng = _rng(plan, "remove", trial)
    seqs = _old_sessions(plan, rng, num_sessions)
    removed: list[Row] = []
    for rows in _nodes_by_session(tables, seqs):
        used = {row["parent_id"] for row in rows} | {row["copy_of"] for row in rows}
        free = [row for row in rows if row["node_id"] not in used and row["step"] > 0 and row["fitness"] is not None]
        removed += [free[place] for place in rng.permutation(len(free))[:REMOVED_PER_SESSION]]
    node_ids = pa.array([row["node_id"] for row in removed], pa.string())
    for name, column in (("change_log", "node_id"), ("node_edges", "dst"), ("prompt_history", "node_id")):
        rows = tables.read(name, session_seqs=seqs)
        _commit(tables, name, rows.filter(pc.is_in(rows[column], node_ids)), "delete")
    _commit(tables, "nodes", _rows(tables, "nodes", removed), "delete")
    return Change(tuple(seqs), len(removed))


def _rng(plan: WorldPlan, purpose: str, trial: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([plan.seed, *purpose.encode(), trial]))


def _old_sessions(plan: WorldPlan, rng: np.random.Generator, count: int) -> list[int]:
    """Random sessions of the generated world that hold about as many nodes as so many sessions do in the mean."""
    count = min(count, plan.num_sessions)
    wanted = count * MEAN_NODES
    best: list[int] = []
    error = float("inf")
    for _ in range(200):
        seqs = sorted((rng.permutation(plan.num_sessions)[:count] + 1).tolist())
        off = abs(sum(session_size(plan.seed, seq) for seq in seqs) - wanted)
        if off < error:
            best, error = seqs, off
        if error <= 0.05 * wanted:
            break
    return best


def _nodes_by_session(tables: Tables, seqs: list[int]) -> Iterable[list[Row]]:
    rows = tables.read("nodes", session_seqs=seqs).to_pylist()
    return iter([[row for row in rows if row["session_seq"] == seq] for seq in seqs])


def _advance_sessions(tables: Tables, seqs: list[int]) -> dict[int, int]:
    """The step at which a correction is written down, per session; the session's next one is one later."""
    rows = tables.read("sessions", session_seqs=seqs).to_pylist()
    steps = {row["session_seq"]: row["next_step"] for row in rows}
    for row in rows:
        row["next_step"] += 1
    _commit(tables, "sessions", _rows(tables, "sessions", rows), "update")
    return steps


def _change_row(node: Row, name: str, step: int, recorded_step: int, old: str | None, new: str | None) -> Row:
    return {
        "session_id": node["session_id"],
        "session_seq": node["session_seq"],
        "node_id": node["node_id"],
        "field": name,
        "step": step,
        "recorded_step": recorded_step,
        "n": 0,
        "old_value": old,
        "new_value": new,
        "origin": "recorded",
        "source_id": node["source_id"],
    }


def _rows(tables: Tables, name: str, rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=tables.schema(name).columns)


def _commit(tables: Tables, name: str, rows: pa.Table, kind: str) -> None:
    if rows.num_rows == 0:
        return
    version = tables.version(name)
    assert version is not None, f"{name} was never created"
    changes = rows.append_column(CHANGE, pa.array([kind] * rows.num_rows, pa.string()))
    tables.commit_rows(name, changes, planned_at=version)

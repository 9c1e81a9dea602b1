"""Rows of the base tables for sessions of the generated world, as ingest would write them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from benchmarks.world_change_log import change_rows, node_order, repeated
from benchmarks.world_sessions import (
    ELSEWHERE,
    FAILURE_REWARD,
    SYSTEM_TURN,
    Session,
    hashed,
    make_session,
    node_id,
    source_id,
)
from store.ids import canonical_json, number_text, sha256_text
from store.schema import TABLES

NODES_PER_TASK = 10_000
TAIL_KEYS = 1_000_000_000  # keys of sessions that are added later, so that they are the same in worlds of any size
BASIS, VERIFIER = "measured", "judge@1"
BASELINE = 1.2  # reached by about a quarter of the nodes that did not fail
ENVIRONMENTS = tuple(
    canonical_json({"hardware": hardware, "precision": "bf16", "versions": {"compiler": "3.9", "runtime": "12.8"}})
    for hardware in ("accelerator-a", "accelerator-b")
)
ENVIRONMENT_DIGESTS = tuple(sha256_text(text) for text in ENVIRONMENTS)
Columns = dict[str, list[object]]


@dataclass(frozen=True)
class WorldPlan:
    """What a generated world is made from; `num_tasks` is even, and every second task has no baseline."""

    seed: int
    num_sessions: int
    num_tasks: int

    def task_index(self, key: int) -> int:
        """The task of a session: any, with a baseline where the key is even."""
        draw = int(hashed("task", self.seed, key)[5:17], 16)
        return 2 * (draw % (self.num_tasks // 2)) + key % 2

    def task_id(self, index: int) -> str:
        """The id of a task."""
        return hashed("t", self.seed, "task", index)

    def earlier_session(self, key: int, seq: int) -> int | None:
        """An earlier session (key and session_seq are equal among the first ones) of the same task, if there is one."""
        wanted = self.task_index(key)
        before = range(min(seq - 1, self.num_sessions), 0, -1)
        return next((other for other in before if self.task_index(other) == wanted), None)


@dataclass(frozen=True)
class Placed:
    """A session's content and its place in the table."""

    key: int
    seq: int


def plan_world(num_nodes: int, seed: int) -> WorldPlan:
    """A world of about so many nodes: 100 per session and 100 sessions per task in the mean."""
    return WorldPlan(seed, max(round(num_nodes / 100), 1), max(2 * round(num_nodes / NODES_PER_TASK / 2), 2))


def task_rows(plan: WorldPlan) -> pa.Table:
    """All tasks."""
    rows = [
        {
            "task_id": plan.task_id(index),
            "domain": "program",
            "specification": f"Task {index}: make the program score as high as it can on inputs it has not seen.",
            "metric": "score",
            "direction": "max",
            "baseline_fitness": None if index % 2 else BASELINE,
            "baseline_basis": None if index % 2 else BASIS,
            "failure_reward": FAILURE_REWARD,
            "source_id": "world",
        }
        for index in range(plan.num_tasks)
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["tasks"].columns)


def session_tables(plan: WorldPlan, placed: Sequence[Placed]) -> dict[str, pa.Table]:
    """Rows of sessions, nodes, prompt_history, change_log and node_edges, each in its table's order."""
    made = [(place.seq, make_session(plan.seed, place.key)) for place in placed]
    nodes: Columns = {name: [] for name in TABLES["nodes"].columns.names}
    edges: Columns = {name: [] for name in TABLES["node_edges"].columns.names}
    for place, (_, session) in zip(placed, made, strict=True):
        _add_nodes(plan, place, session, nodes, edges)
    return {
        "change_log": change_rows(made),
        "node_edges": _sorted("node_edges", edges),
        "prompt_history": _prompt_rows(made),
        "sessions": pa.Table.from_pylist(
            [_session_row(plan, place, session) for place, (_, session) in zip(placed, made, strict=True)],
            schema=TABLES["sessions"].columns,
        ),
        "nodes": pa.table(nodes, schema=TABLES["nodes"].columns),
    }


def _sorted(table: str, columns: Columns) -> pa.Table:
    schema = TABLES[table]
    rows = pa.table(columns, schema=schema.columns)
    return rows.sort_by([(column, "ascending") for column in schema.sort])


def _session_row(plan: WorldPlan, place: Placed, session: Session) -> dict[str, object]:
    return {
        "session_id": session.session_id,
        "session_seq": place.seq,
        "task_id": plan.task_id(plan.task_index(place.key)),
        "next_step": len(session),
        "user_id": f"user-{place.key % 37}",
        "algorithm": "ucb",
        "model": f"proposer-{place.key % 3}",
        "config": canonical_json({"siblings": 4, "deepest": 10}),
        "budget": canonical_json({"attempts": len(session)}),
        "ucb_constant": 1.4,
        "status": "done",
        "source_id": source_id(session),
    }


def _add_nodes(plan: WorldPlan, place: Placed, session: Session, nodes: Columns, edges: Columns) -> None:
    size, ids = len(session), session.node_ids
    copy_of, context = _link_sessions(plan, place, session)
    paths = session.paths()
    visits, totals = _statistics(session, paths)
    task_id = plan.task_id(plan.task_index(place.key))
    environment = int(place.key % 5 == 0)
    source = source_id(session)
    artifact_digests = [sha256_text(artifact) for artifact in session.artifacts]
    parent_ids = [ids[parent] if parent >= 0 else None for parent in session.parents]
    columns: dict[str, list[object]] = {
        "node_id": list(ids),
        "session_id": [session.session_id] * size,
        "session_seq": [place.seq] * size,
        "task_id": [task_id] * size,
        "parent_id": list(parent_ids),
        "ancestors": [[ids[step] for step in path[:-1]] for path in paths],
        "context": list(context),
        "context_mode": ["rebuilt"] * size,
        "selected_step": [first - 1 for first in session.first_of_group],
        "step": list(range(size)),
        "depth": list(session.depths),
        "island": list(session.island),
        "operator": ["draft" if parent < 0 else "debug" if session.is_buggy[parent] else "improve"
                     for parent in session.parents],
        "copy_of": list(copy_of),
        "copy_kind": ["migrant" if original else None for original in copy_of],
        "prompt_digest": list(session.prompt_digests),
        "artifact": list(session.artifacts),
        "artifact_digest": list(artifact_digests),
        "content_digest": [sha256_text(canonical_json(list(pair)))
                           for pair in zip(artifact_digests, session.prompt_digests, strict=True)],
        "fitness": list(session.fitness),
        "fitness_text": [number_text(score) for score in session.fitness],
        "reward": list(session.rewards),
        "reward_text": [number_text(reward) for reward in session.rewards],
        "fitness_basis": [BASIS] * size,
        "environment": [ENVIRONMENTS[environment]] * size,
        "environment_digest": [ENVIRONMENT_DIGESTS[environment]] * size,
        "metrics": [metrics_text(score, step) for step, score in enumerate(session.fitness)],
        "is_buggy": list(session.is_buggy),
        "failure_class": list(session.failure_class),
        "evidence": [why and canonical_json({"error": f"{why}: check {step} did not pass", "log": "stderr, last lines"})
                     for step, why in enumerate(session.failure_class)],
        "verifier": [VERIFIER] * size,
        "tokens": [600 + len(artifact) // 4 for artifact in session.artifacts],
        "seconds": [round(1.0 + len(artifact) / 700, 3) for artifact in session.artifacts],
        "outcome": ["failed" if failed else "succeeded" for failed in session.is_buggy],
        "idempotency_key": [f"{session.session_id}#{step}" for step in range(size)],
        "visits": list(visits),
        "total_reward": list(totals),
        "model": [f"proposer-{place.key % 3}"] * size,
        "source_id": [source] * size,
        "source_place": [f"line {step + 1}" for step in range(size)],
    }  # fmt: skip
    for name, values in nodes.items():
        values += columns.get(name) or [None] * size
    for step in range(size):
        shown = [(item["node_id"], "context") for item in context[step] or []]
        for src, kind in [(parent_ids[step], "parent"), (copy_of[step], "copy"), *shown]:
            if src is not None:
                row = {"src": src, "dst": ids[step], "kind": kind, "session_seq": place.seq, "source_id": source}
                for name, value in row.items():
                    edges[name].append(value)


def metrics_text(score: float | None, step: int) -> str:
    """The raw numbers of an evaluation."""
    return canonical_json({"score": score, "checked_inputs": 8 + step % 3})


def _link_sessions(
    plan: WorldPlan, place: Placed, session: Session
) -> tuple[list[str | None], list[list[dict[str, object]] | None]]:
    """What each node copies, and its context.

    One session in a hundred was shown the first node of an earlier one of its task; one in five hundred ends with a
    copy of it.
    """
    copy_of = [session.node_ids[original] if original >= 0 else None for original in session.copy_of]
    context: list[list[dict[str, object]] | None] = [None] * len(session)
    draw = int(hashed("link", plan.seed, place.key)[5:13], 16) / 2**32
    last = len(session) - 1
    other = plan.earlier_session(place.key, place.seq) if draw < 0.012 and copy_of[last] is None else None
    if other is None:
        return copy_of, context
    shown = node_id(plan.seed, other, 0)
    if draw < 0.01:
        session_id = hashed("s", plan.seed, other)
        context[last // 2] = [{"node_id": shown, "session_id": session_id, "step": 0, "role": "inspiration"}]
        return copy_of, context
    original = make_session(plan.seed, other)
    copy_of[last], session.copy_of[last] = shown, ELSEWHERE
    for name in ("fitness", "is_buggy", "failure_class", "rewards", "artifacts", "prompts", "prompt_digests"):
        getattr(session, name)[last] = getattr(original, name)[0]
    return copy_of, context


def _statistics(session: Session, paths: list[list[int]]) -> tuple[list[int], list[float]]:
    """Final visits and total rewards."""
    visits, totals = [0] * len(session), [0.0] * len(session)
    for step, reward in enumerate(session.rewards):
        if reward is not None and session.copy_of[step] < 0:
            for above in paths[step]:
                visits[above] += 1
                totals[above] += reward
    return visits, totals


def _prompt_rows(made: list[tuple[int, Session]]) -> pa.Table:
    schema = TABLES["prompt_history"].columns
    ids = [ident for _, session in made for ident in session.node_ids for _ in (0, 1)]
    sizes = [2 * len(session) for _, session in made]
    contents = [text for _, session in made for prompt in session.prompts for text in (SYSTEM_TURN, prompt)]
    columns = {name: pa.nulls(len(ids), schema.field(name).type) for name in schema.names}
    columns |= {
        "node_id": pa.array(ids),
        "session_id": repeated([session.session_id for _, session in made], sizes),
        "session_seq": repeated([seq for seq, _ in made], sizes),
        "turn": pa.array([0, 1] * (len(ids) // 2), pa.int64()),
        "role": pa.array(["system", "user"] * (len(ids) // 2)),
        "content": pa.array(contents),
        "fidelity": pa.repeat("recorded", len(ids)),
        "source_id": repeated([source_id(session) for _, session in made], sizes),
    }
    rows = pa.table(columns, schema=schema)
    return rows.take(pa.array(node_order(made, repeats=2)))

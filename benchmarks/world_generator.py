"""Generates the world that the benchmarks measure in: the base tables of a home, as ingest leaves them.

    python -m benchmarks.world_generator HOME --nodes 1000000 --seed 1

Every table has the columns, order, change feed, statistics and file sizes that ingest gives it: rows are committed as
ingest commits them, about 50,000 nodes at a time; memory stays below 2 GiB for a world of any size. The same seed gives
the same world, and a session's content is the same in worlds of any size; only the task it belongs to depends on how
many tasks there are. See `world_sessions` for what is imitated, and `world_changes` for the changes that are measured.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from benchmarks.world_sessions import hashed, node_id, session_size
from benchmarks.world_tables import Placed, WorldPlan, plan_world, session_tables, task_rows
from store.delta import CHANGE, Tables
from store.home import Home, open_home
from store.schema import TABLES

NODES_PER_COMMIT = 50_000
PLAN_FILE = "world.json"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def generate(home_path: Path | str, num_nodes: int, seed: int = 1) -> WorldPlan:
    """Write a world of about `num_nodes` nodes (a session more or less) into a new home.

    Raises:
        ValueError: The home has tables already.
    """
    home = open_home(home_path)
    tables = Tables(home)
    if tables.exists("nodes"):
        raise ValueError(f"{home.path} has tables already; generate into a new folder.")
    plan = plan_world(num_nodes, seed)
    tables.upsert("tasks", task_rows(plan))
    with ThreadPoolExecutor(1) as writer:  # the next rows are made while these are written
        writing: Future[None] | None = None
        for placed in _commits(plan):
            rows = session_tables(plan, placed)
            if writing is not None:
                writing.result()
            writing = writer.submit(_append, tables, rows)
        if writing is not None:
            writing.result()
    _write_governance(tables, plan)
    save_plan(home, plan, next_seq=plan.num_sessions + 1)
    return plan


def load_plan(home: Home) -> tuple[WorldPlan, int]:
    """The plan of a generated home, and the session_seq that its next session gets."""
    read = json.loads((home.path / PLAN_FILE).read_text())
    next_seq = read.pop("next_seq")
    return WorldPlan(**read), next_seq


def save_plan(home: Home, plan: WorldPlan, *, next_seq: int) -> None:
    """Keep the plan beside the tables."""
    (home.path / PLAN_FILE).write_text(json.dumps({**vars(plan), "next_seq": next_seq}))


def _commits(plan: WorldPlan) -> Iterator[list[Placed]]:
    """Sessions in order of session_seq, about NODES_PER_COMMIT nodes at a time."""
    placed: list[Placed] = []
    num_nodes = 0
    for seq in range(1, plan.num_sessions + 1):
        placed.append(Placed(key=seq, seq=seq))
        num_nodes += session_size(plan.seed, seq)
        if num_nodes >= NODES_PER_COMMIT or seq == plan.num_sessions:
            yield placed
            placed, num_nodes = [], 0


def _append(tables: Tables, rows: dict[str, pa.Table]) -> None:
    for name, batch in rows.items():
        tables.create(name)
        version = tables.version(name)
        assert version is not None
        changes = batch.append_column(CHANGE, pa.array(["insert"] * batch.num_rows, pa.string()))
        tables.commit_rows(name, changes, planned_at=version)


def _write_governance(tables: Tables, plan: WorldPlan) -> None:
    """A few tags, and retractions of nodes and sessions, spread over the world."""
    count = min(20, plan.num_sessions)
    keys = [1 + place * plan.num_sessions // count for place in range(count)]
    tags = []
    for place, key in enumerate(keys):
        is_session = place % 2 == 0
        tags.append(
            {
                "assignment_id": hashed("a", plan.seed, place),
                "target_kind": "session" if is_session else "node",
                "target_id": hashed("s", plan.seed, key) if is_session else node_id(plan.seed, key, 1),
                "tag": ("internal", "licence:cc-by-nc", "pii")[place % 3],
                "action": "add",
                "reason": "generated",
                "actor": "world",
                "recorded_at": NOON + timedelta(seconds=place),
            }
        )
    retractions = []
    for place, key in enumerate(keys[::4]):
        is_session = place == 0
        retractions.append(
            {
                "retraction_id": hashed("r", plan.seed, place),
                "scope_kind": "session" if is_session else "node",
                "scope_id": hashed("s", plan.seed, key) if is_session else node_id(plan.seed, key, 2),
                "kind": ("withdraw", "invalidate")[place % 2],
                "reason": "generated",
                "actor": "world",
                "recorded_at": NOON + timedelta(seconds=place),
                "reinstates": None,
            }
        )
    tables.upsert("tag_assignments", pa.Table.from_pylist(tags, schema=TABLES["tag_assignments"].columns))
    tables.upsert("retractions", pa.Table.from_pylist(retractions, schema=TABLES["retractions"].columns))


def bytes_on_disk(home: Home) -> dict[str, tuple[int, int]]:
    """Per table its Parquet files' number and bytes."""
    sizes = {}
    for folder in sorted(home.tables.iterdir()):
        files = list(folder.glob("*.parquet"))
        sizes[folder.name] = (len(files), sum(file.stat().st_size for file in files))
    return sizes


def main() -> None:
    """Generate a world and say how long it took and what it weighs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    plan = generate(arguments.home, arguments.nodes, arguments.seed)
    seconds = time.perf_counter() - begin
    home = open_home(arguments.home)
    for name, (files, size) in bytes_on_disk(home).items():
        print(f"{name:16} {files:5} files {size / 2**20:9.1f} MiB")
    rows = Tables(home).open("nodes").count()
    print(f"{rows} nodes, {plan.num_sessions} sessions, {plan.num_tasks} tasks in {seconds:.1f} s")


if __name__ == "__main__":
    main()

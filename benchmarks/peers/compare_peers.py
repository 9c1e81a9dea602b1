"""dpo_pairs kept up by us, by dbt-duckdb and by SQLMesh, through the same changes: seconds, and whether rows are right.

    make bench-peers                # a hundred thousand nodes
    make bench-peers NODES=1000000

A world is generated, its changes are committed to our tables, and the same rows are handed to the peers as Parquet
files that a loader applies in place. After each change every tool runs once in a process that has its imports behind
it, and its pairs are compared, by key and scores, with those that our full recompute gives for the same tables.
README.md says how the peers are configured and why.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.measuring import home_with_the_same_tables, machine
from benchmarks.refresh_child import RefreshChild
from benchmarks.world_changes import append_tail, correct_scattered, remove_nodes
from benchmarks.world_generator import generate
from store.delta import Tables
from store.home import Home
from views.registry import declare_views

FOLDER = Path(__file__).resolve().parent
STEPS: dict[str, Callable[[Home], object]] = {
    "tail": append_tail,
    "scattered": correct_scattered,
    "deletes, flagged": lambda home: remove_nodes(home, trial=0),
    "deletes": lambda home: remove_nodes(home, trial=1),
}
NODE_COLUMNS = ["node_id", "session_id", "task_id", "parent_id", "copy_of", "prompt_digest", "artifact", "fitness",
                "fitness_basis", "environment_digest", "is_buggy"]  # fmt: skip
TURN_COLUMNS = ["node_id", "turn", "role", "content"]
PAIR_COLUMNS = ["chosen_id", "rejected_id", "chosen_fitness", "rejected_fitness"]
VIEW = "dpo_pairs"


def measure_ours(home: Home, data: Path) -> dict[str, dict[str, Any]]:
    """Refresh our view through all steps, and write what the peers are handed and must arrive at."""
    found: dict[str, dict[str, Any]] = {}
    with RefreshChild(home) as child:
        found["first build"] = {"seconds": child.refresh(names=[VIEW])["seconds"]}
        _hand_over(home, data / "0", None)
        for step, (kind, change) in enumerate(STEPS.items(), start=1):
            before = {name: Tables(home).version(name) for name in ("nodes", "prompt_history")}
            change(home)
            found[kind] = {"seconds": child.refresh(names=[VIEW])["seconds"]}
            _hand_over(home, data / str(step), before)
            twin = home_with_the_same_tables(home, data / "twin")
            with RefreshChild(twin) as builder:
                seconds = builder.refresh(names=[VIEW])["seconds"]
            expected, have = (_pairs(at) for at in (twin, home))
            pq.write_table(expected, data / str(step) / "expected.parquet")
            found[kind] |= _differences(have, expected)
        found["full refresh"] = {"seconds": seconds, "stale": 0, "missing": 0}
    return found


def _pairs(home: Home) -> pa.Table:
    tables = Tables(home)
    declare_views(tables)
    return tables.read(VIEW, columns=PAIR_COLUMNS)


def _differences(have: pa.Table, expected: pa.Table) -> dict[str, int]:
    rows = [set(zip(*(table[name].to_pylist() for name in PAIR_COLUMNS), strict=True)) for table in (have, expected)]
    return {"stale": len(rows[0] - rows[1]), "missing": len(rows[1] - rows[0])}


def _hand_over(home: Home, folder: Path, before: dict[str, int | None] | None) -> None:
    """Write rows that are new or other than before, and the ids of nodes that are gone; retracted nodes stay out."""
    folder.mkdir(parents=True)
    tables = Tables(home)
    declare_views(tables)
    reached = pc.unique(tables.read("node_reach", columns=["node_id"])["node_id"])
    for name, file, columns in (("nodes", "nodes", NODE_COLUMNS), ("prompt_history", "turns", TURN_COLUMNS)):
        if before is None:
            rows = tables.read(name, columns=columns)
        else:
            feed = tables.changes(name, start=(before[name] or 0) + 1, columns=columns)
            if name == "nodes":
                gone = feed.filter(pc.equal(feed["_change_type"], "delete")).select(["node_id"])
                pq.write_table(gone, folder / "deleted.parquet")
            news = pc.is_in(feed["_change_type"], pa.array(["insert", "update_postimage"]))
            rows = feed.filter(news).select(columns)
        pq.write_table(rows.filter(pc.invert(pc.is_in(rows["node_id"], reached))), folder / f"{file}.parquet")


def measure_peer(program: str, data: Path, python: Path) -> dict[str, dict[str, Any]]:
    """Run one peer through all steps in its own environment."""
    keep = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    answer = subprocess.run(
        [python, FOLDER / program, data, json.dumps(list(STEPS))],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=keep,
    )
    return dict(json.loads(answer.stdout.splitlines()[-1]))


def show(found: dict[str, dict[str, dict[str, Any]]], title: str) -> None:
    """Print one table: a row per change, two columns per tool."""
    table = Table(title=title, caption="rows: right, or how many are stale (should be gone) and missing")
    table.add_column("change")
    for tool in found:
        table.add_column(f"{tool}, s", justify="right")
        table.add_column("rows")
    for kind in ("first build", *STEPS, "full refresh"):
        cells = []
        for steps in found.values():
            step = steps[kind]
            wrong = step.get("stale", 0) + step.get("missing", 0)
            inside = f" ({step['model_seconds']:.2f})" if "model_seconds" in step else ""
            said = (
                "" if "stale" not in step else f"{step['stale']} stale, {step['missing']} missing" if wrong else "right"
            )
            cells += [f"{step['seconds']:.2f}{inside}", said]
        table.add_row(kind, *cells)
    Console(width=130).print(table)


def main() -> None:
    """Measure all three, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("NODES") or 100_000))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument("--python", type=Path, required=True, help="the Python that has dbt-duckdb and SQLMesh")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "data/benchmarks/peers.json"))
    parser.add_argument("--folder", type=Path, help="where scratch data goes; it is removed afterwards")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="espalier-bench-", dir=arguments.folder) as folder:
        home, data = Home(Path(folder) / "world"), Path(folder) / "data"
        generate(home.path, arguments.nodes, arguments.seed)
        found = {"ours": measure_ours(home, data)}
        for tool, program in (("dbt-duckdb", "run_dbt.py"), ("SQLMesh", "run_sqlmesh.py")):
            print(f"{tool} ...", file=sys.stderr, flush=True)
            found[tool] = measure_peer(program, data, arguments.python.absolute())
    show(found, f"dpo_pairs of {arguments.nodes:,} nodes (dbt in brackets: the model alone)")
    report = {"machine": machine(), "nodes": arguments.nodes, "seconds": time.perf_counter() - begin, "tools": found}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()

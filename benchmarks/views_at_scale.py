"""What keeping the views up costs at scale, against computing them from nothing; every result is compared with that.

    make bench-views                          # a million nodes beside a hundred thousand
    make bench-views NODES=100000
    make bench-views NODES=10000000 ENGINE=spark    # optional: 17 minutes and 8 GB for the tables alone, then the views

Two worlds are generated, one ten times as large as the other, and go through the same changes: a tail (ten new sessions
of existing tasks, every second one without a baseline), scattered corrections in ten old sessions, and a change of
visits along one path, which no SFT or DPO row depends on. Each change is committed by this process, as ingest would,
while another one that has the imports and one refresh behind it waits, like a service; the time is that of `refresh`
there. Then a third process builds every view from nothing over the same tables, which is the full recompute that the
time is set against, and both results are compared by key and digest. Once per world `refresh(full=True)` runs in place
too, where all rows are equal and none is written; verdicts take whichever of the two ways is faster. Files lie in the
page cache, as they do after an ingest.

Settings: environment variables NODES, ENGINE, SEED, OUT, or the options of the same names.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import home_with_the_same_tables, machine, rows_that_differ
from benchmarks.refresh_child import RefreshChild
from benchmarks.scale_report import show
from benchmarks.world_changes import Change, append_tail, backprop_only, correct_scattered
from benchmarks.world_generator import bytes_on_disk
from store.home import Home

TRIALS = {"tail": 3, "scattered": 3, "backprop": 1}
CHANGES: dict[str, Callable[[Home, int], Change]] = {
    "tail": lambda home, _: append_tail(home),
    "scattered": lambda home, trial: correct_scattered(home, trial=trial),
    "backprop": lambda home, trial: backprop_only(home, trial=trial),
}
Measured = dict[str, Any]


def measure_world(folder: Path, num_nodes: int, *, seed: int, engine: str, compare: str) -> Measured:
    """Generate a world of this size, put it through the changes, and return everything that was measured."""
    home, twin_path = Home(folder / "world"), folder / "twin"
    say(f"{num_nodes} nodes: generating")
    begin = time.perf_counter()
    run = [sys.executable, "-m", "benchmarks.world_generator", str(home.path), "--nodes", str(num_nodes)]
    subprocess.run([*run, "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
    world: Measured = {
        "nodes_asked_for": num_nodes,
        "generated_seconds": time.perf_counter() - begin,
        "disk": bytes_on_disk(home),
        "changes": {},
    }
    say(f"{num_nodes} nodes: first build")
    with RefreshChild(home, engine=engine) as child:
        world["first_build"] = child.refresh()
    full_builds = [world["first_build"]]
    for kind, trials in TRIALS.items():
        found = world["changes"][kind] = []
        with RefreshChild(home, engine=engine) as child:
            child.refresh()
            for trial in range(trials):
                change = CHANGES[kind](home, trial)
                measured = child.refresh()
                say(f"{num_nodes} nodes: {kind} {trial + 1}: {measured['seconds']:.2f} s ({change.num_nodes} nodes)")
                measured["num_nodes"] = change.num_nodes
                measured["rows_that_differ"] = None
                if compare == "each" or trial == trials - 1:
                    twin = home_with_the_same_tables(home, twin_path)
                    with RefreshChild(twin, engine=engine) as builder:
                        full_builds.append(builder.refresh())
                    measured["rows_that_differ"] = rows_that_differ(home, twin)
                    measured["full_seconds"] = full_builds[-1]["seconds"]
                found.append(measured)
    shutil.rmtree(twin_path, ignore_errors=True)
    with RefreshChild(home, engine=engine) as child:
        world["full_in_place"] = child.refresh(full=True)
    world["full_builds"] = full_builds
    shutil.rmtree(home.path)
    return world


def summary(world: Measured) -> Measured:
    """Medians per view and as the sum, and the ratios: view or `all` to column to number."""
    names = list(world["first_build"]["views"])
    table: Measured = {}
    for name in [*names, "all"]:
        builds = [of_view(build, name)["seconds"] for build in world["full_builds"]]
        row = table[name] = {
            "first_build": builds[0],
            "full_build": statistics.median(builds),
            "full_in_place": of_view(world["full_in_place"], name)["seconds"],
        }
        row["full"] = min(row["full_build"], row["full_in_place"])
        for kind, measured in world["changes"].items():
            parts = [of_view(one, name) for one in measured]
            row[kind] = statistics.median(part["seconds"] for part in parts)
            row[f"{kind}_seconds"] = [part["seconds"] for part in parts]
            row[f"{kind}_ratio"] = row["full"] / row[kind] if row[kind] else None
            row[f"{kind}_rows"] = [part["written"] for part in parts]
            shares = [part["read_share"] for part in parts]
            row[f"{kind}_read_share"] = max(shares) if all(share is not None for share in shares) else None
            row[f"{kind}_files_read"] = [part["files_read"] for part in parts]
    return table


def of_view(measured: Measured, name: str) -> Measured:
    """One view's part of a refresh, or the whole of it: seconds, rows written, files read, share of bytes read."""
    views = measured["views"]
    chosen = list(views.values()) if name == "all" else [views[name]]
    moved = [view for view in chosen if view["mode"] != "none"]
    counted = all(view["bytes_read"] is not None and view["input_bytes"] for view in moved)
    inputs = sum(view["input_bytes"] or 0 for view in moved)
    return {
        "seconds": measured["seconds"] if name == "all" else views[name]["seconds"],
        "written": sum(view["inserted"] + view["updated"] + view["deleted"] for view in chosen),
        "files_read": sum(view["files_read"] for view in moved) if counted else None,
        "read_share": (sum(view["bytes_read"] for view in moved) / inputs if inputs else 0.0) if counted else None,
    }


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure both worlds, print the table and the verdicts, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("NODES") or 1_000_000))
    parser.add_argument("--engine", choices=("duckdb", "spark"), default=os.environ.get("ENGINE") or "duckdb")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT") or "data/benchmarks/views_at_scale.json")
    )
    parser.add_argument(
        "--compare", choices=("each", "last"), default="each", help="results that are compared, by kind"
    )
    parser.add_argument("--folder", type=Path, help="where scratch data goes; it is removed afterwards")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    worlds: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory(prefix="espalier-bench-", dir=arguments.folder) as folder:
        for size, num_nodes in (("small", arguments.nodes // 10), ("large", arguments.nodes)):
            worlds[size] = measure_world(
                Path(folder) / size,
                num_nodes,
                seed=arguments.seed,
                engine=arguments.engine,
                compare=arguments.compare,
            )
    report = {
        "machine": machine(),
        "engine": arguments.engine,
        "seed": arguments.seed,
        "seconds": time.perf_counter() - begin,
        "worlds": worlds,
        "summary": {size: summary(world) for size, world in worlds.items()},
    }
    report["verdicts"] = show(report)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()

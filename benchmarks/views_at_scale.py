"""What keeping the views up costs at scale, against computing them from nothing; every result is compared with that.

    make bench-views                                # a million nodes beside a hundred thousand
    make bench-views NODES=100000
    make bench-views NODES=10000000 ENGINE=spark    # optional: half an hour and 8 GB for the tables alone

Spark gets 8 GiB and generates code, as conf/spark.yaml says for large tables; ESPALIER_CONF names other settings. With
`--build-with duckdb` DuckDB builds the views that Spark then keeps up, which saves the first of two computations in
full that Spark would do; its times are set against the other one, in place.

Two worlds are generated, one ten times as large as the other, and go through the same changes: a tail (ten new sessions
of existing tasks, every second one without a baseline), scattered corrections in ten old sessions, and a change of
visits along one path, which no SFT or DPO row depends on. Each change is committed by this process, as ingest would,
while another one that has the imports and one refresh behind it waits, like a service; the time is that of `refresh`
there. Files lie in the page cache, as they do after an ingest.

Two times of a recompute stand beside it. The *first build*, in a fresh process over the same tables, computes every
view from all rows and writes it: what the targets are set against. `refresh(full=True)` *in place*, in a fresh process
after the last trial of each kind, computes every view from all rows too and subtracts what is stored: it reads the old
rows besides and writes none. So it is the comparison as well: what was maintained is right exactly if no view reports a
row inserted, updated or deleted. `--compare each` does this after every trial, `once` after all of them.

A refresh is everything that it does: maintained relations, training views, and what lies between them. Processor
seconds stand beside its seconds, since others who use the machine stretch the latter.

What was measured is written to OUT as it goes, so that a failure later on loses nothing of it.

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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import copy_home, machine
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
BEGUN = time.monotonic()
Measured = dict[str, Any]


def measure_world(
    home: Home,
    num_nodes: int,
    world: Measured,
    *,
    engine: str,
    build_with: str,
    compare: str,
    keep: Callable[[], None],
) -> None:
    """Put a generated world through the changes.

    Args:
        home: Whose base tables are as generated, and whose views are not built.
        num_nodes: Its size, about.
        world: Filled with everything that is measured.
        engine: That refreshes.
        build_with: The engine of the first build; its time counts where it is the same.
        compare: `each` trial is compared with a recompute, the last of each `kind`, or the very last (`once`).
        keep: Called whenever there is more in `world`.
    """
    world |= {"nodes_asked_for": num_nodes, "disk": bytes_on_disk(home), "full_in_place": [], "changes": {}}
    say(f"{num_nodes} nodes: first build")
    with RefreshChild(home, engine=build_with) as child:
        built = child.refresh()
    world["first_build" if build_with == engine else "built_with_another_engine"] = built
    world["disk_with_views"] = bytes_on_disk(home)
    say(f"{num_nodes} nodes: first build on {build_with} took {told(built)}")
    keep()
    for kind, trials in TRIALS.items():
        found = world["changes"][kind] = []
        with RefreshChild(home, engine=engine) as child:
            child.refresh()
            for trial in range(trials):
                change = CHANGES[kind](home, trial)
                measured = child.refresh()
                measured |= {"num_nodes": change.num_nodes, "rows_that_differ": None}
                say(f"{num_nodes} nodes: {kind} {trial + 1} of {change.num_nodes} nodes took {told(measured)}")
                found.append(measured)
                keep()
                is_last = trial == trials - 1 and (compare == "kind" or kind == list(TRIALS)[-1])
                if compare == "each" or is_last:
                    measured["rows_that_differ"] = _compare(home, num_nodes, world, engine)
                    keep()


def generated(home: Home, num_nodes: int, seed: int, worlds: Path | None) -> Home:
    """A world of this size in a new home: a copy from the folder `worlds` where it lies there, put there otherwise."""
    stored = home if worlds is None else Home(worlds / f"{num_nodes}-{seed}")
    if stored is home or not stored.path.exists():
        say(f"{num_nodes} nodes: generating")
        making = stored.path.with_name(stored.path.name + ".unfinished")
        shutil.rmtree(making, ignore_errors=True)
        run = [sys.executable, "-m", "benchmarks.world_generator", str(making), "--nodes", str(num_nodes)]
        subprocess.run([*run, "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)
        making.rename(stored.path)
    return home if stored is home else copy_home(stored, home.path)


def _compare(home: Home, num_nodes: int, world: Measured, engine: str) -> dict[str, int]:
    """Compute every view from all rows in a fresh process; returns per view the rows that were not as they are now."""
    with RefreshChild(home, engine=engine) as child:
        full = child.refresh(full=True)
    world["full_in_place"].append(full)
    differing = {name: of_view(full, name)["written"] for name in full["views"]}
    say(f"{num_nodes} nodes: in full took {told(full)}; {sum(differing.values())} rows differed")
    return differing


def summary(world: Measured) -> Measured:
    """Medians per view and of the whole refresh (`all`), and the ratios; what was not measured is absent."""
    built = [world["first_build"]] if "first_build" in world else []
    known = [
        *built,
        *world.get("full_in_place", []),
        *(one for some in world.get("changes", {}).values() for one in some),
    ]
    if not known:
        return {}
    table: Measured = {}
    for name in [*known[0]["views"], "all"]:
        row: Measured = {}
        table[name] = row
        if built:
            row["first_build"] = of_view(built[0], name)["seconds"]
        in_place = [of_view(full, name)["seconds"] for full in world["full_in_place"]]
        if in_place:
            row["full_in_place"] = statistics.median(in_place)
        for kind, measured in world["changes"].items():
            if not measured:
                continue
            parts = [of_view(one, name) for one in measured]
            seconds = row[kind] = statistics.median(part["seconds"] for part in parts)
            row[f"{kind}_seconds"] = [part["seconds"] for part in parts]
            row[f"{kind}_rows"] = [part["written"] for part in parts]
            row[f"{kind}_files_read"] = [part["files_read"] for part in parts]
            shares = [part["read_share"] for part in parts]
            row[f"{kind}_read_share"] = max(shares) if all(share is not None for share in shares) else None
            for against, ratio in (("first_build", "ratio"), ("full_in_place", "ratio_in_place")):
                if against in row and seconds:
                    row[f"{kind}_{ratio}"] = row[against] / seconds
    table["all"]["cpu_seconds"] = {
        part: statistics.median(one["cpu_seconds"] for one in measured)
        for part, measured in {
            "first_build": built,
            "full_in_place": world["full_in_place"],
            **world["changes"],
        }.items()
        if measured
    }
    return table


def of_view(measured: Measured, name: str) -> Measured:
    """One view's part of a refresh, or the whole of it: seconds, rows written, files read, share of bytes read.

    The whole read what its views read, together, of the tables that they stand on, each counted once.
    """
    views = measured["views"]
    chosen = list(views.values()) if name == "all" else [views[name]]
    moved = [view for view in chosen if view["mode"] != "none"]
    counted = all(view["bytes_read"] is not None for view in moved)
    inputs = measured["input_bytes"] if name == "all" else sum(view["input_bytes"] or 0 for view in moved)
    return {
        "seconds": measured["seconds"] if name == "all" else views[name]["seconds"],
        "written": sum(view["inserted"] + view["updated"] + view["deleted"] for view in chosen),
        "files_read": sum(view["files_read"] for view in moved) if counted else None,
        "read_share": (sum(view["bytes_read"] for view in moved) / inputs if inputs else 0.0) if counted else None,
    }


def told(measured: Measured) -> str:
    """Seconds, processor seconds and peak memory of a refresh, in words."""
    seconds, cpu_seconds, peak = (measured[key] for key in ("seconds", "cpu_seconds", "peak_bytes"))
    return f"{seconds:.2f} s ({cpu_seconds:.2f} of a processor), {peak / 2**30:.2f} GiB at most"


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.monotonic() - BEGUN:6.0f} s  {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Measure both worlds, print the table and the verdicts, write the JSON; 1 where something failed on the way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("NODES") or 1_000_000))
    parser.add_argument("--engine", choices=("duckdb", "spark"), default=os.environ.get("ENGINE") or "duckdb")
    parser.add_argument("--build-with", choices=("duckdb", "spark"), help="the engine of the first build")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or 1))
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT") or "data/benchmarks/views_at_scale.json")
    )
    parser.add_argument(
        "--compare",
        choices=("each", "kind", "once"),
        default="kind",
        help="compare each trial, the last of each kind, or only once at the end",
    )
    parser.add_argument("--alone", action="store_true", help="leave out the world of a tenth of the size")
    parser.add_argument("--worlds", type=Path, help="where generated worlds are kept and found again; on the same disk")
    parser.add_argument("--folder", type=Path, help="where scratch data goes; it is removed afterwards")
    arguments = parser.parse_args()
    report: Measured = {"machine": machine(), "engine": arguments.engine, "seed": arguments.seed, "worlds": {}}
    worlds = report["worlds"]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)

    def keep() -> None:
        report["seconds"] = time.monotonic() - BEGUN
        report["summary"] = {size: summary(world) for size, world in worlds.items()}
        arguments.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")

    with tempfile.TemporaryDirectory(prefix="espalier-bench-", dir=arguments.folder) as folder:
        try:
            sizes = {"small": arguments.nodes // 10, "large": arguments.nodes}
            for size, num_nodes in list(sizes.items())[int(arguments.alone) :]:
                home = Home(Path(folder) / size)
                worlds[size] = {}
                generated(home, num_nodes, arguments.seed, arguments.worlds)
                how = {"engine": arguments.engine, "compare": arguments.compare}
                how["build_with"] = arguments.build_with or arguments.engine
                measure_world(home, num_nodes, worlds[size], keep=keep, **how)
                shutil.rmtree(home.path)
        except Exception:
            report["failure"] = traceback.format_exc()
            print(report["failure"], file=sys.stderr)
    keep()
    report["verdicts"] = show(report)
    keep()
    print(f"written to {arguments.out}")
    return int("failure" in report)


if __name__ == "__main__":
    sys.exit(main())

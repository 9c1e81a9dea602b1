"""How good the planner's choice between incremental and full is: 20 changes of growing size, refreshed both ways.

    make bench-planner

A world of 30,000 nodes is built and copied for every measurement, so that each way of a refresh starts from the same
state. Twelve shares of the nodes lie in sessions that are corrected, spaced evenly on a logarithmic scale from 0.001 %
to 80 % (below the smallest session, that one), and eight more around the break-even, within a factor of 3. The times
of the two ways are medians; what the planner chose is read from a third refresh that nobody forces, view by view. The
regret of a case is the time of what was chosen over that of the better way, less one, and at least 0; the JSON also has
it against the better way of every single view (`regret_by_view`), where noise alone makes it positive.

The first seed calibrates: from its cases come the constants that are printed, per view the seconds that an incremental
refresh takes before any node, and for each node of a touched session, and those of a full one for each node. The
second seed, another world, is the test.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.measuring import copy_home, machine
from benchmarks.refresh_child import measured_refresh
from benchmarks.world_changes import correct_share
from benchmarks.world_generator import generate
from benchmarks.world_sessions import session_size
from store.home import Home

SHARES = np.geomspace(0.00001, 0.8, 12).tolist()
NEAR_CASES, NEAR_TIMES = 8, 3.0
LARGEST_SHARE = 0.98
WAYS: dict[str, dict[str, bool]] = {"incremental": {"by_feeds": True}, "full": {"full": True}}
Case = dict[str, Any]


def measure_seed(folder: Path, num_nodes: int, *, seed: int, repeats: int) -> list[Case]:
    """All cases of one world."""
    home = Home(folder / f"seed-{seed}")
    generate(home.path, num_nodes, seed)
    measured_refresh(home, "duckdb", {})
    cases = [_measure(home, share, repeats) for share in SHARES]
    middle = break_even(cases)
    near = np.geomspace(middle / NEAR_TIMES, min(middle * NEAR_TIMES, LARGEST_SHARE), NEAR_CASES).tolist()
    cases += [_measure(home, share, repeats) | {"is_near_break_even": True} for share in near]
    shutil.rmtree(home.path)
    return sorted(cases, key=lambda case: case["share"])


def _measure(home: Home, share: float, repeats: int) -> Case:
    changed = copy_home(home, home.path.with_name("changed"))
    change = correct_share(changed, share)
    trial_path = home.path.with_name("trial")
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for repeat in range(repeats):
        for way in list(WAYS)[:: 1 if repeat % 2 == 0 else -1]:
            views = measured_refresh(copy_home(changed, trial_path), "duckdb", dict(WAYS[way]))["views"]
            taken[way].append({name: view["seconds"] for name, view in views.items()})
    chosen = measured_refresh(copy_home(changed, trial_path), "duckdb", {})["views"]
    seed = json.loads((home.path / "world.json").read_text())
    sizes = [session_size(seed["seed"], seq) for seq in range(1, seed["num_sessions"] + 1)]
    touched = sum(sizes[seq - 1] for seq in change.session_seqs)
    case: Case = {
        "share": touched / sum(sizes),
        "asked_share": share,
        "touched_nodes": touched,
        "num_nodes": sum(sizes),
        "sessions": len(change.session_seqs),
        "is_near_break_even": False,
        "chosen": {name: view["mode"] for name, view in chosen.items()},
        "reasons": {name: view["reason"] for name, view in chosen.items()},
    }
    for way in WAYS:
        case[way] = {name: statistics.median(one[name] for one in taken[way]) for name in taken[way][0]}
    case |= _regret(case)
    print(f"{100 * case['share']:.3f} %: {case['regret']:.2f} regret", file=sys.stderr, flush=True)
    return case


def _regret(case: Case) -> Case:
    """Seconds of what was chosen, view by view, and how much longer that is than the better way."""
    names = list(case["chosen"])
    chosen = sum(case["full" if case["chosen"][name] == "full" else "incremental"][name] for name in names)
    better = min(sum(case[way].values()) for way in WAYS)
    by_view = sum(min(case[way][name] for way in WAYS) for name in names)
    return {
        "chosen_seconds": chosen,
        "better_seconds": better,
        "regret": max(chosen / better - 1, 0.0),
        "regret_by_view": chosen / by_view - 1,
    }


def break_even(cases: list[Case]) -> float:
    """The share at which both ways take as long, between measured ones; the largest one if incremental always wins."""
    ordered = sorted(cases, key=lambda case: case["share"])
    gaps = [sum(case["incremental"].values()) - sum(case["full"].values()) for case in ordered]
    for before, after in zip(range(len(gaps)), range(1, len(gaps)), strict=False):
        if gaps[before] < 0 <= gaps[after]:
            place = gaps[before] / (gaps[before] - gaps[after])
            low, high = np.log(ordered[before]["share"]), np.log(ordered[after]["share"])
            return float(np.exp(low + place * (high - low)))
    return ordered[-1]["share"] if gaps[-1] < 0 else ordered[0]["share"]


def constants(cases: list[Case]) -> dict[str, dict[str, float]]:
    """Per view: seconds of an incremental refresh (fixed, per touched node) and of a full one per node.

    Fitted by least squares of relative errors, so that small changes count as much as large ones.
    """
    found = {}
    for name in cases[0]["chosen"]:
        touched = np.array([case["touched_nodes"] for case in cases], float)
        seconds = np.array([max(case["incremental"][name], 1e-3) for case in cases])
        design = np.stack([np.ones_like(touched), touched], axis=1) / seconds[:, None]
        fixed, per_node = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)[0]
        full = statistics.median(case["full"][name] for case in cases)
        meets = (full - fixed) / per_node if per_node > 0 else float("inf")
        found[name] = {
            "incremental_fixed_seconds": float(fixed),
            "incremental_seconds_per_touched_node": float(per_node),
            "full_seconds_per_node": full / cases[0]["num_nodes"],
            "break_even_share": float(meets / cases[0]["num_nodes"]),
        }
    return found


def _show_constants(console: Console, seed: int, found: dict[str, dict[str, float]]) -> None:
    table = Table(title=f"calibration, seed {seed}: seconds of one refresh")
    table.add_column("view")
    for heading in ("incremental, fixed", "per 1,000 touched nodes", "full, per 1,000 nodes", "break-even share"):
        table.add_column(heading, justify="right")
    for name, fit in found.items():
        table.add_row(
            name,
            f"{fit['incremental_fixed_seconds']:.3f}",
            f"{1000 * fit['incremental_seconds_per_touched_node']:.4f}",
            f"{1000 * fit['full_seconds_per_node']:.4f}",
            f"{100 * fit['break_even_share']:.1f} %",
        )
    console.print(table)


def _show_cases(console: Console, seed: int, cases: list[Case]) -> None:
    table = Table(title=f"test, seed {seed}: {cases[0]['num_nodes']:,} nodes; * near the break-even")
    for heading in ("share of nodes", "sessions", "incremental s", "full s", "in full by choice", "regret"):
        table.add_column(heading, justify="right")
    for case in cases:
        in_full = sum(mode == "full" for mode in case["chosen"].values())
        table.add_row(
            f"{100 * case['share']:.3f} %{'*' if case['is_near_break_even'] else ' '}",
            str(case["sessions"]),
            f"{sum(case['incremental'].values()):.3f}",
            f"{sum(case['full'].values()):.3f}",
            f"{in_full} of {len(case['chosen'])} views",
            f"{case['regret']:.3f}",
        )
    regrets = [case["regret"] for case in cases]
    table.add_section()
    table.add_row("mean", "", "", "", f"largest {max(regrets):.3f}", f"{statistics.mean(regrets):.3f}")
    console.print(table)


def main() -> None:
    """Calibrate on one seed, test on another, print both and write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=int(os.environ.get("NODES") or 30_000))
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each way")
    parser.add_argument("--calibrate", type=int, default=1, help="seed whose cases the constants are fitted to")
    parser.add_argument("--test", type=int, default=2, help="seed whose regrets are printed")
    parser.add_argument("--only", choices=("calibrate", "test"), help="do one of the two")
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT") or "data/benchmarks/planner_choice.json")
    )
    parser.add_argument("--folder", type=Path, help="where scratch data goes; it is removed afterwards")
    arguments = parser.parse_args()
    console = Console(width=130)
    report: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="espalier-bench-", dir=arguments.folder) as folder:
        for part in ("calibrate", "test"):
            if arguments.only not in (None, part):
                continue
            seed = getattr(arguments, part)
            cases = measure_seed(Path(folder), arguments.nodes, seed=seed, repeats=arguments.repeats)
            report[part] = {"seed": seed, "cases": cases}
            if part == "calibrate":
                report[part]["constants"] = constants(cases)
                _show_constants(console, seed, report[part]["constants"])
            else:
                report[part]["mean_regret"] = statistics.mean(case["regret"] for case in cases)
                _show_cases(console, seed, cases)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()

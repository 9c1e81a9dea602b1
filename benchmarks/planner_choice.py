"""How good the planner's choice between incremental and full is: 20 changes of growing size, refreshed both ways.

    make bench-planner
    .venv/bin/python -m benchmarks.planner_choice --again FILE    # with other constants, nothing measured

A world of 30,000 nodes is built and copied for every measurement, so that each way of a refresh starts from the same
state. Twelve shares of the nodes lie in sessions that are corrected, spaced evenly on a logarithmic scale from 0.001 %
to 80 % (below the smallest session, that one), and eight more around the break-even, within a factor of 3 (down from
where everything is touched, if that is not more). One refresh follows the feeds whatever the cost, as `by_feeds` does,
and notes what the planner figured its cost from; another computes everything (`full`). What the planner chooses for
each view follows from its cost, by the constants of conf/views.yaml as they are now.

The *regret* of a case is the time of what was chosen, summed over the views of one refresh, over that of the better
way, less one, and at least 0. The JSON also has it against the better way of every single view (`regret_by_view`),
where noise alone makes it positive. Times are processor seconds, medians of the repeats: on a machine with other users
the clock tells more of them than of us. The regret by the clock is printed beside it.

The first seed calibrates: the constants of views/cost.py are fitted to its cases, by least squares of relative errors,
none below 0, and printed as conf/views.yaml has them. What a view takes either way (its feeds, its commit) is fitted
too, so that it is not taken for a cost of one way, and left out. The second seed, another world, is the test.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from benchmarks.measuring import copy_home, machine
from benchmarks.refresh_child import measured_refresh
from benchmarks.world_changes import correct_share
from benchmarks.world_generator import generate
from benchmarks.world_sessions import session_size
from store.delta import Tables
from store.home import Home
from views.cost import Amount, cost_of, estimate_cost
from views.definition import WALKED
from views.planner import Plan
from views.refresh import Chain
from views.registry import VIEW_ORDER
from views.settings import read_view_settings

SHARES = np.geomspace(0.00001, 0.8, 12).tolist()
NEAR_CASES, NEAR_TIMES = 8, 3.0
LARGEST_SHARE = 0.98
WAYS = ("incremental", "full")
CLOCKS = {"cpu_seconds": "", "seconds": "_by_clock"}  # what is measured, to the suffix of its names in a case
SHORTEST = 0.01  # seconds below which a relative error says nothing
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
    taken: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    amounts: dict[str, Case] = {}
    for repeat in range(repeats):
        for way in WAYS[:: 1 if repeat % 2 == 0 else -1]:
            trial = copy_home(changed, trial_path)
            if way == "full":
                taken[way].append(measured_refresh(trial, "duckdb", {"full": True})["views"])
            else:
                views, amounts = _follow_feeds(trial)
                taken[way].append(views)
    plan = json.loads((home.path / "world.json").read_text())
    sizes = [session_size(plan["seed"], seq) for seq in range(1, plan["num_sessions"] + 1)]
    touched = sum(sizes[seq - 1] for seq in change.session_seqs)
    case: Case = {
        "share": touched / sum(sizes),
        "asked_share": share,
        "touched_nodes": touched,
        "num_nodes": sum(sizes),
        "sessions": len(change.session_seqs),
        "is_near_break_even": False,
        "amounts": amounts,
    }
    for clock, suffix in CLOCKS.items():
        for way, runs in taken.items():
            case[way + suffix] = {name: statistics.median(views[name][clock] for views in runs) for name in runs[0]}
    sums = ", ".join(f"{way} {sum(case[way].values()):.2f} s" for way in WAYS)
    print(f"{100 * case['share']:.3f} %: {sums}", file=sys.stderr, flush=True)
    return case


def _follow_feeds(home: Home) -> tuple[dict[str, Case], dict[str, Case]]:
    """Refresh from the feeds: seconds of every view, and what each way of it goes through as the planner sees it."""
    chain = Chain(Tables(home), VIEW_ORDER)
    views, amounts = {}, {}
    plan_view = chain.planner.plan

    def noting_plan(name: str, *, full: bool = False, by_feeds: bool = False) -> Plan:
        plan = plan_view(name, full=full, by_feeds=by_feeds)
        if name not in WALKED and plan.mode == "incremental":
            cost = estimate_cost(chain.engine, name, plan.costly_scope, chain.settings.cost)
            amounts[name] = {"incremental": vars(cost.touched), "full": vars(cost.everything)}
        return plan

    chain.planner.plan = noting_plan  # type: ignore[method-assign]
    try:
        for name in VIEW_ORDER:
            begin, begin_cpu = time.perf_counter(), time.process_time()
            chain.refresh(name, by_feeds=True)
            views[name] = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}
    finally:
        chain.close()
    return views, amounts


def choose(case: Case) -> Case:
    """What the planner chooses by the constants of now, and the regret of that."""
    settings = read_view_settings().cost
    names = list(case["incremental"])
    modes = dict.fromkeys(names, "incremental")
    for name, amount in case["amounts"].items():
        if cost_of(name, Amount(**amount["incremental"]), Amount(**amount["full"]), settings).is_full_cheaper:
            modes[name] = "full"
    found: Case = {"chosen": modes}
    for suffix in CLOCKS.values():
        chosen = sum(case[modes[name] + suffix][name] for name in names)
        better = min(sum(case[way + suffix].values()) for way in WAYS)
        by_view = sum(min(case[way + suffix][name] for way in WAYS) for name in names)
        found |= {
            f"chosen_seconds{suffix}": chosen,
            f"better_seconds{suffix}": better,
            f"regret{suffix}": max(chosen / better - 1, 0.0),
            f"regret_by_view{suffix}": chosen / by_view - 1,
        }
    return case | found


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


def constants(cases: list[Case]) -> dict[str, Any]:
    """The constants of views/cost.py that fit the cases, and per view the seconds that it takes either way."""
    views = sorted({name for case in cases for name in case["amounts"]})
    equations, seconds = [], []
    for case in cases:
        for name, amounts in case["amounts"].items():
            for way, amount in amounts.items():
                place = views.index(name)
                row = np.zeros(2 + 2 * len(views))
                row[:2] = amount["mebibytes"], amount["keys"]
                row[2 + place], row[2 + len(views) + place] = amount["nodes"] / 1000, 1.0
                equations.append(row)
                seconds.append(max(case[way][name], SHORTEST))
    weights = 1 / np.array(seconds)
    fitted, _ = nnls(np.array(equations) * weights[:, None], np.ones(len(seconds)))
    numbers = [float(number) for number in fitted]
    return {
        "read": numbers[0],
        "key": numbers[1],
        "compute": dict(zip(views, numbers[2:], strict=False)),
        "either_way": dict(zip(views, numbers[2 + len(views) :], strict=True)),
    }


def _show_constants(console: Console, seed: int, cases: list[Case], found: dict[str, Any]) -> None:
    console.print(f"calibration, seed {seed}; conf/views.yaml has it so:", highlight=False)
    lines = ["cost:", *(f"  {name}: {found[name]:.4f}" for name in ("read", "key")), "  compute:"]
    lines += [f"    {name}: {number:.4f}" for name, number in found["compute"].items()]
    console.print("\n".join(lines), highlight=False)
    wins = [sum(case["incremental"].values()) <= sum(case["full"].values()) for case in cases]
    meets = f"they meet at {100 * break_even(cases):.0f} % of the nodes"
    if all(wins):
        meets = f"in full never is, up to {100 * max(case['share'] for case in cases):.0f} % of the nodes"
    console.print(f"incremental is better in {sum(wins)} of {len(cases)} cases; {meets}", highlight=False)


def _show_cases(console: Console, seed: int, cases: list[Case]) -> None:
    table = Table(
        title=f"test, seed {seed}: {cases[0]['num_nodes']:,} nodes; * near the break-even", caption="processor seconds"
    )
    for heading in ("share of nodes", "sessions", "incremental", "full", "in full by choice", "regret", "by the clock"):
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
            f"{case['regret_by_clock']:.3f}",
        )
    regrets, by_clock = ([case[f"regret{suffix}"] for case in cases] for suffix in CLOCKS.values())
    table.add_section()
    table.add_row("mean", "", "", "", "", f"{statistics.mean(regrets):.3f}", f"{statistics.mean(by_clock):.3f}")
    table.add_row("largest", "", "", "", "", f"{max(regrets):.3f}", f"{max(by_clock):.3f}")
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
    parser.add_argument("--again", type=Path, help="a JSON of before: choose by the constants of now, measure nothing")
    arguments = parser.parse_args()
    console = Console(width=130)
    report: dict[str, Any] = {"machine": machine()}
    if arguments.again:
        report = json.loads(arguments.again.read_text())
    with tempfile.TemporaryDirectory(prefix="espalier-bench-", dir=arguments.folder) as folder:
        for part in ("calibrate", "test"):
            if arguments.only not in (None, part):
                continue
            if not arguments.again:
                seed = getattr(arguments, part)
                cases = measure_seed(Path(folder), arguments.nodes, seed=seed, repeats=arguments.repeats)
                report[part] = {"seed": seed, "cases": cases}
            seed, cases = report[part]["seed"], [choose(case) for case in report[part]["cases"]]
            report[part] |= {"cases": cases, "mean_regret": statistics.mean(case["regret"] for case in cases)}
            if part == "calibrate":
                report[part]["constants"] = constants(cases)
                _show_constants(console, seed, cases, report[part]["constants"])
            else:
                _show_cases(console, seed, cases)
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()

"""The table of `views_at_scale`, and what it says of each target."""

from typing import Any

from rich.console import Console
from rich.table import Table

TAIL_TIMES = 150.0
SCATTERED_TIMES = {"duckdb": 30.0, "spark": 5.0}
APART_TIMES, APART_SECONDS = 1.5, 0.1
READ_SHARE = 0.05
PEAK_BYTES = 4 * 2**30
NOT_REWRITTEN = ("sft_trajectories", "dpo_pairs")
Report = dict[str, Any]


def show(report: Report) -> list[dict[str, Any]]:
    """Print the table and one line per target; returns the verdicts."""
    console = Console(width=150)
    console.print(_table(report))
    verdicts = judged(report)
    for verdict in verdicts:
        mark = "met    " if verdict["met"] else "SHORT  " if verdict["met"] is False else "unknown"
        console.print(f"{mark} {verdict['target']}: {verdict['found']}", highlight=False, markup=False)
    return verdicts


def _table(report: Report) -> Table:
    small, large = report["summary"]["small"], report["summary"]["large"]
    sizes = [report["worlds"][size]["nodes_asked_for"] for size in ("small", "large")]
    on = report["machine"]
    title = f"{report['engine']}, {sizes[1]:,} nodes (in brackets {sizes[0]:,}); {on['cores']} cores, {on['cpu']}"
    table = Table(
        title=title,
        caption="seconds, medians of the trials; rows are those written; read is a tail's share of its inputs' bytes",
    )
    table.add_column("view")
    for heading in (
        "from nothing",
        "full in place",
        "tail",
        "×",
        "rows",
        "scattered",
        "×",
        "rows",
        "backprop",
        "rows",
        "read",
    ):
        table.add_column(heading, justify="right")
    for name, row in large.items():
        if name == "all":
            table.add_section()
        other = small[name]
        table.add_row(
            name,
            f"{row['full_build']:.2f} ({other['full_build']:.2f})",
            f"{row['full_in_place']:.2f} ({other['full_in_place']:.2f})",
            f"{row['tail']:.3f} ({other['tail']:.3f})",
            f"{row['tail_ratio']:.0f}",
            f"{row['tail_rows'][-1]}",
            f"{row['scattered']:.3f} ({other['scattered']:.3f})",
            f"{row['scattered_ratio']:.0f}",
            f"{row['scattered_rows'][-1]}",
            f"{row['backprop']:.3f} ({other['backprop']:.3f})",
            f"{row['backprop_rows'][-1]}",
            "-" if row["tail_read_share"] is None else f"{100 * row['tail_read_share']:.1f} %",
        )
    return table


def judged(report: Report) -> list[dict[str, Any]]:
    """Per target whether it is met (None: nothing tells), and by what."""
    small, large = report["summary"]["small"]["all"], report["summary"]["large"]["all"]
    verdicts = [
        _faster("a tail is refreshed 150x faster than in full", large, "tail", TAIL_TIMES),
        _faster(
            f"scattered corrections {SCATTERED_TIMES[report['engine']]:.0f}x faster",
            large,
            "scattered",
            SCATTERED_TIMES[report["engine"]],
        ),
    ]
    for kind in ("tail", "scattered"):
        verdicts.append(_flat(kind, small[kind], large[kind]))
    share = large["tail_read_share"]
    verdicts.append(
        {
            "target": f"a tail reads at most {100 * READ_SHARE:.0f} % of its inputs' bytes",
            "met": None if share is None else share <= READ_SHARE,
            "found": "the commits do not say what was read" if share is None else f"{100 * share:.2f} %",
        }
    )
    rewritten = {name: report["summary"]["large"][name]["backprop_rows"] for name in NOT_REWRITTEN}
    verdicts.append(
        {
            "target": "a change of visits alone rewrites no row of SFT or DPO",
            "met": not any(sum(rows) for rows in rewritten.values()),
            "found": ", ".join(f"{name} {sum(rows)}" for name, rows in rewritten.items()) + " rows",
        }
    )
    verdicts += [_memory(report), _equal(report)]
    return verdicts


def _faster(target: str, row: dict[str, Any], kind: str, times: float) -> dict[str, Any]:
    ratio = row[f"{kind}_ratio"]
    found = f"{ratio:.1f}x ({row['full']:.2f} s against {row[kind]:.3f} s)"
    if ratio < times:
        found += f"; short by {row[kind] - row['full'] / times:.3f} s"
    return {"target": target, "met": ratio >= times, "found": found}


def _flat(kind: str, small: float, large: float) -> dict[str, Any]:
    met = large <= APART_TIMES * small or large - small <= APART_SECONDS
    found = f"{small:.3f} s and {large:.3f} s, {large / small:.2f}x and {1000 * (large - small):.0f} ms apart"
    return {"target": f"{kind}: ten times the nodes, at most 1.5x or 100 ms apart", "met": met, "found": found}


def _memory(report: Report) -> dict[str, Any]:
    world = report["worlds"]["large"]
    builds = max(build["peak_bytes"] for build in [*world["full_builds"], world["full_in_place"]])
    kept_up = max(one["peak_bytes"] for measured in world["changes"].values() for one in measured)
    return {
        "target": "peak memory under 4 GiB",
        "met": max(builds, kept_up) < PEAK_BYTES,
        "found": f"{builds / 2**30:.2f} GiB in full, {kept_up / 2**30:.2f} GiB incremental",
    }


def _equal(report: Report) -> dict[str, Any]:
    compared = [
        one["rows_that_differ"]
        for world in report["worlds"].values()
        for measured in world["changes"].values()
        for one in measured
        if one["rows_that_differ"] is not None
    ]
    differing = sum(sum(rows.values()) for rows in compared)
    return {
        "target": "every result equals the full recompute",
        "met": bool(compared) and differing == 0,
        "found": f"{differing} rows differ in {len(compared)} comparisons of every view",
    }

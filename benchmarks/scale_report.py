"""The table of `views_at_scale`, and what it says of each target."""

from typing import Any

from rich.console import Console
from rich.table import Table

from views.registry import TRAINING_VIEWS

TAIL_TIMES = 150.0
SCATTERED_TIMES = {"duckdb": 30.0, "spark": 5.0}
APART_TIMES, APART_SECONDS = 1.5, 0.1
READ_SHARE = 0.05
PEAK_BYTES = 4 * 2**30
NOT_REWRITTEN = ("sft_trajectories", "dpo_pairs")
Report = dict[str, Any]
Row = dict[str, Any]


def show(report: Report) -> list[dict[str, Any]]:
    """Print the tables and one line per target; returns the verdicts. What was not measured is left out."""
    console = Console(width=136)
    sizes = [size for size in ("large", "small") if report["summary"].get(size)]
    for size in sizes:
        console.print(_table(report, size))
    verdicts = judged(report) if "large" in sizes else []
    for verdict in verdicts:
        mark = "met    " if verdict["met"] else "SHORT  " if verdict["met"] is False else "unknown"
        console.print(f"{mark} {verdict['target']}: {verdict['found']}", highlight=False, markup=False, soft_wrap=True)
    return verdicts


def _table(report: Report, size: str) -> Table:
    on = report["machine"]
    world = report["worlds"][size]
    table = Table(
        title=f"{report['engine']}, {world['nodes_asked_for']:,} nodes; {on['cores']} cores, {on['cpu']}",
        caption="seconds, medians of the trials. built: first build. ×: that (in brackets: full in place) over the "
        "refresh. rows: written by the last trial. read: the most that a trial read of its inputs' bytes",
    )
    table.add_column("view", no_wrap=True)
    for heading in ("built", "in place"):
        table.add_column(heading, justify="right")
    for kind in ("tail", "scattered"):
        for heading in (kind, "×", "rows", "read"):
            table.add_column(heading, justify="right")
    for heading in ("backprop", "rows"):
        table.add_column(heading, justify="right")
    summed = report["summary"][size]
    relations = [name for name in summed if name not in (*TRAINING_VIEWS, "all")]
    for names in (relations, TRAINING_VIEWS, ("all",)):
        for name in names:
            row = summed[name]
            cells = [_seconds(row, "first_build", 2), _seconds(row, "full_in_place", 2)]
            for kind in ("tail", "scattered"):
                cells += [_seconds(row, kind, 3), _ratios(row, kind), _rows(row, kind), _read(row, kind)]
            cells += [_seconds(row, "backprop", 3), _rows(row, "backprop")]
            table.add_row("whole refresh" if name == "all" else name, *cells)
        table.add_section()
    cpu_seconds = summed["all"]["cpu_seconds"]
    cells = [_seconds(cpu_seconds, "first_build", 2), _seconds(cpu_seconds, "full_in_place", 2)]
    for kind in ("tail", "scattered"):
        cells += [_seconds(cpu_seconds, kind, 3), "", "", ""]
    table.add_row("of a processor", *cells, _seconds(cpu_seconds, "backprop", 3), "")
    return table


def _seconds(row: Row, key: str, digits: int) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "-"


def _ratios(row: Row, kind: str) -> str:
    in_place = f"({row[f'{kind}_ratio_in_place']:.0f})" if f"{kind}_ratio_in_place" in row else ""
    built = f"{row[f'{kind}_ratio']:.0f}" if f"{kind}_ratio" in row else ""
    return f"{built} {in_place}".strip() or "-"


def _rows(row: Row, kind: str) -> str:
    return str(row[f"{kind}_rows"][-1]) if f"{kind}_rows" in row else "-"


def _read(row: Row, kind: str) -> str:
    share = row.get(f"{kind}_read_share")
    return "-" if share is None else f"{100 * share:.1f} %"


def judged(report: Report) -> list[dict[str, Any]]:
    """Per target whether it is met (None: nothing tells), and by what; targets are about the whole refresh."""
    everything = report["summary"]["large"]
    large, small = everything["all"], report["summary"].get("small", {}).get("all", {})
    verdicts = [
        _faster("a tail is refreshed 150x faster than the first build", large, "tail", TAIL_TIMES),
        _faster(
            f"scattered corrections {SCATTERED_TIMES[report['engine']]:.0f}x faster",
            large,
            "scattered",
            SCATTERED_TIMES[report["engine"]],
        ),
        *(_flat(kind, small.get(kind), large.get(kind)) for kind in ("tail", "scattered")),
    ]
    share = large.get("tail_read_share")
    verdicts.append(
        {
            "target": f"a tail reads at most {100 * READ_SHARE:.0f} % of its inputs' bytes",
            "met": None if share is None else share <= READ_SHARE,
            "found": "the commits do not say what was read" if share is None else f"{100 * share:.2f} %",
        }
    )
    rewritten = {name: everything[name].get("backprop_rows") for name in NOT_REWRITTEN}
    known = all(rows is not None for rows in rewritten.values())
    verdicts.append(
        {
            "target": "a change of visits alone rewrites no row of SFT or DPO",
            "met": not any(sum(rows) for rows in rewritten.values()) if known else None,
            "found": ", ".join(f"{name} {sum(rows)} rows" for name, rows in rewritten.items())
            if known
            else "not measured",
        }
    )
    verdicts += [_memory(report), _equal(report)]
    return verdicts


def _faster(target: str, row: Row, kind: str, times: float) -> dict[str, Any]:
    """Against the first build; against a recompute in place where another engine built."""
    against, ratio_of = ("first_build", "ratio") if "first_build" in row else ("full_in_place", "ratio_in_place")
    if f"{kind}_{ratio_of}" not in row:
        return {"target": target, "met": None, "found": "not measured"}
    ratio = row[f"{kind}_{ratio_of}"]
    found = f"{ratio:.1f}x ({row[against]:.2f} s {against.replace('_', ' ')} against {row[kind]:.3f} s)"
    if against == "first_build" and f"{kind}_ratio_in_place" in row:
        found += f"; {row[f'{kind}_ratio_in_place']:.1f}x against {row['full_in_place']:.2f} s in place"
    cpu_seconds = row["cpu_seconds"]
    found += f"; {cpu_seconds[against] / cpu_seconds[kind]:.1f}x in processor seconds"
    if ratio < times:
        found += f"; short by {row[kind] - row[against] / times:.3f} s"
    return {"target": target, "met": ratio >= times, "found": found}


def _flat(kind: str, small: float | None, large: float | None) -> dict[str, Any]:
    target = f"{kind}: ten times the nodes, at most 1.5x or 100 ms apart"
    if small is None or large is None:
        return {"target": target, "met": None, "found": "not measured"}
    met = large <= APART_TIMES * small or large - small <= APART_SECONDS
    found = f"{small:.3f} s and {large:.3f} s, {large / small:.2f}x and {1000 * (large - small):.0f} ms apart"
    return {"target": target, "met": met, "found": found}


def _memory(report: Report) -> dict[str, Any]:
    world = report["worlds"]["large"]
    builds = [*([world["first_build"]] if "first_build" in world else []), *world["full_in_place"]]
    kept_up = [one for measured in world["changes"].values() for one in measured]
    peaks = [max((one["peak_bytes"] for one in some), default=0) for some in (builds, kept_up)]
    return {
        "target": "peak memory under 4 GiB",
        "met": max(peaks) < PEAK_BYTES,
        "found": f"{peaks[0] / 2**30:.2f} GiB in full, {peaks[1] / 2**30:.2f} GiB incremental",
    }


def _equal(report: Report) -> dict[str, Any]:
    compared = [
        one["rows_that_differ"]
        for world in report["worlds"].values()
        for measured in world.get("changes", {}).values()
        for one in measured
        if one["rows_that_differ"] is not None
    ]
    differing = sum(sum(rows.values()) for rows in compared)
    return {
        "target": "every result equals the full recompute",
        "met": differing == 0 if compared else None,
        "found": f"{differing} rows differ in {len(compared)} comparisons of every view",
    }

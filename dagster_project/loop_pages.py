"""The loop's report for people: Rich tables on the screen, the same numbers in report.json and report.md."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from store.home import Home

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Sheet:
    """One table of the report; the first `num_text` columns are text, the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    num_text: int = 1


def sheets(report: Report) -> list[Sheet]:
    """The report's tables, in order."""
    return [_attempts(report), _estimates(report), _rejections(report), _views(report), _seconds(report)]


COUNTS = {
    "attempts": "attempts",
    "valid": "valid",
    "valid, and new": "valid_new",
    "distinct, and new": "distinct_new",
    "duplicates": "duplicates",
    "no-ops": "no_ops",
    "unparsable": "unparsable",
    "inapplicable": "inapplicable",
}


def _entries(report: Report) -> dict[str, Mapping[str, Any]]:
    """Numbers by column heading: the second search first, since there equal numbers of proposals are compared."""
    first = {f"{entry['proposer']}, first": entry for entry in report["first_search"]}
    return {entry["proposer"]: entry for entry in report["second_search"]} | first


def _attempts(report: Report) -> Sheet:
    entries = _entries(report)
    rows = [(label, *(str(entry[key]) for entry in entries.values())) for label, key in COUNTS.items()]
    rates = ("–" if entry["valid_rate"] is None else f"{entry['valid_rate']:.0%}" for entry in entries.values())
    rows.insert(2, ("valid rate", *rates))
    return Sheet(
        "What became of the attempts",
        ("", *entries),
        rows,
        "new: neither the parent's artifact nor one of the "
        f"{report['artifacts_in_training_data']} artifacts behind the training data. Duplicates, no-ops, unparsable "
        "and inapplicable answers count as attempts. The last column is the first search; there, new means other than "
        "the parent's.",
    )


def _rejections(report: Report) -> Sheet:
    entries = _entries(report)
    classes = sorted({name for entry in entries.values() for name in entry["failure_classes"]})
    return Sheet(
        "Rejected attempts, by failure class",
        ("", *entries),
        [(name, *(str(entry["failure_classes"].get(name, 0)) for entry in entries.values())) for name in classes],
    )


def _estimates(report: Report) -> Sheet:
    entries = report["second_search"]
    tasks = list(dict.fromkeys(task for entry in entries for task in entry["best"]))
    rows = []
    for task in tasks:
        bests = [entry["best"].get(task) for entry in entries]
        start = next((best["start_us"] for best in bests if best and best["start_us"] is not None), None)
        estimates = [best["estimate_us"] if best else None for best in bests]
        rows.append((task, *map(_microseconds, [start, *estimates])))
    return Sheet(
        f"Best estimate per proposer, µs ({report['estimates']})",
        ("task", "starting kernel", *(entry["proposer"] for entry in entries)),
        rows,
        "–: no accepted attempt.",
    )


def _views(report: Report) -> Sheet:
    rows = []
    for name, again in report["views_again"].items():
        first = report["views"][name]
        rows.append(
            (
                name,
                first["mode"],
                _how(again),
                str(first["dagster/row_count"]),
                str(again["dagster/row_count"]),
                f"+{again['inserted']} ~{again['updated']} -{again['deleted']}",
            )
        )
    return Sheet(
        "Views: how they were refreshed, and their rows",
        ("view", "first", "second refresh", "rows", "then", "changed"),
        rows,
        "first: mode of the refresh after the first search. changed: rows inserted, updated and deleted by the second.",
        num_text=3,
    )


def _how(view: Mapping[str, Any]) -> str:
    """Mode and reason; the versions that moved stay in report.json and on the page of `make ui`."""
    return f"{view['mode']}: {view['reason'].split(' (')[0]}"


def _seconds(report: Report) -> Sheet:
    rows = [(stage, f"{seconds:.1f}") for stage, seconds in report["seconds"].items()]
    return Sheet("Seconds", ("stage", "seconds"), rows)


def _microseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def lines(report: Report) -> list[str]:
    """What stands below the tables: checks, datasets, model, places, and what to open next."""
    model, best = report["model"], _best_node(report)
    checks, again = report["checks"], report["checks_again"]
    home = Path(report["places"]["tables"]).parent
    is_default = home == Path("data").absolute()
    folder = shlex.quote(str(home))
    option, variable = ("", "") if is_default else (f" --home {folder}", f" ESPALIER_HOME={folder}")
    return [
        f"checks passed: {checks['passed']} of {checks['of']}, then {again['passed']} of {again['of']}",
        *(
            f"{name}: {said['dagster/row_count']} rows in {said['directory']}"
            for name, said in report["datasets"].items()
        ),
        f"model: {model['model_id']}, trained on {model['dagster/row_count']} rows, in {model['directory']}",
        f"tables: {report['places']['tables']}",
        f"database of the searches: {report['places']['ledger']}",
        "",
        "Open next:",
        f"  make ui{variable}    # the asset graph, with this run in its history",
        *([f"  {_program()} show {best}{option}    # the best attempt: diff, verdict, prompt"] if best else []),
        f"  {_program()} tables{option}    # what there is",
        f"  cat {shlex.quote(str(home / 'report.md'))}    # this page",
    ]


def _program() -> str:
    """How a person in this folder starts the program of this environment."""
    program = Path(sys.executable).parent / "espalier"
    return os.path.relpath(program) if program.is_relative_to(Path.cwd()) else "espalier"


def _best_node(report: Report) -> str | None:
    """The accepted attempt that gained most over its starting kernel, by estimate."""
    gains = [
        (best["start_us"] / best["estimate_us"], best["node_id"])
        for entry in report["second_search"]
        for best in entry["best"].values()
        if best["start_us"]
    ]
    return max(gains)[1] if gains else None


def print_report(report: Report, console: Console) -> None:
    """Print the report; a narrow screen wraps cells and loses nothing."""
    for sheet in sheets(report):
        table = Table()
        for place, column in enumerate(sheet.columns):
            table.add_column(column, justify="left" if place < sheet.num_text else "right", overflow="fold")
        for row in sheet.rows:
            table.add_row(*row)
        console.print()
        console.print(sheet.title, style="bold", highlight=False, markup=False, soft_wrap=True)
        console.print(table)
        if sheet.note:
            console.print(sheet.note, style="dim", highlight=False, markup=False)
    console.print()
    for line in lines(report):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def write_report(report: Report, home: Home) -> None:
    """Write <home>/report.json and <home>/report.md, each swapped in whole."""
    _write(home.path / "report.json", json.dumps(report, indent=2, ensure_ascii=False, default=str) + "\n")
    _write(home.path / "report.md", markdown(report))


def markdown(report: Report) -> str:
    """The report as a Markdown page."""
    parts = [f"# The loop of {report['started_at']}"]
    for sheet in sheets(report):
        header = f"| {' | '.join(sheet.columns)} |"
        rule = f"|{'|'.join(' --- ' if place < sheet.num_text else ' ---: ' for place in range(len(sheet.columns)))}|"
        body = [f"| {' | '.join(_cells(row))} |" for row in sheet.rows]
        parts += [f"## {sheet.title}", "\n".join([header, rule, *body]), *([sheet.note] if sheet.note else [])]
    parts += ["## Where things are", "```text\n" + "\n".join(lines(report)) + "\n```"]
    return "\n\n".join(parts) + "\n"


def _cells(row: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|").replace("\n", " ") for cell in row]


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)

"""The registry of training: `runs` and `models`."""

import json
import os
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "runs")(list_runs)
    command(app, "models")(list_models)


def list_runs(call: Call) -> Answer:
    """List training runs, newest first."""
    rows = _rows(call, "runs", "started_at", json_columns=("config", "metrics"))
    headers = ["run_id", "kind", "status", "num_rows", "base_model", "started_at", "ended_at"]
    return Answer({"runs": rows}, lambda console: _draw(console, headers, rows, "no run yet: `espalier train sft`"))


def list_models(call: Call) -> Answer:
    """List trained models, newest first."""
    rows = _rows(call, "models", "created_at")
    headers = ["model_id", "turns", "num_parameters", "base_model", "created_at", "directory"]
    shown = [{**row, "directory": _from_here(row["directory"])} for row in rows]
    return Answer(
        {"models": rows}, lambda console: _draw(console, headers, shown, "no model yet: `espalier train sft`")
    )


def _rows(call: Call, table: str, newest_by: str, json_columns: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    from store.delta import Tables

    rows: list[dict[str, Any]] = Tables(call.existing_home()).read(table).to_pylist()
    for row in rows:
        for column in json_columns:
            row[column] = json.loads(row[column]) if row[column] else None
    dated = sorted(rows, key=lambda row: str(row[newest_by]), reverse=True)
    return dated


def _draw(console: Console, headers: list[str], rows: list[dict[str, Any]], nothing: str) -> None:
    from cli.output import draw_table

    if not rows:
        console.print(nothing)
        return
    draw_table(console, headers, [[row[header] for header in headers] for row in rows])


def _from_here(directory: str) -> str:
    """The folder as it can be typed here: relative where it lies below the working folder."""
    return os.path.relpath(directory) if Path(directory).is_relative_to(Path.cwd()) else directory

"""How answers look: JSON for scripts, rich tables for people. Text from logs is never read as markup."""

import base64
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

ESTIMATE_HEADING = "model estimate, not run on a GPU"
PIPE_WIDTH = 160  # columns where no terminal says how many there are
CELL_CHARACTERS = 80


def json_text(content: Any) -> str:
    """The object as JSON on one line; NaN and infinities, which JSON lacks, are texts."""
    return json.dumps(plain(content), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value as JSON knows it: dataclasses are objects, times are texts, numbers stay numbers."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value, key=str)]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, date | Path):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)


def time_text(moment: datetime) -> str:
    """A time in UTC, to the second, or finer where it has more: `2026-03-01T12:00:00Z`."""
    utc = moment if moment.tzinfo is None else moment.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat() + "Z"


def terminal(stream: TextIO) -> Console:
    """A console on the stream: as wide as the terminal, or wide enough where it is none."""
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or PIPE_WIDTH)
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def cell(value: Any, *, characters: int = CELL_CHARACTERS) -> str:
    """One value as it stands in a table: short, on one line, unknown as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    text = value if isinstance(value, str) else json_text(value)
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def draw_table(
    console: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
    characters: int = CELL_CHARACTERS,
) -> None:
    """Print rows under headers; numbers stand to the right."""
    listed = [list(row) for row in rows]
    _draw_title(console, title)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, header in enumerate(headers):
        values = [row[position] for row in listed if row[position] is not None]
        is_number = bool(values) and not any(
            isinstance(value, bool) or not isinstance(value, int | float | Decimal) for value in values
        )
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*(Text(cell(value, characters=characters)) for value in row))
    console.print(table)


def _draw_title(console: Console, title: str | None) -> None:
    if title is not None:
        console.print(title, style="bold")


def draw_fields(console: Console, fields: Mapping[str, Any], *, title: str | None = None) -> None:
    """Print names and values, one a line."""
    _draw_title(console, title)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name), Text(cell(value, characters=400)))
    console.print(table)


def draw_metrics(console: Console, metrics: Mapping[str, Any]) -> None:
    """Print a judge's numbers under their heading; lists of objects, such as launches, one block each."""
    blocks = {name: value for name, value in metrics.items() if isinstance(value, list) and value}
    numbers = {name: value for name, value in metrics.items() if name not in blocks}
    draw_fields(console, numbers, title=f"Numbers ({ESTIMATE_HEADING})")
    for name, block in blocks.items():
        for position, item in enumerate(block, start=1):
            fields = item if isinstance(item, Mapping) else {"": item}
            draw_fields(console, fields, title=f"\n{name} {position} of {len(block)} ({ESTIMATE_HEADING})")

"""How answers look: JSON for scripts, rich tables for people. Text from logs is never read as markup."""

import base64
import dataclasses
import json
import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from store.verdicts import ESTIMATE_HEADING

PIPE_WIDTH = 1_000_000  # columns where no terminal says how many there are: no cell is cut or wrapped
TEXT_WIDTH = 20  # columns that free text has at least in a table
FIELD_CHARACTERS = 400  # of one value among the fields of a thing, on a terminal


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
    """A console on the stream: as wide as the terminal; in a pipe as wide as COLUMNS says, or as its content needs."""
    columns = os.environ.get("COLUMNS", "")
    given = int(columns) if columns.isdecimal() and int(columns) > 0 else PIPE_WIDTH
    width = None if stream.isatty() else given
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def cell(value: Any, *, characters: int | None = None) -> str:
    """One value as it stands in a table: on one line, unknown as a dash; cut only where `characters` says so."""
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
    return line if characters is None or len(line) <= characters else line[: characters - 1] + "…"


def draw_table(
    console: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    title: str | None = None,
) -> None:
    """Print rows under headers, every value whole; where the console is too narrow for that, one block for each row.

    Numbers stand to the right. Only the last column of free text wraps, at spaces.
    """
    listed = [list(row) for row in rows]
    _draw_title(console, title)
    unbounded = console.options.update(max_width=PIPE_WIDTH)
    for is_dense in (False, True):
        table = _table(headers, listed, is_dense=is_dense)
        if console.measure(table, options=unbounded).minimum <= console.width:
            console.print(table)
            return
    if not listed:
        console.print(", ".join(headers))
    for position, row in enumerate(listed):
        if position:
            console.print()
        _draw_block(console, [(header, cell(value)) for header, value in zip(headers, row, strict=True)])


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, is_dense: bool) -> Table:
    """The rows as a table whose least width is the one at which no number, id or name is broken."""
    columns = [[row[position] for row in rows if row[position] is not None] for position in range(len(headers))]
    texts = [position for position, values in enumerate(columns) if any(map(_is_free_text, values))]
    padding = (0, 0) if is_dense else (0, 1)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding, show_edge=not is_dense)
    for position, (header, values) in enumerate(zip(headers, columns, strict=True)):
        if texts and position == texts[-1]:
            longest = max(len(text) for text in [header, *map(cell, values)])
            table.add_column(header, min_width=min(TEXT_WIDTH, longest))
            continue
        is_number = bool(values) and not any(
            isinstance(value, bool) or not isinstance(value, int | float | Decimal) for value in values
        )
        table.add_column(header, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    return table


def _is_free_text(value: Any) -> bool:
    """Whether the value may be broken at its spaces: texts and objects that have some; never numbers or times."""
    is_scalar = isinstance(value, bool | int | float | Decimal | date | timedelta)
    return not is_scalar and " " in cell(value)


def _draw_block(console: Console, lines: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one a line; a long value goes on below itself, broken at spaces only."""
    indent = max((len(name) for name, _ in lines), default=0) + 2
    room = max(console.width - indent, TEXT_WIDTH)
    for name, value in lines:
        parts = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False) or [""]
        text = Text.assemble((name, "cyan"), " " * (indent - len(name)), ("\n" + " " * indent).join(parts))
        # A word wider than the console is left to the terminal: what is copied from there has no break in it.
        console.print(text, soft_wrap=True)


def _draw_title(console: Console, title: str | None) -> None:
    if title is not None:
        console.print(title, style="bold")


def draw_fields(console: Console, fields: Mapping[str, Any], *, title: str | None = None) -> None:
    """Print names and values, one a line."""
    _draw_title(console, title)
    characters = FIELD_CHARACTERS if console.is_terminal else None
    _draw_block(console, [(name, cell(value, characters=characters)) for name, value in fields.items()])


def draw_metrics(console: Console, metrics: Mapping[str, Any]) -> None:
    """Print a judge's numbers under their heading; lists of objects, such as launches, one block each."""
    blocks = {name: value for name, value in metrics.items() if isinstance(value, list) and value}
    numbers = {name: value for name, value in metrics.items() if name not in blocks}
    draw_fields(console, numbers, title=f"Numbers ({ESTIMATE_HEADING})")
    for name, block in blocks.items():
        for position, item in enumerate(block, start=1):
            fields = item if isinstance(item, Mapping) else {"": item}
            draw_fields(console, fields, title=f"\n{name} {position} of {len(block)} ({ESTIMATE_HEADING})")

"""Looking at tables and views: `tables`, `history`, `query`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, Engine, EngineOption, command
from store.errors import WrongUse

SHOWN_ROWS = 50


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "tables")(list_tables)
    command(app, "history")(history)
    command(app, "query")(query)


def list_tables(call: Call) -> Answer:
    """List tables and views with rows, version and what they hold."""
    from lineage.query import registered_tables
    from store.row_counts import count_rows
    from store.schema import TABLES
    from views.registry import TRAINING_VIEWS

    tables = registered_tables(call.existing_home())
    listed = []
    for name in tables.names():
        listed.append(
            {
                "name": name,
                "kind": "view" if name in TRAINING_VIEWS else "table" if name in TABLES else "maintained",
                "rows": count_rows(tables, name),
                "version": tables.version(name),
                "data_version": tables.data_version(name),
                "about": tables.schema(name).about,
            }
        )
    order = ("table", "maintained", "view")
    listed.sort(key=lambda row: (order.index(str(row["kind"])), str(row["name"])))
    return Answer({"tables": listed}, lambda console: _draw_tables(console, listed))


def history(call: Call, table: Annotated[str, typer.Argument(metavar="TABLE", help="A table or view.")]) -> Answer:
    """Show the versions of a table or view, newest first, and what made them."""
    from lineage.query import registered_tables

    tables = registered_tables(call.existing_home())
    tables.schema(table)
    versions = (
        [{**commit, "timestamp": _moment(commit["timestamp"])} for commit in tables.history(table)]
        if tables.exists(table)
        else []
    )
    return Answer({"table": table, "versions": versions}, lambda console: _draw_history(console, table, versions))


def query(
    call: Call,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over tables and views.")],
    as_of_version: Annotated[
        list[str] | None,
        typer.Option("--as-of-version", metavar="TABLE=V", help="Read a table at a version; repeatable."),
    ] = None,
    principal: Annotated[str, typer.Option("--principal", help="Who asks, in conf/governance.yaml.")] = "local",
    engine: EngineOption = Engine.DUCKDB,
) -> Answer:
    """Run one read-only SELECT over tables and views, now or at earlier versions."""
    from lineage.query import run_query

    versions = dict(_pin(text) for text in as_of_version or ())
    result = run_query(call.existing_home(), sql, as_of_versions=versions, principal=principal, engine=engine.value)
    rows = result.to_pylist() if _names_are_unique(result.column_names) else _renamed(result)
    return Answer({"rows": rows}, lambda console: _draw_rows(console, result.column_names, rows))


def _pin(text: str) -> tuple[str, int]:
    table, equals, version = text.partition("=")
    if not equals or not version.strip().isdecimal():
        raise WrongUse(
            f"--as-of-version takes TABLE=V such as nodes=3, not {text!r}; `espalier history TABLE` lists V."
        )
    return table.strip().lower(), int(version)


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _names_are_unique(names: list[str]) -> bool:
    return len(set(names)) == len(names)


def _renamed(result: Any) -> list[dict[str, Any]]:
    """Rows of a result with a column name twice: the later ones get `_2`, `_3`, as JSON keys must differ."""
    seen: dict[str, int] = {}
    names = []
    for name in result.column_names:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    rows: list[dict[str, Any]] = result.rename_columns(names).to_pylist()
    return rows


def _draw_tables(console: Console, listed: list[dict[str, Any]]) -> None:
    from cli.output import draw_table

    headers = ["name", "kind", "rows", "version", "data_version", "about"]
    draw_table(console, headers, [[row[header] for header in headers] for row in listed])


def _draw_history(console: Console, table: str, versions: list[dict[str, Any]]) -> None:
    from cli.output import draw_table

    rows = [[row["version"], row["timestamp"], row["operation"], row["metadata"] or None] for row in versions]
    draw_table(console, ["version", "when (UTC)", "operation", "made with"], rows, title=f"History of {table}")


def _draw_rows(console: Console, names: list[str], rows: list[dict[str, Any]]) -> None:
    from cli.output import draw_table

    draw_table(console, names, [list(row.values()) for row in rows[:SHOWN_ROWS]])
    more = f"; the first {SHOWN_ROWS} are shown, --json prints all" if len(rows) > SHOWN_ROWS else ""
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}{more}")

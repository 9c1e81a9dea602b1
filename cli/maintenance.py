"""Views kept up with their tables, and tables with their physical design: `refresh`, `explain`, `compact`."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, Engine, EngineOption, Progress, command
from store.errors import WrongUse

if TYPE_CHECKING:
    from store.delta import Tables
    from store.storage_settings import RetentionSettings

PLAN = ("mode", "reason", "changed_keys", "input_versions", "refreshed_first")
COMPACTED = ("files_before", "files_after", "lookup_before", "lookup_after", "version", "reason")
VACUUMED = ("removed_files", "removed_bytes", "kept_from", "kept_for")
RESULT = ("mode", "reason", "inserted", "updated", "deleted", "rows", "version", "seconds")


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "refresh")(refresh)
    command(app, "explain")(explain)
    command(app, "compact")(compact)


def refresh(
    call: Call,
    views: Annotated[
        list[str] | None,
        typer.Argument(metavar="VIEW", help="Views to maintain, with what they stand on; all without one."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Compute everything anew.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse to compute a view in full that was built before.")
    ] = False,
    engine: EngineOption = Engine.DUCKDB,
) -> Answer:
    """Bring views up to date with the tables, from the change feeds where that is possible."""
    from views.refresh import refresh as refresh_views

    home = call.existing_home()
    with call.progress("refresh") as progress:
        results = refresh_views(home, views or None, full=full, strict=strict, engine=engine.value, progress=progress)
    content = {"views": {name: {key: getattr(result, key) for key in RESULT} for name, result in results.items()}}
    return Answer(content, lambda console: _draw_results(console, content["views"]))


def explain(call: Call, view: Annotated[str, typer.Argument(metavar="VIEW", help="A view.")]) -> Answer:
    """Say what a refresh of a view would do, and why, without doing it."""
    from views.explain import explain as explain_view

    plan = explain_view(call.existing_home(), view)
    content = {key: getattr(plan, key) for key in PLAN}
    return Answer({"view": view, **content}, lambda console: _draw_plan(console, view, content))


def compact(
    call: Call,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables and views to compact; all without one."),
    ] = None,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Then remove files that nothing needs any more.")] = False,
    keep_days: Annotated[
        float | None,
        typer.Option("--keep-days", metavar="DAYS", min=0.0, help="Days to keep, in place of conf/storage.yaml's."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Remove also what views and datasets still need; says what breaks.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
) -> Answer:
    """Bring the files of tables and views to the physical design, and with --vacuum remove what nothing needs."""
    from lineage.query import registered_tables
    from store.compaction import compact_table
    from store.storage_settings import read_storage_settings

    if not vacuum and (force or keep_days is not None):
        option = "--force" if force else "--keep-days"
        raise WrongUse(f"{option} says what a vacuum removes; give --vacuum with it.")
    settings = read_storage_settings()
    tables = registered_tables(call.existing_home())
    for name in names or ():
        tables.schema(name)
        tables.open(name)
    listed = names or [name for name in tables.names() if tables.exists(name)]
    done: dict[str, dict[str, Any]] = {}
    with call.progress("compact") as progress:
        for number, name in enumerate(listed):
            progress(f"compact {name}", number, len(listed))
            done[name] = dataclasses.asdict(compact_table(tables, name, settings, dry_run=dry_run))
        if vacuum:
            retention = settings.retention
            if keep_days is not None:
                retention = retention.with_days(keep_days)
            _vacuum(call, tables, done, retention, force, dry_run, progress)
    return Answer({"tables": done}, lambda console: _draw_compacted(console, done, with_vacuum=vacuum))


def _vacuum(
    call: Call,
    tables: "Tables",
    done: dict[str, dict[str, Any]],
    settings: "RetentionSettings",
    force: bool,
    dry_run: bool,
    progress: Progress,
) -> None:
    """Vacuum each table that was compacted, and add to its answer what that did."""
    from store.retention import vacuum_table

    for number, (name, answer) in enumerate(done.items()):
        progress(f"vacuum {name}", number, len(done))
        answer |= dataclasses.asdict(vacuum_table(tables, name, settings, now=call.now, force=force, dry_run=dry_run))


def _draw_compacted(console: Console, tables: dict[str, dict[str, Any]], *, with_vacuum: bool) -> None:
    from cli.output import draw_table

    draw_table(
        console, ["table", *COMPACTED], [[name, *(row[key] for key in COMPACTED)] for name, row in tables.items()]
    )
    if not with_vacuum:
        return
    draw_table(console, ["table", *VACUUMED], [[name, *(row[key] for key in VACUUMED)] for name, row in tables.items()])
    for name, row in tables.items():
        for lost in row["breaks"]:
            console.print(f"{name}: {lost}", soft_wrap=True)


def _draw_results(console: Console, views: dict[str, dict[str, Any]]) -> None:
    from cli.output import draw_table

    rows = [[name, *(result[key] for key in RESULT)] for name, result in views.items()]
    draw_table(console, ["view", *RESULT], rows)


def _draw_plan(console: Console, view: str, content: dict[str, Any]) -> None:
    from cli.output import draw_fields

    would = "have nothing to do" if content["mode"] == "none" else f"be {content['mode']}"
    draw_fields(console, content, title=f"A refresh of {view} would {would}")

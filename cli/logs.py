"""Logs into tables: `ingest`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command

COUNTS = (
    "files",
    "skipped_files",
    "sessions",
    "nodes",
    "messages",
    "changes",
    "read",
    "stored",
    "already_there",
    "conflicting",
    "stripped",
    "waiting",
    "quarantined",
)
SEE_QUARANTINE = 'espalier query "select path, place, reason from quarantine"'


def add_commands(app: typer.Typer) -> None:
    """Register `ingest`."""
    command(app, "ingest")(ingest)


def ingest(
    call: Call,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Log files or folders of them.", show_default=False)
    ] = None,
    log_format: Annotated[str, typer.Option("--format", help="Reader to use; auto looks at the content.")] = "auto",
    run: Annotated[
        str | None, typer.Option("--run", help="Name of the run, where the log itself has none.", show_default=False)
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Governance tag of everything ingested; repeatable.")
    ] = None,
) -> Answer:
    """Read exploration logs into tables; without a PATH, what searches left in the ledger.

    The same log twice, an overlapping one or a grown one adds only what is new.
    """
    from transforms.ingest import ingest_ledger, ingest_paths

    home = call.home()
    with call.progress("ingest") as progress:
        if paths:
            report = ingest_paths(
                home, paths, format=log_format, run=run, tags=tuple(tags or ()), now=call.now, progress=progress
            )
        else:
            report = ingest_ledger(home, now=call.now, progress=progress)
    content: dict[str, Any] = {name: getattr(report, name) for name in COUNTS}
    content["quarantine_reasons"] = report.quarantine_reasons
    return Answer(content, lambda console: _draw(console, content))


def _draw(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_fields, draw_table

    draw_fields(console, {name: content[name] for name in COUNTS}, title="Ingested")
    reasons = content["quarantine_reasons"]
    if reasons:
        draw_table(console, ["files or rows", "why in quarantine"], [(n, why) for why, n in sorted(reasons.items())])
    if content["quarantined"]:
        console.print(f"each of them: {SEE_QUARANTINE}", soft_wrap=True)

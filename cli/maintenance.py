"""Views kept up with their tables: `refresh` and `explain`."""

from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command

PLAN = ("mode", "reason", "changed_keys", "input_versions", "refreshed_first")
RESULT = ("mode", "reason", "inserted", "updated", "deleted", "rows", "version", "seconds")


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "refresh")(refresh)
    command(app, "explain")(explain)


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
) -> Answer:
    """Bring views up to date with the tables, from the change feeds where that is possible."""
    from views.refresh import refresh as refresh_views

    home = call.existing_home()
    with call.progress("refresh") as progress:
        results = refresh_views(home, views or None, full=full, strict=strict, progress=progress)
    content = {"views": {name: {key: getattr(result, key) for key in RESULT} for name, result in results.items()}}
    return Answer(content, lambda console: _draw_results(console, content["views"]))


def explain(call: Call, view: Annotated[str, typer.Argument(metavar="VIEW", help="A view.")]) -> Answer:
    """Say what a refresh of a view would do, and why, without doing it."""
    from views.explain import explain as explain_view

    plan = explain_view(call.existing_home(), view)
    content = {key: getattr(plan, key) for key in PLAN}
    return Answer({"view": view, **content}, lambda console: _draw_plan(console, view, content))


def _draw_results(console: Console, views: dict[str, dict[str, Any]]) -> None:
    from cli.output import draw_table

    rows = [[name, *(result[key] for key in RESULT)] for name, result in views.items()]
    draw_table(console, ["view", *RESULT], rows)


def _draw_plan(console: Console, view: str, content: dict[str, Any]) -> None:
    from cli.output import draw_fields

    would = "have nothing to do" if content["mode"] == "none" else f"be {content['mode']}"
    draw_fields(console, content, title=f"A refresh of {view} would {would}")

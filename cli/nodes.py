"""Looking at one attempt: `as-of` and `show`."""

import difflib
import json
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command

SHOWN_FIELDS = (
    "node_id",
    "task_id",
    "session_id",
    "parent_id",
    "step",
    "selected_step",
    "depth",
    "operator",
    "model",
    "outcome",
    "failure_class",
    "fitness",
    "reward",
    "fitness_basis",
    "verifier",
    "copy_of",
    "copy_kind",
    "source_place",
)


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "as-of")(as_of)
    command(app, "show")(show)


NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node_id.")]


def as_of(
    call: Call,
    node: NodeArgument,
    step: Annotated[
        int | None, typer.Option("--step", help="The step S to look at; the node's own without it.", show_default=False)
    ] = None,
    known_at: Annotated[
        int | None,
        typer.Option("--known-at", help="Leave out what was recorded after K; S without it.", show_default=False),
    ] = None,
) -> Answer:
    """Show a node and its ancestors as they were known at a step: value(S, K) of every field."""
    from transforms.as_of import as_of as read_as_of

    seen = read_as_of(call.existing_home(), node, step=step, known_at=known_at)
    content = {
        key: getattr(seen, key) for key in ("node_id", "step", "known_at", "fields", "session_fields", "ancestors")
    }
    return Answer(content, lambda console: _draw_as_of(console, content))


def show(call: Call, node: NodeArgument) -> Answer:
    """Show one node: its verdict, what changed against its parent, and the prompt it came from."""
    from lineage.nodes import read_node

    seen = read_node(call.existing_home(), node)
    difference = _difference(seen.parent_artifact, seen.artifact)
    content = {
        "node": seen.row,
        "difference": difference,
        "artifact": seen.artifact,
        "messages": seen.messages,
    }
    return Answer(content, lambda console: _draw_node(console, content))


def _difference(before: str | None, after: str | None) -> list[str] | None:
    """Unified diff parent to node; None where one of them has no artifact."""
    if before is None or after is None:
        return None
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "parent", "node", lineterm="")
    return list(lines)


def _draw_as_of(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_fields, draw_table

    title = f"{content['node_id']} at step {content['step']}, as known at {content['known_at']}"
    draw_fields(console, content["fields"] or {"nothing": "it was not there yet"}, title=title)
    if content["session_fields"]:
        draw_fields(console, content["session_fields"], title="\nOf its session")
    if content["ancestors"]:
        ancestors = [_plain_row(ancestor) for ancestor in content["ancestors"]]
        headers = list(dict.fromkeys(key for row in ancestors for key in row))
        draw_table(console, headers, [[row.get(key) for key in headers] for row in ancestors], title="\nAncestors")


def _plain_row(ancestor: Any) -> dict[str, Any]:
    from cli.output import plain

    row = plain(ancestor)
    return {**{key: value for key, value in row.items() if key != "fields"}, **row.get("fields", {})}


def _draw_node(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_fields, draw_metrics

    row = content["node"]
    estimated = str(row["fitness_basis"] or "").startswith("estimated")
    draw_fields(console, {key: row[key] for key in SHOWN_FIELDS if row[key] is not None}, title="Node")
    if row["metrics"]:
        numbers = json.loads(row["metrics"])
        if not isinstance(numbers, dict):
            draw_fields(console, {"metric": numbers}, title="\nmetrics")
        elif estimated:
            draw_metrics(console, numbers)
        else:
            draw_fields(console, numbers, title="\nmetrics")
    if row["evidence"]:
        _draw_evidence(console, json.loads(row["evidence"]))
    for message in content["messages"]:
        console.print(f"\n[{message['role']}]", style="bold")
        console.print(message["content"] or "")
    if content["difference"] is None:
        if content["artifact"] is not None:
            console.print("\nartifact", style="bold")
            console.print(content["artifact"])
        return
    console.print("\nagainst its parent" if content["difference"] else "\nequal to its parent", style="bold")
    for line in content["difference"]:
        added, removed = line.startswith("+"), line.startswith("-")
        console.print(line, style="green" if added else "red" if removed else None)


def _draw_evidence(console: Console, evidence: dict[str, Any]) -> None:
    from cli.output import draw_fields, draw_table

    checks = evidence.pop("checks", None) or []
    if checks:
        rows = [(check["name"], check["passed"], check["detail"]) for check in checks]
        draw_table(console, ["check", "passed", "detail"], rows, title="\nchecks")
    if evidence:
        draw_fields(console, evidence, title="\nevidence")

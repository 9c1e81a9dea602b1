"""Taking back: `retract` and `reinstate`."""

import getpass
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command
from store.home import Home

ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Who decides.", show_default="the user of this machine")
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "retract")(retract)
    command(app, "reinstate")(reinstate)


def retract(
    call: Call,
    scope: Annotated[
        str,
        typer.Argument(metavar="SCOPE", help="node, subtree, session, task, user, source, model, verifier or tag."),
    ],
    scope_id: Annotated[str, typer.Argument(metavar="ID", help="What it names; a verifier is identity@version.")],
    kind: Annotated[
        str,
        typer.Option(
            "--kind", help="invalidate: the score is wrong; withdraw: the content must go.", show_default=False
        ),
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why.", show_default=False)],
    actor: ActorOption = None,
) -> Answer:
    """Take something back: it leaves every view at its next refresh, and may be reinstated."""
    from lineage.retract import retract as add_retraction

    home = call.existing_home()
    retraction = add_retraction(
        home,
        scope_kind=scope,
        scope_id=scope_id,
        kind=kind,
        reason=reason,
        actor=actor or getpass.getuser(),
        now=call.now,
    )
    content = _content(home, retraction)
    done = "Retracted" if retraction.is_new else "Was retracted already"
    return Answer(content, lambda console: _draw(console, content, done))


def reinstate(
    call: Call,
    retraction_id: Annotated[str, typer.Argument(metavar="RETRACTION_ID", help="The retraction to take back.")],
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "reinstated",
    actor: ActorOption = None,
) -> Answer:
    """Take a retraction back: what it reached returns at the next refresh."""
    from lineage.retract import reinstate as take_back

    home = call.existing_home()
    retraction = take_back(home, retraction_id, reason=reason, actor=actor or getpass.getuser(), now=call.now)
    content = _content(home, retraction)
    done = "Reinstated" if retraction.is_new else "Was reinstated already"
    return Answer(content, lambda console: _draw(console, content, done))


def _content(home: Home, retraction: Any) -> dict[str, Any]:
    from cli.output import plain
    from lineage.reached import reached_by

    content: dict[str, Any] = plain(retraction)
    return {**content, "reached": plain(reached_by(home, retraction.node_ids))}


def _draw(console: Console, content: dict[str, Any], title: str) -> None:
    from cli.output import draw_fields

    shown = {key: content[key] for key in ("retraction_id", "scope_kind", "scope_id", "kind", "reinstates")}
    draw_fields(console, {key: value for key, value in shown.items() if value is not None}, title=title)
    reached = content["reached"]
    counts: dict[str, Any] = {"nodes": len(content["node_ids"])}
    counts |= {f"rows of {name}": count for name, count in {**reached["tables"], **reached["views"]}.items()}
    counts |= {name: ", ".join(reached[name]) or "none" for name in ("datasets", "runs", "models")}
    draw_fields(console, counts, title="\nReaches, as things stand")
    console.print("\n`espalier refresh` brings the views up to date.")

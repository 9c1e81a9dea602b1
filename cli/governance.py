"""Taking back: `retract` and `reinstate`."""

import getpass
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command

ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Who decides [the user of this machine].", show_default=False)
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

    retraction = add_retraction(
        call.existing_home(),
        scope_kind=scope,
        scope_id=scope_id,
        kind=kind,
        reason=reason,
        actor=actor or getpass.getuser(),
        now=call.now,
    )
    content = _content(retraction)
    return Answer(content, lambda console: _draw(console, content, "Retracted"))


def reinstate(
    call: Call,
    retraction_id: Annotated[str, typer.Argument(metavar="RETRACTION_ID", help="The retraction to take back.")],
    reason: Annotated[str, typer.Option("--reason", help="Why.")] = "reinstated",
    actor: ActorOption = None,
) -> Answer:
    """Take a retraction back: what it reached returns at the next refresh."""
    from lineage.retract import reinstate as take_back

    retraction = take_back(
        call.existing_home(), retraction_id, reason=reason, actor=actor or getpass.getuser(), now=call.now
    )
    content = _content(retraction)
    return Answer(content, lambda console: _draw(console, content, "Reinstated"))


def _content(retraction: Any) -> dict[str, Any]:
    from cli.output import plain

    content: dict[str, Any] = plain(retraction)
    return content


def _draw(console: Console, content: dict[str, Any], title: str) -> None:
    from cli.output import draw_fields

    draw_fields(console, content, title=title)
    console.print("`espalier refresh` brings the views up to date.")

"""How things stand: `status` of the searches, and `doctor` for the machine."""

from typing import Any

import typer
from rich.console import Console

from cli.program import ANSWER_IS_NO, DONE, Answer, Call, command


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "status")(status)
    command(app, "doctor")(doctor)


def status(call: Call) -> Answer:
    """Show searches with their budgets, workers and stuck claims, and failed attempts by class."""
    from store.ledger_overview import read_ledger_overview

    overview = read_ledger_overview(call.existing_home())
    sessions = [{**vars(session), "buggy_rate": session.buggy_rate} for session in overview.sessions]
    content = {
        "sessions": sessions,
        "stuck_claims": sum(session.stuck_claims for session in overview.sessions),
        "failure_classes": overview.failure_classes,
    }
    return Answer(content, lambda console: _draw_status(console, content))


def doctor(call: Call) -> Answer:
    """Check the machine: Python, bytecode, versions, home, ledger, sandbox layers, Java, GPU."""
    from cli.doctor import examine

    findings = examine(call.home())
    is_well = all(finding.ok for finding in findings if finding.is_required)
    content = {"ok": is_well, "checks": [vars(finding) for finding in findings]}
    return Answer(content, lambda console: _draw_findings(console, content), DONE if is_well else ANSWER_IS_NO)


def _draw_status(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_table

    if not content["sessions"]:
        console.print("no search yet: `espalier search --task softmax --steps 20` starts one")
        return
    rows = [
        [
            session["session_id"],
            session["task"],
            f"{session['algorithm']} · {session['model']}",
            session["status"],
            f"{session['attempts_settled']} of {session['attempts_limit']}",
            session["nodes"],
            None if session["buggy_rate"] is None else f"{session['buggy_rate']:.0%}",
            session["best_fitness"],
            len(session["workers"]),
            session["stuck_claims"],
        ]
        for session in content["sessions"]
    ]
    headers = ["session", "task", "policy · proposer", "status", "attempts", "nodes", "buggy"]
    draw_table(console, [*headers, "best fitness", "workers", "stuck"], rows, title="Searches")
    if content["failure_classes"]:
        draw_table(console, ["failure class", "nodes"], list(content["failure_classes"].items()))


def _draw_findings(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_table

    rows = [[_mark(check), check["name"], check["detail"]] for check in content["checks"]]
    draw_table(console, ["", "what", "seen"], rows)
    console.print("all that is needed is there" if content["ok"] else "something that is needed is missing")


def _mark(check: dict[str, Any]) -> str:
    if check["ok"]:
        return "ok"
    return "NO" if check["is_required"] else "–"

"""What every command shares: where the options stand, one JSON object, one line per error, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from store.home import Home

Espalier = Callable[..., Any]
COMMANDS = (
    "ingest",
    "refresh",
    "explain",
    "tables",
    "history",
    "query",
    "as-of",
    "show",
    "export",
    "train",
    "search",
    "judge",
    "retract",
    "reinstate",
    "runs",
    "models",
    "status",
    "doctor",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--home", "HOME", "--json", "runs"],
        ["runs", "--json", "--home", "HOME"],
        ["--json", "runs", "--home", "HOME"],
        ["--home=HOME", "runs", "--json"],
    ],
)
def test_shared_options_stand_before_or_after_the_command(
    home: Home, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([argument.replace("HOME", str(home.path)) for argument in arguments]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}


def test_the_home_is_the_environments_where_no_option_names_one(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESPALIER_HOME", str(home.path))
    assert run(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": []}


def test_a_command_that_only_reads_makes_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "--home", str(tmp_path / "typo")]) == 2
    assert "no home folder at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ingset"], "WrongUse: No such command 'ingset'. Did you mean 'ingest'"),
        (["query"], "WrongUse: Missing argument 'SQL'; `espalier query --help` says what is possible."),
        (["history", "nodes", "--since", "3"], "WrongUse: No such option: --since"),
        (["search", "--steps", "few"], "WrongUse: Invalid value for '--steps'"),
        (["train"], "WrongUse: Missing command; `espalier train --help` says what is possible."),
        (["search"], "WrongUse: `espalier search` takes either --task, for a new session, or --resume SESSION."),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(espalier: Espalier, arguments: list[str], message: str) -> None:
    answer = espalier(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.error_line.startswith(message)


def test_with_json_an_error_is_one_object_on_stdout_and_one_line_on_stderr(espalier: Espalier) -> None:
    for arguments in (["query", "select * from nodez"], ["ingset"]):
        answer = espalier(*arguments, "--json")
        assert answer.code == 2
        assert set(answer.json) == {"error", "message"}
        assert answer.error_line == f"{answer.json['error']}: {answer.json['message']}"


def test_an_error_nobody_expected_is_one_line_too_and_debug_shows_where(
    espalier: Espalier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_settings: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr("lineage.query.run_query", broken)
    answer = espalier("query", "select 1")
    assert answer.code == 2
    assert answer.error_line == (
        "ZeroDivisionError: first line second line (a fault of the program; --debug shows where)"
    )
    with_debug = espalier("query", "select 1", "--debug")
    assert with_debug.code == 2
    assert "Traceback" in with_debug.err and "in broken" in with_debug.err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


CHATTY = """
import subprocess, sys, typer
from cli.program import Answer, command, shared_options
app = typer.Typer()
app.callback()(shared_options)
def chat(call):
    "Talk."
    print("from Python")
    subprocess.run(["echo", "from a child"])
    return Answer({"said": True}, lambda console: console.print("done"), exit_code=1)
command(app, "chat")(chat)
sys.exit(app(args=sys.argv[1:], standalone_mode=False))
"""


def test_with_json_what_libraries_and_children_print_goes_to_stderr() -> None:
    root = Path(__file__).resolve().parents[2]
    run_chat = [sys.executable, "-c", CHATTY, "chat"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    quiet = subprocess.run([*run_chat, "--json"], capture_output=True, text=True, env=environment, check=False)
    assert (quiet.returncode, json.loads(quiet.stdout)) == (1, {"said": True})
    assert "from Python" in quiet.stderr and "from a child" in quiet.stderr
    plain = subprocess.run(run_chat, capture_output=True, text=True, env=environment, check=False)
    assert "from Python" in plain.stdout and "done" in plain.stdout


def test_the_installed_program_gives_its_exit_code(espalier_process: Espalier, home: Home) -> None:
    done = espalier_process("query", "select 41 + 1 as answer", "--json", "--home", home.path)
    assert (done.code, done.json) == (0, {"rows": [{"answer": 42}]})
    failed = espalier_process("query", "select * from 'x.parquet'", "--home", home.path)
    assert (failed.code, failed.out) == (2, "")
    assert failed.error_line.startswith("WrongUse: the path 'x.parquet' is refused")


@pytest.mark.parametrize("option", ["--json", ""])
def test_a_reader_that_stops_early_is_no_error(home: Home, option: str) -> None:
    program = Path(sys.executable).with_name("espalier")
    columns = ", ".join(f"repeat('x', 80) as c{position}" for position in range(40))  # more than a pipe holds
    many = f"'{program}' query \"select unnest(range(40)) as n, {columns}\" {option} --home '{home.path}'"
    command = ["bash", "-o", "pipefail", "-c", f"COLUMNS=4000 {many} | head -c 10"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr, len(answer.stdout)) == (0, "", 10)

"""Every command and option has help and stands in docs/commands.md."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
SHARED = {"--home", "--json", "--debug", "--help"}


def commands(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, such as `train sft`."""
    command = typer.main.get_command(app) if command is None else command
    for part, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {part}".strip())
    if not getattr(command, "commands", None):
        yield name, command


COMMANDS = dict(commands())


def section(name: str) -> str:
    """The part of the page under the command's heading."""
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = [part for part in parts if f"`espalier {name}" in part.splitlines()[0]]
    assert len(found) == 1, f"docs/commands.md has {len(found)} sections on espalier {name}"
    return found[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_so_does_each_of_its_options(name: str) -> None:
    command = COMMANDS[name]
    assert command.help and command.help.strip().splitlines()[0].endswith((".", ":", ","))
    silent = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_documented_with_all_its_options(name: str) -> None:
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    text = section(name)
    assert [option for option in sorted(options - SHARED) if option not in text] == []


def test_the_page_documents_no_command_that_is_not_there() -> None:
    named = re.findall(r"^## .*?`espalier ((?:train )?[a-z-]+)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(set(named)) == sorted(COMMANDS)

"""The pages of docs/views: their commands print what stands there, and their tables say what the views hold."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.main import run
from cli.output import cell
from store.delta import Tables
from store.home import Home, open_home
from views.registry import TRAINING_VIEWS, declare_views

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "views"
FIRST = FOLDER / "README.md"  # has the commands that the other pages stand on
PAGES = [FIRST, *(FOLDER / f"{view}.md" for view in TRAINING_VIEWS)]
EXPLAINED = {
    "sft_trajectories": "leaf_id",
    "dpo_pairs": "chosen_id",
    "grpo_cohorts": "node_id",
    "value_examples": "node_id",
}
Program = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home into which the pages' log was ingested, with its views."""
    made = open_home(tmp_path_factory.mktemp("pages") / "home")
    for command in (["ingest", str(FOLDER / "example.jsonl")], ["refresh"]):
        assert run([*command, "--home", str(made.path)]) == 0
    return made


@pytest.fixture
def program(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Runs a line of a page and gives the lines that it prints, blank ones left out."""
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> list[str]:
        capsys.readouterr()
        name, *arguments = shlex.split(line)
        assert name == "espalier"
        assert run([*arguments, "--home", str(home.path)]) == 0, line
        return said_in(capsys.readouterr().out.splitlines())

    return call


def said_in(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines if line.strip()]


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """The commands of a page with the output that stands below each, which may be none."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found:
                found[-1][1].append(line)
    return [(command, said_in(output)) for command, output in found]


def rows_of(page: Path) -> list[list[str]]:
    """The rows of a page's tables of attempt, column, value and why."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start = lines.index("| attempt | column | value | why |") + 2
    rows = [[part.strip() for part in line.strip("|").split(" | ")] for line in lines[start:]]
    return rows[: next(place for place, line in enumerate(lines[start:]) if not line.startswith("|"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_prints_what_stands_below_it(page: Path, program: Program) -> None:
    commands = commands_of(page)
    assert any(output for _, output in commands)
    for command, output in commands:
        printed = program(command)
        if output:
            assert printed == output, command


@pytest.mark.parametrize("view", TRAINING_VIEWS)
def test_every_value_that_a_page_explains_is_the_one_in_the_view(view: str, home: Home) -> None:
    tables = Tables(home)
    declare_views(tables)
    artifacts = {row["node_id"]: row["artifact"] for row in tables.read("nodes").to_pylist()}
    rows = {artifacts[row[EXPLAINED[view]]]: row for row in tables.read(view).to_pylist()}
    explained = rows_of(FOLDER / f"{view}.md")
    assert explained
    for attempt, column, value, why in explained:
        assert cell(rows[attempt.strip("`")][column.strip("`")]) == value, (attempt, column, why)


def test_every_training_view_has_its_page_and_the_first_page_names_them_all() -> None:
    assert all(page.is_file() for page in PAGES)
    linked = set(re.findall(r"\]\((\w+\.md)\)", FIRST.read_text(encoding="utf-8")))
    assert linked == {page.name for page in FOLDER.glob("*.md")} - {FIRST.name}

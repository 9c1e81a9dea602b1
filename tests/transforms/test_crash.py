import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from small_ledger import fill_ledger
from small_logs import (
    NOW,
    contents,
    journal_node,
    node,
    program,
    rows,
    start_of_run,
    uuid_of,
    versions,
    write_checkpoint,
    write_journal,
    write_lines,
)
from store.home import Home, open_home
from transforms.drain import FED_ORDER
from transforms.ingest import ingest_ledger, ingest_paths
from transforms.write import WRITE_ORDER

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("killed_child.py")


def kill_at(point: str, home: Home, what: str, *paths: Path) -> None:
    command = [sys.executable, str(CHILD), str(home.path), point, what, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == -signal.SIGKILL, f"the child was to die at {point!r} and ended with {done.returncode}"


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("crash")
    write_lines(
        tmp_path / "logs" / "log.jsonl",
        *start_of_run(),
        node("a", messages=[{"role": "assistant", "content": "x"}]),
        node("b", parent="a", metric=2.0),
        {"type": "tag", "tag": "internal", "session": "s"},
        "broken\n",
    )
    both = [program(uuid_of("a"), seconds=1), program(uuid_of("b"), parent=uuid_of("a"), seconds=2)]
    write_checkpoint(tmp_path / "logs" / "run", 1, both)
    write_checkpoint(tmp_path / "logs" / "run", 2, [*both, program(uuid_of("c"), parent=uuid_of("b"), seconds=3)])
    write_journal(tmp_path / "logs" / "aide", [journal_node("a", 0), journal_node("b", 1, value=1.0, maximize=True)])
    return tmp_path / "logs"


@pytest.fixture(scope="module")
def whole(logs, tmp_path_factory):
    """What an ingest that nobody killed leaves."""
    unbroken = open_home(tmp_path_factory.mktemp("unbroken"))
    ingest_paths(unbroken, [logs], now=NOW)
    return contents(unbroken)


@pytest.mark.parametrize("point", ["numbered sessions", *(f"wrote {name}" for name in WRITE_ORDER)])
def test_an_ingest_killed_anywhere_ends_in_the_same_tables(ingest, home, logs, whole, point):
    kill_at(point, home, "paths", logs)
    ingest(logs)
    assert contents(home) == whole
    before = versions(home)
    ingest(logs)
    assert versions(home) == before


def test_changes_of_equal_clocks_in_a_grown_log_are_stored_once_wherever_it_was_killed(ingest, home, tmp_path):
    def change(value: float) -> dict:
        return {"type": "change", "session": "s", "node": "a", "field": "fitness", "step": 0, "value": value}

    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"), change(2.0))
    ingest(log)
    write_lines(log, change(3.0), change(4.0), mode="a")
    kill_at("wrote nodes", home, "paths", log)
    ingest(log)
    unbroken = open_home(tmp_path / "unbroken")
    ingest_paths(unbroken, [log], now=NOW)
    for name in ("change_log", "nodes"):
        assert contents(home)[name] == contents(unbroken)[name]


@pytest.mark.parametrize("point", ["numbered sessions", "wrote change_log", "wrote sessions", "wrote nodes"])
def test_a_correction_of_a_finished_session_reaches_its_node_wherever_it_was_killed(ingest, home, tmp_path, point):
    def change(value: float) -> dict:
        return {"type": "change", "session": "s", "node": "a", "field": "fitness", "step": 0, "value": value}

    done = {"type": "session", "session": "s", "status": "done"}
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"), change(2.0), done, change(3.0))
    kill_at(point, home, "paths", log)
    ingest(log)
    kill_at(point, home, "paths", write_lines(log, change(4.0), mode="a"))
    ingest(log)
    unbroken = open_home(tmp_path / "unbroken")
    ingest_paths(unbroken, [log], now=NOW)
    for name in ("change_log", "nodes", "sessions"):
        assert contents(home)[name] == contents(unbroken)[name], name
    clocks = [(row["step"], row["recorded_step"]) for row in rows(home, "change_log") if row["field"] == "fitness"]
    assert sorted(clocks) == [(0, 0), (0, 1), (0, 2)]


@pytest.fixture(scope="module")
def half_drained(tmp_path_factory):
    """A home whose ledger holds one session that was drained and one that was not."""
    home = open_home(tmp_path_factory.mktemp("half drained"))
    fill_ledger(home, "s_1")
    ingest_ledger(home, now=NOW)
    fill_ledger(home, "s_2")
    return home


@pytest.fixture(scope="module")
def drained(half_drained, tmp_path_factory):
    """What a drain that nobody killed leaves."""
    home = copy_of(half_drained, tmp_path_factory.mktemp("drained"))
    ingest_ledger(home, now=NOW)
    return contents(home)


def copy_of(home: Home, folder: Path) -> Home:
    return open_home(shutil.copytree(home.path, folder / "home"))


@pytest.mark.parametrize("point", ["numbered sessions", *(f"wrote {name}" for name in FED_ORDER)])
def test_a_drain_killed_between_two_tables_stores_each_row_once(half_drained, drained, tmp_path, point):
    home = copy_of(half_drained, tmp_path)
    kill_at(point, home, "ledger")
    ingest_ledger(home, now=NOW)
    assert contents(home) == drained
    before = versions(home)
    assert ingest_ledger(home, now=NOW).read == 0
    assert versions(home) == before


def test_a_visible_node_has_all_its_turns_wherever_a_drain_was_killed(half_drained, tmp_path):
    home = copy_of(half_drained, tmp_path)
    kill_at("wrote sessions", home, "ledger")
    assert len(rows(home, "nodes")) == 5 and len(rows(home, "prompt_history")) == 16
    ingest_ledger(home, now=NOW)
    turns = {row["node_id"] for row in rows(home, "prompt_history")}
    assert {row["node_id"] for row in rows(home, "nodes") if row["parent_id"]} == turns

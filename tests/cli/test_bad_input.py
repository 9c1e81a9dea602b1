"""Bad input ends in one clear line and exit code 2, and nothing half-written stays."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.delta import Tables
from store.errors import HomeNotUsable
from store.home import Home, open_home

Espalier = Callable[..., Any]
LOG = """\
{"type": "run", "run": "r1"}
{"type": "task", "task": "t", "metric": "score"}
{"type": "session", "session": "s", "task": "t"}
{"type": "node", "session": "s", "node": "n0", "artifact": "a", "metric": 1.0}
"""


def contents(home: Home) -> dict[str, int | None]:
    """Every table that exists with its version."""
    tables = Tables(home)
    return {name: tables.version(name) for name in tables.names() if tables.exists(name)}


def test_a_path_that_is_missing(home: Home, espalier: Espalier, tmp_path: Path) -> None:
    answer = espalier("ingest", tmp_path / "missing")
    assert (answer.code, answer.out) == (2, "")
    assert "missing does not exist" in answer.error_line
    assert contents(home) == {}


def test_one_missing_path_among_good_ones_stores_nothing(home: Home, espalier: Espalier, tmp_path: Path) -> None:
    good = tmp_path / "good.jsonl"
    good.write_text(LOG)
    assert espalier("ingest", good, tmp_path / "missing").code == 2
    assert contents(home) == {}


def test_a_format_nobody_reads(home: Home, espalier: Espalier, tmp_path: Path) -> None:
    answer = espalier("ingest", tmp_path, "--format", "csv")
    assert answer.code == 2
    assert answer.error_line.startswith("UnknownName: no log format 'csv'; there are auto, native, openevolve, aide")
    assert contents(home) == {}


def test_a_folder_without_logs(home: Home, espalier: Espalier, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing here")
    answer = espalier("ingest", folder)
    assert answer.code == 2
    assert "photos holds no file that is a log" in answer.error_line
    assert contents(home) == {}


def test_a_named_file_of_which_nothing_can_be_read_goes_to_quarantine_and_is_an_error(
    espalier: Espalier, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text("not a log\n")
    answer = espalier("ingest", broken)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith("BadInput: nothing of")
    kept = espalier("query", "select path, reason, bytes from quarantine", "--json").json["rows"]
    assert [(row["path"], row["bytes"].strip()) for row in kept] == [("broken.jsonl", "not a log")]
    assert espalier("query", "select * from nodes", "--json").json["rows"] == []


def test_a_broken_file_in_a_folder_is_counted_and_no_error(espalier: Espalier, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "good.jsonl").write_text(LOG)
    (folder / "broken.jsonl").write_text("not a log\n")
    answer = espalier("ingest", folder, "--json")
    assert answer.code == 0
    assert (answer.json["nodes"], answer.json["quarantined"]) == (1, 1)


@pytest.mark.parametrize("command", [["ingest", "LOG"], ["refresh"], ["tables"], ["doctor"]])
def test_a_home_that_cannot_be_written(espalier_process: Espalier, tmp_path: Path, command: list[str]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(LOG)
    below_a_file = log / "home"  # no permission to take away from root, so a place where no folder can be
    answer = espalier_process(*[str(log) if part == "LOG" else part for part in command], "--home", below_a_file)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith("HomeNotUsable: ")
    assert log.read_text() == LOG


@pytest.mark.parametrize("command", [["refresh"], ["explain", "dpo_pairs"], ["tables"], ["query", "select 1"]])
def test_a_home_mistyped_is_not_made(espalier_process: Espalier, tmp_path: Path, command: list[str]) -> None:
    answer = espalier_process(*command, "--home", tmp_path / "hmoe")
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith("HomeNotUsable: no home folder at ")
    assert not (tmp_path / "hmoe").exists()


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("locked", flush=True)
time.sleep(120)
"""


@pytest.fixture
def locked_ledger(home: Home) -> Iterator[Home]:
    """A home whose ledger another process holds the write lock of."""
    from store.ledger import open_ledger

    open_ledger(home).close()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(home.ledger_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        yield home
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.slow  # the program waits ten seconds for the lock before it gives up
def test_a_ledger_that_another_process_has_locked(locked_ledger: Home, espalier_process: Espalier) -> None:
    home = locked_ledger
    begin = time.monotonic()
    answer = espalier_process("search", "--task", "vector_add", "--steps", "1", "--home", home.path)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith("LedgerBusy: ledger ")
    assert "nothing was written" in answer.error_line
    assert time.monotonic() - begin < 60
    with sqlite3.connect(home.ledger_path) as connection:
        assert connection.execute("select count(*) from sessions").fetchone() == (0,)
    assert contents(home) == {}
    assert espalier_process("status", "--json", "--home", home.path).json["sessions"] == []


def test_a_ledger_that_is_no_database(home: Home, espalier: Espalier) -> None:
    home.ledger_path.write_text(
        "this is a diary, not a ledger; it is long enough to look like a page of something\n" * 20
    )
    for command in (["status"], ["ingest"]):
        answer = espalier(*command)
        assert answer.code == 2
        assert answer.error_line.startswith("BadInput: ledger ")
    doctor = espalier("doctor", "--json")
    assert doctor.code == 1
    assert [check["name"] for check in doctor.json["checks"] if check["is_required"] and not check["ok"]] == ["ledger"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["refresh", "dpo_pairz"], "UnknownName: no view 'dpo_pairz'"),
        (["explain", "nodes"], "UnknownName: no view 'nodes'"),
        (["history", "nodez"], "UnknownName: no table or view 'nodez'; there are access_log"),
        (["query", "select * from nodez"], "UnknownName: no table or view 'nodez'; there are access_log"),
        (["query", "select fitnes from nodes"], 'UnknownName: Binder Error: Referenced column "fitnes" not found'),
        (["query", "select * from nodes", "--as-of-version", "nodes=3"], "VersionGone: nodes@3 cannot be read"),
        (["query", "select 1", "--principal", "eve"], "RefusedByPolicy: unknown principal eve"),
        (["as-of", "n_none"], "UnknownName: "),
        (["show", "n_none"], "UnknownName: no node 'n_none' in the tables; there are none yet"),
        (["export", "nodes", "DIR"], "WrongUse: 'nodes' is no training view"),
        (["train", "sft", "DIR"], "BadInput: no dataset folder at "),
        (["judge", "DIR/candidate.py", "--task", "softmax"], "BadInput: candidate "),
        (["search", "--task", "softmin"], "UnknownName: no kernel task is named 'softmin'; there are vector_add"),
        (["search", "--task", "softmax", "--policy", "psychic"], "UnknownName: "),
        (
            ["search", "--task", "softmax", "--proposer", "model"],
            "WrongUse: --proposer model and --model DIR go together",
        ),
        (["search", "--resume", "s_none"], "UnknownName: session s_none is not in this ledger"),
        (["retract", "node", "n_none", "--kind", "invalidate", "--reason", "x"], "UnknownName: "),
        (["reinstate", "r_none"], "UnknownName: "),
    ],
)
def test_an_unknown_name_is_answered_with_what_there_is(
    home: Home, espalier: Espalier, tmp_path: Path, command: list[str], message: str
) -> None:
    before = contents(home)
    answer = espalier(*(part.replace("DIR", str(tmp_path / "new")) for part in command))
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith(message)
    assert contents(home) == before
    assert not (tmp_path / "new").exists()


def test_a_version_whose_files_were_removed_is_named_with_those_that_can_be_read(
    home: Home, espalier: Espalier, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(LOG)
    assert espalier("ingest", log).code == 0
    first = Tables(home).version("nodes")
    with log.open("a") as more:
        more.write('{"type": "node", "session": "s", "node": "n0", "artifact": "a", "metric": 2.0}\n')
        more.write('{"type": "node", "session": "s", "node": "n1", "parent": "n0", "artifact": "b", "metric": 3.0}\n')
    assert espalier("ingest", log).code == 0
    for file in Tables(home).files("nodes", version=first):
        os.remove(file)
    answer = espalier("query", "select * from nodes", "--as-of-version", f"nodes={first}")
    assert answer.code == 2
    assert answer.error_line.startswith(f"VersionGone: nodes@{first} lost 1 of its 1 files; ")


@pytest.mark.parametrize("name", ["50%20off", "a[1]", "back\\slash", "two\nlines"])
def test_a_home_under_a_path_that_cannot_hold_tables_is_refused_before_it_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(HomeNotUsable, match="which Delta tables cannot lie under"):
        open_home(tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_folder_called_data_that_is_no_home_stays_as_it_is(espalier_process: Espalier, tmp_path: Path) -> None:
    data = tmp_path / "elsewhere" / "data"
    data.mkdir()
    (data / "train.parquet").touch()
    answer = espalier_process("tables", "--json", ESPALIER_HOME="")
    assert (answer.code, answer.json["error"]) == (2, "HomeNotUsable")
    assert [file.name for file in data.iterdir()] == ["train.parquet"]


def test_json_without_a_command_is_an_error_in_json(espalier_process: Espalier) -> None:
    answer = espalier_process("--json")
    assert (answer.code, answer.json["error"]) == (2, "WrongUse")


def test_a_terminal_that_lacks_a_character_shows_another(home: Home, espalier_process: Espalier) -> None:
    answer = espalier_process("query", "select '\u65e5' as day", "--home", home.path, PYTHONIOENCODING="latin-1")
    assert (answer.code, answer.err) == (0, "") and "?" in answer.out

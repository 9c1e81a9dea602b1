"""The Delta verbs: nothing lost, nothing doubled, nothing rewritten that did not change."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from store.delta import LostRace, Tables
from store.errors import TableDamaged, UnknownName, VersionGone
from store.home import open_home
from store.known_logs import DataFile, Listing
from store.schema import CHANGE_LOG, SESSIONS


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(open_home(tmp_path / "home"))


def log_rows(*numbers: int, value: str = "1", session_seq: int = 1) -> pa.Table:
    rows = [
        {
            "session_id": f"s{session_seq}",
            "session_seq": session_seq,
            "node_id": None,
            "field": "best_so_far",
            "step": n,
            "recorded_step": n,
            "n": 0,
            "new_value": value,
            "origin": "recorded",
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, schema=CHANGE_LOG.columns)


def steps(tables: Tables, **arguments: object) -> list[int]:
    return sorted(tables.read("change_log", **arguments)["step"].to_pylist())  # type: ignore[arg-type]


def test_a_table_that_was_never_written_reads_as_empty_with_its_columns(tables):
    rows = tables.read("change_log")
    assert rows.num_rows == 0
    assert rows.schema.names == CHANGE_LOG.columns.names
    assert tables.version("change_log") is None


def test_upserting_equal_rows_makes_no_commit(tables):
    tables.upsert("change_log", log_rows(0, 1))
    assert tables.upsert("change_log", log_rows(0, 1)) is None
    assert tables.version("change_log") == 1


def test_a_key_with_a_null_part_is_one_key(tables):
    tables.upsert("change_log", log_rows(0))
    commit = tables.upsert("change_log", log_rows(0, value="2"))
    assert (commit.inserted, commit.updated) == (0, 1)
    assert tables.read("change_log")["new_value"].to_pylist() == ["2"]


def test_a_mixed_upsert_shows_in_the_feed_as_just_what_changed(tables):
    tables.upsert("change_log", log_rows(0, 1))
    tables.upsert("change_log", pa.concat_tables([log_rows(1, value="7"), log_rows(0), log_rows(2)]))
    feed = tables.changes("change_log", start=2).sort_by([("step", "ascending"), ("_change_type", "descending")])
    seen = list(
        zip(feed["step"].to_pylist(), feed["new_value"].to_pylist(), feed["_change_type"].to_pylist(), strict=True)
    )
    assert seen == [(1, "1", "update_preimage"), (1, "7", "update_postimage"), (2, "1", "insert")]


def test_reading_the_feed_past_the_last_version_is_empty(tables):
    tables.upsert("change_log", log_rows(0))
    assert tables.changes("change_log", start=2).num_rows == 0


def test_an_empty_commit_moves_metadata_and_keeps_the_data_version(tables):
    tables.upsert("change_log", log_rows(0), metadata={"watermark": 1})
    nothing = tables.difference("change_log", log_rows(0), version=1)
    commit = tables.commit_rows("change_log", nothing, planned_at=1, metadata={"watermark": 2})
    assert commit.version == 2
    assert tables.metadata("change_log") == {"watermark": 2, "data_version": 1}
    assert tables.data_version("change_log") == 1


def test_rows_can_be_deleted_updated_and_inserted_in_one_commit(tables):
    tables.upsert("change_log", log_rows(0, 1))
    kinds = pa.array(["delete", "update", "insert"])
    changes = pa.concat_tables([log_rows(0), log_rows(1, value="9"), log_rows(2)]).append_column("_change", kinds)
    commit = tables.commit_rows("change_log", changes, planned_at=1)
    assert (commit.version, commit.inserted, commit.updated, commit.deleted) == (2, 1, 1, 1)
    rows = tables.read("change_log").sort_by("step")
    assert rows["step"].to_pylist() == [1, 2]
    assert rows["new_value"].to_pylist() == ["9", "1"]


def test_a_plan_against_an_older_version_is_refused(tables):
    tables.upsert("change_log", log_rows(0))
    planned = tables.difference("change_log", log_rows(5), version=1)
    tables.upsert("change_log", log_rows(1))
    with pytest.raises(LostRace):
        tables.commit_rows("change_log", planned, planned_at=1)
    assert steps(tables) == [0, 1]


def test_eight_writers_of_overlapping_rows_double_nothing(tables):
    tables.create("change_log")

    def write(writer: int) -> None:
        Tables(tables.home).upsert("change_log", log_rows(*range(5), 100 + writer))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert steps(tables) == [*range(5), *range(100, 108)]


def test_reading_named_sessions_opens_only_files_that_can_hold_them(tables):
    for seq in range(4):
        tables.upsert("change_log", log_rows(0, session_seq=seq))
    assert len(tables.files("change_log")) == 4
    assert len(tables.files("change_log", session_seqs=[2])) == 1
    assert tables.read("change_log", session_seqs=[2])["session_id"].to_pylist() == ["s2"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, "abcd"),
        ({"session_seq": [], "task_id": None}, "d"),
        ({"session_seq": [3, 9]}, "abd"),
        ({"session_seq": [4], "task_id": ["t2", "t5"]}, "bd"),
        ({"task_id": ["t0", "t9"]}, "d"),
    ],
)
def test_a_file_without_bounds_may_hold_anything_and_the_others_what_lies_between_theirs(asked, found):
    bounds = {
        "a": {"session_seq": (1, 3), "task_id": ("t1", "t1")},
        "b": {"session_seq": (3, 4), "task_id": ("t1", "t3")},
        "c": {"session_seq": (5, 8), "task_id": ("t4", "t4")},
        "d": {},
    }
    listing = Listing({path: DataFile(path, 10, 1, known) for path, known in bounds.items()})
    assert "".join(file.path for file in listing.holding(asked)) == found
    assert (listing.num_rows, listing.size_bytes) == (4, 40)


def test_an_older_version_reads_as_it_was(tables):
    tables.upsert("change_log", log_rows(0))
    tables.upsert("change_log", log_rows(1))
    assert steps(tables, version=1) == [0]
    assert steps(tables) == [0, 1]


def test_a_version_whose_files_are_gone_is_named_with_those_that_can_be_read(tables):
    tables.upsert("change_log", log_rows(0))
    tables.upsert("change_log", log_rows(0, value="2"))
    tables.open("change_log").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(VersionGone, match=r"change_log@1 .*versions that can be read: 0, 2 to \d"):
        tables.read("change_log", version=1)


def test_a_feed_whose_files_are_gone_is_a_named_error(tables):
    tables.upsert("change_log", log_rows(0))
    tables.upsert("change_log", log_rows(0, value="2"))
    tables.open("change_log").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(VersionGone, match="change feed of change_log from version 1 is gone"):
        tables.changes("change_log", start=1)


def test_an_unknown_table_is_answered_with_those_there_are(tables):
    with pytest.raises(UnknownName, match=r"no table or view 'nodez'; there are .*nodes"):
        tables.read("nodez")


def test_more_rows_than_one_reader_batch_are_not_doubled(tables):
    many = 9_000  # an upsert once lost row identity past 8,192 rows of one file (delta-rs#4475)
    tables.upsert("change_log", log_rows(*range(many)))
    tables.upsert("change_log", log_rows(*range(many + 1), value="2"))
    rows = tables.read("change_log")
    assert rows.num_rows == many + 1
    assert set(rows["new_value"].to_pylist()) == {"2"}


def test_the_log_holds_no_statistics_of_text_columns(tables):
    row = {"session_id": "s", "session_seq": 0, "config": "SECRET", "next_step": 1}
    tables.upsert("sessions", pa.Table.from_pylist([row], schema=SESSIONS.columns))
    log = "".join(path.read_text() for path in (tables.path("sessions") / "_delta_log").glob("*.json"))
    assert "SECRET" not in log


def test_a_creation_that_was_killed_before_its_first_commit_is_done_again(tables):
    (tables.path("change_log") / "_delta_log").mkdir(parents=True)
    assert not tables.exists("change_log") and tables.read("change_log").num_rows == 0
    tables.upsert("change_log", log_rows(1))
    assert steps(tables) == [1]


@pytest.mark.parametrize(("version", "text"), [(1, '{"commitInfo": {"cut'), (0, "")])
def test_a_table_whose_log_is_damaged_is_named_in_one_line(tables, version, text):
    tables.upsert("change_log", log_rows(1))
    (tables.path("change_log") / "_delta_log" / f"{version:020}.json").write_text(text)
    for use in (tables.read, tables.history, lambda name: tables.changes(name, start=0)):
        with pytest.raises(TableDamaged, match=r"^table change_log cannot be opened \(.*\); its log is .*_delta_log"):
            use("change_log")


@pytest.mark.parametrize("version", [9, 10**20])
def test_a_version_that_never_was_lists_those_that_can_be_read(tables, version):
    tables.upsert("change_log", log_rows(1))
    with pytest.raises(VersionGone, match=rf"change_log@{version} cannot be read; versions that can be read: 0 to 1"):
        tables.read("change_log", version=version)


def test_what_was_never_made_is_answered_with_what_makes_it(tables):
    tables.declare(replace(CHANGE_LOG, name="best_nodes"))
    with pytest.raises(UnknownName, match="table nodes is empty so far; `espalier ingest` fills it"):
        tables.open("nodes")
    with pytest.raises(UnknownName, match="view best_nodes is not built yet; `espalier refresh` builds it"):
        tables.open("best_nodes")

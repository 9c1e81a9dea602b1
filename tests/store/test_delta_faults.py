"""Faults that people have met in Delta tables, each as what must hold here; test_delta.py has the verbs themselves."""

import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from store.compaction import compact_table
from store.delta import CHANGE, LostRace, Tables
from store.errors import VersionGone
from store.home import Home
from store.schema import CHANGE_LOG, NODES, TAG_ASSIGNMENTS, TableSchema
from store.storage_settings import read_storage_settings

ROOT = Path(__file__).parents[2]
Rows = dict[int, str]


@pytest.fixture
def tables(home: Home) -> Tables:
    return Tables(home)


def log_rows(steps: dict[int, str]) -> pa.Table:
    """A change-log row per step with its value, in one session."""
    rows = [
        {
            "session_id": "s",
            "session_seq": 1,
            "field": "f",
            "step": step,
            "recorded_step": step,
            "n": 0,
            "new_value": value,
        }
        for step, value in steps.items()
    ]
    return pa.Table.from_pylist(rows, schema=CHANGE_LOG.columns)


def state(tables: Tables, version: int | None = None) -> Rows:
    rows = tables.read("change_log", version=version).to_pylist()
    assert len({row["step"] for row in rows}) == len(rows), "a key stands twice"
    return {row["step"]: row["new_value"] for row in rows}


def change(
    tables: Tables, *, insert: Rows | None = None, update: Rows | None = None, delete: Rows | None = None
) -> int:
    parts = [
        log_rows(rows).append_column(CHANGE, pa.array([kind] * len(rows), pa.string()))
        for kind, rows in (("insert", insert or {}), ("update", update or {}), ("delete", delete or {}))
    ]
    version = tables.version("change_log")
    assert version is not None
    return tables.commit_rows("change_log", pa.concat_tables(parts), planned_at=version).version


def replayed(tables: Tables, *, start: int = 0, rows: Rows | None = None) -> dict[int, Rows]:
    """Rows after each version, as the feed alone tells it; leaving rows go before those that come."""
    rows, after = dict(rows or {}), {}
    for version in range(start, (tables.version("change_log") or 0) + 1):
        images = tables.changes("change_log", start=version, end=version).to_pylist()
        images.sort(key=lambda row: row["_change_type"] not in ("delete", "update_preimage"))
        for image in images:
            if image["_change_type"] in ("delete", "update_preimage"):
                assert rows.pop(image["step"]) == image["new_value"]
            else:
                assert image["step"] not in rows
                rows[image["step"]] = image["new_value"]
        after[version] = dict(rows)
    return after


def assert_feed_tells_every_version(tables: Tables) -> None:
    for version, rows in replayed(tables).items():
        assert rows == state(tables, version), f"version {version}"


@pytest.mark.parametrize("num_rows", [8_193, 100_000])
def test_an_upsert_of_unique_keys_into_one_large_file_is_not_ambiguous(tables: Tables, num_rows: int) -> None:
    """delta-rs#4475, #4572."""
    tables.upsert("change_log", log_rows(dict.fromkeys(range(num_rows), "1")))
    commit = tables.upsert("change_log", log_rows(dict.fromkeys(range(num_rows), "2")))
    assert commit is not None and (commit.inserted, commit.updated) == (0, num_rows)
    assert state(tables) == dict.fromkeys(range(num_rows), "2")


def test_two_rows_of_one_key_in_one_batch_are_not_both_stored(tables: Tables) -> None:
    """delta-rs#2407, #2961."""
    twice = pa.concat_tables([log_rows({0: "1"}), log_rows({0: "2"})])
    with pytest.raises(AssertionError, match=r"change_log: key .* stands twice in one batch"):
        tables.upsert("change_log", twice)
    assert state(tables) == {}
    tables.upsert("change_log", log_rows({0: "0"}))
    with pytest.raises(AssertionError, match="stands twice"):
        tables.upsert("change_log", twice)
    assert (state(tables), tables.version("change_log")) == ({0: "0"}, 1)


def test_a_repeated_transaction_writes_nothing_again(tables: Tables) -> None:
    """delta-rs#2580, #3821: delta-rs itself takes it; the version that a plan was made against is the guard."""
    tables.create("change_log")
    rows = log_rows({0: "1"}).append_column(CHANGE, pa.array(["insert"]))
    tables.commit_rows("change_log", rows, planned_at=0, transaction=("ingest", 1))
    for again in (tables, Tables(tables.home)):
        with pytest.raises(LostRace):
            again.commit_rows("change_log", rows, planned_at=0, transaction=("ingest", 1))
        assert again.upsert("change_log", log_rows({0: "1"})) is None
    assert (state(tables), tables.version("change_log")) == ({0: "1"}, 1)


def test_many_writers_lose_none_of_their_appends(tables: Tables) -> None:
    """delta-rs#3736."""
    tables.create("change_log")

    def write(writer: int) -> None:
        own = Tables(tables.home)
        for number in range(6):
            own.upsert("change_log", log_rows({writer * 100 + number: str(writer)}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert state(tables) == {writer * 100 + number: str(writer) for writer in range(8) for number in range(6)}
    assert tables.version("change_log") == 48


def test_many_writers_lose_none_of_their_merges(tables: Tables) -> None:
    """delta-rs#3166: twelve of sixteen raised there."""
    tables.upsert("change_log", log_rows(dict.fromkeys(range(16), "old")))

    def write(writer: int) -> None:
        own = Tables(tables.home)
        for number in range(4):
            own.upsert("change_log", log_rows({writer * 4 + number: f"new {writer}"}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert state(tables) == {writer * 4 + number: f"new {writer}" for writer in range(4) for number in range(4)}
    assert_feed_tells_every_version(tables)


def test_the_feed_at_the_last_version_is_that_commit_and_past_it_empty(tables: Tables) -> None:
    """delta-rs#3165, #3035."""
    tables.upsert("change_log", log_rows({0: "1"}))
    tables.upsert("change_log", log_rows({1: "1"}))
    assert tables.changes("change_log", start=2)["step"].to_pylist() == [1]
    assert tables.changes("change_log", start=2, end=2)["step"].to_pylist() == [1]
    for start, end in ((3, None), (4, 2), (99, None)):
        assert tables.changes("change_log", start=start, end=end).num_rows == 0


@pytest.mark.parametrize(("start", "end"), [(2, 2), (99, 100)])
def test_the_feed_between_versions_that_are_still_to_come_is_empty(tables: Tables, start: int, end: int) -> None:
    """delta-rs#3165."""
    tables.upsert("change_log", log_rows({0: "1"}))
    assert tables.changes("change_log", start=start, end=end).num_rows == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_feed_leads_from_any_version_to_any_other_whatever_was_committed(tables: Tables, seed: int) -> None:
    """delta#1606: a delete that the feed did not tell."""
    picked = random.Random(seed)
    tables.create("change_log")
    now: Rows = {}
    settings = read_storage_settings()
    for number in range(12):
        there = picked.sample(sorted(now), k=min(len(now), 4))
        new = {picked.randrange(1000): f"new {number}" for _ in range(3)}
        step = picked.choice(["insert", "mixed", "delete", "compact", "replace", "nothing"])
        if step == "compact":
            compact_table(tables, "change_log", settings)
            continue
        if step == "replace":
            now = {**{key: now[key] for key in there}, **new}
            version = tables.version("change_log")
            assert version is not None
            tables.replace_all("change_log", log_rows(now), planned_at=version)
            continue
        gone = {key: now.pop(key) for key in there[:2]} if step in ("mixed", "delete") else {}
        moved = {key: f"moved {number}" for key in there[2:]} if step == "mixed" else {}
        fresh = {key: value for key, value in new.items() if key not in now and key not in gone}
        fresh = fresh if step in ("insert", "mixed") else {}
        change(tables, insert=fresh, update=moved, delete=gone)
        now |= moved | fresh
    assert state(tables) == now
    after = replayed(tables)
    for version, rows in after.items():
        assert rows == state(tables, version)
    for start in (3, 7):
        assert replayed(tables, start=start + 1, rows=state(tables, start))[max(after)] == now


def test_an_overwrite_with_equal_rows_comes_to_no_change(tables: Tables) -> None:
    """delta#1500: its feed deletes and inserts an equal row; laid together nothing moved."""
    tables.upsert("change_log", log_rows({0: "1", 1: "2"}))
    tables.replace_all("change_log", log_rows({0: "1", 1: "2"}), planned_at=1)
    assert_feed_tells_every_version(tables)
    assert state(tables) == state(tables, 1)


def test_a_feed_that_was_switched_on_late_is_refused_or_right_and_never_short(tables: Tables) -> None:
    write_deltalake(tables.path("change_log"), log_rows({0: "1"}))
    write_deltalake(tables.path("change_log"), log_rows({1: "1"}), mode="append")
    tables.open("change_log").alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    tables.upsert("change_log", log_rows({1: "2", 2: "1"}))
    with pytest.raises(VersionGone, match="change feed of change_log from version 0 is gone"):
        tables.changes("change_log", start=0)
    for start in (1, 2, 3):
        before = state(tables, start - 1)
        assert replayed(tables, start=start, rows=before)[3] == {0: "1", 1: "2", 2: "1"}


def test_lists_and_times_pass_through_inserts_updates_and_the_feed(tables: Tables) -> None:
    """delta-rs#2832."""
    context = [{"node_id": "m", "session_id": None, "step": 3, "role": None}]
    first = {"node_id": "n", "session_seq": 1, "ancestors": ["a", "b"], "context": context}
    tables.upsert("nodes", pa.Table.from_pylist([first], schema=NODES.columns))
    second = {**first, "ancestors": [], "context": None}
    tables.upsert("nodes", pa.Table.from_pylist([second], schema=NODES.columns))
    feed = {row["_change_type"]: row for row in tables.changes("nodes", start=2).to_pylist()}
    assert (feed["update_preimage"]["ancestors"], feed["update_preimage"]["context"]) == (["a", "b"], context)
    assert (feed["update_postimage"]["ancestors"], feed["update_postimage"]["context"]) == ([], None)
    moment = datetime(2026, 3, 1, 7, 13, 0, 123456, tzinfo=UTC)
    for tag in ("pii", "internal"):
        row = {"assignment_id": "a", "tag": tag, "recorded_at": moment}
        tables.upsert("tag_assignments", pa.Table.from_pylist([row], schema=TAG_ASSIGNMENTS.columns))
    assert tables.read("tag_assignments")["recorded_at"].to_pylist() == [moment]
    assert set(tables.changes("tag_assignments", start=2)["recorded_at"].to_pylist()) == {moment}


def test_a_time_is_the_same_moment_wherever_it_is_read(tables: Tables) -> None:
    """duckdb-delta#38, delta-rs#2341."""
    program = (
        "import sys, pyarrow as pa, datetime as d\n"
        "from store.delta import Tables\nfrom store.home import open_home\n"
        "tables = Tables(open_home(sys.argv[1]))\n"
        "row = {'assignment_id': 'a', 'recorded_at': d.datetime(2026, 3, 1, 7, 13, tzinfo=d.UTC)}\n"
        "rows = pa.Table.from_pylist([row], schema=tables.schema('tag_assignments').columns)\n"
        "tables.upsert('tag_assignments', rows)\n"
        "print(tables.read('tag_assignments')['recorded_at'].to_pylist()[0].isoformat())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tables.home.path)],
        env={**os.environ, "TZ": "Asia/Tokyo", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "2026-03-01T07:13:00+00:00"
    assert tables.read("tag_assignments")["recorded_at"].to_pylist() == [datetime(2026, 3, 1, 7, 13, tzinfo=UTC)]
    assert tables.open("tag_assignments").to_pyarrow_table()["recorded_at"].type == pa.timestamp("us", tz="UTC")


def test_nanoseconds_are_refused_and_not_cut_without_a_word(tables: Tables) -> None:
    """delta-rs#1455."""
    columns = TAG_ASSIGNMENTS.columns
    place = columns.get_field_index("recorded_at")
    finer = columns.set(place, pa.field("recorded_at", pa.timestamp("ns", tz="UTC")))
    rows = pa.Table.from_pylist([{"assignment_id": "a"}], schema=columns).cast(finer)
    rows = rows.set_column(place, finer.field(place), pa.array([1], pa.timestamp("ns", tz="UTC")))
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        tables.upsert("tag_assignments", rows)
    assert tables.read("tag_assignments").num_rows == 0


def grown(schema: TableSchema) -> TableSchema:
    """The schema of the next release: one column more."""
    return replace(schema, columns=schema.columns.append(pa.field("reward", pa.float64())))


@pytest.mark.parametrize("rows", [{0: "1"}, {}])
def test_a_table_of_an_earlier_release_takes_a_new_column_once_and_keeps_its_rows(tables: Tables, rows: Rows) -> None:
    """delta-rs#4009, #3943."""
    tables.create("change_log")
    if rows:
        tables.upsert("change_log", log_rows(rows))
    tables.declare(grown(CHANGE_LOG))
    assert not tables.has_declared_columns("change_log")
    version = tables.version("change_log")
    assert version is not None
    new = log_rows({1: "1"}).append_column("reward", pa.array([0.5]))
    old = log_rows(rows).append_column("reward", pa.nulls(len(rows), pa.float64()))
    tables.replace_all("change_log", pa.concat_tables([old, new]), planned_at=version)
    assert tables.has_declared_columns("change_log")
    read = tables.read("change_log").sort_by("step")
    assert read.column_names.count("reward") == 1
    assert read["reward"].to_pylist() == [*[None] * len(rows), 0.5]
    assert tables.upsert("change_log", new) is None


def test_a_compaction_keeps_the_columns_that_a_table_has(tables: Tables) -> None:
    for step in range(6):
        change_or_create(tables, {step: "1"})
    tables.declare(grown(CHANGE_LOG))
    compact_table(tables, "change_log", read_storage_settings())
    assert "reward" not in str(tables.open("change_log").schema())
    tables.declare(CHANGE_LOG)
    assert state(tables) == dict.fromkeys(range(6), "1")


def change_or_create(tables: Tables, rows: Rows) -> None:
    tables.create("change_log")
    change(tables, insert=rows)


def test_after_a_restore_rows_versions_and_feed_are_those_of_then(tables: Tables) -> None:
    """duckdb-delta#227: a read that failed after a restore."""
    tables.upsert("change_log", log_rows({0: "1", 1: "1"}))
    change(tables, update={0: "2"}, delete={1: "1"}, insert={2: "1"})
    tables.open("change_log").restore(1)
    assert state(tables) == {0: "1", 1: "1"}
    assert state(tables, 2) == {0: "2", 2: "1"}
    assert tables.data_version("change_log") == tables.version("change_log") == 3
    assert replayed(tables)[3] == {0: "1", 1: "1"}
    change(tables, update={0: "3"})
    assert state(tables) == {0: "3", 1: "1"}
    assert replayed(tables, start=3, rows=state(tables, 2))[4] == {0: "3", 1: "1"}


def test_commits_of_a_span_of_time_include_both_ends(tables: Tables) -> None:
    """delta-rs#3023, #3097: an end time that acted as a start time. Versions are what is used here."""
    for step in range(3):
        tables.upsert("change_log", log_rows({step: "1"}))
    moments = {entry["version"]: entry["timestamp"] for entry in tables.history("change_log")}
    assert [moments[version] for version in range(4)] == sorted(moments.values())
    assert sorted(tables.changes("change_log", start=1, end=2)["step"].to_pylist()) == [0, 1]


def test_a_table_written_twice_in_one_go_holds_its_rows_once(tables: Tables) -> None:
    """delta-rs#4126: an overwrite that appended."""
    tables.upsert("change_log", log_rows({0: "1"}))
    for _ in range(2):
        version = tables.version("change_log")
        assert version is not None
        tables.replace_all("change_log", log_rows({5: "1"}), planned_at=version)
    assert state(tables) == {5: "1"}

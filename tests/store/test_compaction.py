"""Compaction: the same rows in better files, one commit that moves no row, and none where nothing would be gained."""

import itertools
import json
import random
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.compaction import compact_table
from store.compaction_plan import loose_files, plan_runs
from store.delta import CHANGE, Tables
from store.home import Home
from store.layout import DataFile, Layout, read_layout, settled_files
from store.schema import NODES, RETRACTIONS, TABLES
from store.storage_settings import StorageSettings, read_storage_settings

KIB = 1024


@pytest.fixture
def tables(home: Home) -> Tables:
    return Tables(home)


def small(target: int = 64 * KIB) -> StorageSettings:
    """The repository's settings with files that a test can fill."""
    read = read_storage_settings()
    files = read.files.model_copy(update={"clustered_bytes": target, "unclustered_bytes": target})
    return read.model_copy(update={"files": files})


def node_rows(*places: tuple[int | None, str], text: int = 2000) -> pa.Table:
    """A node per (session_seq, node_id), with a text that does not compress."""
    rows = [
        {
            "node_id": node_id,
            "session_id": f"s{seq}",
            "session_seq": seq,
            "step": number,
            "artifact": random.Random(node_id).randbytes(text // 2).hex(),
        }
        for number, (seq, node_id) in enumerate(places)
    ]
    return pa.Table.from_pylist(rows, schema=NODES.columns)


def append(tables: Tables, rows: pa.Table, name: str = "nodes", **metadata: object) -> int:
    tables.create(name)
    version = tables.version(name)
    assert version is not None
    changes = rows.append_column(CHANGE, pa.array(["insert"] * rows.num_rows, pa.string()))
    return tables.commit_rows(name, changes, planned_at=version, metadata=metadata).version


def fill(tables: Tables, sessions: range, *, per_session: int = 10, **metadata: object) -> None:
    """A small file per session."""
    for seq in sessions:
        append(tables, node_rows(*((seq, f"n{seq}-{number}") for number in range(per_session))), **metadata)


def by_key(rows: pa.Table) -> list[dict[str, object]]:
    return rows.sort_by("node_id").to_pylist()


def opened_by(tables: Tables, seq: int) -> int:
    return len(tables.files("nodes", session_seqs=[seq]))


def test_sixty_appends_with_late_rows_become_files_of_which_a_lookup_opens_one(tables: Tables) -> None:
    picked = random.Random(7)
    for seq in range(60):
        late = [(picked.randrange(seq), f"late{seq}-{number}") for number in range(3)] if seq % 10 == 9 else []
        append(tables, node_rows(*((seq, f"n{seq}-{number}") for number in range(10)), *late))
    before = tables.read("nodes")
    num_files = len(tables.files("nodes"))
    assert num_files >= 60
    assert max(opened_by(tables, seq) for seq in range(60)) > 1

    result = compact_table(tables, "nodes", small())

    assert (result.files_before, result.version) == (num_files, tables.version("nodes"))
    assert result.files_after == len(tables.files("nodes")) < 30
    assert {opened_by(tables, seq) for seq in range(60)} == {1}
    assert (result.lookup_before > 1, result.lookup_after) == (True, 1)
    assert by_key(tables.read("nodes")) == by_key(before)


def test_a_second_compaction_makes_no_commit(tables: Tables) -> None:
    fill(tables, range(20))
    compact_table(tables, "nodes", small())
    version = tables.version("nodes")
    again = compact_table(tables, "nodes", small())
    assert (again.version, tables.version("nodes")) == (None, version)
    assert again.files_before == again.files_after
    assert again.reason == "lies well"


def test_a_compaction_is_no_change_and_repeats_what_the_commit_before_said(tables: Tables) -> None:
    fill(tables, range(10))
    fill(tables, range(10, 11), watermarks={"tasks": 3}, view_digest="d", refresh=4)
    nothing = node_rows().append_column(CHANGE, pa.array([], pa.string()))
    empty = tables.commit_rows("nodes", nothing, planned_at=11, metadata={"watermarks": {"tasks": 5}, "refresh": 5})
    result = compact_table(tables, "nodes", small())
    assert result.version is not None
    said = tables.metadata("nodes")
    assert said["compaction"] == {"files_removed": 11, "files_added": result.files_after}
    assert (said["watermarks"], said["refresh"], said["data_version"]) == ({"tasks": 5}, 5, 11)
    assert tables.data_version("nodes") == 11
    assert tables.changes("nodes", start=empty.version + 1).num_rows == 0
    assert tables.changes("nodes", start=0).num_rows == 110
    actions = (tables.path("nodes") / "_delta_log" / f"{result.version:020}.json").read_text().splitlines()
    assert {
        action[kind]["dataChange"] for action in map(json.loads, actions) for kind in action if kind != "commitInfo"
    } == {False}


def test_the_commit_after_a_compaction_goes_on_as_if_there_had_been_none(tables: Tables) -> None:
    fill(tables, range(10))
    compact_table(tables, "nodes", small())
    commit = tables.upsert("nodes", node_rows((3, "n3-0"), (3, "new"), text=40))
    assert (commit.inserted, commit.updated) == (1, 1)
    feed = tables.changes("nodes", start=commit.version)
    assert sorted(feed["_change_type"].to_pylist()) == ["insert", "update_postimage", "update_preimage"]


def test_older_versions_read_as_before_a_compaction(tables: Tables) -> None:
    fill(tables, range(10))
    compact_table(tables, "nodes", small())
    assert [tables.read("nodes", version=version).num_rows for version in range(12)] == [*range(0, 110, 10), 100, 100][
        :12
    ]


def test_rows_lie_in_the_tables_order_in_files_of_the_size_that_was_asked(tables: Tables) -> None:
    fill(tables, range(20))
    compact_table(tables, "nodes", small())
    layout = read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files)
    sizes = [file.size_bytes for file in layout.files]
    assert max(sizes) < 1.6 * 64 * KIB and min(sizes) > 0.5 * 64 * KIB
    for path in tables.files("nodes"):
        rows = pq.read_table(path, columns=list(NODES.sort))
        assert rows.equals(rows.sort_by([(column, "ascending") for column in NODES.sort]))
    assert pq.ParquetFile(tables.files("nodes")[0]).metadata.row_group(0).column(0).compression == "ZSTD"


def test_late_rows_rewrite_the_files_of_their_sessions_and_no_other(tables: Tables) -> None:
    fill(tables, range(40))
    compact_table(tables, "nodes", small())
    lying = {file.path: file for file in read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files).files}
    assert len(lying) > 6
    for number in range(5):
        append(tables, node_rows((2, f"late-{number}"), (28, f"late-far-{number}")))
    result = compact_table(tables, "nodes", small())
    assert result.version is not None
    left = {file.path for file in read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files).files} & set(
        lying
    )
    rewritten = [file for path, file in lying.items() if path not in left]
    assert len(rewritten) == 2
    assert [any(file.first <= seq <= file.last for file in rewritten) for seq in (2, 15, 28)] == [True, False, True]
    assert {opened_by(tables, seq) for seq in range(40)} == {1}


def test_the_large_file_that_another_writers_merge_over_many_sessions_leaves_is_cut_again(tables: Tables) -> None:
    fill(tables, range(40))
    compact_table(tables, "nodes", small())
    lying = read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files)
    corrected = node_rows(*((seq, f"n{seq}-0") for seq in range(40)), text=40)
    merge = tables.open("nodes").merge(corrected, "t.node_id = s.node_id", source_alias="s", target_alias="t")
    merge.when_matched_update({"artifact": "s.artifact"}).execute()
    merged = read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files)
    assert len(merged.files) < len(lying.files) / 2 and merged.num_large > 0
    result = compact_table(tables, "nodes", small())
    assert result.reason == f"{merged.num_large} files far too large (at most 0)"
    assert read_layout(tables.open("nodes"), TABLES["nodes"].sort, small().files).num_large == 0
    assert {opened_by(tables, seq) for seq in range(40)} == {1}
    assert compact_table(tables, "nodes", small()).version is None


def test_one_session_that_is_larger_than_a_file_is_cut_and_then_left_alone(tables: Tables) -> None:
    for part in range(10):
        append(tables, node_rows(*((7, f"n{part}-{number}") for number in range(30))))
    result = compact_table(tables, "nodes", small())
    assert 4 <= result.files_after <= 10
    assert compact_table(tables, "nodes", small()).version is None
    assert tables.read("nodes").num_rows == 300


def test_rows_without_a_session_lie_in_a_file_like_others(tables: Tables) -> None:
    for number in range(6):
        append(tables, node_rows((None, f"lost{number}"), (number, f"n{number}")))
    compact_table(tables, "nodes", small())
    assert len(tables.files("nodes")) == 1
    assert sorted(tables.read("nodes")["node_id"].to_pylist()) == [
        *(f"lost{n}" for n in range(6)),
        *(f"n{n}" for n in range(6)),
    ]


def test_a_table_without_sessions_becomes_one_file(tables: Tables) -> None:
    for number in range(8):
        row = {"retraction_id": f"r{number}", "scope_kind": "node", "scope_id": "n", "kind": "withdraw"}
        append(tables, pa.Table.from_pylist([row], schema=RETRACTIONS.columns), "retractions")
    result = compact_table(tables, "retractions", small())
    assert (result.files_before, result.files_after) == (8, 1)
    assert sorted(tables.read("retractions")["retraction_id"].to_pylist()) == [f"r{number}" for number in range(8)]
    assert compact_table(tables, "retractions", small()).version is None


def test_the_log_keeps_the_statistics_of_a_compacted_file_and_no_text(tables: Tables) -> None:
    long_id = "n" + "é" * 40
    for number in range(6):
        row = {"node_id": f"{long_id}{number}", "session_seq": number, "fitness": float(number), "artifact": "SECRET"}
        append(tables, pa.Table.from_pylist([row], schema=NODES.columns))
    compact_table(tables, "nodes", small())
    (action,) = pa.table(tables.open("nodes").get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.session_seq"], action["max.session_seq"]) == (6, 0, 5)
    assert (action["min.fitness"], action["max.fitness"], action["null_count.task_id"]) == (0.0, 5.0, 6)
    assert action["min.node_id"] <= f"{long_id}0" and action["max.node_id"] >= f"{long_id}5"
    log = "".join(path.read_text() for path in (tables.path("nodes") / "_delta_log").glob("*.json"))
    assert "SECRET" not in log


def test_what_others_append_during_a_compaction_is_neither_lost_nor_doubled(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tables, range(10))
    commit_once(monkeypatch, lambda: append(Tables(tables.home), node_rows((50, "meanwhile")), source="other"))
    result = compact_table(tables, "nodes", small())
    assert result.version == tables.version("nodes")
    assert tables.read("nodes").num_rows == 101
    assert (tables.metadata("nodes")["source"], tables.data_version("nodes")) == ("other", result.version - 1)


def test_a_file_that_others_rewrite_during_a_compaction_is_planned_again(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tables, range(10))
    commit_once(monkeypatch, lambda: Tables(tables.home).upsert("nodes", node_rows((4, "n4-0"), text=40)))
    compact_table(tables, "nodes", small())
    assert tables.read("nodes").num_rows == 100
    assert [row["artifact"] for row in tables.read("nodes").to_pylist() if row["node_id"] == "n4-0"] == [
        node_rows((4, "n4-0"), text=40)["artifact"][0].as_py()
    ]
    log = "".join(path.read_text() for path in (tables.path("nodes") / "_delta_log").glob("*.json"))
    assert all(path.name in log for path in parquet_files(tables)), "what was written for nothing is gone"


def test_a_table_whose_files_keep_changing_is_left_for_the_next_time(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tables, range(6))
    turn = iter(range(100))

    def disturb() -> None:
        Tables(tables.home).upsert("nodes", node_rows((4, "n4-0"), text=40 + 2 * next(turn)))

    commit_once(monkeypatch, disturb, always=True)
    result = compact_table(tables, "nodes", small())
    assert result.version is None
    assert result.reason == "other writers kept changing its files; left for the next time"
    assert tables.read("nodes").num_rows == 60


def commit_once(monkeypatch: pytest.MonkeyPatch, disturb: object, *, always: bool = False) -> None:
    """Let somebody else commit between the writing of files and the commit of a compaction."""
    from store import compaction

    commit, done = compaction._commit, []

    def disturbed(*arguments: object) -> int:
        if always or not done:
            done.append(True)
            disturb()  # type: ignore[operator]
        return commit(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "_commit", disturbed)


def parquet_files(tables: Tables) -> list[Path]:
    return list(tables.path("nodes").glob("*.parquet"))


def test_compactions_beside_writers_lose_nothing(tables: Tables) -> None:
    fill(tables, range(6))
    stop = threading.Event()

    def compact_on() -> None:
        while not stop.is_set():
            compact_table(Tables(tables.home), "nodes", small())

    compacting = threading.Thread(target=compact_on)
    compacting.start()
    try:
        for seq in range(6, 16):
            tables.upsert("nodes", node_rows((seq, f"n{seq}"), (seq % 5, f"late{seq}")))
            tables.upsert("nodes", node_rows((seq % 5, f"late{seq}"), text=40))
    finally:
        stop.set()
        compacting.join()
    compact_table(tables, "nodes", small())
    rows = tables.read("nodes")
    assert rows.num_rows == 60 + 20 and len(set(rows["node_id"].to_pylist())) == 80


def test_a_long_log_gets_a_checkpoint_and_keeps_its_commits(tables: Tables) -> None:
    fill(tables, range(25), per_session=1)
    result = compact_table(tables, "nodes", small())
    log = {path.name for path in (tables.path("nodes") / "_delta_log").iterdir()}
    assert f"{result.version:020}.checkpoint.parquet" in log
    assert f"{0:020}.json" in log
    assert tables.open("nodes").metadata().configuration["delta.enableExpiredLogCleanup"] == "false"


def test_a_transaction_id_survives_or_not_but_the_number_of_the_refresh_does(tables: Tables) -> None:
    fill(tables, range(5))
    nothing = node_rows().append_column(CHANGE, pa.array([], pa.string()))
    tables.commit_rows("nodes", nothing, planned_at=5, metadata={"refresh": 3}, transaction=("espalier.refresh", 3))
    compact_table(tables, "nodes", small())
    assert tables.metadata("nodes")["refresh"] == 3


# ---- the plan, over any layout ---------------------------------------------------------------------

layouts = st.lists(
    st.tuples(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 300)), min_size=1, max_size=12
)


@given(layouts)
@settings(max_examples=300, deadline=None)
def test_a_plan_takes_each_row_of_its_files_once_and_what_it_leaves_overlaps_nothing(
    drawn: list[tuple[list[int], int]],
) -> None:
    held = {
        DataFile(min(sessions), max(sessions), f"f{number}", size, len(sessions)): sessions
        for number, (sessions, size) in enumerate(drawn)
    }
    layout = Layout(tuple(sorted(held)), True, target_bytes=100, small_bytes=50)
    loose = loose_files(layout)
    runs = plan_runs(layout, {file: held[file] for file in loose})
    rewritten = {file for run in runs for file in run.files}
    taken = [(file, seq) for run in runs for file in run.whole for seq in held[file]]
    taken += [(file, seq) for run in runs for file in run.parts for seq in held[file] if seq in run.sessions]
    assert sorted(taken) == sorted((file, seq) for file in rewritten for seq in held[file])
    left = [file for file in layout.files if file not in rewritten]
    for file in left:
        others = [other for other in left if other is not file and file in loose]
        assert all(other.last <= file.first or file.last <= other.first or other in loose for other in others)
    settled = settled_files(layout)
    assert all(one.last <= other.first for one, other in itertools.pairwise(settled))

"""Over the real logs that ESPALIER_SAMPLE_LOGS names."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from small_logs import NOW, contents, rows, versions
from store.home import open_home
from transforms.as_of import undo_to, values_at
from transforms.ingest import ingest_paths

pytestmark = pytest.mark.samples


@pytest.fixture(scope="module")
def ingested(sample_logs, tmp_path_factory):
    home = open_home(tmp_path_factory.mktemp("samples"))
    report = ingest_paths(home, [sample_logs / "openevolve", sample_logs / "aide"], now=NOW)
    return home, report


def test_all_nodes_are_found_and_the_books_add_up(ingested):
    home, report = ingested
    assert report.nodes == 117 + 19 and report.conflicting == report.waiting == 0
    outcomes = (report.stored, report.already_there, report.conflicting, report.stripped, report.waiting)
    assert report.read == sum(outcomes) + report.quarantined
    sizes = Counter(row["session_id"] for row in rows(home, "nodes"))
    algorithm = {row["session_id"]: row["algorithm"] for row in rows(home, "sessions")}
    by_algorithm = {
        name: sorted(sizes[at] for at in sizes if algorithm[at] == name) for name in set(algorithm.values())
    }
    assert by_algorithm == {"openevolve": [2, 11, 33, 71], "aide": [1, 1, 1, 1, 5, 5, 5]}, "11 + 71 = 82, two launches"


def test_the_empty_journals_are_in_quarantine_with_their_reason(ingested):
    home, report = ingested
    kept = {row["path"].split("/")[-2]: (row["reason"], len(row["bytes"])) for row in rows(home, "quarantine")}
    assert kept == {
        "0-hungry-thundering-harrier": ("a journal without nodes: the run stopped before its first one", 45),
        "23-poetic-snake-from-atlantis": ("empty file (0 bytes)", 0),
    }
    assert report.quarantined == 2


def test_parents_are_found_over_several_checkpoints_and_copies_are_known(ingested):
    home, _ = ingested
    nodes = {row["node_id"]: row for row in rows(home, "nodes")}
    dangling = [row for row in nodes.values() if row["parent_id"] and row["parent_id"] not in nodes]
    assert len(dangling) == 13 + 2, "only these parents are in no checkpoint that was kept"
    assert Counter(row["copy_kind"] for row in nodes.values() if row["copy_kind"]) == {"migrant": 4, "island_seed": 3}
    for row in nodes.values():
        if row["parent_id"] in nodes:
            parent = nodes[row["parent_id"]]
            assert parent["step"] < row["step"] and row["ancestors"] == [*parent["ancestors"], parent["node_id"]]
    by_session: dict[str, list[int]] = {}
    for row in nodes.values():
        by_session.setdefault(row["session_id"], []).append(row["step"])
    assert all(sorted(steps) == list(range(len(steps))) for steps in by_session.values())


def test_failures_are_unscored_and_the_locked_build_folder_is_the_harness(ingested):
    home, _ = ingested
    nodes = rows(home, "nodes")
    assert all((row["fitness"] is None) == bool(row["is_buggy"]) for row in nodes)
    assert all(row["reward"] == row["fitness"] and row["fitness_basis"] == "reported" for row in nodes)
    assert Counter(row["failure_class"] for row in nodes if row["failure_class"]) == {
        "evaluation_error": 4 + 2 + 3,
        "compilation_error": 6,
        "harness.lock_file": 1,
        "no_metric": 1,
    }
    directions = Counter(row["direction"] for row in rows(home, "tasks"))
    assert directions == {"max": 3, "min": 4, None: 3}


def test_again_copied_renamed_or_in_part_the_samples_change_nothing(ingested, sample_logs, tmp_path):
    home, _ = ingested
    before, everything = versions(home), contents(home)
    copy = Path(shutil.copytree(sample_logs / "openevolve", tmp_path / "renamed" / "logs"))
    checkpoint = next(copy.rglob("checkpoint_68"))
    for paths in ([sample_logs / "openevolve", sample_logs / "aide"], [copy], [checkpoint]):
        report = ingest_paths(home, paths, now=NOW)
        assert (report.nodes, report.stored) == (0, 0) and report.read > 0
    assert (versions(home), contents(home)) == (before, everything)


def test_backward_equals_forward_over_every_node_and_field(ingested):
    home, _ = ingested
    by_node: dict[tuple[str, str | None], list[dict[str, object]]] = {}
    for row in rows(home, "change_log"):
        by_node.setdefault((row["session_id"], row["node_id"]), []).append(row)
    for changes in by_node.values():
        for step in range(0, 72, 5):
            assert undo_to(changes, step) == values_at(changes, step, step)

"""Files that are JSON and yet no log that anybody meant to write: each is kept or read, and stops nothing beside it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from small_logs import (
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
from transforms.logs import openevolve

NAN = float("nan")
DEEP: Any = json.loads("[" * 500 + "]" * 500)
NODES_OF_A_JOURNAL = {  # name: (nodes, node2parent, nodes read, a reason)
    "a first node that is none": ([None, journal_node("a", 0)], {}, 1, "a node without an id"),
    "no node at all": ([1, 2], {}, 0, "none of its `nodes` is an object"),
    "a parent that is a list": ([journal_node("a", 0)], {"a" * 32: ["b"]}, 0, "is ['b'], and must be a text"),
    "its own parent": ([journal_node("a", 0)], {"a" * 32: "a" * 32}, 0, "names itself as its parent"),
    "a step no table holds": ([journal_node("a", 2**63 - 1)], {}, 0, "is no count"),
    "an exception that is a list": ([journal_node("a", 0, exc_type=["KeyError"])], {}, 1, None),
    "an endless run": ([journal_node("a", 0, exec_time=10**400)], {}, 1, None),
    "a run of unknown length": ([journal_node("a", 0, exec_time=NAN)], {}, 1, None),
    "a deep metric": ([journal_node("a", 0, metric=DEEP)], {}, 0, "nested deeper than 200 levels"),
}


@pytest.mark.parametrize("name", NODES_OF_A_JOURNAL)
def test_an_odd_journal_is_read_as_far_as_it_makes_sense(ingest, home, tmp_path, name):
    nodes, parents, nodes_read, reason = NODES_OF_A_JOURNAL[name]
    write_lines(tmp_path / "logs" / "good.jsonl", *start_of_run(), node("good"))
    path = write_journal(tmp_path / "logs" / "odd", nodes)
    path.write_text(json.dumps({"nodes": nodes, "node2parent": parents}))
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.quarantined) == (1 + nodes_read, 0 if reason is None else 1)
    assert [row["seconds"] for row in rows(home, "nodes") if row["artifact"] != "artifact good"] == nodes_read * [
        None if "run" in name else 1.5
    ]
    assert reason is None or reason in next(iter(report.quarantine_reasons))


PROGRAMS = {
    "a generation that is no number": {"generation": True},
    "a generation no table holds": {"generation": 10**30},
    "a time that is no number": {"timestamp": NAN},
    "a time without end": {"timestamp": 10**400},
    "answers that are none": {"prompts": {"diff_user": {"responses": 5}}},
    "deep artifacts": {"artifacts_json": "[" * 500 + "]" * 500},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_odd_field_of_a_program_is_unknown(ingest, home, tmp_path, name):
    write_checkpoint(tmp_path / "run", 1, [program(uuid_of("a"), seconds=1, **PROGRAMS[name])])
    report = ingest(tmp_path / "run")
    (stored,) = rows(home, "nodes")
    assert (report.quarantined, stored["fitness"]) == (0, 0.01)
    assert stored["generation"] == (None if "generation" in name else 0)


@pytest.mark.parametrize("stated", [5, [{"a": 1}]])
def test_odd_metadata_of_a_checkpoint_does_not_stop_its_programs(ingest, home, tmp_path, stated):
    write_checkpoint(tmp_path / "run", 1, [program(uuid_of("a"), seconds=1)], {"feature_stats": stated})
    assert ingest(tmp_path / "run").nodes == 1


def test_a_program_that_changes_or_goes_while_it_is_read_is_kept_apart(ingest, home, tmp_path, monkeypatch):
    programs = [program(uuid_of(letter), seconds=1 + place) for place, letter in enumerate("abc")]
    folder = write_checkpoint(tmp_path / "run", 1, programs) / "programs"
    sort = openevolve.sort_into_launches

    def change(*arguments: Any) -> Any:
        (folder / f"{uuid_of('b')}.json").write_text('{"half')
        (folder / f"{uuid_of('c')}.json").unlink()
        return sort(*arguments)

    monkeypatch.setattr(openevolve, "sort_into_launches", change)
    report = ingest(tmp_path / "run")
    assert (report.nodes, report.quarantined) == (1, 2)
    monkeypatch.undo()
    (folder / f"{uuid_of('b')}.json").write_text(json.dumps(programs[1]))
    assert ingest(tmp_path / "run").nodes == 1


def change(field: str, value: Any) -> dict[str, Any]:
    return {"type": "change", "session": "s", "node": "a", "field": field, "step": 0, "value": value}


def read(ingest: Any, tmp_path: Path, *lines: Any) -> Any:
    return ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"), *lines))


def test_numbers_too_large_for_their_column_are_refused_or_become_floats(ingest, home, tmp_path):
    odd = [change("visits", 10**40), change("visits", -1), change("fitness", 10**400), node("d", metrics={"x": DEEP})]
    report = read(ingest, tmp_path, *odd, change("fitness", 10**30))
    assert (report.nodes, report.quarantined) == (1, 4)
    assert [row["fitness"] for row in rows(home, "nodes")] == [1e30]


def test_a_total_that_no_float_holds_is_unknown(ingest, home, tmp_path):
    read(ingest, tmp_path, node("b", parent="a", reward=1e308), node("c", parent="b", reward=1e308))
    totals = {row["artifact"][-1]: row["total_reward"] for row in rows(home, "nodes")}
    assert totals == {"a": None, "b": None, "c": 1e308}


def test_a_file_name_that_is_no_text_is_kept_as_its_escapes(ingest, home, tmp_path):
    odd = tmp_path / "logs" / os.fsdecode(b"d\xff")
    write_lines(odd / os.fsdecode(b"good \xe9.jsonl"), *start_of_run(), node("a"))
    write_lines(odd / os.fsdecode(b"bad\n\xe9.jsonl"), "broken\n")
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.quarantined) == (1, 1)
    assert [row["path"] for row in rows(home, "quarantine")] == ["d\\udcff/bad\n\\udce9.jsonl"]
    before = versions(home)
    ingest(odd)
    assert versions(home) == before

"""A log that is read line by line while it is written ends in the tables of one that is read whole."""

import pytest

from small_logs import NOW, contents, node, rows, start_of_run, write_lines
from store.home import open_home
from transforms.ingest import ingest_paths

CHANGE = {"type": "change", "session": "s", "node": "a"}
STATUS = {"type": "session", "session": "s"}
LOGS = {
    "a change at its node's own step": [
        node("a", metric=1.0),
        node("b", metric=1.5),
        CHANGE | {"field": "fitness", "step": 0, "value": 2.0},
        CHANGE | {"field": "fitness", "step": 0, "value": 3.0},
    ],
    "corrections after the end, and a search that goes on": [
        node("a", metric=1.0),
        CHANGE | {"field": "fitness", "step": 0, "value": 2.0},
        STATUS | {"status": "done"},
        CHANGE | {"field": "fitness", "step": 0, "value": 3.0},
        CHANGE | {"field": "fitness", "step": 0, "value": 2.0},
        CHANGE | {"field": "is_buggy", "step": 0, "value": True},
        CHANGE | {"field": "is_buggy", "step": 0, "value": True},
        STATUS | {"status": "running"},
        node("b", parent="a"),
        CHANGE | {"node": "b", "field": "fitness", "step": 1, "value": 4.0},
        STATUS | {"status": "done"},
        CHANGE | {"field": "fitness", "step": 0, "value": 5.0},
    ],
    "nodes with and without a step": [node("a"), node("b", parent="a"), node("c", parent="a", step=5), node("d")],
    "final visits after a node without": [node("a"), node("b", parent="a", visits=4, total_reward=2.0)],
    "a late parent": [node("b", parent="a"), node("a"), node("c", parent="b")],
    "turns before and after their node": [
        {"type": "message", "session": "s", "node": "a", "turn": 0, "role": "user", "content": "go"},
        node("a"),
        {"type": "message", "session": "s", "node": "a", "turn": 1, "role": "assistant", "content": "gone"},
    ],
}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_read_as_it_grows_ends_like_one_read_whole(ingest, home, tmp_path, name):
    lines = [*start_of_run(), *LOGS[name]]
    whole = open_home(tmp_path / "whole")
    ingest_paths(whole, [write_lines(tmp_path / "whole.jsonl", *lines)], now=NOW)
    for line in lines:
        ingest(write_lines(tmp_path / "log.jsonl", line, mode="a"))
    wanted, found = contents(whole), contents(home)
    for table in ("nodes", "change_log", "prompt_history", "node_edges", "sessions", "tasks"):
        assert found[table] == wanted[table], table


def test_a_log_that_holds_no_more_than_its_run_yet_is_no_error(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", start_of_run()[0])
    assert ingest(log).read == 0 and rows(home, "quarantine") == []
    write_lines(log, *start_of_run()[1:], node("a"), mode="a")
    assert ingest(log).nodes == 1


def test_a_growing_log_with_a_broken_line_stays_one_file_and_keeps_that_line_once(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"), "broken\n")
    ingest(log)
    for name in ("b", "c"):
        assert ingest(write_lines(log, node(name), mode="a")).nodes == 1
    assert ingest(write_lines(log, node("d"), mode="a"), tags=["internal"]).nodes == 1
    (source,) = rows(home, "sources")
    assert (source["read"], source["stored"], source["quarantined"]) == (7, 6, 1)
    assert {row["source_id"] for row in rows(home, "nodes")} == {source["source_id"]}
    assert [row["place"] for row in rows(home, "quarantine")] == ["line 5"]

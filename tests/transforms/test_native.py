import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from small_logs import by_artifact, node, rows, start_of_run, versions, write_lines
from store.errors import BadInput
from store.ids import message_digest
from transforms.logs.detect import hash_file

DOCS = Path(__file__).resolve().parents[2] / "docs" / "native_format.md"


def test_the_writer_pasted_from_the_docs_makes_a_log_that_is_read_whole(ingest, home, tmp_path):
    writer, usage = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in writer.splitlines() if line.strip()]) <= 20
    subprocess.run([sys.executable, "-W", "ignore", "-c", writer + usage], cwd=tmp_path, check=True)

    report = ingest(tmp_path / "search.jsonl")

    assert (report.sessions, report.nodes, report.messages, report.quarantined) == (1, 4, 6, 0)
    nodes = {row["artifact"]: row for row in rows(home, "nodes")}
    seed, better, broken = nodes["sum(x * x for x in xs)"], nodes["float(xs @ xs)"], nodes["xs @"]
    assert (seed["fitness"], better["fitness"], broken["fitness"]) == (-2.5, -0.5, None)
    assert json.loads(better["metrics"]) == {"seconds": 0.5}
    assert broken["is_buggy"] and broken["failure_class"] == "syntax" and broken["reward"] is None
    assert better["parent_id"] == broken["parent_id"] == seed["node_id"]
    assert better["prompt_digest"] == broken["prompt_digest"] is not None and seed["prompt_digest"] is None
    assert (seed["visits"], seed["total_reward"]) == (3, -3.9)


def test_a_line_that_cannot_be_taken_is_kept_with_place_and_reason_and_the_rest_is_stored(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl",
        *start_of_run(),
        node("a"),
        '{"type": "node", "session": "s"\n',
        {"type": "nod", "node": "b"},
        node("c", parnet="a"),
        node("d", step=-1),
        node("e", parent="e"),
        {"type": "change", "session": "s", "node": "a", "field": "visits", "step": 3, "recorded_step": 2, "value": 1},
        {"type": "change", "session": "s", "node": "a", "field": "fitness", "step": 3, "value": "high"},
        "[1, 2]\n",
        node("f", parent="a"),
        {"type": "change", "session": "s", "field": "budget_left", "step": 0, "recorded_step": 1, "value": 1},
        '{"type": "node", "session": "s", "node": "cut',
    )
    report = ingest(log)
    assert (report.nodes, report.quarantined) == (2, 10)
    kept = {row["place"]: (row["reason"], row["bytes"]) for row in rows(home, "quarantine")}
    assert "no JSON" in kept["line 5"][0] and kept["line 5"][1] == b'{"type": "node", "session": "s"\n'
    assert kept["line 6"][0].startswith("type 'nod' is unknown; there are run, task, session")
    assert "parnet" in kept["line 7"][0] and "a node line has type, session, node, parent" in kept["line 7"][0]
    assert "step" in kept["line 8"][0]
    assert "itself" in kept["line 9"][0]
    assert "step 3 is later than recorded_step 2" in kept["line 10"][0]
    assert "'high'" in kept["line 11"][0]
    assert "JSON list" in kept["line 12"][0]
    assert "budget_left is what the search knew at step 0" in kept["line 14"][0]
    assert "ends inside" in kept["line 15"][0] and kept["line 15"][1].endswith(b'"cut')


def test_a_change_or_a_tag_that_names_what_is_not_there_to_name_is_kept_with_its_reason(ingest, home, tmp_path):
    faults = {
        "field 'fitnes' is unknown; there are fitness, reward": {"type": "change", "field": "fitnes", "node": "a"},
        "fitness is a field of a node": {"type": "change", "field": "fitness"},
        "best_so_far is a field of a session": {"type": "change", "field": "best_so_far", "node": "a"},
        "node 'a' is named without its session": {"type": "tag", "tag": "pii", "node": "a"},
        "turn 0 is named without its node": {"type": "tag", "tag": "pii", "session": "s", "turn": 0},
    }
    of_change = {"session": "s", "step": 0, "value": 1.0}
    lines = [line | (of_change if line["type"] == "change" else {}) for line in faults.values()]
    report = ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"), *lines))
    assert report.quarantined == len(faults)
    kept = sorted(rows(home, "quarantine"), key=lambda row: int(row["place"].removeprefix("line ")))
    for reason, row in zip(faults, kept, strict=True):
        assert reason in row["reason"]
    assert rows(home, "tag_assignments") == []


def test_two_records_on_one_line_and_a_missing_last_line_end_lose_nothing(ingest, home, tmp_path):
    both = json.dumps(node("a")) + json.dumps(node("b", parent="a")) + "\n"
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), both, json.dumps(node("c", parent="b")))
    assert ingest(log).nodes == 3


def test_bytes_that_are_no_utf8_and_lone_surrogates_do_no_harm(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a", evidence={"text": "\ud800 half"}))
    log.write_bytes(log.read_bytes() + b'{"type": "node", "text": "\xff"}\n' + json.dumps(node("b")).encode())
    report = ingest(log)
    assert (report.nodes, report.quarantined) == (2, 1)
    assert rows(home, "quarantine")[0]["bytes"] == b'{"type": "node", "text": "\xff"}\n'
    assert json.loads(by_artifact(home)["a"]["evidence"]) == {"text": "\\ud800 half"}


@pytest.mark.parametrize(
    ("stated", "failure_class"),
    [
        ("NaN", "non_finite_metric"),
        ("-Infinity", "non_finite_metric"),
        ("1e999", "non_finite_metric"),
        ("null", "no_metric"),
        ('"12"', "non_numeric_metric"),
        ("true", "non_numeric_metric"),
        ("{}", "non_numeric_metric"),
    ],
)
def test_a_metric_that_is_no_finite_number_is_a_failure_and_never_zero(ingest, home, tmp_path, stated, failure_class):
    line = '{"type": "node", "session": "s", "node": "a", "artifact": "a", "metric": ' + stated + "}\n"
    ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), line))
    (row,) = rows(home, "nodes")
    assert (row["fitness"], row["fitness_text"], row["reward"]) == (None, None, None)
    assert row["is_buggy"] is True and row["failure_class"] == failure_class and row["outcome"] == "failed"


def test_lower_is_better_is_turned_round_and_the_raw_number_stays(ingest, home, tmp_path):
    ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(direction="min", baseline=4.0), node("a", metric=3)))
    (row,), (task,) = rows(home, "nodes"), rows(home, "tasks")
    assert (row["fitness"], row["fitness_text"], row["reward_text"]) == (-3.0, "-3.0", "-3.0")
    assert json.loads(row["metrics"]) == {"points": 3}
    assert (task["direction"], task["baseline_fitness"], task["baseline_basis"]) == ("min", -4.0, "reported")


def test_a_stated_failure_reward_scores_the_candidates_fault_but_never_the_harness(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(failure_reward=0.0),
            node("own", metric=None, failure_class="syntax"),
            node("harness", metric=None, failure_class="harness.lock_file"),
            node("unknown", metric=None, is_buggy=None, outcome="unknown"),
            node("stated", metric=None, is_buggy=True, reward=0.25),
        )
    )
    nodes = by_artifact(home)
    assert {name: row["reward"] for name, row in nodes.items()} == {
        "own": 0.0,
        "harness": None,
        "unknown": None,
        "stated": 0.25,
    }
    assert nodes["harness"]["outcome"] == "unknown" and nodes["harness"]["visits"] == 0
    assert nodes["own"]["visits"] == 1


def test_parents_context_and_copies_become_edges_across_sessions(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            {"type": "session", "session": 2, "task": "t"},
            node("a"),
            node("b", parent="a"),
            {
                "type": "node", "session": 2, "node": 1, "artifact": "artifact c", "metric": 2,
                "parent": {"session": "s", "node": "b"},
                "context": [{"session": "s", "node": "a", "step": 0, "role": "best"}],
            },
            node("d", copy_of="b"),
        )
    )  # fmt: skip
    nodes = by_artifact(home)
    names = {row["node_id"]: name for name, row in nodes.items()}
    edges = {(names[row["src"]], names[row["dst"]], row["kind"]) for row in rows(home, "node_edges")}
    assert edges == {("a", "b", "parent"), ("b", "c", "parent"), ("a", "c", "context"), ("b", "d", "copy")}
    assert [names[ancestor] for ancestor in nodes["c"]["ancestors"]] == ["a", "b"] and nodes["c"]["depth"] == 2
    assert nodes["c"]["context"] == [
        {"node_id": nodes["a"]["node_id"], "session_id": nodes["a"]["session_id"], "step": 0, "role": "best"}
    ]
    assert nodes["d"]["copy_kind"] == "carried_over"


def test_turns_on_their_own_lines_count_like_turns_inside_the_node(ingest, home, tmp_path):
    ask, answer = {"role": "user", "content": "go"}, {"role": "assistant", "content": "gone", "logprobs": [-0.5]}
    apart = [
        {"type": "message", "session": "s", "node": "a", "turn": turn, **message}
        for turn, message in enumerate((ask, answer))
    ]
    ingest(write_lines(tmp_path / "inside.jsonl", *start_of_run("one"), node("a", messages=[ask, answer])))
    ingest(write_lines(tmp_path / "before.jsonl", *start_of_run("two"), *apart, node("a")))
    ingest(write_lines(tmp_path / "after.jsonl", *start_of_run("three"), node("a"), *apart))
    nodes = rows(home, "nodes")
    assert len({row["content_digest"] for row in nodes}) == 1
    assert {row["prompt_digest"] for row in nodes} == {message_digest([ask])}
    turns = [(row["turn"], row["role"], row["content"], row["logprobs"]) for row in rows(home, "prompt_history")]
    assert sorted(turns, key=lambda turn: turn[0]) == 3 * [(0, "user", "go", None)] + 3 * [
        (1, "assistant", "gone", [-0.5])
    ]


def test_a_turn_that_comes_before_its_node_waits_and_then_belongs_to_it(ingest, home, tmp_path):
    turn = {"type": "message", "session": "s", "node": "a", "turn": 0, "role": "assistant", "content": "gone"}
    first = ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), turn))
    assert (first.waiting, first.nodes) == (1, 0)
    second = ingest(write_lines(tmp_path / "log.jsonl", node("a"), mode="a"))
    assert (second.waiting, second.nodes, second.messages) == (0, 1, 0)
    before = versions(home)
    ingest(tmp_path / "log.jsonl")
    assert versions(home) == before


def test_nodes_of_a_session_that_nobody_declared_wait_for_the_file_that_does(ingest, home, tmp_path):
    part = write_lines(tmp_path / "b.jsonl", {"type": "run", "run": "r"}, node("a"))
    assert (ingest(part).waiting, rows(home, "nodes")) == (1, [])
    ingest(write_lines(tmp_path / "a.jsonl", *start_of_run("r")))
    report = ingest(part)
    assert (report.waiting, report.nodes) == (0, 1)


def test_a_growing_log_is_read_from_where_it_was_left(ingest, home, tmp_path, monkeypatch):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(direction="min"), node("a", metric=2.0))
    ingest(log)
    write_lines(log, node("b", parent="a", metric=1.0), {"type": "session", "session": "s2", "task": "t"}, mode="a")
    monkeypatch.setattr("transforms.logs.native.NodeLine", _refusing("a"))
    report = ingest(log)
    assert (report.nodes, report.sessions, report.read, report.already_there) == (1, 1, 5, 3)
    nodes = by_artifact(home)
    assert (nodes["b"]["step"], nodes["b"]["fitness"], nodes["b"]["source_place"]) == (1, -1.0, "line 5")
    assert len({row["task_id"] for row in rows(home, "sessions")}) == 1
    (source,) = rows(home, "sources")
    assert (source["read"], source["stored"], source["size_bytes"]) == (5, 5, log.stat().st_size)


def test_lines_that_arrive_while_a_log_is_read_are_left_to_the_next_ingest(ingest, home, tmp_path, monkeypatch):
    correction = {"type": "change", "session": "s", "node": "a", "field": "fitness", "step": 0, "value": 5.0}
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"))

    def hash_and_grow(*arguments: Any) -> Any:
        hashed = hash_file(*arguments)
        write_lines(log, correction, mode="a")
        return hashed

    monkeypatch.setattr("transforms.ingest.hash_file", hash_and_grow)
    assert ingest(log).read == 3
    monkeypatch.undo()
    report = ingest(log)
    assert (report.read, report.stored, report.already_there) == (4, 1, 3)
    fitness = [(row["n"], row["new_value"]) for row in rows(home, "change_log") if row["field"] == "fitness"]
    assert fitness == [(0, "5.0")]


def _refusing(name: str):
    """A node line class that proves a line was not read again: the reader tests lines against it."""
    from transforms.logs.native_lines import NodeLine

    class Refusing(type(NodeLine)):  # type: ignore[misc]
        def __instancecheck__(cls, line: object) -> bool:
            assert getattr(line, "node", None) != name, f"node {name} was read again"
            return isinstance(line, NodeLine)

    return Refusing("NodeLine", (NodeLine,), {"__module__": NodeLine.__module__})


def test_two_runs_without_a_run_line_that_collide_are_told_apart_by_a_name(ingest, home, tmp_path):
    headless = start_of_run()[1:]
    ingest(write_lines(tmp_path / "mine.jsonl", *headless, node("a")))
    yours = write_lines(tmp_path / "yours.jsonl", *headless, node("a", artifact="another a"))
    before = versions(home)
    with pytest.raises(BadInput, match=r"yours\.jsonl .*--run NAME"):
        ingest(yours)
    assert versions(home) == before
    assert ingest(yours, run="yours").nodes == 1
    assert ingest(yours, run="yours").nodes == 0


def test_in_a_folder_a_collision_is_counted_and_kept_and_the_first_stays(ingest, home, tmp_path):
    headless = start_of_run()[1:]
    write_lines(tmp_path / "logs" / "1.jsonl", *headless, node("a"))
    write_lines(tmp_path / "logs" / "2.jsonl", *headless, node("a", artifact="another a"))
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.conflicting) == (1, 1)
    assert [row["artifact"] for row in rows(home, "nodes")] == ["artifact a"]
    (kept,) = rows(home, "quarantine")
    assert "--run NAME" in kept["reason"] and b"another a" in kept["bytes"]


def test_two_logs_written_one_after_the_other_into_one_file_stay_two_runs(ingest, home, tmp_path):
    first = write_lines(tmp_path / "1.jsonl", *start_of_run("one"), node("a"))
    second = write_lines(tmp_path / "2.jsonl", *start_of_run("two"), node("a"))
    both = tmp_path / "both.jsonl"
    both.write_bytes(first.read_bytes() + second.read_bytes())
    assert ingest(both).nodes == 2
    report = ingest(first, second)
    assert (report.nodes, report.sessions, report.conflicting) == (0, 0, 0)


def test_equal_task_definitions_of_two_runs_are_one_task(ingest, home, tmp_path):
    ingest(write_lines(tmp_path / "1.jsonl", *start_of_run("one"), node("a")))
    ingest(write_lines(tmp_path / "2.jsonl", *start_of_run("two"), node("a")))
    ingest(write_lines(tmp_path / "3.jsonl", *start_of_run("three", direction="min"), node("a")))
    assert sorted(row["direction"] for row in rows(home, "tasks")) == ["max", "min"]


def test_tags_are_kept_with_who_and_why_and_only_once(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl",
        *start_of_run(),
        node("a", messages=[{"role": "assistant", "content": "x"}]),
        {"type": "tag", "tag": "pii", "session": "s", "node": "a", "turn": 0, "reason": "a name", "actor": "ada"},
        {"type": "tag", "tag": "internal", "session": "s"},
        {"type": "tag", "tag": "licence:mit"},
    )
    for _ in range(2):
        ingest(log, tags=["export"])
    node_id = by_artifact(home)["a"]["node_id"]
    session_id = by_artifact(home)["a"]["session_id"]
    source_id = by_artifact(home)["a"]["source_id"]
    tags = {(row["target_kind"], row["target_id"], row["tag"], row["actor"]) for row in rows(home, "tag_assignments")}
    assert tags == {
        ("message", f"{node_id}#0", "pii", "ada"),
        ("session", session_id, "internal", None),
        ("source", source_id, "licence:mit", None),
        ("session", session_id, "export", "ingest"),
    }
    assert len(rows(home, "tag_assignments")) == 4


def test_the_prompt_ends_where_the_answer_begins_even_if_a_tool_has_the_last_word(ingest, home, tmp_path):
    ask, said = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    turns = {"plain": [ask, said], "tool": [ask, said | {"content": "b"}, {"role": "tool", "content": "ran"}]}
    ingest(
        write_lines(
            tmp_path / "log.jsonl", *start_of_run(), *(node(name, messages=turns[name]) for name in ("plain", "tool"))
        )
    )
    digests = {row["artifact"].split()[-1]: row["prompt_digest"] for row in rows(home, "nodes")}
    assert digests["plain"] == digests["tool"] == message_digest([ask])


def test_a_parent_that_was_chosen_after_the_node_was_evaluated_is_no_line(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl",
        *start_of_run(),
        node("a", step=0),
        node("b", parent="a", step=3, selected_step=3),
        node("c", parent="a", step=4, selected_step=3),
    )
    assert (ingest(log).nodes, rows(home, "quarantine")[0]["place"]) == (2, "line 5")
    assert "selected_step 3 must be earlier than step 3" in rows(home, "quarantine")[0]["reason"]


def test_a_choice_stated_without_a_step_is_never_later_than_the_derived_step(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl",
        *start_of_run(),
        node("a", selected_step=4),
        node("b", parent="a", selected_step=9),
        node("c", parent="a", selected_step=0),
    )
    ingest(log)
    assert {row["step"]: row["selected_step"] for row in rows(home, "nodes")} == {0: None, 1: 0, 2: 0}

import json

import pytest

from small_logs import by_artifact, contents, program, rows, uuid_of, versions, write_checkpoint
from store.home import open_home
from transforms.ingest import ingest_paths
from transforms.logs.openevolve_programs import program_score

A, B, C, D, E, F = (uuid_of(letter) for letter in "abcdef")


def names(home):
    return {row["node_id"]: row["artifact"].split("'")[1] for row in rows(home, "nodes")}


def nodes_by_name(home):
    return {row["artifact"].split("'")[1]: row for row in rows(home, "nodes")}


def test_a_parent_that_stands_in_an_older_checkpoint_only_is_found(ingest, home, tmp_path):
    write_checkpoint(tmp_path / "run", 1, [program(A, seconds=1), program(B, parent=A, seconds=2)])
    write_checkpoint(tmp_path / "run", 2, [program(C, parent=B, seconds=3), program(D, parent=E, seconds=4)])
    report = ingest(tmp_path / "run")
    nodes, name = nodes_by_name(home), names(home)
    assert (report.nodes, report.sessions, len(rows(home, "tasks"))) == (4, 1, 1)
    assert [name[ancestor] for ancestor in nodes["c"]["ancestors"]] == ["a", "b"]
    assert (nodes["d"]["ancestors"], nodes["d"]["depth"]) == ([], 0) and nodes["d"]["parent_id"] not in name
    assert {at: row["step"] for at, row in nodes.items()} == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert [nodes[at]["selected_step"] for at in "abcd"] == [None, 0, 1, 2]
    assert [nodes[at]["operator"] for at in "ab"] == ["seed", "diff"]


def test_a_program_in_several_checkpoints_is_one_node(ingest, home, tmp_path):
    both = [program(A, seconds=1), program(B, parent=A, seconds=2)]
    write_checkpoint(tmp_path / "run", 9, both)
    write_checkpoint(tmp_path / "run", 10, [*both, program(C, parent=B, seconds=3)])
    report = ingest(tmp_path / "run")
    assert (report.nodes, report.conflicting) == (3, 0)
    # Task and session, three nodes and two prompts of three turns are new; one node and one node with its turns again.
    assert (report.read, report.stored, report.already_there) == (16, 11, 5)
    assert {row["source_place"] for row in rows(home, "nodes")} == {
        f"checkpoint_9/programs/{A}.json",
        f"checkpoint_9/programs/{B}.json",
        f"checkpoint_10/programs/{C}.json",
    }


def test_the_same_id_with_another_content_is_a_conflict_and_the_first_stays(ingest, home, tmp_path):
    write_checkpoint(tmp_path / "run", 1, [program(A, seconds=1)])
    write_checkpoint(tmp_path / "run", 2, [program(A, seconds=1, code="print('other')")])
    report = ingest(tmp_path / "run")
    assert (report.nodes, report.conflicting, list(nodes_by_name(home))) == (1, 1, ["a"])
    assert b"other" in rows(home, "quarantine")[0]["bytes"]


def test_two_launches_into_one_folder_are_two_sessions_of_one_task(ingest, home, tmp_path):
    stale = [program(A, seconds=1), program(B, parent=A, seconds=2)]
    live = [program(C, seconds=50, code="print('a')"), program(D, parent=C, seconds=60)]
    lost = [program(E, parent=uuid_of("1"), seconds=3), program(F, parent=uuid_of("2"), seconds=70)]
    write_checkpoint(tmp_path / "run", 1, [*stale, *live, *lost])
    ingest(tmp_path / "run")
    sessions = {}
    for row in rows(home, "nodes"):
        sessions.setdefault(row["session_id"], set()).add((row["source_place"][-9:-5], row["step"]))
    # e is older than the second root, so the second launch cannot have made it; f goes to the latest root before it.
    assert sorted(sorted(nodes) for nodes in sessions.values()) == [
        [("aaaa", 0), ("bbbb", 1), ("eeee", 2)],
        [("cccc", 0), ("dddd", 1), ("ffff", 2)],
    ]
    assert len(rows(home, "tasks")) == 1


def test_migrants_and_island_seeds_are_copies_and_bring_no_visit(ingest, home, tmp_path):
    migrant = f"{B}_migrant_1"
    copied = {"code": "print('b')", "iteration_found": 0, "prompts": None, "metrics": {"combined_score": 0.5}}
    write_checkpoint(
        tmp_path / "run",
        1,
        [
            program(A, seconds=1, metrics={"combined_score": 0.25}),
            program(B, parent=A, seconds=2, metrics={"combined_score": 0.5}),
            program(migrant, parent=B, seconds=3, metadata={"island": 1, "migrant": True}, **copied),
            program(C, parent=B, seconds=4, metadata={"island": 2}, **copied),
            program(
                D, parent=migrant, seconds=5, metrics={"combined_score": 1.0}, metadata={"island": 1, "changes": "x"}
            ),
            program(E, parent=A, seconds=6, code="print('a')", metrics={"combined_score": 0.125}),
        ],
    )
    ingest(tmp_path / "run")
    nodes = {row["source_place"].split("/")[-1][:-5]: row for row in rows(home, "nodes")}
    assert [nodes[at]["copy_kind"] for at in (A, B, migrant, C, D)] == [None, None, "migrant", "island_seed", None]
    assert nodes[migrant]["copy_of"] == nodes[migrant]["parent_id"] == nodes[C]["copy_of"] == nodes[B]["node_id"]
    assert nodes[E]["copy_kind"] is None, "a proposal that changed nothing is an attempt, not a copy"
    assert [(nodes[at]["island"], nodes[at]["step"]) for at in (migrant, C)] == [("1", 2), ("2", 3)]
    # d's visit goes to b, its parent's original, and on to a; the copies themselves are never visited.
    visited = {at: (nodes[at]["visits"], nodes[at]["total_reward"]) for at in (A, B, migrant, C, D)}
    assert visited == {A: (4, 1.875), B: (2, 1.5), migrant: (0, 0.0), C: (0, 0.0), D: (1, 1.0)}
    kinds = [row["kind"] for row in rows(home, "node_edges") if row["dst"] == nodes[migrant]["node_id"]]
    assert sorted(kinds) == ["copy", "parent"]


@pytest.mark.parametrize(
    ("metrics", "fitness", "failure_class"),
    [
        ({"combined_score": 0.5, "mape": 3.0}, 0.5, None),
        ({"combined_score": 0.0, "mape": 3.0}, 0.0, None),
        ({"combined_score": 0.0}, None, "no_metric"),
        ({"combined_score": 0.0, "error": "it broke"}, None, "evaluation_error"),
        ({"runs": 0.0, "error": "bad syntax"}, None, "evaluation_error"),
        ({"combined_score": 0.5, "error": 0.125}, 0.5, None),
        ({"error": 0.0, "timeout": True}, None, "timeout"),
        ({"accuracy": 0.5, "speed": 1.5, "passed": True, "complexity": 100.0}, 1.0, None),
        ({"combined_score": float("nan"), "mape": 3.0}, None, "non_finite_metric"),
        ({"combined_score": "high", "mape": 3.0}, None, "non_numeric_metric"),
        ({"note": "x"}, None, "non_numeric_metric"),
        ({}, None, "no_metric"),
    ],
)
def test_a_programs_score_is_combined_score_else_the_mean_of_its_other_numbers(metrics, fitness, failure_class):
    score = program_score(metrics, frozenset({"complexity"}))
    assert (score.fitness, score.failure_class) == (fitness, failure_class)
    assert score.is_buggy is (failure_class is not None)


def test_the_prompt_is_kept_as_recorded_and_the_last_answer_counts(ingest, home, tmp_path):
    call = {"system": "be good", "user": "improve", "responses": ["first try", "second try"]}
    write_checkpoint(
        tmp_path / "run",
        1,
        [program(A, seconds=1), program(B, parent=A, seconds=2, prompts={"full_rewrite_user": call})],
    )
    ingest(tmp_path / "run")
    turns = sorted((row["turn"], row["role"], row["content"], row["fidelity"]) for row in rows(home, "prompt_history"))
    assert turns == [
        (0, "system", "be good", "recorded"),
        (1, "user", "improve", "recorded"),
        (2, "assistant", "second try", "recorded"),
    ]
    assert nodes_by_name(home)["b"]["operator"] == "full_rewrite"


def test_broken_files_of_a_checkpoint_are_kept_and_the_others_are_read(ingest, home, tmp_path):
    programs = write_checkpoint(tmp_path / "run", 1, [program(A, seconds=1)]) / "programs"
    (programs / "empty.json").write_bytes(b"")
    (programs / "cut.json").write_bytes(b'{"id": "x", "code": "pri')
    (programs / "other.json").write_bytes(b'{"a": 1}')
    (programs / "list.json").write_bytes(b"[]")
    (programs / "nan.json").write_text(
        json.dumps(program(B, parent=A, seconds=2, metrics={"combined_score": float("nan")}))
    )
    report = ingest(tmp_path / "run")
    assert (report.nodes, report.quarantined) == (2, 4)
    reasons = {row["path"].split("/")[-1]: (row["reason"], row["bytes"]) for row in rows(home, "quarantine")}
    assert reasons["empty.json"] == ("empty file (0 bytes)", b"")
    assert "no JSON" in reasons["cut.json"][0] and reasons["cut.json"][1] == b'{"id": "x", "code": "pri'
    assert "no id, code, metrics" in reasons["other.json"][0]
    assert "JSON list" in reasons["list.json"][0]
    assert json.loads(nodes_by_name(home)["b"]["metrics"]) == {"combined_score": "nan"}


def test_checkpoints_give_the_same_tables_in_whatever_order_they_come(ingest, home, tmp_path):
    run = tmp_path / "run"
    root, left, right = program(A, seconds=1), program(B, parent=A, seconds=3), program(C, parent=A, seconds=2)
    first = write_checkpoint(run, 1, [root, right])
    second = write_checkpoint(run, 2, [left, program(D, parent=C, seconds=4), right])
    for folder in (second, first):
        ingest(folder)
    at_once = open_home(tmp_path / "at once")
    ingest_paths(at_once, [run], now=rows(home, "sources")[0]["ingested_at"])
    # The session was first seen without its root, and keeps the id and the task it got then.
    ours, theirs = nodes_by_name(home), nodes_by_name(at_once)
    columns = ("node_id", "parent_id", "ancestors", "depth", "step", "selected_step", "visits", "total_reward")
    for at in "abcd":
        assert {c: ours[at][c] for c in columns} == {c: theirs[at][c] for c in columns}
    changes = ("node_id", "field", "step", "recorded_step", "n", "old_value", "new_value", "origin")
    logs = [{tuple(row[c] for c in changes) for row in rows(where, "change_log")} for where in (home, at_once)]
    assert logs[0] == logs[1]
    assert len({row["session_id"] for row in rows(home, "nodes")}) == 1


def test_a_copied_renamed_or_partly_named_folder_changes_nothing(ingest, home, tmp_path):
    programs = [program(A, seconds=1), program(B, parent=A, seconds=2)]
    run = tmp_path / "run" / "checkpoints"
    write_checkpoint(run, 1, programs)
    write_checkpoint(run, 2, [*programs, program(C, parent=B, seconds=3)])
    (run / "checkpoint_2" / "programs" / "broken.json").write_bytes(b"{")
    ingest(tmp_path / "run")
    before, everything = versions(home), contents(home)
    copy = (tmp_path / "run").rename(tmp_path / "renamed")
    for named in (copy, copy / "checkpoints", copy / "checkpoints" / "checkpoint_2", copy.parent):
        report = ingest(named)
        assert (report.nodes, report.stored, report.quarantined) == (0, 0, 1)
        assert versions(home) == before
    assert contents(home) == everything


def test_programs_without_unique_ids_are_known_by_their_root(ingest, home, tmp_path):
    for person, code in (("ada", "print('x')"), ("bob", "print('y')")):
        write_checkpoint(
            tmp_path / person / "run", 1, [program("p1", seconds=1, code=code), program("p2", parent="p1", seconds=2)]
        )
    assert ingest(tmp_path / "ada").nodes == 2
    assert ingest(tmp_path / "bob").nodes == 2
    assert len({row["session_id"] for row in rows(home, "nodes")}) == 2


def test_a_single_program_file_is_read_wherever_it_lies(ingest, home, tmp_path):
    file = tmp_path / "favourite.json"
    file.write_text(json.dumps(program(A, seconds=1)))
    assert ingest(file).nodes == 1
    write_checkpoint(tmp_path / "run", 1, [program(A, seconds=1), program(B, parent=A, seconds=2)])
    assert ingest(tmp_path / "run").nodes == 1
    assert len(by_artifact(home)) == 2 and len(rows(home, "sessions")) == 1

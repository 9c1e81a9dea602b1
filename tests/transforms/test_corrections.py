"""Changes of a finished session: the latest word counts as the label, and what the search knew stays as it was."""

import json

import pytest

from small_logs import by_artifact, contents, node, rows, start_of_run, versions, write_lines
from transforms.as_of import as_of

DONE = {"type": "session", "session": "s", "status": "done"}
RUN_ON = {"type": "session", "session": "s", "status": "running"}
SEARCH = [*start_of_run("r"), node("a", metric=1.0), node("b", parent="a", metric=0.5)]
OURS = ("nodes", "change_log", "node_edges", "sessions", "tasks")


def correct(name, value, step, field="fitness", **more):
    return {"type": "change", "session": "s", "node": name, "field": field, "step": step, "value": value, **more}


def labels(home, name, field):
    node_id = by_artifact(home)[name]["node_id"]
    found = [row for row in rows(home, "change_log") if (row["node_id"], row["field"]) == (node_id, field)]
    return sorted((row["step"], row["recorded_step"], json.loads(row["new_value"]), row["n"]) for row in found)


def grown(tmp_path, ingest):
    log = write_lines(tmp_path / "log.jsonl", *SEARCH, DONE)
    ingest(log)
    ingest(write_lines(log, correct("b", 99, 1), mode="a"))


def grown_from_a_log_that_says_so_at_its_head(tmp_path, ingest):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run("r"), DONE, *SEARCH[3:])
    ingest(log)
    ingest(write_lines(log, correct("b", 99, 1), mode="a"))


def second_file(tmp_path, ingest):
    ingest(write_lines(tmp_path / "log.jsonl", *SEARCH, DONE))
    ingest(write_lines(tmp_path / "later.jsonl", SEARCH[0], correct("b", 99, 1)))


def second_file_with_the_head_of_the_first(tmp_path, ingest):
    ingest(write_lines(tmp_path / "log.jsonl", *SEARCH, DONE))
    ingest(write_lines(tmp_path / "later.jsonl", *start_of_run("r"), correct("b", 99, 1)))


def end_in_a_file_of_its_own(tmp_path, ingest):
    log = write_lines(tmp_path / "log.jsonl", *SEARCH)
    ingest(log)
    ingest(write_lines(tmp_path / "end.jsonl", SEARCH[0], DONE | {"status": "failed"}))
    ingest(write_lines(log, correct("b", 99, 1), mode="a"))


def one_file(tmp_path, ingest):
    ingest(write_lines(tmp_path / "log.jsonl", *SEARCH, DONE, correct("b", 99, 1)))


WAYS = (
    grown,
    grown_from_a_log_that_says_so_at_its_head,
    second_file,
    second_file_with_the_head_of_the_first,
    end_in_a_file_of_its_own,
    one_file,
)


@pytest.mark.parametrize("arrives", WAYS, ids=lambda way: way.__name__)
def test_a_correction_of_a_finished_session_leaves_its_past_as_it_was(ingest, home, tmp_path, arrives):
    arrives(tmp_path, ingest)
    assert labels(home, "b", "fitness") == [(1, 1, 0.5, 0), (1, 2, 99, 0)]
    nodes = by_artifact(home)
    assert (nodes["b"]["fitness"], nodes["b"]["reward"]) == (99.0, 99.0)
    assert (nodes["a"]["visits"], nodes["a"]["total_reward"]) == (2, 1.5)
    then = as_of(home, nodes["b"]["node_id"], step=1)
    assert (then.fields["fitness"], then.fields["total_reward"], then.session_fields) == (0.5, 0.5, {"best_so_far": 1})
    assert as_of(home, nodes["b"]["node_id"], step=1, known_at=2).fields["fitness"] == 99
    assert rows(home, "sessions")[0]["next_step"] == 3
    before = versions(home)
    ingest(tmp_path / "log.jsonl", tags=["internal"])  # a tag makes it read the file again
    after = versions(home)
    assert {name for name in before if before[name] != after[name]} == {"tag_assignments"}


def test_corrections_are_written_down_one_after_another_in_the_order_of_the_log(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *SEARCH,
            correct("b", 0.75, 1),
            DONE,
            correct("b", 9.0, 1),
            correct("a", 5.0, 0),
            correct("b", 0.75, 1),
            correct("b", 0.75, 1),
            correct("a", 6.0, 0, recorded_step=40),
            correct("a", 7.0, 0),
        )
    )
    assert labels(home, "b", "fitness") == [(1, 1, 0.75, 0), (1, 2, 9.0, 0), (1, 4, 0.75, 0), (1, 5, 0.75, 0)]
    assert labels(home, "a", "fitness") == [(0, 0, 1.0, 0), (0, 3, 5.0, 0), (0, 40, 6.0, 0), (0, 41, 7.0, 0)]
    assert rows(home, "sessions")[0]["next_step"] == 42


def test_a_session_that_runs_on_takes_changes_at_their_own_step_again(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl", *SEARCH, DONE, correct("a", 5.0, 0), RUN_ON, correct("b", 9.0, 1), node("c"),
        )
    )  # fmt: skip
    assert labels(home, "a", "fitness") == [(0, 0, 1.0, 0), (0, 2, 5.0, 0)]
    assert labels(home, "b", "fitness") == [(1, 1, 9.0, 0)]


def test_what_a_finished_search_knew_is_told_of_its_step_and_not_corrected(ingest, home, tmp_path):
    known = {"type": "change", "session": "s", "field": "budget_left", "step": 0, "value": 7}
    assert ingest(write_lines(tmp_path / "log.jsonl", *SEARCH, DONE, known)).quarantined == 0
    assert as_of(home, by_artifact(home)["a"]["node_id"], step=0).session_fields["budget_left"] == 7


def test_a_file_of_corrections_may_take_back_what_another_one_said(ingest, home, tmp_path):
    ingest(write_lines(tmp_path / "log.jsonl", *SEARCH, DONE))
    first, second = correct("b", 2.0, 1), correct("b", 3.0, 1)
    for number, lines in enumerate(([first], [second], [correct("a", 8.0, 0), first])):
        ingest(write_lines(tmp_path / f"{number}.jsonl", *SEARCH[:3], *lines))
    assert [value for _, _, value, _ in labels(home, "b", "fitness")] == [0.5, 2.0, 3.0, 2.0]
    assert by_artifact(home)["b"]["fitness"] == 2.0
    before = versions(home)
    ingest(tmp_path)
    assert versions(home) == before


def test_an_older_or_edited_copy_of_a_corrected_log_adds_nothing(ingest, home, tmp_path):
    lines = [*SEARCH, correct("b", 0.75, 1), DONE, correct("b", 2.0, 1), correct("b", 3.0, 1)]
    ingest(write_lines(tmp_path / "log.jsonl", *lines))
    wanted = {name: contents(home)[name] for name in OURS}
    ingest(write_lines(tmp_path / "older.jsonl", *lines[:-1]))
    ingest(write_lines(tmp_path / "edited.jsonl", *lines[:3], "broken\n", *lines[3:]))
    assert {name: contents(home)[name] for name in OURS} == wanted


REWARDS = {  # name: (how the node ended, what is said of it later, its rewards one after the other)
    "a failure that works after all": ({"metric": None}, [("fitness", 3.0)], [-1, 3]),
    "a failure taken back first": ({"metric": None}, [("is_buggy", False), ("fitness", 3.0)], [-1, None, 3]),
    "a success that is a failure": ({"metric": 2.0}, [("is_buggy", True), ("failure_class", "wrong")], [2, -1]),
    "a success whose number was wrong": ({"metric": 2.0}, [("fitness", None), ("is_buggy", True)], [2, None, -1]),
    "a failure and back": ({"metric": 2.0}, [("is_buggy", True), ("is_buggy", False)], [2, -1, 2]),
    "a failure of the harness": ({"metric": None}, [("failure_class", "harness.disk")], [-1, None]),
    "a harness that was not to blame": (
        {"metric": None, "failure_class": "harness.disk"}, [("failure_class", "syntax")], [None, -1],
    ),
    "an unknown number": ({"metric": 2.0}, [("fitness", None)], [2, None]),
    "a reward of the log's own": ({"metric": 2.0, "reward": 0.5}, [("fitness", 3.0), ("is_buggy", True)], [0.5]),
    "a failure's reward of its own": ({"metric": None, "reward": 0.25}, [("fitness", 3.0)], [0.25]),
    "a reward the log corrects itself": ({"metric": 2.0}, [("reward", 0.5), ("fitness", 3.0)], [2, 0.5]),
}  # fmt: skip


@pytest.mark.parametrize("name", REWARDS)
def test_a_reward_by_the_rule_follows_a_correction_and_one_of_the_logs_own_stays(ingest, home, tmp_path, name):
    ending, said, wanted = REWARDS[name]
    lines = [*start_of_run("r", failure_reward=-1.0), node("a", **ending), DONE]
    log = write_lines(tmp_path / "log.jsonl", *lines, *(correct("a", value, 0, field) for field, value in said))
    ingest(log)
    assert [value for _, _, value, _ in labels(home, "a", "reward")] == wanted
    assert by_artifact(home)["a"]["reward"] == wanted[-1]
    assert as_of(home, by_artifact(home)["a"]["node_id"], step=0).fields["reward"] == wanted[0]


@pytest.mark.parametrize("name", REWARDS)
def test_a_running_node_ends_with_the_reward_that_its_corrections_would_give(ingest, home, tmp_path, name):
    ending, said, wanted = REWARDS[name]
    log = write_lines(tmp_path / "log.jsonl", *start_of_run("r", failure_reward=-1.0), node("a", **ending))
    for field, value in dict(said).items():
        ingest(write_lines(log, correct("a", value, 0, field), mode="a"))
    assert [value for _, _, value, _ in labels(home, "a", "reward")] == wanted[-1:]
    total = by_artifact(home)["a"]["total_reward"]
    assert total == (wanted[-1] or 0.0), "the evaluation is one, and the replay counts it as it is"


def test_a_failure_without_a_failure_reward_stays_unscored(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *SEARCH, DONE, correct("b", True, 1, "is_buggy"))
    ingest(log)
    assert [value for _, _, value, _ in labels(home, "b", "reward")] == [0.5, None]


def test_a_correction_of_an_earlier_step_counts_at_the_later_steps_that_were_known(ingest, home, tmp_path):
    measured_again = correct("a", 0.5, 3, recorded_step=3)
    lines = [*start_of_run("r", failure_reward=-1.0), node("a"), node("b"), measured_again, DONE]
    ingest(write_lines(tmp_path / "log.jsonl", *lines, correct("a", True, 0, "is_buggy")))
    assert labels(home, "a", "reward") == [(0, 0, 1.0, 0), (0, 4, -1.0, 0), (3, 3, 0.5, 0), (3, 4, -1.0, 0)]
    assert by_artifact(home)["a"]["reward"] == -1.0

import json

from small_logs import by_artifact, node, rows, start_of_run, versions, write_lines


def change(name, field, step, value, recorded_step=None):
    line = {"type": "change", "session": "s", "field": field, "step": step, "value": value}
    line |= {} if name is None else {"node": name}
    return line | ({} if recorded_step is None else {"recorded_step": recorded_step})


def history(home, name, field):
    node_id = None if name is None else by_artifact(home)[name]["node_id"]
    found = [row for row in rows(home, "change_log") if (row["node_id"], row["field"]) == (node_id, field)]
    ordered = sorted(found, key=lambda row: (row["step"], row["recorded_step"], row["n"]))
    return [(row["step"], row["recorded_step"], row["new_value"], row["old_value"], row["origin"]) for row in ordered]


def test_visits_and_rewards_are_replayed_along_the_path_by_evaluation_order(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            node("a", metric=1.0),
            node("b", parent="a", metric=0.5),
            node("c", parent="b", metric=None),
            node("d", parent="b", metric=2.0),
        )
    )
    assert history(home, "a", "visits") == [
        (0, 0, "1", None, "replayed"),
        (1, 1, "2", "1", "replayed"),
        (3, 3, "3", "2", "replayed"),
    ]
    assert history(home, "b", "total_reward") == [(1, 1, "0.5", None, "replayed"), (3, 3, "2.5", "0.5", "replayed")]
    assert history(home, "c", "visits") == [(2, 2, "0", None, "replayed")], "a failure without reward is no visit"
    assert history(home, "c", "fitness") == [(2, 2, "null", None, "replayed")]
    assert history(home, None, "best_so_far") == [(0, 0, "1.0", None, "replayed"), (3, 3, "2.0", "1.0", "replayed")]
    nodes = by_artifact(home)
    assert [(nodes[name]["visits"], nodes[name]["total_reward"]) for name in "abcd"] == [
        (3, 3.5),
        (2, 2.5),
        (0, 0.0),
        (1, 2.0),
    ]
    assert rows(home, "sessions")[0]["next_step"] == 4


def test_a_log_with_statistics_of_its_own_is_not_replayed(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            node("a"),
            change("a", "visits", 0, 1),
            node("b", parent="a"),
            change("a", "visits", 1, 7),
        )
    )
    assert history(home, "a", "visits") == [(0, 0, "1", None, "recorded"), (1, 1, "7", "1", "recorded")]
    assert history(home, "b", "visits") == history(home, "a", "total_reward") == []
    nodes = by_artifact(home)
    assert (nodes["a"]["visits"], nodes["b"]["visits"], nodes["a"]["total_reward"]) == (7, None, None)


def test_final_counts_without_a_history_stay_as_the_log_had_them(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a", visits=9, total_reward=4.5))
    ingest(log)
    write_lines(log, node("b", parent="a", visits=1, total_reward=0.5), mode="a")
    ingest(log)
    assert history(home, "a", "visits") == []
    assert (by_artifact(home)["a"]["visits"], by_artifact(home)["a"]["total_reward"]) == (9, 4.5)


def test_a_correction_changes_the_label_and_the_reward_that_was_the_fitness(ingest, home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a", metric=1.0), node("b", parent="a", metric=2.0))
    ingest(log)
    write_lines(log, change("a", "fitness", 0, 0.25, recorded_step=2), mode="a")
    report = ingest(log)
    assert (report.nodes, report.stored) == (0, 1)
    a = by_artifact(home)["a"]
    assert (a["fitness"], a["fitness_text"], a["reward"], a["reward_text"]) == (0.25, "0.25", 0.25, "0.25")
    assert (a["visits"], a["total_reward"]) == (2, 3.0), "what the search had seen stays as it was"
    assert history(home, "a", "fitness") == [(0, 0, "1.0", None, "replayed"), (0, 2, "0.25", "1.0", "recorded")]
    assert history(home, "a", "reward") == [(0, 0, "1.0", None, "replayed"), (0, 2, "0.25", "1.0", "replayed")]
    assert rows(home, "sessions")[0]["next_step"] == 3
    before = versions(home)
    ingest(log)
    assert versions(home) == before


def test_a_back_dated_correction_does_not_overwrite_a_later_dated_value(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            node("a", metric=1.0),
            change("a", "fitness", 5, 0.5),
            change("a", "fitness", 3, 0.25, recorded_step=9),
        )
    )
    assert by_artifact(home)["a"]["fitness"] == 0.5


def test_a_row_that_arrives_late_becomes_its_successors_old_value(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl", *start_of_run(), node("a"), change("a", "island", 0, "x"), change("a", "island", 5, "z")
    )
    ingest(log)
    assert history(home, "a", "island")[-1] == (5, 5, '"z"', '"x"', "recorded")
    write_lines(log, change("a", "island", 3, "y"), mode="a")
    ingest(log)
    assert history(home, "a", "island")[1:] == [
        (3, 3, '"y"', '"x"', "recorded"),
        (5, 5, '"z"', '"y"', "recorded"),
    ]


def test_equal_clocks_keep_the_order_of_the_log(ingest, home, tmp_path):
    log = write_lines(
        tmp_path / "log.jsonl", *start_of_run(), node("a"), change("a", "island", 1, "x"), change("a", "island", 1, "y")
    )
    ingest(log)
    write_lines(log, change("a", "island", 1, "x"), mode="a")
    ingest(log)
    found = [row for row in rows(home, "change_log") if row["field"] == "island"]
    assert sorted((row["n"], json.loads(row["new_value"])) for row in found) == [(0, "x"), (1, "y"), (2, "x")]


def test_two_nodes_of_one_step_are_both_kept(ingest, home, tmp_path):
    ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a", step=3), node("b", step=3), node("c")))
    assert sorted(row["step"] for row in rows(home, "nodes")) == [3, 3, 4]


def test_a_parent_that_arrives_later_heals_its_descendants_in_every_session(ingest, home, tmp_path):
    child = {"type": "session", "session": "child", "task": "t"}
    below = node("c", session="child", parent={"session": "s", "node": "b"})
    start = start_of_run("r")
    ingest(write_lines(tmp_path / "2.jsonl", *start, node("b", parent="a", step=1), child, below))
    ingest(write_lines(tmp_path / "3.jsonl", *start, child, node("d", session="child", parent="c")))
    assert [by_artifact(home)[name]["depth"] for name in "bcd"] == [0, 1, 2]
    ingest(write_lines(tmp_path / "1.jsonl", *start, node("a", step=0)))
    nodes = by_artifact(home)
    names = {row["node_id"]: name for name, row in nodes.items()}
    assert {name: [names[at] for at in row["ancestors"]] for name, row in nodes.items()} == {
        "a": [],
        "b": ["a"],
        "c": ["a", "b"],
        "d": ["a", "b", "c"],
    }
    assert [nodes[name]["depth"] for name in "abcd"] == [0, 1, 2, 3]
    assert nodes["a"]["visits"] == 2, "b's visit is counted once its parent is known"


def test_a_circle_of_parents_ends(ingest, home, tmp_path):
    report = ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a", parent="b"), node("b", parent="a")))
    assert (report.nodes, sorted(row["depth"] for row in rows(home, "nodes"))) == (2, [1, 1])

import json

from small_logs import journal_node, rows, versions, write_journal


def by_code(home):
    return {row["artifact"]: row for row in rows(home, "nodes")}


def test_the_direction_comes_from_a_good_node_and_the_edges_from_node2parent(ingest, home, tmp_path):
    write_journal(
        tmp_path / "run",
        [
            journal_node("a", 0, exc_type="CompilationError"),
            journal_node("b", 1, value=8.0, maximize=False),
            journal_node("c", 2, value=2.0, maximize=False),
            journal_node("d", 3, exc_type="CorrectnessError"),
        ],
        parents={"b": "a", "c": "b", "d": "c"},
    )
    report = ingest(tmp_path / "run")
    nodes = by_code(home)
    a, b, c, d = (nodes[f"solution_{letter}()"] for letter in "abcd")
    assert (report.nodes, report.messages) == (4, 8)
    assert rows(home, "tasks")[0]["direction"] == "min"
    assert [row["fitness"] for row in (a, b, c, d)] == [None, -8.0, -2.0, None]
    assert [row["operator"] for row in (a, b, c, d)] == ["draft", "debug", "improve", "improve"]
    assert [row["failure_class"] for row in (a, b, c, d)] == ["compilation_error", None, None, "correctness_error"]
    assert c["ancestors"] == [a["node_id"], b["node_id"]]
    assert json.loads(b["metrics"]) == {"value": 8.0, "maximize": False}
    assert (a["visits"], a["total_reward"]) == (2, -10.0)


def test_a_run_without_a_good_node_has_no_direction_and_no_fitness(ingest, home, tmp_path):
    write_journal(tmp_path / "run", [journal_node("a", 0), journal_node("b", 1, exc_type="EvaluationError")])
    ingest(tmp_path / "run")
    nodes = by_code(home)
    assert rows(home, "tasks")[0]["direction"] is None
    assert [nodes[f"solution_{letter}()"]["failure_class"] for letter in "ab"] == ["no_metric", "evaluation_error"]


def test_a_fault_of_the_harness_is_no_fault_of_the_candidate(ingest, home, tmp_path):
    write_journal(tmp_path / "run", [journal_node("a", 0, exc_type="LockFileError")])
    ingest(tmp_path / "run")
    (row,) = rows(home, "nodes")
    assert (row["failure_class"], row["outcome"], row["reward"], row["visits"]) == (
        "harness.lock_file",
        "unknown",
        None,
        0,
    )


def test_prompts_are_rebuilt_and_say_so_and_the_answer_is_plan_and_code(ingest, home, tmp_path):
    fenced = "```python\nwhole answer\n```"
    write_journal(
        tmp_path / "run",
        [
            journal_node("a", 0),
            journal_node("b", 1, value=1.0, maximize=True),
            journal_node("c", 2, plan="", code=fenced),
        ],
        parents={"b": "a"},
    )
    ingest(tmp_path / "run")
    turns = {}
    for row in rows(home, "prompt_history"):
        assert row["fidelity"] == "reconstructed"
        turns.setdefault(row["node_id"], {})[row["role"]] = row["content"]
    nodes = by_code(home)
    fix = turns[nodes["solution_b()"]["node_id"]]
    assert "solution_a()" in fix["user"] and "ran a" in fix["user"]
    assert fix["assistant"] == "Plan b.\n\n```python\nsolution_b()\n```"
    assert turns[nodes[fenced]["node_id"]]["assistant"] == fenced
    assert nodes["solution_a()"]["prompt_digest"] == nodes[fenced]["prompt_digest"], "drafts are siblings"


def test_empty_and_broken_journals_are_kept_and_others_of_the_folder_are_read(ingest, home, tmp_path):
    write_journal(tmp_path / "runs" / "1-good", [journal_node("a", 0, value=1.0, maximize=True)])
    write_journal(tmp_path / "runs" / "2-empty", [])
    for name, data in (("3-zero", b""), ("4-zero", b""), ("5-cut", b'{"nodes": [')):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / "journal.json").write_bytes(data)
    (tmp_path / "runs" / "1-good" / "tree_plot.html").write_text("<html>")
    report = ingest(tmp_path / "runs")
    assert (report.nodes, report.quarantined, report.skipped_files, report.files) == (1, 4, 1, 5)
    kept = {row["path"]: (row["reason"], row["bytes"]) for row in rows(home, "quarantine")}
    assert kept["3-zero/journal.json"] == kept["4-zero/journal.json"] == ("empty file (0 bytes)", b"")
    assert "without nodes" in kept["2-empty/journal.json"][0] and b'"nodes": []' in kept["2-empty/journal.json"][1]
    assert "no JSON" in kept["5-cut/journal.json"][0]
    before = versions(home)
    ingest(tmp_path / "runs")
    assert versions(home) == before


def test_a_journal_that_grew_adds_its_new_nodes_and_learns_the_direction(ingest, home, tmp_path):
    nodes = [journal_node("a", 0)]
    write_journal(tmp_path / "run", nodes)
    ingest(tmp_path / "run")
    ids = {row["node_id"] for row in rows(home, "nodes")}
    write_journal(tmp_path / "run", [*nodes, journal_node("b", 1, value=2.0, maximize=True)], parents={"b": "a"})
    report = ingest(tmp_path / "run")
    assert (report.nodes, report.sessions, rows(home, "tasks")[0]["direction"]) == (1, 0, "max")
    assert ids < {row["node_id"] for row in rows(home, "nodes")}
    assert [row["next_step"] for row in rows(home, "sessions")] == [2]
    assert len(rows(home, "sources")) == 1


def test_the_hardware_is_read_from_where_the_log_names_it(ingest, home, tmp_path):
    details = {"compilation_error": "x", "metadata": {"hardware": "GPU X"}}
    write_journal(
        tmp_path / "run",
        [
            journal_node("a", 0, exc_type="CompilationError", exc_info=details),
            journal_node(
                "b", 1, value=1.0, maximize=False, _term_out=["fast\nHardware: GPU X", "Runtime: 0.1 seconds"]
            ),
            journal_node("c", 2),
        ],
    )
    ingest(tmp_path / "run")
    nodes = by_code(home)
    assert [nodes[f"solution_{letter}()"]["environment"] for letter in "abc"] == [
        '{"hardware":"GPU X"}',
        '{"hardware":"GPU X"}',
        None,
    ]
    assert nodes["solution_a()"]["environment_digest"] == nodes["solution_b()"]["environment_digest"] is not None


def test_an_ai_scientist_journal_is_refused_by_name(ingest, home, tmp_path):
    several = {"value": {"metric_names": []}, "maximize": None}
    write_journal(tmp_path / "logs" / "stage_1", [journal_node("a", 0, metric=several)])
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.quarantined) == (0, 1)
    assert "AI-Scientist-v2" in rows(home, "quarantine")[0]["reason"]

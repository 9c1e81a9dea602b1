"""From somebody's log to a dataset and back to the log line, and what a retraction does on the way."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store.home import Home
from views.registry import TRAINING_VIEWS

Espalier = Callable[..., Any]


def attempt(node: str, parent: str | None, answer: str | None, artifact: str, metric: float) -> dict[str, Any]:
    """A node line of the native format; an answer comes with the one prompt that all share."""
    turns = [{"role": "user", "content": "faster"}, {"role": "assistant", "content": answer}]
    line = {"type": "node", "session": "s", "node": node, "parent": parent, "artifact": artifact, "metric": metric}
    return {**line, "messages": turns if answer else []}


LINES: list[dict[str, Any]] = [
    {"type": "run", "run": "r1"},
    {"type": "task", "task": "t", "metric": "score"},
    {"type": "session", "session": "s", "task": "t"},
    attempt("n0", None, None, "slow", 1.0),
    attempt("n1", "n0", "good", "good\nbetter", 3.0),
    attempt("n2", "n0", "bad", "bad", 2.0),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three attempts: a seed, and two answers to one prompt, of which the first is better."""
    path = tmp_path / "search.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def node_ids(espalier: Espalier) -> list[str]:
    rows = espalier("query", "select node_id from nodes order by step", "--json").json["rows"]
    return [row["node_id"] for row in rows]


def test_ingest_counts_what_it_added_and_the_second_time_adds_nothing(espalier: Espalier, log: Path) -> None:
    first = espalier("ingest", log, "--json").json
    assert {key: first[key] for key in ("files", "sessions", "nodes", "messages", "quarantined")} == {
        "files": 1,
        "sessions": 1,
        "nodes": 3,
        "messages": 4,
        "quarantined": 0,
    }
    again = espalier("ingest", log, "--json").json
    assert (again["nodes"], again["stored"], again["already_there"]) == (0, 0, first["read"])


def test_refresh_builds_the_views_and_then_has_nothing_to_do(espalier: Espalier, log: Path) -> None:
    espalier("ingest", log)
    assert espalier("explain", "dpo_pairs", "--json").json["mode"] == "full"
    built = espalier("refresh", "--json").json["views"]
    assert {name: built[name]["rows"] for name in TRAINING_VIEWS} == {
        "sft_trajectories": 1,
        "dpo_pairs": 1,
        "grpo_cohorts": 2,
        "value_examples": 3,
    }
    again = espalier("refresh", "--json").json["views"]
    assert {view["mode"] for view in again.values()} == {"none"}
    assert espalier("explain", "dpo_pairs", "--json").json["changed_keys"] == 0
    only = espalier("refresh", "dpo_pairs", "--full", "--json").json["views"]["dpo_pairs"]
    assert (only["mode"], only["inserted"], only["deleted"]) == ("full", 0, 0)


def test_as_of_shows_a_node_as_it_was_known_at_a_step(espalier: Espalier, log: Path) -> None:
    espalier("ingest", log)
    seed, good, _ = node_ids(espalier)
    own = espalier("as-of", good, "--json").json
    assert (own["node_id"], own["step"], own["known_at"]) == (good, 1, 1)
    assert own["fields"]["fitness"] == 3.0
    assert own["session_fields"] == {"best_so_far": 3.0}
    assert [(row["node_id"], row["fields"]["visits"]) for row in own["ancestors"]] == [(seed, 2)]
    assert espalier("as-of", seed, "--step", "2", "--json").json["fields"]["visits"] == 3
    assert espalier("as-of", good, "--step", "0", "--json").json["fields"] == {}
    assert "fitness" in espalier("as-of", good).out


def test_show_gives_the_difference_to_the_parent_and_the_prompt(espalier: Espalier, log: Path) -> None:
    espalier("ingest", log)
    _, good, _ = node_ids(espalier)
    shown = espalier("show", good, "--json").json
    assert shown["node"]["node_id"] == good
    assert shown["difference"][3:] == ["-slow", "+good", "+better"]
    assert [message["content"] for message in shown["messages"]] == ["faster", "good"]
    page = espalier("show", good).out
    assert "+better" in page and "[user]" in page
    assert "estimate" not in page  # a reported score is no estimate


def test_an_exported_dataset_is_what_the_view_holds(espalier: Espalier, log: Path, tmp_path: Path) -> None:
    espalier("ingest", log)
    espalier("refresh")
    answer = espalier("export", "dpo_pairs", tmp_path / "pairs", "--json").json
    assert (answer["rows"], answer["left_out"]) == (1, {})
    assert Path(answer["manifest"]).is_file()
    assert (tmp_path / "pairs" / "README.md").is_file()
    pinned = str(json.loads(Path(answer["manifest"]).read_text())["view_version"])
    again = espalier("export", "dpo_pairs", tmp_path / "again", "--version", pinned, "--json").json
    assert again["dataset_id"] == answer["dataset_id"]
    too_little = espalier("train", "sft", tmp_path / "pairs")
    assert too_little.code == 2
    assert too_little.error_line.startswith("WrongUse: ")


def test_value_examples_are_explained_exported_and_queried_like_any_view(
    espalier: Espalier, log: Path, tmp_path: Path
) -> None:
    espalier("ingest", log)
    assert espalier("explain", "value_examples", "--json").json["reason"] == "first build"
    only = espalier("refresh", "value_examples", "--json").json["views"]
    assert only["value_examples"]["rows"] == 3 and "dpo_pairs" not in only
    answer = espalier("export", "value_examples", tmp_path / "values", "--json").json
    assert (answer["rows"], answer["form"], answer["left_out"]) == (3, "values", {})
    rows = espalier("query", "select step, gain from value_examples order by step", "--json").json["rows"]
    assert rows[0]["gain"] is not None and [row["gain"] for row in rows[1:]] == [None, None]
    refused = espalier("train", "sft", tmp_path / "values")
    assert refused.error_line.startswith("WrongUse: ") and "holds values of value_examples" in refused.error_line


def test_a_retracted_node_leaves_the_views_and_returns_when_reinstated(
    home: Home, espalier: Espalier, log: Path, tmp_path: Path
) -> None:
    espalier("ingest", log)
    espalier("refresh")
    dataset = espalier("export", "dpo_pairs", tmp_path / "pairs", "--json").json["dataset_id"]
    _, good, _ = node_ids(espalier)
    retraction = espalier("retract", "node", good, "--kind", "invalidate", "--reason", "wrong score", "--json").json
    assert retraction["node_ids"] == [good]
    assert retraction["reached"]["datasets"] == [dataset]
    assert retraction["reached"]["views"] == {
        "sft_trajectories": 1,
        "dpo_pairs": 1,
        "grpo_cohorts": 1,
        "value_examples": 1,
    }
    assert espalier("refresh", "--json").json["views"]["dpo_pairs"]["rows"] == 0
    back = espalier("reinstate", retraction["retraction_id"], "--json").json
    assert back["reinstates"] == retraction["retraction_id"]
    assert espalier("refresh", "--json").json["views"]["dpo_pairs"]["rows"] == 1
    refused = espalier("retract", "node", good, "--kind", "forget", "--reason", "x")
    assert (refused.code, refused.error_line.split(":")[0]) == (2, "WrongUse")


def test_the_registry_and_the_searches_are_empty_before_there_are_any(espalier: Espalier) -> None:
    assert espalier("runs", "--json").json == {"runs": []}
    assert espalier("models", "--json").json == {"models": []}
    assert espalier("status", "--json").json == {"sessions": [], "stuck_claims": 0, "failure_classes": {}}
    assert "no model yet" in espalier("models").out

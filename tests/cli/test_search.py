"""`judge` and `search`: verdicts as exit codes, and estimates that never pass for measurements."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_search.tasks import TASKS

Espalier = Callable[..., Any]
HEADING = "model estimate, not run on a GPU"
pytestmark = pytest.mark.slow  # a judge starts two warm servers


def test_a_rejected_candidate_is_exit_code_1_with_its_failure_class(espalier: Espalier, tmp_path: Path) -> None:
    cheat = tmp_path / "cheat.py"
    cheat.write_text("import torch\n\n\ndef run(x):\n    return torch.softmax(x, -1)\n")
    answer = espalier("judge", cheat, "--task", "softmax", "--json")
    assert answer.code == 1
    verdict = answer.json
    assert (verdict["verdict"], verdict["failure_class"], verdict["fitness"]) == ("rejected", "screen", None)
    assert [check["name"] for check in verdict["checks"] if not check["passed"]] == ["screen"]


def test_an_accepted_candidate_is_exit_code_0_under_the_heading_of_an_estimate(
    espalier: Espalier, tmp_path: Path
) -> None:
    honest = tmp_path / "honest.py"
    honest.write_text(TASKS["vector_add"].seed_source)
    answer = espalier("judge", honest, "--task", "vector_add")
    assert answer.code == 0
    assert answer.out.startswith(f"accepted: {honest}")
    assert HEADING in answer.out


def test_a_search_ends_in_the_tables_and_its_nodes_can_be_shown(espalier: Espalier) -> None:
    summary = espalier("search", "--task", "vector_add", "--steps", "4", "--json").json
    assert (summary["state"], summary["attempts"], summary["nodes"]) == ("done", 4, 5)
    assert summary["estimates"] == HEADING
    rows = espalier("query", "select node_id, fitness_basis from nodes order by step", "--json").json["rows"]
    assert len(rows) == 5
    assert {row["fitness_basis"].split(":")[0] for row in rows} == {"estimated"}
    assert HEADING in espalier("show", rows[0]["node_id"]).out
    (session,) = espalier("status", "--json").json["sessions"]
    assert (session["task"], session["attempts_settled"], session["stuck_claims"]) == ("vector_add", 4, 0)
    resumed = espalier("search", "--resume", summary["session_id"], "--json").json
    assert (resumed["session_id"], resumed["nodes"]) == (summary["session_id"], 5)

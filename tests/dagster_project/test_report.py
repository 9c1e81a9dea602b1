"""The report's numbers, on searches small enough to count by hand."""

import json
import re
import shlex
import shutil
from io import StringIO

import pytest
from rich.console import Console

from dagster_project.loop_display import LoopDisplay
from dagster_project.loop_pages import lines, markdown, print_report, sheets, write_report
from dagster_project.loop_report import Best, proposer_numbers
from dagster_project.run_loop import STAGES
from kernel_search.judge.estimate import METRIC

SEARCHES = [
    {"proposer": "trained", "task": "softmax", "session_id": "s1"},
    {"proposer": "rules", "task": "softmax", "session_id": "s2"},
]


def node(
    session_id, step, artifact, *, parent="root", valid=True, failure_class=None, estimate_us=None, operator="edit"
):
    return {
        "node_id": f"{session_id}/{step}",
        "session_id": session_id,
        "parent_id": None if parent is None else f"{session_id}/{0 if parent == 'root' else parent}",
        "step": step,
        "operator": operator,
        "artifact_digest": artifact,
        "fitness": 0.1 if valid else None,
        "is_buggy": None if failure_class == "harness.crash" else not valid,
        "failure_class": failure_class,
        "metrics": json.dumps({} if estimate_us is None else {METRIC: estimate_us}),
    }


def seed(session_id):
    return node(session_id, 0, "start", parent=None, estimate_us=100.0, operator="seed")


NODES = [
    seed("s1"),
    node("s1", 1, "a", estimate_us=80.0),  # new
    node("s1", 2, "b", estimate_us=50.0),  # in the training data
    node("s1", 3, "a", parent=2, estimate_us=80.0),  # new, and a duplicate of step 1
    node("s1", 4, "c", valid=False, failure_class="wrong_values", estimate_us=1.0),
    node("s1", 5, None, valid=False, failure_class="unparsable"),
    node("s1", 6, None, valid=False, failure_class="no_op"),
    node("s1", 7, None, valid=False, failure_class="inapplicable"),
    node("s1", 8, "d", valid=False, failure_class="harness.crash"),
    node("s1", 9, "b", parent=2, estimate_us=50.0),  # its parent's artifact
    seed("s2"),
    node("s2", 1, "start", estimate_us=100.0),  # the starting kernel again
    node("other", 1, "x", estimate_us=1.0),  # no search of this round
]


def test_every_attempt_counts_and_the_starting_kernel_is_none():
    trained, rules = proposer_numbers(NODES, SEARCHES, frozenset({"b"}))
    assert (trained.proposer, trained.attempts, trained.valid) == ("trained", 9, 4)
    assert (trained.unparsable, trained.no_ops, trained.inapplicable) == (1, 1, 1)
    assert trained.valid_rate == 4 / 9
    assert (rules.proposer, rules.attempts, rules.valid) == ("rules", 1, 1)


def test_new_means_neither_the_parents_nor_in_the_training_data():
    trained, rules = proposer_numbers(NODES, SEARCHES, frozenset({"b"}))
    assert (trained.valid_new, trained.distinct_new) == (2, 1)
    assert (rules.valid_new, rules.distinct_new) == (0, 0)


def test_a_duplicate_repeats_an_earlier_artifact_of_its_search():
    trained, rules = proposer_numbers(NODES, SEARCHES, frozenset())
    assert (trained.duplicates, rules.duplicates) == (2, 1)


def test_only_accepted_attempts_can_be_best():
    trained, _ = proposer_numbers(NODES, SEARCHES, frozenset())
    assert trained.best == {"softmax": Best("s1/2", 50.0, 100.0)}


def test_a_proposer_that_attempted_nothing_has_no_rate():
    trained, _ = proposer_numbers([seed("s1")], SEARCHES, frozenset())
    assert (trained.attempts, trained.valid_rate, trained.best) == (0, None, {})


def view(mode, reason, rows):
    return {
        "dagster/row_count": rows,
        "mode": mode,
        "reason": reason,
        "inserted": rows,
        "updated": 0,
        "deleted": 0,
        "seconds": 0.1,
    }


def report(home):
    numbers = [entry.as_dict() for entry in proposer_numbers(NODES, SEARCHES, frozenset({"b"}))]
    return {
        "started_at": "2026-03-01T12:00:00+00:00",
        "estimates": "model estimate, not run on a GPU",
        "first_search": numbers[1:],
        "second_search": numbers,
        "artifacts_in_training_data": 1,
        "views": {"dpo_pairs": view("full", "first build", 7)},
        "views_again": {"dpo_pairs": view("incremental", "2 sessions touched (nodes 1 to 2)", 9)},
        "checks": {"passed": 16, "of": 16},
        "checks_again": {"passed": 16, "of": 16},
        "datasets": {"sft_dataset": {"dagster/row_count": 25, "directory": str(home.datasets / "sft")}},
        "model": {"model_id": "m_1", "dagster/row_count": 25, "directory": str(home.models / "m")},
        "places": {"tables": str(home.tables), "ledger": home.ledger_url},
        "seconds": {"search": 12.3},
    }


def test_the_screen_and_the_page_say_the_same(home):
    screen = StringIO()
    print_report(report(home), Console(file=screen, width=200))
    page = markdown(report(home))
    for sheet in sheets(report(home)):
        for text in (sheet.title, *sheet.columns, *(cell for row in sheet.rows for cell in row)):
            assert text in screen.getvalue()
            assert text in page


def test_the_tables_fit_a_terminal_of_eighty_columns(home):
    screen = StringIO()
    print_report(report(home), Console(file=screen, width=80))
    for word in ("trained", "distinct, and new", "inapplicable", "incremental: 2 sessions touched"):
        assert word in screen.getvalue()


def test_each_proposer_is_a_column_and_the_first_search_the_last(home):
    (attempts, *_) = sheets(report(home))
    assert attempts.columns == ("", "trained", "rules", "rules, first")
    assert ("valid, and new", "2", "0", "0") in attempts.rows
    assert ("valid rate", "44%", "100%", "100%") in attempts.rows


def test_estimates_stand_under_a_heading_that_says_what_they_are(home):
    (sheet,) = [sheet for sheet in sheets(report(home)) if "estimate" in sheet.title]
    assert "model estimate, not run on a GPU" in sheet.title
    assert sheet.rows == [("softmax", "100.0", "50.0", "100.0")]


def test_the_report_is_left_in_the_home_in_both_forms(home):
    write_report(report(home), home)
    assert json.loads((home.path / "report.json").read_text())["second_search"][0]["attempts"] == 9
    assert (home.path / "report.md").read_text().startswith("# The loop of 2026-03-01")


def test_without_a_terminal_progress_is_plain_lines():
    screen = StringIO()
    with LoopDisplay(Console(file=screen), num_stages=2) as display, display.stage("search"):
        display.tell("rules on softmax", 3, 160)
    shown = screen.getvalue().splitlines()
    assert shown[0] == "[1/2] search"
    assert shown[-1].strip() == f"{display.seconds['search']:.1f} s"


@pytest.mark.parametrize("title", STAGES)
def test_on_eighty_columns_every_stage_keeps_its_bar_counts_and_clock_and_cuts_the_detail(title):
    screen = StringIO()
    console = Console(width=80, force_terminal=True, color_system="standard", file=screen)
    detail = "an_uncommonly_long_proposer on an_uncommonly_long_task"
    with LoopDisplay(console, num_stages=len(STAGES)) as display:
        for earlier in STAGES:  # their rows stay on the screen and take part in the widths
            if earlier != title:
                with display.stage(earlier):
                    pass
        with display.stage(title):
            display.tell(detail, 160, 1600)
            screen.truncate(screen.seek(0))
            display._bars.refresh()
            shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", screen.getvalue())
    assert all(len(line) <= 80 for line in shown.splitlines())
    whole = rf"\[5/5\] {re.escape(title)} +[━╸╺]{{6,}} +160 of 1600 +0:00:0\d an_un\w*…"
    assert re.search(whole, shown)


def test_what_to_open_next_is_a_list_of_commands(home):
    told = lines(report(home))
    commands = [shlex.split(line, comments=True) for line in told[told.index("Open next:") + 1 :]]
    assert commands[0] == ["make", "ui", f"ESPALIER_HOME={home.path}"]
    assert commands[-1] == ["cat", str(home.path / "report.md")]
    assert all(shutil.which(command[0]) or command[0].endswith("espalier") for command in commands)

"""The blocking checks: each one passes on sound rows and fails on the one row that breaks it."""

import math
import subprocess
import sys

import pyarrow as pa
import pytest

from dagster_project.checks.expectations import Facts, Rule, judge_frame
from dagster_project.checks.frames import (
    choice_facts,
    cohort_facts,
    member_facts,
    node_facts,
    pair_facts,
    source_facts,
    value_facts,
)
from dagster_project.checks.rules import (
    COHORT_RULES,
    MEMBERS_ARE_LIVE,
    NODE_RULES,
    NOTHING_FROM_THE_FUTURE,
    PAIR_RULES,
    SOURCES_STAND,
    VALUE_RULES,
)
from store.delta import Tables
from views.registry import declare_views


class Rows:
    """Rows written straight into the tables, so that a test can hold what no ingest would let in."""

    def __init__(self, home):
        self.home = home
        self.tables = Tables(home)
        declare_views(self.tables)

    def put(self, table, *rows):
        schema = self.tables.schema(table).columns
        filled = [{"session_seq": 1, **row} if "session_seq" in schema.names else row for row in rows]
        self.tables.create(table)
        changes = pa.Table.from_pylist(filled, schema=schema).append_column("_change", pa.array(["insert"] * len(rows)))
        self.tables.commit_rows(table, changes, planned_at=self.tables.version(table))
        return self

    def nodes(self, *node_ids):
        return self.put(
            "nodes", *({"node_id": node_id, "session_id": "s", "step": step} for step, node_id in enumerate(node_ids))
        )

    def broken(self, *facts):
        """Names of the rules that do not hold."""
        return {
            rule.name
            for group in facts
            for rule, passed, _ in judge_frame(group.frame(self.home), group.rules)
            if not passed
        }


@pytest.fixture
def rows(home):
    return Rows(home)


NODES = Facts(node_facts, NODE_RULES)
CHOICES = Facts(choice_facts, (NOTHING_FROM_THE_FUTURE,))
PAIRS = Facts(pair_facts, PAIR_RULES)
COHORTS = Facts(cohort_facts, COHORT_RULES)
VALUES = Facts(value_facts, VALUE_RULES)


def test_every_check_passes_where_nothing_was_built_yet(rows):
    views = (
        ("sft_trajectories", "node_ids"),
        ("dpo_pairs", "chosen_id"),
        ("grpo_cohorts", "node_id"),
        ("value_examples", "best_descendant_id"),
    )
    sources = [Facts(source_facts(view), (SOURCES_STAND,)) for view, _ in views]
    members = [Facts(member_facts(view, (column,)), (MEMBERS_ARE_LIVE,)) for view, column in views]
    assert rows.broken(NODES, CHOICES, PAIRS, COHORTS, VALUES, *sources, *members) == set()


def test_sound_nodes_pass(rows):
    rows.put(
        "nodes",
        {"node_id": "root", "session_id": "s", "step": 0, "fitness": 0.0},
        {"node_id": "child", "session_id": "s", "step": 3, "selected_step": 0, "parent_id": "root", "fitness": None},
        {"node_id": "orphan", "session_id": "s", "step": 4, "selected_step": 3, "parent_id": "never seen"},
        {"node_id": "migrant", "session_id": "s", "step": 1, "parent_id": "child", "copy_of": "child"},
    )
    assert rows.broken(NODES) == set()


@pytest.mark.parametrize(
    ("rule", "spoilt"),
    [
        ("node_ids_are_unique", {"node_id": "root", "step": 5}),
        ("fitness_is_finite_or_unknown", {"node_id": "n", "step": 5, "fitness": math.inf}),
        ("fitness_is_finite_or_unknown", {"node_id": "n", "step": 5, "fitness": math.nan}),
        ("parents_are_chosen_before_the_node_commits", {"node_id": "n", "step": 5, "selected_step": 5}),
        ("parents_come_first", {"node_id": "n", "step": 2, "parent_id": "root"}),
    ],
)
def test_a_spoilt_node_fails_its_check_and_no_other(rows, rule, spoilt):
    rows.put("nodes", {"node_id": "root", "session_id": "s", "step": 2}, {"session_id": "s", **spoilt})
    assert rows.broken(NODES) == {rule}


@pytest.mark.parametrize(("selected_step", "broken"), [(3, set()), (None, set()), (4, {NOTHING_FROM_THE_FUTURE.name})])
def test_a_state_from_the_nodes_own_step_or_later_is_the_future(rows, selected_step, broken):
    rows.nodes("a", "b", "c", "d", "e")  # e has step 4
    rows.put(
        "sft_trajectories",
        {"leaf_id": "e", "example_id": "x", "states": [{"node_id": "e", "selected_step": selected_step}]},
    )
    assert rows.broken(CHOICES) == broken


@pytest.mark.parametrize(
    ("rejected_fitness", "broken"),
    [(0.4, set()), (None, set()), (0.5, {"chosen_is_better"}), (0.6, {"chosen_is_better"})],
)
def test_a_chosen_node_must_be_better_than_a_rejected_one_that_has_a_fitness(rows, rejected_fitness, broken):
    pair = {"chosen_id": "a", "rejected_id": "b", "example_id": "x", "chosen_fitness": 0.5}
    rows.put("dpo_pairs", {**pair, "rejected_fitness": rejected_fitness})
    assert rows.broken(PAIRS) == broken


def test_a_pair_may_not_stand_there_twice(rows):
    pair = {"chosen_id": "a", "rejected_id": "b", "example_id": "x", "chosen_fitness": 0.5, "rejected_fitness": 0.1}
    rows.put("dpo_pairs", pair, pair)
    assert rows.broken(PAIRS) == {"pairs_are_unique"}


def cohort(*advantages, num_members=None):
    return [
        {
            "cohort_id": "c",
            "node_id": f"n{place}",
            "example_id": f"x{place}",
            "advantage": advantage,
            "advantage_unscaled": advantage / 2,
            "num_members": num_members or len(advantages),
        }
        for place, advantage in enumerate(advantages)
    ]


@pytest.mark.parametrize(
    ("members", "broken"),
    [
        (cohort(0.7069, 0.0, -0.7069), set()),
        (cohort(1 / 3, 1 / 3, -2 / 3 + 1e-12), set()),
        (cohort(0.7, 0.0, -0.6), {"advantages_sum_to_zero", "unscaled_advantages_sum_to_zero"}),
        (cohort(0.5, -0.5, num_members=3), {"cohorts_are_complete"}),
    ],
)
def test_a_cohort_is_complete_and_its_advantages_cancel_out(rows, members, broken):
    rows.put("grpo_cohorts", *members)
    assert rows.broken(COHORTS) == broken


@pytest.mark.parametrize(
    ("best", "broken"),
    [("b", set()), (None, set()), ("a", {"labels_come_later"})],
)
def test_the_label_of_a_value_example_comes_from_a_later_node(rows, best, broken):
    rows.nodes("a", "b")
    rows.put("value_examples", {"node_id": "a", "example_id": "x", "step": 0, "best_descendant_id": best})
    assert rows.broken(VALUES) == broken


def test_a_node_may_not_be_two_value_examples(rows):
    rows.put("value_examples", {"node_id": "a", "example_id": "x"}, {"node_id": "a", "example_id": "x"})
    assert rows.broken(VALUES) == {"examples_are_unique"}


@pytest.mark.parametrize(("best", "broken"), [(None, set()), ("b", {MEMBERS_ARE_LIVE.name})])
def test_a_retracted_label_fails_the_check_and_an_unknown_one_does_not(rows, best, broken):
    rows.nodes("a", "b")
    rows.put("value_examples", {"node_id": "a", "example_id": "x", "best_descendant_id": best})
    rows.put("node_reach", {"retraction_id": "r", "node_id": "b", "kind": "invalidate"})
    members = member_facts("value_examples", ("node_id", "best_descendant_id"))
    assert rows.broken(Facts(members, (MEMBERS_ARE_LIVE,))) == broken


@pytest.mark.parametrize(
    ("reached", "broken"),
    [
        ([], set()),
        ([("parent", "invalidate")], set()),  # its score is wrong; its text may stand in the child's prompt
        ([("leaf", "invalidate")], {MEMBERS_ARE_LIVE.name}),
        ([("parent", "withdraw")], {SOURCES_STAND.name}),
        ([("leaf", "withdraw")], {SOURCES_STAND.name, MEMBERS_ARE_LIVE.name}),
    ],
)
def test_a_retraction_that_a_view_does_not_show_yet_fails_its_checks(rows, reached, broken):
    rows.nodes("parent", "leaf")
    rows.put(
        "sft_trajectories",
        {"leaf_id": "leaf", "example_id": "x", "node_ids": ["leaf"], "source_node_ids": ["leaf", "parent"]},
    )
    if reached:
        rows.put(
            "node_reach", *({"retraction_id": f"r_{node}", "node_id": node, "kind": kind} for node, kind in reached)
        )
    view = "sft_trajectories"
    assert broken == rows.broken(
        Facts(source_facts(view), (SOURCES_STAND,)), Facts(member_facts(view, ("node_ids",)), (MEMBERS_ARE_LIVE,))
    )


def test_a_source_that_does_not_exist_fails(rows):
    rows.nodes("leaf")
    rows.put("grpo_cohorts", {**cohort(0.0)[0], "source_node_ids": ["leaf", "gone"]})
    assert rows.broken(Facts(source_facts("grpo_cohorts"), (SOURCES_STAND,))) == {SOURCES_STAND.name}


def test_a_rule_that_cannot_be_evaluated_is_an_error_and_never_a_pass(rows):
    rows.nodes("a")
    with pytest.raises(RuntimeError, match="check misspelt could not be evaluated"):
        judge_frame(
            node_facts(rows.home), [Rule("misspelt", "", "ExpectColumnValuesToBeUnique", {"column": "no_such_column"})]
        )


def test_the_checks_run_in_a_process_whose_main_module_is_no_file():
    program = (
        "import pandas; from dagster_project.checks.expectations import Rule, judge_frame; "
        "rule = Rule('r', '', 'ExpectColumnValuesToBeUnique', {'column': 'a'}); "
        "print([passed for _, passed, _ in judge_frame(pandas.DataFrame({'a': [1, 1]}), [rule])])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "[False]"

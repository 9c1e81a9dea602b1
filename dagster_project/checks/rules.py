"""What must hold before anything is built on a table or view: one check per rule, blocking unless it says so."""

from dagster_project.checks.expectations import Facts, Rule, checks_on
from dagster_project.checks.frames import (
    choice_facts,
    cohort_facts,
    member_facts,
    node_facts,
    pair_facts,
    source_facts,
    value_facts,
)

# TRL divides by (sample deviation + 1e-4) in float64 here, so a sum is off by rounding alone.
ADVANTAGE_SUM_TOLERANCE = 1e-6
WHERE_BOTH_ARE_KNOWN = {"ignore_row_if": "either_value_is_missing"}

NODE_RULES = (
    Rule("node_ids_are_unique", "No two rows share a node_id.", "ExpectColumnValuesToBeUnique", {"column": "node_id"}),
    Rule(
        "fitness_is_finite_or_unknown",
        "A fitness is a finite number; a failed or unknown one is NULL, never NaN or infinite.",
        "ExpectColumnValuesToBeInSet",
        {"column": "fitness_state", "value_set": ["finite", "unknown"]},
    ),
    Rule(
        "parents_are_chosen_before_the_node_commits",
        "selected_step lies before step.",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": "step", "column_B": "selected_step", **WHERE_BOTH_ARE_KNOWN},
    ),
    Rule(
        "parents_come_first",
        "Within a session a node's parent has a smaller step; a copy takes its original's place and does not count.",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": "step", "column_B": "parent_step", **WHERE_BOTH_ARE_KNOWN},
        blocking=False,  # one foreign log with an odd order must not keep every other log from being used
    ),
)

NOTHING_FROM_THE_FUTURE = Rule(
    "states_know_nothing_of_the_future",
    "What the search knew at each choice on a path is from before that node's own step.",
    "ExpectColumnPairValuesAToBeGreaterThanB",
    {"column_A": "step", "column_B": "selected_step", **WHERE_BOTH_ARE_KNOWN},
)

PAIR_RULES = (
    Rule(
        "chosen_is_better",
        "The chosen fitness lies above the rejected one, where the rejected node has one.",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": "chosen_fitness", "column_B": "rejected_fitness", **WHERE_BOTH_ARE_KNOWN},
    ),
    Rule(
        "pairs_are_unique",
        "No two rows pair the same two nodes.",
        "ExpectCompoundColumnsToBeUnique",
        {"column_list": ["chosen_id", "rejected_id"]},
    ),
)

COHORT_RULES = (
    Rule(
        "advantages_sum_to_zero",
        "The advantages of a cohort cancel out, up to rounding.",
        "ExpectColumnValuesToBeBetween",
        {"column": "advantage_sum", "min_value": -ADVANTAGE_SUM_TOLERANCE, "max_value": ADVANTAGE_SUM_TOLERANCE},
    ),
    Rule(
        "unscaled_advantages_sum_to_zero",
        "So do the ones that are not divided by the deviation.",
        "ExpectColumnValuesToBeBetween",
        {
            "column": "advantage_unscaled_sum",
            "min_value": -ADVANTAGE_SUM_TOLERANCE,
            "max_value": ADVANTAGE_SUM_TOLERANCE,
        },
    ),
    Rule(
        "cohorts_are_complete",
        "A cohort has the members it counts.",
        "ExpectColumnPairValuesToBeEqual",
        {"column_A": "num_members", "column_B": "rows"},
    ),
)

VALUE_RULES = (
    Rule(
        "examples_are_unique",
        "No two rows are about the same node.",
        "ExpectColumnValuesToBeUnique",
        {"column": "node_id"},
    ),
    Rule(
        "labels_come_later",
        "The descendant whose fitness is the label was evaluated after the node itself.",
        "ExpectColumnPairValuesAToBeGreaterThanB",
        {"column_A": "label_step", "column_B": "step", **WHERE_BOTH_ARE_KNOWN},
    ),
)

SOURCES_STAND = Rule(
    "sources_exist_and_are_not_withdrawn",
    "Every node whose content an example holds is in the nodes table, and no withdrawal reaches it.",
    "ExpectColumnValuesToBeInSet",
    {"column": "standing", "value_set": ["stands"]},
)
MEMBERS_ARE_LIVE = Rule(
    "examples_are_live",
    "No retraction of any kind reaches a node that an example learns from.",
    "ExpectColumnValuesToBeInSet",
    {"column": "standing", "value_set": ["live"]},
)


def _standing(view: str, *members: str) -> tuple[Facts, Facts]:
    return (
        Facts(source_facts(view), (SOURCES_STAND,)),
        Facts(member_facts(view, members), (MEMBERS_ARE_LIVE,)),
    )


checks = [
    checks_on("nodes", [Facts(node_facts, NODE_RULES)]),
    checks_on(
        "sft_trajectories",
        [Facts(choice_facts, (NOTHING_FROM_THE_FUTURE,)), *_standing("sft_trajectories", "node_ids")],
    ),
    checks_on("dpo_pairs", [Facts(pair_facts, PAIR_RULES), *_standing("dpo_pairs", "chosen_id", "rejected_id")]),
    checks_on("grpo_cohorts", [Facts(cohort_facts, COHORT_RULES), *_standing("grpo_cohorts", "node_id")]),
    checks_on(
        "value_examples",
        [Facts(value_facts, VALUE_RULES), *_standing("value_examples", "node_id", "best_descendant_id")],
    ),
]

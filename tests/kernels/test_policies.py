"""Greedy as a pure function of frontier rows."""

import pytest

from kernel_search.policies import make_policy
from kernel_search.policies.greedy import choose_greedy
from kernel_search.search_settings import GreedySettings, read_search_settings
from store.errors import UnknownName
from store.ledger_rows import FrontierRow

SETTINGS = GreedySettings(drafts=2, good_parents=3, groups_per_parent=2)


def row(node_id, fitness, *, step, parent="root", groups=0, artifact=None):
    return FrontierRow(
        node_id=node_id,
        parent_id=parent,
        step=step,
        depth=0 if parent is None else 1,
        fitness=fitness,
        reward=0.5,
        visits=1,
        total_reward=0.5,
        artifact_digest=artifact or node_id,
        num_groups=groups,
        in_flight=0,
    )


def chosen(*rows):
    choice = choose_greedy(rows, settings=SETTINGS)
    return choice.node_id, choice.reason


def test_the_first_groups_are_drafts_from_the_root():
    assert chosen(row("root", 0.0, step=0, parent=None)) == ("root", "draft")
    assert chosen(row("root", 0.0, step=0, parent=None, groups=1), row("a", 0.9, step=1)) == ("root", "draft")


def test_then_the_best_goes_first():
    root = row("root", 0.0, step=0, parent=None, groups=2)
    assert chosen(root, row("a", 0.2, step=1), row("b", 0.5, step=2)) == ("b", "best")


def test_a_best_that_had_its_groups_lets_the_next_best_go_deeper():
    root = row("root", 0.0, step=0, parent=None, groups=2)
    assert chosen(root, row("a", 0.2, step=1), row("b", 0.5, step=2, groups=2)) == ("a", "deepen")
    assert chosen(root, row("a", 0.2, step=1, groups=2), row("b", 0.5, step=2, groups=2)) == ("b", "best")


def test_only_the_few_best_are_weighed():
    root = row("root", 0.0, step=0, parent=None, groups=2)
    rows = [root, *(row(f"n{step}", step / 10, step=step, groups=4) for step in range(1, 6))]
    choice = choose_greedy(rows, settings=SETTINGS)
    assert [each.node_id for each in choice.weighed] == ["n5", "n4", "n3"]
    assert choice.node_id == "n5"


def test_the_same_artifact_counts_once():
    root = row("root", 0.0, step=0, parent=None, groups=2)
    twin = row("twin", 0.5, step=3, artifact="b")
    assert chosen(root, row("a", 0.2, step=1), row("b", 0.5, step=2, groups=2), twin) == ("a", "deepen")


def test_among_equals_the_later_node_goes_first_and_the_order_of_rows_does_not_matter():
    root = row("root", 0.0, step=0, parent=None, groups=2)
    rows = [root, row("a", 0.5, step=1), row("b", 0.5, step=2)]
    assert chosen(*rows) == chosen(*reversed(rows)) == ("b", "best")


def test_without_rows_there_is_no_choice():
    assert choose_greedy([], settings=SETTINGS) is None


def test_an_unknown_policy_is_answered_with_those_there_are():
    with pytest.raises(UnknownName, match="'oracle'; there are greedy"):
        make_policy("oracle", read_search_settings())

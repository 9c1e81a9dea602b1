"""Faults that people have met in as-of reads, and leaks of the future, each as what must hold in the views."""

from pathlib import Path
from typing import Any

import pytest

from memory_tables import MemoryTables
from oracle_walks import Row
from store.home import Home
from transforms.as_of import as_of
from view_checks import assert_views_equal_the_oracle, pass_over, rows_at
from views.settings import read_view_settings
from world import World


@pytest.fixture
def world(home: Home, tmp_path: Path) -> World:
    """A parent that was evaluated at step 0, in memory."""
    world = World(home, tables=MemoryTables(home, tmp_path)).task("t").session("s", ucb_constant=1.4)
    return world.node("root", "s", fitness=0.0, asked="begin", answered="x")


def child(world: World, node_id: str, step: int, **columns: Any) -> World:
    """A child that was chosen one step before it was committed, good enough for a trajectory of its own."""
    columns = {"fitness": 1.0, "asked": "go on", "answered": node_id, **columns}
    return world.node(node_id, "s", parent="root", step=step, selected_step=step - 1, **columns)


def examples(world: World, view: str = "value_examples") -> dict[str, Row]:
    pass_over(world.save())
    assert_views_equal_the_oracle(world, read_view_settings())
    return {row["node_id" if view == "value_examples" else "leaf_id"]: row for row in rows_at(world.tables, view)}


def state_at(world: World, node_id: str) -> Row:
    """What the search knew when the parent of a leaf was chosen."""
    state: Row = examples(world, "sft_trajectories")[node_id]["states"][-1]
    return state


def test_a_field_that_was_cleared_reads_as_unknown_and_not_as_its_old_value(world: World) -> None:
    """arg_max skips NULLs: set, cleared, read after."""
    world.change("s", "root", "visits", 0, 7).change("s", "root", "reward", 0, 0.5)
    world.change("s", "root", "visits", 2, None).change("s", "root", "reward", 2, None)
    child(child(child(world, "before", 1), "at", 3), "after", 5)
    rows = examples(world)
    assert [rows[node]["parent_visits"] for node in ("before", "at", "after")] == [7, None, None]
    assert [rows[node]["parent_reward"] for node in ("before", "at", "after")] == [0.5, None, None]
    assert [state_at(world, node)["visits"] for node in ("before", "at", "after")] == [7, None, None]
    world.change("s", "root", "visits", 4, 9)
    assert [examples(world)[node]["parent_visits"] for node in ("before", "at", "after")] == [7, None, 9]


def test_six_rows_with_nulls_among_them_give_each_node_the_last_that_it_may_see(world: World) -> None:
    """duckdb#18303 and seven others: an ASOF join that dropped or added rows with NULLs, filters and OR."""
    log = [(0, 0, 1), (1, 1, None), (2, 2, 3), (2, 4, 4), (3, 3, None), (5, 5, 6)]
    for n, (step, recorded, value) in enumerate(log):
        world.change("s", "root", "visits", step, value, recorded_step=recorded, n=n)
    for step in range(1, 7):
        child(world, f"n{step}", step)
    rows = examples(world)
    assert len(rows) == 7, "no node is lost, and none stands twice"
    assert [rows[f"n{step}"]["parent_visits"] for step in range(1, 7)] == [None, 3, None, None, 6, 6]


def test_no_row_of_the_log_at_all_is_unknown_and_loses_no_node(world: World) -> None:
    child(world, "a", 1)
    rows = examples(world)
    assert set(rows) == {"root", "a"}
    assert (rows["a"]["parent_visits"], rows["a"]["parent_reward"], rows["a"]["best_so_far"]) == (None, None, None)


def test_a_correction_that_was_written_late_and_dated_early_does_not_reach_earlier_nodes(world: World) -> None:
    """feast#6615: dated step 3, written at step 9; the node at step 5 must not see it."""
    world.change("s", "root", "reward", 0, 0.5).change("s", "root", "total_reward", 0, 0.5)
    child(child(world, "n5", 5), "n10", 10)
    before = examples(world)["n5"]
    world.change("s", "root", "reward", 3, 100.0, recorded_step=9)
    world.change("s", "root", "total_reward", 3, 100.0, recorded_step=9)
    world.change("s", None, "best_so_far", 3, 100.0, recorded_step=9)
    rows = examples(world)
    assert rows["n5"] == before
    assert (rows["n10"]["parent_reward"], rows["n10"]["best_so_far"]) == (100.0, 100.0)
    assert state_at(world, "n5")["best_so_far"] is None


def test_a_label_takes_the_correction_and_the_features_beside_it_do_not(world: World) -> None:
    world.change("s", "root", "reward", 0, 0.5)
    child(child(world, "n5", 5), "n6", 6)
    examples(world)
    world.node("root", "s", fitness=7.0)
    world.change("s", "root", "reward", 0, 7.0, recorded_step=9)
    rows = examples(world)
    assert (rows["n5"]["parent_reward"], rows["root"]["fitness"], rows["root"]["gain"]) == (0.5, 7.0, -6.0)


def test_nodes_of_one_task_and_step_keep_a_row_and_a_label_each(world: World) -> None:
    """feast#6787, #5590: rows that share key and time were merged."""
    for node_id, fitness in (("a", 1.0), ("b", 2.0), ("c", 2.0)):
        child(world, node_id, 3, fitness=fitness)
    world.session("s2").node("d", "s2", step=3, fitness=5.0, asked="go on", answered="d")
    rows = examples(world)
    assert {node: row["fitness"] for node, row in rows.items()} == {"root": 0.0, "a": 1.0, "b": 2.0, "c": 2.0, "d": 5.0}
    assert [rows[node]["num_siblings_before"] for node in ("a", "b", "c")] == [0, 0, 0]


def test_rows_of_equal_clocks_are_taken_in_the_order_of_the_log(world: World) -> None:
    for n, value in enumerate((3, 1, 2)):
        world.change("s", "root", "visits", 0, value, n=n)
    child(world, "a", 1)
    assert examples(world)["a"]["parent_visits"] == 2
    assert state_at(world, "a")["visits"] == 2


def test_a_node_sees_what_was_written_at_its_own_step_and_its_choice_only_what_came_before(world: World) -> None:
    world.change("s", "root", "visits", 3, 1).change("s", "root", "visits", 4, 2)
    child(world, "a", 4)
    assert examples(world)["a"]["parent_visits"] == 2
    assert state_at(world, "a")["visits"] == 1


def test_the_views_and_an_as_of_read_tell_the_same_of_a_log_with_a_cleared_and_a_late_row(home: Home) -> None:
    world = World(home).task("t").session("s").node("root", "s", fitness=0.0, ancestors=[])
    world.change("s", "root", "visits", 0, 1).change("s", "root", "visits", 2, None)
    world.change("s", "root", "visits", 1, 8, recorded_step=4)
    for step in range(1, 6):
        world.node(f"n{step}", "s", parent="root", step=step, fitness=1.0, ancestors=["root"])
    rows = examples(world)
    told = [as_of(home, f"n{step}").ancestors[0].fields.get("visits") for step in range(1, 6)]
    assert [rows[f"n{step}"]["parent_visits"] for step in range(1, 6)] == told == [1, None, None, None, None]

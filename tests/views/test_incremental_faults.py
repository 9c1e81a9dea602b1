"""Faults that people have met in incrementally maintained views, each as what must hold here."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

from memory_tables import MemoryTables
from oracle_walks import Row
from store.home import Home, open_home
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle, pass_over, rows_at
from views.refresh import RefreshResult, refresh
from views.registry import VIEW_ORDER, declare_views
from views.settings import read_view_settings
from world import World


@pytest.fixture
def world(home: Home, tmp_path: Path) -> World:
    """A task with one session, in memory."""
    return World(home, tables=MemoryTables(home, tmp_path)).task("t").session("s")


def refreshed(world: World) -> dict[str, RefreshResult]:
    """Save and refresh; what is there then is right by the oracle."""
    results = pass_over(world.save())
    assert_views_equal_the_oracle(world, read_view_settings())
    return results


def rows(world: World, view: str) -> list[Row]:
    return rows_at(world.tables, view)


def siblings(world: World, rewards: dict[str, float | None], **columns: Any) -> World:
    """Children of one parent, asked the same, each with an answer of its own."""
    for node_id, reward in rewards.items():
        world.node(node_id, "s", parent="root", asked="q", answered=f"answer {node_id}", fitness=reward, **columns)
    return world


def pairs(world: World) -> list[tuple[str, str]]:
    return sorted((row["chosen_id"], row["rejected_id"]) for row in rows(world, "dpo_pairs"))


def members(world: World) -> list[str]:
    return sorted(row["node_id"] for row in rows(world, "grpo_cohorts"))


def test_a_row_whose_key_columns_are_null_is_changed_and_not_kept_beside_the_new_one(world: World) -> None:
    """pgsql-ivm#31, swanhart-tools#157: bars of an unknown environment and basis; a retracted node without a parent."""
    world.node("a", "s", fitness=1.0, fitness_basis=None, asked="q", answered="A")
    world.node("b", "s", fitness=2.0, fitness_basis=None, asked="q", answered="B")
    refreshed(world)
    assert [(row["bar"], row["num_nodes"]) for row in rows(world, "task_bars")] == [(2.0, 2)]
    world.retract("node", "b", kind="invalidate")
    results = refreshed(world)
    assert [(row["bar"], row["num_nodes"]) for row in rows(world, "task_bars")] == [(1.0, 1)]
    assert (results["task_bars"].inserted, results["task_bars"].updated, results["task_bars"].deleted) == (0, 1, 0)
    assert (pairs(world), [row["leaf_id"] for row in rows(world, "sft_trajectories")]) == ([], ["a"])


def test_a_group_whose_last_member_is_retracted_is_gone_and_comes_back_with_it(world: World) -> None:
    """pgsql-ivm PR 90."""
    siblings(world, {"a": 1.0, "b": 2.0})
    refreshed(world)
    assert (members(world), len(rows(world, "task_bars"))) == (["a", "b"], 1)
    first, second = world.retract("node", "a", kind="invalidate"), world.retract("node", "b", kind="invalidate")
    refreshed(world)
    assert [len(rows(world, view)) for view in ("grpo_cohorts", "cohorts", "task_bars", "task_scores")] == [0, 0, 0, 0]
    world.reinstate(first)
    refreshed(world)
    assert (members(world), [row["num_nodes"] for row in rows(world, "task_bars")]) == ([], [1])
    world.reinstate(second)
    refreshed(world)
    assert members(world) == ["a", "b"]


def test_two_siblings_that_come_in_one_batch_make_one_pair_once(world: World) -> None:
    """pg_ivm PR 121: a self-join of which both sides change."""
    world.node("root", "s", fitness=0.0)
    refreshed(world)
    results = refreshed(siblings(world, {"a": 1.0, "b": 2.0}))
    assert (pairs(world), results["dpo_pairs"].inserted) == ([("b", "a")], 1)
    siblings(world, {"a": 3.0, "b": 2.5})
    results = refreshed(world)
    assert (pairs(world), results["dpo_pairs"].inserted, results["dpo_pairs"].deleted) == ([("a", "b")], 1, 1)


def test_of_two_equal_nodes_one_is_retracted_and_the_other_stays(world: World) -> None:
    """hive PR 5053: deletes where rows have no key."""
    world.node("root", "s", fitness=0.0)
    for node_id in ("a", "b"):
        world.node(node_id, "s", parent="root", step=1, asked="q", answered="same", fitness=1.0)
    refreshed(siblings(world, {"c": 0.5}))
    assert (pairs(world), members(world)) == ([("a", "c"), ("b", "c")], ["a", "b", "c"])
    world.retract("node", "a", kind="invalidate")
    refreshed(world)
    assert (pairs(world), members(world)) == ([("b", "c")], ["b", "c"])
    assert [row["leaf_id"] for row in rows(world, "sft_trajectories")] == ["b"]


def test_what_is_retracted_and_reinstated_is_every_row_as_it_was(world: World) -> None:
    """turso PR 3601: a key that is deleted and inserted again loses its group; also within one refresh."""
    siblings(world, {"a": 1.0, "b": 2.0, "c": 2.0})
    refreshed(world)
    before = {view: rows(world, view) for view in VIEW_ORDER}
    retraction = world.retract("subtree", "b")
    refreshed(world)
    assert members(world) == ["a", "c"]
    world.reinstate(retraction)
    refreshed(world)
    key = str
    assert {view: sorted(rows(world, view), key=key) for view in VIEW_ORDER} == {
        view: sorted(there, key=key) for view, there in before.items()
    }
    world.reinstate(world.retract("node", "b"))
    results = refreshed(world)
    assert {(result.inserted, result.updated, result.deleted) for result in results.values()} == {(0, 0, 0)}


def test_as_a_score_rises_no_old_best_stays_anywhere(world: World) -> None:
    """risingwave#23857: best-so-far per task, three rising rewards."""
    world.node("root", "s", fitness=0.0)
    for number, fitness in enumerate((1.0, 2.0, 3.0)):
        world.node(f"n{number}", "s", parent="root", fitness=fitness, asked="q", answered=f"answer {number}")
        refreshed(world)
        (bar,) = rows(world, "task_bars")
        assert (bar["bar"], bar["num_nodes"]) == (fitness, number + 2)
        assert [row["leaf_id"] for row in rows(world, "sft_trajectories")] == [f"n{number}"]
        (root,) = [row for row in rows(world, "value_examples") if row["node_id"] == "root"]
        assert (root["gain"], root["best_descendant_id"]) == (fitness, f"n{number}")
    world.retract("node", "n2", kind="invalidate")
    refreshed(world)
    assert [row["leaf_id"] for row in rows(world, "sft_trajectories")] == ["n1"]


def test_the_same_tables_give_the_same_rows_whenever_and_however_often_they_are_computed(home: Home) -> None:
    """trino#28696: a view with now() mixes old and new values; no view here can ask for a time or a random number."""
    world = siblings(World(home).task("t").session("s").node("root", "s", fitness=0.0), {"a": 1.0, "b": 2.0}).save()
    refresh(home)
    declare_views(world.tables)
    before = {view: rows(world, view) for view in VIEW_ORDER}
    results = refresh(home, full=True)
    assert {result.mode for result in results.values()} == {"full"}
    assert {(result.inserted, result.updated, result.deleted) for result in results.values()} == {(0, 0, 0)}
    assert {view: rows(world, view) for view in VIEW_ORDER} == before


def test_a_view_that_stands_on_views_is_never_refreshed_before_them(home: Home) -> None:
    """starrocks#14704: asked for alone, it brings what it stands on along."""
    world = siblings(World(home).task("t").session("s").node("root", "s", fitness=0.0), {"a": 1.0, "b": 2.0}).save()
    refresh(home)
    declare_views(world.tables)
    world.retract("node", "a", kind="invalidate")
    siblings(world, {"c": 4.0}).save()
    assert list(refresh(home, ["grpo_cohorts"])) == [
        "crossing_edges",
        "node_tags",
        "node_reach",
        "cohorts",
        "grpo_cohorts",
    ]
    assert members(world) == ["b", "c"]
    assert [row["leaf_id"] for row in rows(world, "sft_trajectories")] == ["b"]  # it was not asked for
    refresh(home, ["sft_trajectories"])
    assert [row["leaf_id"] for row in rows(world, "sft_trajectories")] == ["c"]
    refresh(home)
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def test_a_node_that_comes_late_and_a_retraction_of_an_old_one_both_count(world: World) -> None:
    """dbt_jira#118, dbt-fabric#361: a cutoff at the newest time."""
    siblings(world, {f"n{number}": float(number) for number in range(6)})
    refreshed(world)
    siblings(world, {"late": 9.0}, step=0, selected_step=-1)
    refreshed(world)
    assert ("late", "n0") in pairs(world) and members(world)[0] == "late"
    world.retract("node", "n0", kind="invalidate")
    refreshed(world)
    assert "n0" not in {node for pair in pairs(world) for node in pair} | set(members(world))
    world.drop("nodes", "n1")
    for key in [key for key in world.rows["prompt_history"] if key[0] == "n1"]:
        world.drop("prompt_history", *key)
    refreshed(world)
    assert "n1" not in {node for pair in pairs(world) for node in pair} | set(members(world))


SHUFFLED = [0.1 * number + 1e-17 * number for number in range(16)]
NEARLY_EQUAL = [0.1 + 0.2, 0.3, 0.3, math.nextafter(0.3, 1.0)]


@pytest.mark.parametrize("rewards", [SHUFFLED, NEARLY_EQUAL, [0.7] * 5, [1e15, 1e15 + 1.0, -1e15]])
def test_a_cohorts_numbers_do_not_depend_on_the_order_of_its_rows(tmp_path: Path, rewards: list[float]) -> None:
    """std differs in its last bits with the order of rows: digests hold exact inputs, and no deviation is a NaN."""
    found: list[dict[str, Row]] = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        home = open_home(folder / "home")
        world = World(home, tables=MemoryTables(home, folder)).task("t").session("s")
        order = list(enumerate(rewards))
        random.Random(seed).shuffle(order)
        for number, reward in order:
            siblings(world, {f"n{number:02d}": reward}, step=0, selected_step=-1)
        refreshed(world)
        found.append({row["node_id"]: row for row in rows(world, "grpo_cohorts")})
    first = found[0]
    assert len(first) == len(rewards)
    for other in found[1:]:
        assert {key: row["row_digest"] for key, row in other.items()} == {
            key: row["row_digest"] for key, row in first.items()
        }
        for key, row in other.items():
            assert row["advantage"] == pytest.approx(first[key]["advantage"], rel=1e-9, abs=1e-9)
    assert all(math.isfinite(row["advantage"]) for row in first.values())
    if len(set(rewards)) == 1:
        assert {row["advantage"] for row in first.values()} == {0.0}


def test_a_cohort_in_which_one_row_moved_is_as_if_computed_afresh(world: World) -> None:
    """Sums that are added to and taken from drift; here the touched group is computed again, so nothing can."""
    siblings(world, {f"n{number}": 0.1 * number for number in range(8)})
    refreshed(world)
    for number in range(12):
        world.node(f"n{number % 8}", "s", fitness=0.1 * (number % 8) + 1e-9 * number)
        refreshed(world)
    assert_views_equal_a_recompute(world)


def test_only_visits_moving_rewrites_no_row_of_any_view(home: Home) -> None:
    """After every backpropagation along a path, with its change-log rows at a step that nobody was chosen at."""
    world = siblings(World(home).task("t").session("s").node("root", "s", fitness=0.0), {"a": 1.0, "b": 2.0}).save()
    refresh(home)
    declare_views(world.tables)
    before = {view: world.tables.data_version(view) for view in VIEW_ORDER}
    for step in range(5, 8):
        for node_id in ("root", "a"):
            world.node(node_id, "s", visits=step, total_reward=0.5 * step)
            world.change("s", node_id, "visits", step, step)
            world.change("s", node_id, "total_reward", step, 0.5 * step)
        world.save()
        results = refresh(home)
        assert {(result.inserted, result.updated, result.deleted) for result in results.values()} == {(0, 0, 0)}
        assert "full" not in {result.mode for result in results.values()}
    assert {view: world.tables.data_version(view) for view in VIEW_ORDER} == before
    for view in VIEW_ORDER:
        version = before[view]
        assert world.tables.changes(view, start=version + 1).num_rows == 0  # type: ignore[operator]
    assert_views_equal_the_oracle(world, read_view_settings())

"""Compaction and vacuum move no row: a refresh afterwards finds nothing to change and goes on from its feeds."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from store.compaction import compact_table
from store.home import open_home
from store.retention import vacuum_table
from store.storage_settings import StorageSettings, read_storage_settings
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle
from views.refresh import refresh
from views.registry import VIEW_ORDER, declare_views
from views.settings import read_view_settings
from world import World

NOTHING_LEFT = read_storage_settings().retention.with_days(0.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Sessions that came one by one, with a late node each, and views that were refreshed after each."""
    world = World(open_home(tmp_path / "home")).task("t")
    declare_views(world.tables)
    for number in range(4):
        add_session(world, f"s{number}")
        if number:
            add_late(world, "s0", f"late{number}")
        world.save()
        refresh(world.home)
    return world


def add_session(world: World, session: str) -> None:
    world.session(session).node(f"{session}-root", session, fitness=0.0)
    for place, fitness in enumerate((1.0, 2.0)):
        world.node(
            f"{session}-{place}", session, parent=f"{session}-root", fitness=fitness, asked="q", answered=f"a{place}"
        )


def add_late(world: World, session: str, node: str) -> None:
    world.node(node, session, parent=f"{session}-root", fitness=0.5, asked="q", answered=node)


def compact_all(world: World) -> set[str]:
    """Compact every table and view; returns those that were."""
    read = read_storage_settings()
    eager = read.model_copy(update={"compact_when": read.compact_when.model_copy(update={"small_files": 1})})
    assert isinstance(eager, StorageSettings)
    names = [name for name in world.tables.names() if world.tables.exists(name)]
    results = {name: compact_table(world.tables, name, eager) for name in names}
    return {name for name, result in results.items() if result.version is not None}


def vacuum_all(world: World, *, force: bool = False) -> dict[str, int]:
    now = datetime.now(UTC) + timedelta(days=1)
    names = [name for name in world.tables.names() if world.tables.exists(name)]
    return {name: vacuum_table(world.tables, name, NOTHING_LEFT, now=now, force=force).removed_files for name in names}


def assert_right(world: World) -> None:
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def data_versions(world: World) -> dict[str, int | None]:
    return {name: world.tables.data_version(name) for name in world.tables.names()}


def test_a_refresh_after_inputs_and_views_were_compacted_changes_no_row(world: World) -> None:
    before = data_versions(world)
    assert {"nodes", "prompt_history", "node_edges", "dpo_pairs", "sft_trajectories"} <= compact_all(world)
    results = refresh(world.home)
    assert {(result.inserted, result.updated, result.deleted) for result in results.values()} == {(0, 0, 0)}
    assert {result.mode for result in results.values()} <= {"none", "incremental"}
    assert data_versions(world) == before
    assert {result.mode for result in refresh(world.home).values()} == {"none"}
    assert_right(world)


def test_views_alone_compacted_are_found_unchanged(world: World) -> None:
    read = read_storage_settings()
    eager = read.model_copy(update={"compact_when": read.compact_when.model_copy(update={"small_files": 1})})
    assert compact_table(world.tables, "dpo_pairs", eager).version is not None
    said = world.tables.metadata("dpo_pairs")
    results = refresh(world.home)
    assert {result.mode for result in results.values()} == {"none"}
    assert world.tables.metadata("dpo_pairs") == said


def test_what_comes_after_a_compaction_is_refreshed_from_the_feed(world: World) -> None:
    compact_all(world)
    add_late(world, "s1", "later")
    world.save()
    results = refresh(world.home)
    assert (results["dpo_pairs"].mode, results["dpo_pairs"].inserted) == ("incremental", 2)
    assert results["dpo_pairs"].reason.startswith("1 session touched (")
    assert_right(world)


def test_a_view_that_lags_behind_a_compaction_and_a_vacuum_goes_on_from_its_feed(world: World) -> None:
    add_late(world, "s2", "unseen")
    world.save()
    compact_all(world)
    assert sum(vacuum_all(world).values()) > 0
    results = refresh(world.home)
    assert {result.mode for result in results.values()} == {"incremental"}
    assert results["dpo_pairs"].inserted == 2
    assert_right(world)
    vacuum_all(world)
    assert {result.mode for result in refresh(world.home).values()} == {"none"}


def test_a_view_whose_feed_was_removed_by_force_is_computed_in_full_and_says_so(world: World) -> None:
    add_late(world, "s2", "unseen")
    world.save()
    compact_all(world)
    vacuum_all(world, force=True)
    results = refresh(world.home)
    assert results["dpo_pairs"].mode == "full"
    assert results["dpo_pairs"].reason.startswith("a feed cannot be read: change feed of nodes from version ")
    assert results["dpo_pairs"].inserted == 2
    assert_right(world)


def test_compaction_between_any_two_steps_of_a_history_changes_nothing(world: World) -> None:
    retraction = None
    for step in range(4):
        if step == 0:
            retraction = world.retract("node", "s0-1")
        if step == 1:
            world.node("s1-0", "s1", fitness=9.0)
        if step == 2:
            add_session(world, "s9")
        if step == 3:
            assert retraction is not None
            world.reinstate(retraction)
        world.save()
        compact_all(world)
        refresh(world.home)
        compact_all(world)
        vacuum_all(world)
        assert_right(world)
    assert set(VIEW_ORDER) <= set(world.tables.names())

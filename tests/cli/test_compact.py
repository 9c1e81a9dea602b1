"""`compact`: files before and after per table, what a vacuum removed, and what it says before it breaks anything."""

from collections.abc import Callable
from typing import Any

import pytest

from store.home import Home
from views.refresh import refresh
from views.registry import declare_views
from world import World

Espalier = Callable[..., Any]


@pytest.fixture
def world(home: Home) -> World:
    """Six sessions, each ingested by itself, and views that have read all of them."""
    world = World(home).task("t")
    declare_views(world.tables)
    for number in range(6):
        world.pair(f"s{number}").save()
    refresh(home)
    return world


def test_it_says_files_before_and_after_for_every_table(world: World, espalier: Espalier) -> None:
    tables = espalier("compact", "--json").json["tables"]
    assert set(tables) == {name for name in world.tables.names() if world.tables.exists(name)}
    assert (tables["nodes"]["files_before"], tables["nodes"]["files_after"]) == (6, 1)
    assert tables["nodes"]["version"] == world.tables.version("nodes")
    assert (tables["tasks"]["files_before"], tables["tasks"]["version"]) == (1, None)
    again = espalier("compact", "--json").json["tables"]
    assert {table["version"] for table in again.values()} == {None}
    assert again["nodes"]["files_before"] == again["nodes"]["files_after"] == 1


def test_named_tables_alone_are_compacted(world: World, espalier: Espalier) -> None:
    before = world.tables.version("sessions")
    shown = espalier("compact", "nodes")
    assert (shown.code, shown.err) == (0, "")
    assert "6 small files (at most 4)" in shown.out
    assert world.tables.version("sessions") == before
    assert len(world.tables.files("nodes")) == 1


def test_a_dry_run_changes_nothing(world: World, espalier: Espalier) -> None:
    before = {name: world.tables.version(name) for name in world.tables.names()}
    tables = espalier("compact", "--vacuum", "--keep-days", "0", "--dry-run", "--json").json["tables"]
    assert tables["nodes"]["reason"] == "6 small files (at most 4)"
    assert {name: world.tables.version(name) for name in world.tables.names()} == before
    assert len(world.tables.files("nodes")) == 6


def test_a_vacuum_keeps_what_a_view_has_not_read_and_by_force_says_what_breaks(
    world: World, espalier: Espalier
) -> None:
    seen = world.tables.version("nodes")
    kept = espalier("compact", "nodes", "--vacuum", "--keep-days", "0", "--json").json["tables"]["nodes"]
    assert (kept["removed_files"], kept["kept_from"], kept["breaks"]) == (0, seen, [])
    assert kept["kept_for"] == f"cohorts has read it up to version {seen}"
    world.node("s0-1", "s0", fitness=9.0).save()
    world.node("s0-1", "s0", fitness=8.0).save()
    gone = espalier("compact", "nodes", "--vacuum", "--keep-days", "0", "--force")
    assert f"nodes: dpo_pairs has read nodes up to version {seen} and will be computed in full\n" in gone.out
    error = espalier("query", "select * from nodes", "--as-of-version", f"nodes={seen}").error_line
    assert error.startswith(f"VersionGone: nodes@{seen} lost 6 of its 6 files; versions that can be read: 0, ")
    assert refresh(world.home)["dpo_pairs"].mode == "full"


def test_the_days_of_the_settings_keep_all_that_is_young(world: World, espalier: Espalier) -> None:
    tables = espalier("compact", "--vacuum", "--json").json["tables"]
    assert {table["removed_files"] for table in tables.values()} == {0}
    assert {table["kept_for"] for table in tables.values()} == {"time travel of 7 days"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nodez",), "UnknownName: no table or view 'nodez'; there are "),
        (("runs",), "UnknownName: table runs is empty so far"),
        (("--force",), "WrongUse: --force says what a vacuum removes; give --vacuum with it."),
        (("--keep-days", "3"), "WrongUse: --keep-days says what a vacuum removes; give --vacuum with it."),
        (("--vacuum", "--keep-days", "-1"), "WrongUse: "),
        (("--vacuum", "--keep-days", "nan"), "WrongUse: "),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(
    world: World, espalier: Espalier, arguments: tuple[str, ...], error: str
) -> None:
    before = world.tables.version("nodes")
    answer = espalier("compact", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.error_line.startswith(error)
    assert world.tables.version("nodes") == before

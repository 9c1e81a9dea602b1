"""What somebody else does to tables and files is noticed: commits, copies put back, files that come late."""

import copy
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from store.artifacts import artifact_path, store_artifact
from store.errors import RefusedInFull, WrongUse
from store.home import open_home
from store.schema import TableSchema
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle
from views import definition, registry
from views.refresh import APPLICATION, refresh
from views.settings import read_view_settings
from world import World

ADDING_A_VIEW = Path(__file__).resolve().parents[2] / "docs" / "views" / "adding_a_view.md"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A root and two answers to one prompt, refreshed."""
    world = World(open_home(tmp_path / "home")).task("t").pair("s").save()
    refresh(world.home)
    registry.declare_views(world.tables)
    return world


def assert_right(world: World) -> None:
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def test_a_commit_on_a_view_that_says_nothing_of_ours_costs_a_recompute_and_its_number_is_not_used_again(
    world: World,
) -> None:
    world.node("late", "s", parent="s-root", fitness=3.0, asked="q", answered="late").save()
    assert refresh(world.home)["dpo_pairs"].mode == "incremental"
    world.tables.open("dpo_pairs").alter.set_table_properties({"delta.checkpointInterval": "50"})
    with pytest.raises(RefusedInFull, match="its last commit does not say what it stands for"):
        refresh(world.home, ["dpo_pairs"], strict=True)
    result = refresh(world.home)["dpo_pairs"]
    assert (result.mode, result.inserted, result.updated, result.deleted) == ("full", 0, 0, 0)
    assert world.tables.metadata("dpo_pairs")["refresh"] == 3
    assert world.tables.last_transaction("dpo_pairs", APPLICATION) == 3
    assert_right(world)


def test_an_input_put_back_from_a_copy_that_then_went_another_way_is_read_whole(world: World, tmp_path: Path) -> None:
    nodes = world.tables.path("nodes")
    shutil.copytree(nodes, tmp_path / "copy")
    before = copy.deepcopy((world.rows, world.written))
    world.node("s-0", "s", fitness=5.0).save()
    refresh(world.home)
    shutil.rmtree(nodes)
    shutil.copytree(tmp_path / "copy", nodes)
    world.rows, world.written = before
    for fitness in (1.5, 1.75):  # as many commits as were lost, and one
        world.node("s-1", "s", fitness=fitness).save()
    result = refresh(world.home)["task_scores"]
    assert result.mode == "full"
    assert result.reason == "nodes was replaced: its version 2 is another commit than the one that was seen"
    assert_right(world)


def test_a_copied_home_goes_on_from_its_feeds(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.home.path, tmp_path / "moved")
    assert {result.mode for result in refresh(open_home(tmp_path / "moved")).values()} == {"none"}


def test_texts_whose_files_come_later_are_read_then(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    texts = [f"x = {number}\n" * 4000 for number in range(2)]
    world = World(home).task("t").session("s")
    for number, text in enumerate(texts):
        _, digest = store_artifact(home, text)
        assert digest is not None
        world.node(f"n{number}", "s", fitness=float(number), asked="q", artifact_digest=digest)
        artifact_path(home, digest).rename(tmp_path / digest)
    world.save()
    assert refresh(home)["dpo_pairs"].rows == 0
    world.node("other", "s", fitness=0.5, asked="q", answered="short").save()
    assert refresh(home)["dpo_pairs"].mode == "incremental"
    assert {result.mode for result in refresh(home).values()} == {"none"}
    for number in range(2):
        digest = world.rows["nodes"][(f"n{number}",)]["artifact_digest"]
        (tmp_path / digest).rename(artifact_path(home, digest))
    result = refresh(home)["dpo_pairs"]
    assert (result.mode, result.reason) == ("full", "texts whose files were missing are there")
    assert result.rows == 3
    assert {result.mode for result in refresh(home).values()} == {"none"}


def test_two_tags_and_one_with_a_comma_are_not_the_same(world: World) -> None:
    world.tag("node", "s-1", "a").tag("node", "s-1", "b").save()
    refresh(world.home)
    world.tag("node", "s-1", "a", action="remove").tag("node", "s-1", "b", action="remove").tag(
        "node", "s-1", "a,b"
    ).save()
    refresh(world.home)
    assert {tuple(row["tags"]) for row in world.tables.read("dpo_pairs").to_pylist()} == {("a,b",)}
    assert_right(world)


def test_the_view_of_the_page_on_adding_one_is_followed_incrementally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(open_home(tmp_path / "home")).task("t").pair("s")
    world.node("bad", "s", parent="s-1", is_buggy=True, failure_class="syntax").save()
    add_view(tmp_path, monkeypatch)
    assert refresh(world.home)["failed_attempts"].reason == "first build"
    registry.declare_views(world.tables)
    world.node("worse", "s", parent="s-0", is_buggy=True).save()
    result = refresh(world.home)["failed_attempts"]
    assert (result.mode, result.inserted, result.updated, result.deleted) == ("incremental", 1, 0, 0)
    rows = {row["node_id"]: row for row in world.tables.read("failed_attempts").to_pylist()}
    assert {key: (row["failure_class"], row["parent_reward"]) for key, row in rows.items()} == {
        "bad": ("syntax", 2.0),
        "worse": (None, 1.0),
    }


def test_a_view_over_a_training_view_follows_its_feed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(open_home(tmp_path / "home")).task("t").pair("s").save()
    add_view(
        tmp_path,
        monkeypatch,
        sql="""-- failed_attempts: the pairs' rejected answers.
-- kind: view
-- grain: node_id
-- maintained by: session_seq
-- inputs: dpo_pairs
-- parameters: view_digest
select
    rejected_id as node_id,
    min(session_seq) as session_seq,
    cast(null as varchar) as failure_class,
    max(gap) as parent_reward,
    md5(concat_ws(chr(31), $view_digest, rejected_id, number_part(max(gap)))) as row_digest
from dpo_pairs
group by rejected_id
""",
    )
    assert refresh(world.home)["failed_attempts"].inserted == 1
    world.node("late", "s", parent="s-root", fitness=3.0, asked="q", answered="late").save()
    result = refresh(world.home)["failed_attempts"]
    assert (result.mode, result.inserted, result.updated) == ("incremental", 1, 1)


def test_a_view_over_rows_that_belong_to_no_session_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(open_home(tmp_path / "home")).task("t").pair("s")
    world.retract("node", "s-0")
    world.save()
    add_view(
        tmp_path,
        monkeypatch,
        sql="""-- failed_attempts: what was retracted.
-- kind: view
-- grain: node_id
-- maintained by: session_seq
-- inputs: retractions
-- parameters: view_digest
select
    scope_id as node_id,
    cast(1 as bigint) as session_seq,
    cast(null as varchar) as failure_class,
    cast(null as double) as parent_reward,
    md5(concat_ws(chr(31), $view_digest, scope_id)) as row_digest
from retractions
""",
    )
    refresh(world.home)
    world.retract("node", "s-1")
    world.save()
    with pytest.raises(WrongUse, match="reads retractions, whose rows belong to no session"):
        refresh(world.home)


def add_view(folder: Path, monkeypatch: pytest.MonkeyPatch, *, sql: str | None = None) -> None:
    """Let the page's view be one of the views, or another select with its columns."""
    page = ADDING_A_VIEW.read_text(encoding="utf-8")
    (text,), (schema,) = (re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S) for kind in ("sql", "python"))
    known: dict[str, Any] = {}
    exec("from views.registry import *\nfrom views.registry import _relation\n" + schema, known)
    declared: TableSchema = known["FAILED_ATTEMPTS"]
    shutil.copytree(definition.SQL_FOLDER, folder / "sql")
    (folder / "sql" / "failed_attempts.sql").write_text(sql or text, encoding="utf-8")
    monkeypatch.setattr(definition, "SQL_FOLDER", folder / "sql")
    monkeypatch.setitem(registry.SCHEMAS, "failed_attempts", declared)
    monkeypatch.setattr("views.refresh.VIEW_ORDER", tuple(registry.SCHEMAS))
    for kept in ("load_definition", "staging_order", "table_inputs", "columns_read", "reads_artifacts"):
        getattr(definition, kept).cache_clear()

"""A refresh over real Delta tables: what it commits, what it leaves alone, what happens when it is disturbed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from memory_tables import MemoryTables
from store.commits import commit_properties
from store.delta import CHANGE, Commit, Tables
from store.errors import UnknownName
from store.home import Home, open_home
from store.settings import CONF
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle, pass_over
from views.explain import explain
from views.refresh import APPLICATION, refresh, with_inputs
from views.registry import TRAINING_VIEWS, VIEW_ORDER, declare_views
from views.settings import read_view_settings
from world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A root with two children of one prompt and a grandchild, saved in real tables."""
    return grown(World(open_home(tmp_path / "home"))).save()


def grown(world: World) -> World:
    declare_views(world.tables)
    world.task("t").session("s")
    world.node("root", "s", fitness=0.0)
    world.node("a", "s", parent="root", fitness=1.0, asked="faster", answered="block 64")
    world.node("b", "s", parent="root", fitness=0.5, asked="faster", answered="block 32")
    world.node("c", "s", parent="a", fitness=2.0, asked="more", answered="warps 8")
    return world.tag("session", "s", "internal")


def versions(world: World) -> dict[str, int | None]:
    return {name: world.tables.version(name) for name in VIEW_ORDER}


def assert_right(world: World) -> None:
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def test_a_view_whose_columns_changed_is_built_anew_and_older_versions_keep_theirs(world: World) -> None:
    refresh(world.home)
    metadata = world.tables.metadata("cohorts")
    version = world.tables.version("cohorts")
    narrower = world.tables.read("cohorts").drop_columns(["verifier"])
    write_deltalake(
        world.tables.open("cohorts"),
        narrower,
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=commit_properties(metadata, version + 1),
    )
    refreshed = refresh(world.home)
    assert (refreshed["cohorts"].mode, refreshed["cohorts"].reason) == ("full", "its columns changed")
    assert (refreshed["grpo_cohorts"].inserted, refreshed["grpo_cohorts"].deleted) == (0, 0)
    assert_right(world)
    assert {result.mode for result in refresh(world.home).values()} == {"none"}
    assert "verifier" not in str(world.tables.open("cohorts", version=version + 1).schema())


def test_a_first_refresh_builds_every_view_in_full_and_a_second_commits_nothing(world: World) -> None:
    first = refresh(world.home)
    assert {result.mode for result in first.values()} == {"full"}
    assert {result.reason for result in first.values()} == {"first build"}
    assert {name: first[name].rows for name in TRAINING_VIEWS} == {
        "sft_trajectories": 1,
        "dpo_pairs": 1,
        "grpo_cohorts": 2,
        "value_examples": 4,
    }
    assert_right(world)
    before = versions(world)
    second = refresh(world.home)
    assert {(result.mode, result.reason) for result in second.values()} == {("none", "inputs unchanged")}
    assert versions(world) == before


def test_every_commit_says_what_it_stands_for(world: World) -> None:
    refresh(world.home)
    world.node("d", "s", parent="root", fitness=3.0, asked="faster", answered="block 128").save()
    result = refresh(world.home)["dpo_pairs"]
    assert (result.mode, result.inserted, result.updated, result.deleted) == ("incremental", 2, 0, 0)
    said = world.tables.metadata("dpo_pairs")
    assert said["watermarks"] == {
        name: world.tables.version(name)
        for name in ("crossing_edges", "node_reach", "node_tags", "nodes", "prompt_history", "tasks")
    }
    assert (said["mode"], said["refresh"], said["data_version"]) == ("incremental", 2, result.version)
    assert said["reason"].startswith("1 session touched (")
    assert world.tables.open("dpo_pairs").transaction_version(APPLICATION) == 2


def test_inputs_that_moved_without_moving_a_row_leave_an_empty_commit(world: World) -> None:
    refresh(world.home)
    before = {name: world.tables.data_version(name) for name in VIEW_ORDER}
    world.node("root", "s", visits=7).save()  # backpropagation: no row of any view depends on it
    results = refresh(world.home)
    assert [(result.inserted, result.updated, result.deleted) for result in results.values()] == [(0, 0, 0)] * len(
        VIEW_ORDER
    )
    assert {name: world.tables.data_version(name) for name in VIEW_ORDER} == before
    assert world.tables.metadata("dpo_pairs")["watermarks"]["nodes"] == world.tables.version("nodes")
    feed = world.tables.changes("dpo_pairs", start=2)
    assert feed.num_rows == 0
    assert {result.mode for result in refresh(world.home).values()} == {"none"}


def test_a_correction_rewrites_only_the_rows_it_moves(world: World) -> None:
    refresh(world.home)
    world.node("e", "s", parent="c", fitness=-1.0, asked="other", answered="x")
    world.node("f", "s", parent="c", fitness=-2.0, asked="other", answered="y").save()
    refresh(world.home)
    world.node("b", "s", fitness=0.25).save()
    results = refresh(world.home)
    assert (results["dpo_pairs"].updated, results["dpo_pairs"].rows) == (1, 2)
    assert (results["grpo_cohorts"].updated, results["grpo_cohorts"].rows) == (2, 4)
    assert_right(world)


def test_a_views_feed_replays_to_its_rows_at_every_version(world: World) -> None:
    refresh(world.home)
    world.node("d", "s", parent="root", fitness=3.0, asked="faster", answered="block 128").save()
    refresh(world.home)
    world.retract("node", "b")
    world.save()
    refresh(world.home)
    replayed: dict[tuple[str, str], str] = {}
    latest = world.tables.version("dpo_pairs")
    assert latest is not None
    for version in range(latest + 1):
        for row in world.tables.changes("dpo_pairs", start=version, end=version).to_pylist():
            key = (row["chosen_id"], row["rejected_id"])
            if row["_change_type"] in ("delete", "update_preimage"):
                assert replayed.pop(key) == row["row_digest"]
            else:
                replayed[key] = row["row_digest"]
        rows = world.tables.read("dpo_pairs", version=version).to_pylist()
        assert replayed == {(row["chosen_id"], row["rejected_id"]): row["row_digest"] for row in rows}


def test_a_changed_parameter_rebuilds_the_views_that_use_it_and_no_other(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh(world.home)
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    text = (conf / "views.yaml").read_text(encoding="utf-8")
    (conf / "views.yaml").write_text(text.replace("pair_margin: 0.0", "pair_margin: 0.75"), encoding="utf-8")
    monkeypatch.setenv("ESPALIER_CONF", str(conf))
    results = refresh(world.home)
    assert (results["dpo_pairs"].mode, results["dpo_pairs"].reason) == ("full", "its definition or parameters changed")
    assert results["dpo_pairs"].deleted == 1
    assert {result.mode for name, result in results.items() if name != "dpo_pairs"} == {"none"}


def test_a_vacuumed_feed_is_answered_in_full_and_said(world: World) -> None:
    refresh(world.home)
    world.node("b", "s", fitness=0.25).save()
    world.node("b", "s", fitness=0.75).save()
    world.tables.open("nodes").vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    result = refresh(world.home)["dpo_pairs"]
    assert result.mode == "full" and "change feed of nodes" in result.reason
    assert_right(world)


def test_a_replaced_input_is_answered_in_full(world: World) -> None:
    refresh(world.home)
    for number in range(3):
        world.node("b", "s", fitness=0.1 * number).save()
        refresh(world.home)
    shutil.rmtree(world.tables.path("nodes"))
    world.written["nodes"] = {}
    world.save("nodes")
    result = refresh(world.home)["dpo_pairs"]
    assert result.mode == "full" and result.reason.startswith("nodes was replaced")
    assert_right(world)


def test_an_input_replaced_by_a_table_of_as_many_commits_is_noticed(world: World) -> None:
    world.node("b", "s", fitness=0.75).save()
    refresh(world.home)
    seen = world.tables.version("nodes")
    shutil.rmtree(world.tables.path("nodes"))
    world.written["nodes"] = {}
    world.node("b", "s", fitness=0.5).save("nodes")
    world.node("b", "s", fitness=0.25).save("nodes")
    assert world.tables.version("nodes") == seen
    result = refresh(world.home)["dpo_pairs"]
    assert (result.mode, result.reason) == (
        "full",
        "nodes was replaced: it is another table than the one that was seen",
    )
    assert_right(world)


def test_in_full_by_wish_leaves_equal_rows_alone(world: World) -> None:
    refresh(world.home)
    results = refresh(world.home, ["dpo_pairs"], full=True)
    assert list(results) == ["crossing_edges", "node_tags", "node_reach", "dpo_pairs"]
    assert (results["dpo_pairs"].mode, results["dpo_pairs"].reason) == ("full", "asked for in full")
    assert (results["dpo_pairs"].inserted, results["dpo_pairs"].updated, results["dpo_pairs"].deleted) == (0, 0, 0)
    assert results["node_tags"].mode == "none"


def test_views_refresh_after_what_they_stand_on() -> None:
    assert with_inputs(["grpo_cohorts"]) == ["crossing_edges", "node_tags", "node_reach", "cohorts", "grpo_cohorts"]
    assert with_inputs(None) == list(VIEW_ORDER)
    with pytest.raises(UnknownName, match="no view 'pairs' to refresh; there are crossing_edges"):
        with_inputs(["pairs"])


def test_of_two_refreshes_at_once_one_plans_again_and_no_row_is_doubled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh(world.home)
    world.node("d", "s", parent="root", fitness=3.0, asked="faster", answered="block 128").save()
    commit_rows = Tables.commit_rows
    disturbed: list[str] = []

    def disturb(self: Tables, name: str, *arguments: Any, **options: Any) -> Commit:
        if name == "dpo_pairs" and not disturbed:
            disturbed.append(name)
            refresh(world.home)
        return commit_rows(self, name, *arguments, **options)

    monkeypatch.setattr(Tables, "commit_rows", disturb)
    results = refresh(world.home)
    assert disturbed == ["dpo_pairs"]
    assert results["dpo_pairs"].mode == "none"  # the other one had done it by then
    assert results["node_tags"].inserted == 1
    assert results["dpo_pairs"].rows == 3
    assert_right(world)


def test_explain_says_what_refresh_then_does(world: World) -> None:
    assert (explain(world.home, "dpo_pairs").mode, explain(world.home, "dpo_pairs").reason) == ("full", "first build")
    refresh(world.home)
    assert explain(world.home, "dpo_pairs").reason == "inputs unchanged"
    world.node("d", "s", parent="root", fitness=3.0, asked="faster", answered="block 128").save()
    before = versions(world)
    plan = explain(world.home, "dpo_pairs")
    assert (plan.mode, plan.changed_keys, plan.refreshed_first) == (
        "incremental",
        1,
        ("crossing_edges", "node_tags", "node_reach"),
    )
    assert plan.input_versions["nodes"] == world.tables.version("nodes")
    assert versions(world) == before
    assert refresh(world.home)["dpo_pairs"].mode == "incremental"


def test_nearly_everything_touched_in_a_big_table_is_cheaper_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_view_settings()
    settings = settings.model_copy(update={"cost": settings.cost.model_copy(update={"from_nodes": 4})})
    monkeypatch.setattr("views.refresh.read_view_settings", lambda: settings)
    home = open_home(tmp_path / "home")
    world = grown(World(home, tables=MemoryTables(home, tmp_path))).save()
    pass_over(world)
    world.node("b", "s", fitness=0.25).save()
    result = pass_over(world)["dpo_pairs"]
    assert (result.mode, result.reason[:52]) == ("full", "cheaper in full: about 4 of 4 nodes touched, 0.00 s ")


def test_long_artifacts_answer_where_no_turn_did(tmp_path: Path) -> None:
    home: Home = open_home(tmp_path / "home")
    from store.artifacts import store_artifact

    long_text = "x = 1\n" * 4000
    inline, digest = store_artifact(home, long_text)
    assert inline is None
    world = World(home).task("t").session("s")
    world.node("a", "s", fitness=2.0, asked="q", artifact_digest=digest)
    world.node("b", "s", fitness=1.0, asked="q", answered="short").save()
    refresh(home)
    declare_views(world.tables)
    (row,) = world.tables.read("dpo_pairs").to_pylist()
    assert row["chosen"][0]["content"] == long_text


def test_a_commit_without_rows_is_still_a_commit(world: World) -> None:
    """delta-rs makes no commit for a delete that matches nothing; an empty refresh must not rest on one."""
    refresh(world.home)
    version = world.tables.version("dpo_pairs")
    assert version is not None
    empty = world.tables.read("dpo_pairs").slice(0, 0).append_column(CHANGE, [[]])
    assert world.tables.commit_rows("dpo_pairs", empty, planned_at=version).version == version + 1

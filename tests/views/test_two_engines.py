"""Spark and DuckDB maintain the same tables: equal rows, equal digests, and neither rewrites what the other wrote."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from dagster_project.resources import EngineResource, HomeResource
from dagster_project.views import training_views
from lineage.query import run_query
from store.commits import LostRace
from store.delta import Commit
from store.home import Home
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle, pass_over
from view_histories import draw_history
from views.definition import WALKED, view_digest
from views.engine import EVERYTHING, Scope
from views.refresh import APPLICATION, Chain, EngineName, RefreshResult
from views.registry import VIEW_ORDER, declare_views, view_schema
from views.settings import read_view_settings
from views.spark_engine import SparkEngine, Work, handed_over
from world import World, act

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A pass of Spark over all views takes tens of seconds where other work shares the cores.
pytestmark = pytest.mark.timeout(1200)
SQL_RELATIONS = [name for name in VIEW_ORDER if name not in WALKED]
UNCHANGED = {"inserted": 0, "updated": 0, "deleted": 0}


@pytest.fixture
def world(home: Home, spark: "SparkSession") -> World:
    """Two tasks, three sessions, one of which was shown a node of another; states, tags, odd texts and numbers."""
    world = World(home)
    declare_views(world.tables)
    world.task("t", domain="kernel").task("u").session("s", ucb_constant=1.4).session("s2").session("s3", "u")
    world.node("root", "s", fitness=0.0)
    world.node("a", "s", parent="root", fitness=1.0, asked="faster", answered="block 64\n\\d 'quoted' \U0001fae0")
    world.node("b", "s", parent="root", fitness=0.1 + 0.2, asked="faster", answered="block 32", shown=["x"])
    world.node("c", "s", parent="a", fitness=2.0, asked="more", answered="warps 8")
    world.node("x", "s2", fitness=1.0, asked="q", answered="r")
    world.node("y", "s2", parent="x", fitness=3.0, asked="q2", answered="r")
    world.node("z", "s3", fitness=1e-7)
    world.change("s", "root", "visits", 0, 3).change("s", "a", "total_reward", 1, 1e-05)
    world.change("s", None, "budget_left", 0, 1e16).change("s", "root", "island", 0, "north")
    return world.tag("session", "s", "internal").tag("node", "x", "pii").save()


def changed(world: World) -> World:
    """A better sibling, a corrected score, a withdrawn node, a moved baseline, a tag on what was shown."""
    world.node("d", "s", parent="root", fitness=3.0, asked="faster", answered="block 128")
    world.node("b", "s", fitness=0.75)
    world.retract("node", "y")
    world.task("u", domain="program", baseline_fitness=0.5, baseline_basis="reported")
    return world.tag("node", "x", "secret").save()


def spark_pass(world: World) -> dict[str, RefreshResult]:
    """One pass as `refresh --engine spark` does it."""
    chain = Chain(world.tables, VIEW_ORDER, "spark")
    try:
        return {name: chain.refresh(name) for name in VIEW_ORDER}
    finally:
        chain.close()


def counts(results: dict[str, RefreshResult], name: str) -> dict[str, int]:
    result = results[name]
    return {"inserted": result.inserted, "updated": result.updated, "deleted": result.deleted}


def assert_right(world: World) -> None:
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def test_spark_maintains_what_duckdb_built_in_one_commit_a_view(world: World) -> None:
    pass_over(world)
    assert {result.mode for result in spark_pass(world).values()} == {"none"}
    before = {name: world.tables.version(name) or 0 for name in VIEW_ORDER}
    changed(world)
    results = spark_pass(world)
    assert counts(results, "dpo_pairs")["inserted"] == 2
    for name in SQL_RELATIONS:
        version = before[name] + 1
        assert (results[name].mode, results[name].version) == ("incremental", version)
        metadata = world.tables.metadata(name)
        assert (metadata["mode"], metadata["engine"], metadata["refresh"]) == ("incremental", "spark", 2)
        assert metadata["data_version"] == (version if any(counts(results, name).values()) else before[name])
        kinds = [row["_change_type"] for row in world.tables.changes(name, start=version).to_pylist()]
        assert counts(results, name) == {
            "inserted": kinds.count("insert"),
            "updated": kinds.count("update_postimage"),
            "deleted": kinds.count("delete"),
        }
        actions = log(world, name, version)
        assert [action["txn"]["version"] for action in actions if "txn" in action] == [2]
        assert not [action for action in actions if "protocol" in action or "metaData" in action]
    assert_right(world)


def test_duckdb_maintains_what_spark_built(world: World) -> None:
    assert {result.reason for result in spark_pass(world).values()} == {"first build"}
    assert_right(world)
    protocols = {name: world.tables.open(name).protocol() for name in VIEW_ORDER}
    assert {(found.min_reader_version, found.min_writer_version) for found in protocols.values()} == {(1, 4)}
    assert {result.mode for result in pass_over(world).values()} == {"none"}
    changed(world)
    assert counts(pass_over(world), "dpo_pairs")["inserted"] == 2
    assert_right(world)


def test_the_asset_graph_refreshes_on_the_engine_it_is_given(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def materialized(chosen: str) -> list[Any]:
        assert dg.materialize(
            [training_views],
            selection=["task_scores"],
            resources={"home": HomeResource(path=str(world.home.path)), "engine": EngineResource(name=chosen)},
        ).success
        return [world.tables.version("task_scores"), world.tables.metadata("task_scores").get("engine")]

    monkeypatch.setenv("ESPALIER_ENGINE", "spark")
    assert materialized("") == [1, "spark"]
    world.node("d", "s", fitness=3.0).save()
    assert materialized("duckdb") == [2, "duckdb"]


def log(world: World, name: str, version: int) -> list[dict[str, Any]]:
    path = world.tables.path(name) / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def chain(world: World) -> Iterator[Chain]:
    """A chain over the world, built by DuckDB already."""
    pass_over(world)
    chain = Chain(world.tables, VIEW_ORDER, "spark")
    yield chain
    chain.close()


def commit(chain: Chain, name: str, **changes: Any) -> Commit:
    """Let Spark compute a view from all rows and commit, as a refresh does, but for what `changes` says."""
    state = chain.planner.state(name)
    assert state.version is not None
    number = int(state.metadata["refresh"]) + 1
    given = handed_over(chain.engine, name, EVERYTHING)
    digest = view_digest(name, chain.settings)
    work = Work(name, digest, state.version, {"refresh": number}, (APPLICATION, number), handed_over=given)
    with SparkEngine(chain.tables, chain.pins, chain.settings) as engine:
        return engine.refresh(replace(work, **changes))


def test_after_a_restore_both_engines_answer_alike_as_of_every_version(world: World) -> None:
    """duckdb-delta#227, #151."""
    changed(world)
    world.tables.open("nodes").restore(1)
    answers = [answers_of_both(world, "select node_id, fitness_text from nodes order by node_id", version)
               for version in range(1, (world.tables.version("nodes") or 0) + 1)]  # fmt: skip
    assert len(answers) == 3
    assert answers[0] == answers[2] != answers[1]


def test_a_moment_is_the_same_on_both_engines_wherever_they_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """duckdb-delta#38, delta-rs#2341, delta#1392."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        times = answers_of_both(world, "select recorded_at from tag_assignments order by recorded_at")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert times == sorted(({"recorded_at": row["recorded_at"]} for row in world.rows_of("tag_assignments")), key=str)


def answers_of_both(world: World, sql: str, nodes_version: int | None = None) -> list[dict[str, Any]]:
    """The rows that both engines give."""
    pinned = {} if nodes_version is None else {"nodes": nodes_version}
    engines: tuple[EngineName, ...] = ("duckdb", "spark")
    one, other = (run_query(world.home, sql, as_of_versions=pinned, engine=engine).to_pylist() for engine in engines)
    assert one == other
    return list(one)


def test_inputs_moved_and_rows_equal_is_an_empty_commit(world: World, chain: Chain) -> None:
    before = world.tables.version("cohorts")
    made = commit(chain, "cohorts")
    assert (made.version, made.inserted, made.updated, made.deleted) == ((before or 0) + 1, 0, 0, 0)
    assert world.tables.changes("cohorts", start=made.version).num_rows == 0
    assert world.tables.data_version("cohorts") == before
    assert not [action for action in log(world, "cohorts", made.version) if "remove" in action]


def test_other_columns_replace_every_row_in_one_commit(world: World, chain: Chain) -> None:
    rows = world.tables.read("cohorts")
    made = commit(chain, "cohorts", replaces_all=True)
    assert (made.inserted, made.deleted) == (rows.num_rows, rows.num_rows)
    assert world.tables.has_declared_columns("cohorts")
    assert_right(world)


def test_who_planned_against_another_version_or_repeats_a_transaction_has_lost(world: World, chain: Chain) -> None:
    version = world.tables.version("cohorts") or 0
    for lost in ({"planned_at": version - 1}, {"transaction": (APPLICATION, 1)}):
        with pytest.raises(LostRace):
            commit(chain, "cohorts", **lost)
    assert world.tables.version("cohorts") == version


def test_spark_goes_on_after_a_commit_on_a_view_that_says_nothing_of_ours(world: World) -> None:
    pass_over(world)
    changed(world)
    pass_over(world)
    world.tables.open("cohorts").alter.set_table_properties({"delta.checkpointInterval": "50"})
    results = spark_pass(world)
    assert (results["cohorts"].mode, counts(results, "cohorts")) == ("full", UNCHANGED)
    assert world.tables.metadata("cohorts")["refresh"] == 3
    assert_right(world)


def test_a_task_whose_id_holds_what_spark_would_take_for_an_escape_is_found(world: World) -> None:
    odd = "a\\b 'c' \\u0041"
    world.task(odd).session("odd", odd).node("o", "odd", fitness=1.0).save()
    spark_pass(world)
    world.node("p", "odd", fitness=2.0).save()
    results = spark_pass(world)
    assert (results["task_bars"].mode, counts(results, "task_bars")["updated"]) == ("incremental", 1)
    assert_right(world)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1))
def test_random_worlds_have_equal_rows_and_digests_on_both_engines(
    home: Home, spark: "SparkSession", seed: int
) -> None:
    world = World(home)
    declare_views(world.tables)
    for step in draw_history(f"two engines {seed}", passes=1, first=50, most=0).passes[0].steps():
        for action in step.actions:
            act(world, action)
    world.save()
    pass_over(world)
    chain = Chain(world.tables, VIEW_ORDER, "spark")
    engine = SparkEngine(chain.tables, chain.pins, chain.settings)
    try:
        for name in SQL_RELATIONS:
            some = Scope(task_ids=frozenset({"t1"})) if name == "task_bars" else Scope(session_seqs=frozenset({1, 3}))
            for scope in (EVERYTHING, some):
                digest = view_digest(name, chain.settings)
                chain.engine.compute(name, scope, digest)
                key = ", ".join((*view_schema(name).key, "row_digest"))
                expected = chain.engine.run(f"select {key} from computed")
                work = Work(name, digest, 0, {}, ("", 0), scope, False, handed_over(chain.engine, name, scope))
                rows = engine.compute(work).selectExpr(key.split(", ")).collect()
                found = [tuple(row) for row in rows]
                assert sorted(found, key=repr) == sorted(expected, key=repr), (name, scope)
    finally:
        engine.close()
        chain.close()

"""A bar that moves lets leaves of other sessions in and out, and only what those leaves stand on is read."""

import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from memory_tables import MemoryTables
from store.home import open_home
from store.settings import CONF
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle, pass_over
from views.engine import Engine
from views.moved_bars import paths_to
from views.refresh import RefreshResult, pin_versions, refresh
from views.registry import declare_views
from views.settings import read_view_settings
from world import World

HISTORIES = 6


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A task of eight sound nodes, so that its bar is the second best, 8; in `old` a path with everything ends at 5."""
    world = World(open_home(tmp_path / "home"))
    declare_views(world.tables)
    world.task("t").session("elsewhere").session("old").session("new")
    world.node("seen", "elsewhere", fitness=0.0, asked="s", answered="seen elsewhere")
    world.node("root", "old", fitness=0.0, asked="begin", answered="1")
    world.node("broken", "old", parent="root", is_buggy=True, asked="more", answered="2")
    world.node("original", "old", parent="broken", fitness=1.0, asked="repair", answered="3")
    world.node("copy", "old", parent="root", copy_of="original", copy_kind="migrant", fitness=1.0, answered="3")
    world.node("shown", "old", parent="root", fitness=2.0, asked="other", answered="4")
    world.node("shown-copy", "old", parent="root", copy_of="shown", copy_kind="migrant", fitness=2.0, answered="4")
    world.node("leaf", "old", parent="copy", fitness=5.0, asked="go on", answered="5", shown=["shown-copy", "seen"])
    world.node("beside", "old", parent="root", fitness=0.5, asked="more", answered="6")
    world.tag("node", "shown", "secret").tag("node", "seen", "internal")
    for node_id, visits in (("original", 1), ("broken", 2), ("beside", 3)):
        world.change("old", node_id, "visits", 2, visits)
    world.change("old", None, "best_so_far", 4, 2.0)
    world.node("best", "new", fitness=9.0, asked="b", answered="9")
    world.node("second", "new", fitness=8.0, asked="b", answered="8")
    world.save()
    refresh(world.home)
    return world


def leaves(world: World) -> list[str]:
    return sorted(row["leaf_id"] for row in world.tables.read("sft_trajectories").to_pylist())


def refreshed(world: World) -> RefreshResult:
    result = refresh(world.save().home)["sft_trajectories"]
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)
    return result


def test_a_bar_that_falls_lets_in_the_leaf_of_another_session_and_one_that_rises_shuts_it_out(world: World) -> None:
    assert leaves(world) == ["best", "second"]
    world.node("worst", "new", fitness=-1.0, asked="w", answered="w")  # the bar is the third best of nine: 5
    result = refreshed(world)
    assert leaves(world) == ["best", "leaf", "second"]
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 0)
    assert result.reason.startswith("1 session touched")
    assert result.reason.endswith("; moved bars let in 1 and shut out 0 leaves elsewhere")
    world.node("third", "new", fitness=7.0, asked="t", answered="t")  # the third best of ten: 7
    result = refreshed(world)
    assert leaves(world) == ["best", "second", "third"]
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 1)
    assert result.reason.endswith("; moved bars let in 0 and shut out 1 leaves elsewhere")


def test_only_the_path_to_a_leaf_and_what_it_was_shown_are_read(world: World) -> None:
    engine = Engine(world.tables, pin_versions(world.tables, ["sft_trajectories"]), read_view_settings())
    scope = paths_to(engine, {"leaf": 2})
    assert scope.session_seqs == {2}
    assert scope.node_ids == {"leaf", "copy", "original", "broken", "root", "shown-copy", "shown", "seen"}
    engine.bind("sft_trajectories", scope)
    assert engine.column("select node_id from nodes") == scope.node_ids
    assert engine.column("select node_id from prompt_history") <= scope.node_ids
    assert engine.column("select coalesce(node_id, 'the session') from change_log") == {
        "original",
        "broken",
        "the session",
    }
    engine.close()


def test_what_the_log_says_of_a_parent_without_a_row_is_part_of_the_path(world: World) -> None:
    world.change("old", "ghost", "visits", 0, 4)
    world.node("leaf", "old", parent="ghost")
    assert refreshed(world).inserted == 0
    world.node("worst", "new", fitness=-1.0, asked="w", answered="w")
    assert refreshed(world).inserted == 1
    (state,) = [
        row["states"][0] for row in world.tables.read("sft_trajectories").to_pylist() if row["leaf_id"] == "leaf"
    ]
    assert (state["parent_id"], state["visits"]) == ("ghost", 4)


def test_a_lowered_baseline_lets_in_what_lies_between_and_counts_as_work(world: World) -> None:
    world.task("t", baseline_fitness=8.0, baseline_basis="reported")
    refreshed(world)
    world.task("t", baseline_fitness=5.0, baseline_basis="reported")
    result = refreshed(world)
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 0)
    assert result.reason.startswith("0 sessions touched")


def renumber(world: World, old: int, new: int) -> None:
    for row in [row for rows in world.rows.values() for row in rows.values() if row.get("session_seq") == old]:
        row["session_seq"] = new


def test_a_session_that_comes_back_under_another_number_is_found_there_from_then_on(world: World) -> None:
    renumber(world, 2, 7)
    refreshed(world)
    for name in ("task_scores", "value_examples"):
        assert {row["session_seq"] for row in world.tables.read(name).to_pylist()} == {1, 3, 7}
    world.node("worst", "new", fitness=-1.0, asked="w", answered="w")
    assert refreshed(world).inserted == 1
    world.node("leaf", "old", fitness=6.0)
    assert refreshed(world).updated == 1


def test_a_node_without_a_row_goes_with_its_session_to_another_number(world: World) -> None:
    world.put("node_edges", src="root", dst="ghost", kind="parent", session_seq=2)
    world.put("node_edges", src="ghost", dst="grandchild", kind="parent", session_seq=2)
    world.tag("node", "root", "pii").retract("node", "root")
    refreshed(world)
    renumber(world, 2, 7)
    refreshed(world)
    assert {row["session_seq"] for row in world.tables.read("node_reach").to_pylist()} == {7}


def test_a_row_that_goes_from_one_portion_to_another_is_one_update(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = shutil.copytree(CONF, tmp_path / "conf")
    text = (conf / "views.yaml").read_text(encoding="utf-8")
    (conf / "views.yaml").write_text(text.replace("nodes_at_once: 40000", "nodes_at_once: 2"), encoding="utf-8")
    monkeypatch.setenv("ESPALIER_CONF", str(conf))
    version = (world.tables.version("task_scores") or 0) + 1
    renumber(world, 2, 7)
    refreshed(world)
    images = world.tables.changes("task_scores", start=version).to_pylist()
    assert {image["_change_type"] for image in images} == {"update_preimage", "update_postimage"}
    assert len(images) == 2 * 5


def test_a_session_that_moves_to_another_task_leaves_nothing_behind(world: World) -> None:
    world.task("other").session("third", "other")
    world.node("lone", "third", fitness=1.0, asked="l", answered="l")
    refreshed(world)
    world.session("old", "other")
    for row in world.rows_of("nodes"):
        if row["session_id"] == "old":
            row["task_id"] = "other"
    refreshed(world)
    scores = {row["node_id"]: row["task_id"] for row in world.tables.read("task_scores").to_pylist()}
    assert (scores["leaf"], scores["best"], len(scores)) == ("other", "t", 9)


def test_the_bar_of_nodes_without_a_task_follows_them(world: World) -> None:
    for place, fitness in enumerate((1.0, 3.0)):
        world.node(f"taskless-{place}", "elsewhere", fitness=fitness, asked="a", answered="a")
        world.put("nodes", node_id=f"taskless-{place}", task_id=None)
        refresh(world.save().home)
        assert_views_equal_a_recompute(world)
        bars = [row for row in world.tables.read("task_bars").to_pylist() if row["task_id"] is None]
        assert [(row["bar"], row["num_nodes"]) for row in bars] == [(fitness, place + 1)]


def test_after_any_run_of_new_scores_the_leaves_of_all_sessions_are_those_of_a_recompute(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Sessions of one task without a baseline: scores of one, low or high, move the bar over leaves of the others."""
    counts = Counter[str]()
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        home = open_home(tmp_path / str(seed))
        world = World(home, tables=MemoryTables(home, home.path)).task("t")
        declare_views(world.tables)
        for number in range(5):
            world.session(f"s{number}")
            for _ in range(3):
                grow(world, rng, f"s{number}")
        pass_over(world.save())
        for _ in range(8):
            session = f"s{rng.randrange(5)}"
            level = rng.choice((0, 0, 20))
            for _ in range(rng.randrange(3, 7)):
                grow(world, rng, session, level)
            if rng.random() < 0.3:
                corrected = rng.choice(
                    [row["node_id"] for row in world.rows_of("nodes") if row["session_id"] == session]
                )
                world.node(corrected, session, fitness=float(rng.randrange(20)))
            reason = pass_over(world.save())["sft_trajectories"].reason
            assert_views_equal_the_oracle(world, read_view_settings())
            if moved := re.search(r"let in (\d+) and shut out (\d+) leaves", reason):
                counts += Counter({"let in": int(moved[1]), "shut out": int(moved[2])})
    record_property("leaves", ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    assert min(counts["let in"], counts["shut out"]) >= HISTORIES


def grow(world: World, rng: random.Random, session: str, level: int = 10) -> None:
    """Add a node to a session: mostly sound, about as good as `level`, now and then a copy, or shown others."""
    nodes = [row["node_id"] for row in world.rows_of("nodes")]
    own = [row["node_id"] for row in world.rows_of("nodes") if row["session_id"] == session]
    node_id = f"n{len(nodes)}"
    parent = rng.choice(own) if own and rng.random() < 0.8 else None
    if own and rng.random() < 0.1:
        original = rng.choice(nodes if rng.random() < 0.1 else own)
        world.node(node_id, session, parent=parent, copy_of=original, copy_kind="migrant", fitness=1.0)
        return
    shown = rng.sample(nodes, min(len(nodes), 2)) if rng.random() < 0.3 else None
    world.node(
        node_id,
        session,
        parent=parent,
        fitness=float(level + rng.randrange(10)),
        asked="q",
        answered=node_id,
        shown=shown,
    )
    if rng.random() < 0.2:
        world.node(node_id, session, fitness=None, is_buggy=True)
    if own:
        world.change(session, rng.choice(own), "visits", len(nodes), len(nodes))

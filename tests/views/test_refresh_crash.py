"""A refresh that is killed anywhere, by SIGKILL, is made right by the next one; so is one of two at once."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from law import IS_LONG
from refresh_child import BUILT, CHANGED, REPLACED
from store.delta import Tables
from store.home import Home, open_home
from store.settings import CONF
from view_checks import FeedReplay, assert_views_equal_a_recompute, assert_views_equal_the_oracle
from views.refresh import refresh
from views.registry import VIEW_ORDER, declare_views
from views.settings import read_view_settings
from world import World

ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tests" / "refresh_child.py"
WITH_PARAMETERS = ("cohorts", "sft_trajectories", "dpo_pairs")
# A pass reads a feed once: those that the other views need were read for a view before them.
READS_A_FEED_FIRST = tuple(name for name in VIEW_ORDER if name not in ("cohorts", "dpo_pairs", "value_examples"))
KILLS = 200 if IS_LONG else 10
ROUNDS = 40 if IS_LONG else 4


def turned(points: tuple[str, ...], views: tuple[str, ...]) -> list[tuple[str, str]]:
    """Every point with every view that comes to it in the long run; else every point once, with another view each."""
    if IS_LONG:
        pairs = [(point, view) for point in points for view in views]
        return [(point, view) for point, view in pairs if point != "reads a feed" or view in READS_A_FEED_FIRST]
    return [(point, views[place * 7 % len(views)]) for place, point in enumerate(points)]


def small_world(home: Home) -> World:
    """Two sessions that show each other nodes, with a tag and a retraction."""
    world = World(home).task("t").session("s1").session("s2")
    world.node("root", "s1", fitness=0.0)
    world.node("a", "s1", parent="root", fitness=1.0, asked="faster", answered="block 64")
    world.node("b", "s1", parent="root", fitness=0.5, asked="faster", answered="block 32")
    world.node("c", "s1", parent="a", fitness=2.0, asked="more", answered="warps 8")
    world.node("d", "s2", fitness=1.5, asked="start", answered="block 8", shown=["a"])
    world.node("e", "s2", parent="d", fitness=1.0, asked="go on", answered="block 16")
    world.node("f", "s2", parent="d", fitness=0.5, asked="go on", answered="block 4")
    world.node("g", "s2", copy_of="a")
    world.tag("node", "a", "pii").tag("session", "s2", "internal")
    world.retract("node", "e", kind="invalidate")
    return world


def change(world: World) -> World:
    """Rows of every view come, go and change."""
    world.node("b", "s1", fitness=0.75).node("f", "s2", fitness=0.25).node("d", "s2", shown=["b"])
    world.node("h", "s2", parent="d", fitness=3.0, asked="go on", answered="block 2")
    world.tag("node", "a", "pii", action="remove").tag("node", "b", "licensed")
    world.reinstate("retraction-0000")
    world.retract("node", "c")
    return world


@pytest.fixture(scope="module")
def unbuilt(tmp_path_factory: pytest.TempPathFactory) -> World:
    return small_world(open_home(tmp_path_factory.mktemp("unbuilt"))).save()


@pytest.fixture(scope="module")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Views that were refreshed before the change."""
    world = small_world(open_home(tmp_path_factory.mktemp("lagging"))).save()
    refresh(world.home)
    return change(world).save()


def copy_of(world: World, folder: Path) -> World:
    home = open_home(shutil.copytree(world.home.path, folder / "home"))
    tables = Tables(home)
    declare_views(tables)
    copied = World(home, rows=deepcopy(world.rows), clock=world.clock, tables=tables)
    copied.written = deepcopy(world.written)
    return copied


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, str(CHILD), *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **options)


def kill_at(point: str, view: str, world: World) -> None:
    code = start(world.home.path, "at", point, view).wait()
    assert code == -signal.SIGKILL, f"the child was to die where it {point} of {view}, and ended with {code}"


def assert_the_next_is_right(world: World, replay: FeedReplay | None = None) -> None:
    """A refresh leaves what the oracle says, no row twice, feeds that tell it; and then nothing is left to do."""
    refresh(world.home)
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)
    for name in VIEW_ORDER:
        (replay or FeedReplay()).follow(world.tables, name)
    assert {one.mode for one in refresh(world.home).values()} == {"none"}


def test_the_change_moves_rows_that_are_there_in_every_view(lagging: World, tmp_path: Path) -> None:
    world = copy_of(lagging, tmp_path)
    results = refresh(world.home)
    assert {name for name in VIEW_ORDER if not results[name].updated + results[name].deleted} == set()
    assert {result.mode for result in results.values()} == {"incremental"}
    assert_the_next_is_right(world)


@pytest.mark.parametrize(("point", "view"), turned(BUILT, VIEW_ORDER))
def test_a_first_build_killed_anywhere_is_made_right_by_the_next(
    unbuilt: World, tmp_path: Path, point: str, view: str
) -> None:
    world = copy_of(unbuilt, tmp_path)
    kill_at(point, view, world)
    assert_the_next_is_right(world)


@pytest.mark.parametrize(("point", "view"), turned(CHANGED, VIEW_ORDER))
def test_a_refresh_killed_anywhere_is_made_right_by_the_next(
    lagging: World, tmp_path: Path, point: str, view: str
) -> None:
    world = copy_of(lagging, tmp_path)
    kill_at(point, view, world)
    assert_the_next_is_right(world)


@pytest.mark.parametrize(("point", "view"), turned(REPLACED, WITH_PARAMETERS))
def test_a_rebuild_for_new_parameters_killed_anywhere_is_made_right_by_the_next(
    lagging: World, tmp_path: Path, point: str, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = copy_of(lagging, tmp_path)
    conf = Path(shutil.copytree(CONF, tmp_path / "conf"))
    text = (conf / "views.yaml").read_text(encoding="utf-8")
    for setting in (
        "buggy_ancestors: cut|drop",
        "buggy_rejected: false|true",
        "cohort_kinds: [parent]|[parent, depth]",
    ):
        name, values = setting.split(": ")
        before, after = values.split("|")
        assert f"{name}: {before}" in text
        text = text.replace(f"{name}: {before}", f"{name}: {after}")
    (conf / "views.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("ESPALIER_CONF", str(conf))
    kill_at(point, view, world)
    assert_the_next_is_right(world)


@pytest.mark.timeout(3600 if IS_LONG else 300)
def test_a_refresh_killed_at_random_moments_again_and_again_is_made_right_each_time(
    lagging: World, tmp_path: Path
) -> None:
    world, chance = copy_of(lagging, tmp_path), random.Random(7)
    replay, killed, whole = FeedReplay(), 0, 2.0
    for number in range(KILLS):
        world.node("b", "s1", fitness=1.0 + number % 3).node("c", "s1", fitness=2.5 - number % 2)
        world.node(f"new{number}", "s2", parent="d", fitness=0.1 * number, asked="go on", answered=f"block {number}")
        world.tag("node", "d", f"tag{number}").retract("node", f"new{number - 3}")
        world.save()
        with start(world.home.path, "loop", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None and child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            started = time.perf_counter()
            child.stdin.write("refresh\n")
            child.stdin.flush()
            if not number:  # the first one runs to its end, to see how long that is
                child.stdout.readline()
                whole = time.perf_counter() - started
            else:
                time.sleep(chance.uniform(0.0, whole))
            child.kill()
            killed += child.wait() == -signal.SIGKILL and child.stdout.readline() == "" and number > 0
        assert_the_next_is_right(world, replay)
    assert killed >= KILLS // 2, f"only {killed} of {KILLS} refreshes were cut short"


def test_of_two_processes_that_refresh_at_once_none_doubles_a_row(
    lagging: World, tmp_path: Path, record_property: Any
) -> None:
    world, replay = copy_of(lagging, tmp_path), FeedReplay()
    children = [start(world.home.path, "loop", stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    lost = 0
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        for number in range(ROUNDS):
            world.node("b", "s1", fitness=1.0 + number % 3).node("d", "s2", fitness=2.0 + number % 2)
            world.node(f"new{number}", "s2", parent="d", fitness=0.1, asked="go on", answered=f"block {number}")
            world.tag("node", "a", f"tag{number}").save()
            before = {name: world.tables.metadata(name)["refresh"] for name in VIEW_ORDER}
            for child in children:
                assert child.stdin is not None
                child.stdin.write("refresh\n")
                child.stdin.flush()
            answers = [json.loads(child.stdout.readline()) for child in children if child.stdout is not None]
            lost += sum(answer["lost_races"] for answer in answers)
            for name in VIEW_ORDER:
                did = [answer["views"][name] for answer in answers]
                commits = world.tables.metadata(name)["refresh"] - before[name]
                assert commits == sum(mode != "none" for mode, *_ in did), f"{name}: {did}"
                assert sum(any(moved) for _, *moved in did) <= 1, f"{name}: both moved rows: {did}"
            assert_the_next_is_right(world, replay)
    finally:
        for child in children:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.close()
            child.wait()
            child.stdout.close()
    record_property("two at once", f"{lost} lost races in {ROUNDS} rounds")
    assert lost, "the two never met"

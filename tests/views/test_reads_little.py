"""A refresh after a new session opens the files of that session and no others: the others may hold anything."""

from pathlib import Path

import pytest

from oracle_walks import Row
from store.home import Home
from store.ids import sha256_text
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle
from views.refresh import refresh
from views.registry import VIEW_ORDER, declare_views
from views.settings import read_view_settings
from world import World

NUM_SESSIONS = 12
# Of these every row is read: they are small, and an id alone does not say where to look.
READ_WHOLE = ("sessions", "crossing_edges")


@pytest.fixture
def world(home: Home) -> World:
    """Sessions of a task each that came one by one, so that every one has files of its own; views kept up."""
    world = World(home)
    declare_views(world.tables)
    for number in range(NUM_SESSIONS):
        add_session(world, number)
        world.save()
        refresh(home)
    return world


def add_session(world: World, number: int) -> None:
    session, task = f"s{number:02d}", f"t{number:02d}"
    world.task(task).session(session, task)
    world.node(f"{session}-root", session, fitness=0.0, asked="begin", answered="x = 1")
    for place, fitness in enumerate((1.0, 2.0, 3.0)):
        node_id = f"{session}-{place}"
        answer = "\n".join(sha256_text(f"line {line} of {node_id}") for line in range(200))
        world.node(node_id, session, parent=f"{session}-root", fitness=fitness, asked="q", answered=answer)
        world.change(session, node_id, "visits", place, 1)


def add_to_last_session(world: World) -> World:
    session = f"s{NUM_SESSIONS - 1:02d}"
    world.node("new", session, parent=f"{session}-root", fitness=9.0, asked="q", answered="best")
    return world.node(f"{session}-0", session, fitness=1.5).save()


def unrelated_files(world: World) -> list[Path]:
    """Data files of every table and view that hold other sessions only, as their log says."""
    last = NUM_SESSIONS
    files = []
    for name in world.tables.names():
        if name in READ_WHOLE or not world.tables.exists(name):
            continue
        for file in world.tables.data_files(name):
            first, final = file.bounds.get("session_seq", (last, last))
            if not first <= last <= final:
                files.append(Path(file.path))
    return files


def test_a_refresh_of_a_tail_does_not_open_what_is_unrelated(world: World) -> None:
    add_to_last_session(world)
    unrelated = unrelated_files(world)
    tables = {path.parent.name for path in unrelated}
    assert {"nodes", "prompt_history", "change_log", "node_edges", "task_scores"} <= tables
    assert {"cohorts", "sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples"} <= tables
    assert len(unrelated) >= len(tables) * (NUM_SESSIONS - 1)
    kept = {path: path.read_bytes() for path in unrelated}
    for path, content in kept.items():
        path.write_bytes(b"\xff" * len(content))
    results = refresh(world.home)
    assert {name: result.mode for name, result in results.items()} == dict.fromkeys(VIEW_ORDER, "incremental")
    assert (results["dpo_pairs"].inserted, results["dpo_pairs"].updated) == (3, 2)
    assert (results["grpo_cohorts"].inserted, results["grpo_cohorts"].updated) == (1, 3)
    assert refresh(world.home)["dpo_pairs"].mode == "none"
    for path, content in kept.items():
        path.write_bytes(content)
    assert_views_equal_the_oracle(world, read_view_settings())
    assert_views_equal_a_recompute(world)


def test_every_commit_says_how_much_it_read_and_a_tail_reads_a_small_share(world: World) -> None:
    add_to_last_session(world)
    refresh(world.home)
    said: dict[str, Row] = {name: world.tables.metadata(name) for name in VIEW_ORDER}
    for name in VIEW_ORDER:
        for counted in ("files_read", "bytes_read", "input_bytes"):
            assert isinstance(said[name][counted], int), f"{name} does not say {counted}"
        sizes = {
            file.path: file.size_bytes
            for table, version in said[name]["watermarks"].items()
            for file in world.tables.data_files(table, version=version)
        }
        assert said[name]["input_bytes"] == sum(sizes.values())
    for name in ("sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples"):
        share = said[name]["bytes_read"] / said[name]["input_bytes"]
        assert share < 0.35, f"{name} read {share:.0%} for one session of {NUM_SESSIONS}"
    refresh(world.home, full=True)
    for name in ("sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples"):
        assert world.tables.metadata(name)["bytes_read"] > 3 * said[name]["bytes_read"]

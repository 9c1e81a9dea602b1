"""value_examples where a case needs more than rows: artifacts kept as files, and a refresh of this view alone."""

from pathlib import Path

from store.artifacts import store_artifact
from store.home import Home, open_home
from views.refresh import refresh
from views.registry import declare_views
from world import Row, World


def examples(home: Home, world: World) -> dict[str, Row]:
    refresh(home, ["value_examples"])
    declare_views(world.tables)
    return {row["node_id"]: row for row in world.tables.read("value_examples").to_pylist()}


def test_a_long_artifact_is_measured_in_characters_where_its_file_is_read(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    inline, digest = store_artifact(home, "é" * 20_000)
    assert inline is None
    world = World(home).task("t").session("s")
    world.node("root", "s", fitness=1.0, artifact="x = 1")
    world.node("long", "s", parent="root", fitness=2.0, artifact_digest=digest)
    world.node("next", "s", parent="long", fitness=3.0, artifact="y")
    world.node("gone", "s", parent="root", fitness=2.0, artifact_digest="0" * 64)
    world.node("said", "s", parent="root", fitness=2.0, artifact_digest=digest)
    world.speak("said", "make it long", "done").save()  # what it said is not its artifact
    rows = examples(home, world)
    assert {name: (row["artifact_length"], row["artifact_length_change"]) for name, row in rows.items()} == {
        "root": (5, None),
        "long": (20_000, 19_995),
        "next": (1, -19_999),
        "gone": (None, None),
        "said": (20_000, 19_995),
    }
    assert (rows["said"]["num_siblings_before"], rows["said"]["num_distinct_sibling_artifacts"]) == (2, 2)


def test_a_later_attempt_changes_the_labels_above_it_and_no_other_row(tmp_path: Path) -> None:
    home = open_home(tmp_path / "home")
    world = World(home).task("t").session("s")
    world.node("root", "s", fitness=1.0).node("a", "s", parent="root", fitness=2.0)
    world.node("b", "s", parent="root", fitness=3.0).save()
    before = examples(home, world)
    world.node("c", "s", parent="a", fitness=5.0).save()
    after = examples(home, world)
    moved = {name for name, row in before.items() if row["row_digest"] != after[name]["row_digest"]}
    assert moved == {"root", "a"}
    labels = ("gain", "best_descendant_id", "best_descendant_fitness", "best_descendant_fitness_text")
    labels += ("num_descendants", "score_refs", "row_digest")
    for name in moved:
        assert {column for column in before[name] if before[name][column] != after[name][column]} <= set(labels)

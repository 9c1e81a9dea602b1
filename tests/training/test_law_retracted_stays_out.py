"""Law 3 for datasets: what is withdrawn or tagged away is in no later snapshot, and older snapshots are flagged.

From raw tables through the real refresh: two tasks, each a root with four answers to one prompt.
"""

from pathlib import Path

import pytest

from store.errors import FlaggedByRetraction, RefusedByPolicy
from store.home import Home
from training.snapshot_folder import demand_not_flagged, open_snapshot
from training.snapshots import Snapshot, export_view
from views.refresh import refresh
from world import NOON, World

FORMS = (("sft_trajectories", "step"), ("sft_trajectories", "path"), ("dpo_pairs", None), ("grpo_cohorts", None))


@pytest.fixture
def world(home: Home) -> World:
    world = World(home)
    for task in ("t1", "t2"):
        world.task(task, baseline_fitness=0.0, baseline_basis="reported").session(f"{task}.s", task)
        world.node(f"{task}.root", f"{task}.s", fitness=0.0)
        for number in range(4):
            world.node(
                f"{task}.n{number}",
                f"{task}.s",
                parent=f"{task}.root",
                fitness=float(number),
                asked=f"make {task} fast",
                answered=f"warps {2**number}",
            )
    world.save()
    refresh(home)
    return world


def export(world: World, view: str, turns: str | None, name: str, **options: str) -> Snapshot:
    folder = world.home.path.parent / name / f"{view}-{turns}"
    return export_view(world.home, view, folder, turns=turns, now=NOON, **options)


def sources_of(snapshot: Snapshot) -> set[str]:
    folder = open_snapshot(snapshot.dir)
    return {node for ids in folder.table("train")["source_node_ids"].to_pylist() for node in ids}


def text_of(snapshot: Snapshot) -> str:
    return str(open_snapshot(snapshot.dir).table("train").to_pydict())


@pytest.mark.parametrize(("view", "turns"), FORMS)
def test_a_withdrawn_node_is_in_no_later_snapshot_and_flags_the_older_one(
    world: World, view: str, turns: str | None
) -> None:
    before = export(world, view, turns, "before")
    assert "t1.n3" in sources_of(before) and "warps 8" in text_of(before)
    world.retract("node", "t1.n3")
    world.save()
    with pytest.raises(FlaggedByRetraction, match="does not know yet; run `espalier refresh`"):
        export(world, view, turns, "between")
    refresh(world.home)
    after = export(world, view, turns, "after")
    assert sources_of(before) - sources_of(after) == {"t1.n3"}
    with pytest.raises(FlaggedByRetraction, match="retracted since by retraction-0000"):
        demand_not_flagged(world.home, open_snapshot(before.dir))
    demand_not_flagged(world.home, open_snapshot(after.dir))
    version = open_snapshot(before.dir).manifest["view_version"]
    with pytest.raises(FlaggedByRetraction, match=r"t1\.n3, by retraction-0000"):
        export_view(world.home, view, world.home.path.parent / "old", turns=turns, version=version, now=NOON)


def test_a_value_example_whose_label_came_from_a_retracted_node_gets_another_and_flags_the_older_snapshot(
    world: World,
) -> None:
    before = export(world, "value_examples", None, "before")
    world.retract("node", "t1.n3", kind="invalidate")
    world.save()
    refresh(world.home)
    after = export(world, "value_examples", None, "after")
    gains = {
        name: dict(zip(rows["node_id"].to_pylist(), rows["gain"].to_pylist(), strict=True))
        for name, rows in (
            ("before", open_snapshot(before.dir).table("train")),
            ("after", open_snapshot(after.dir).table("train")),
        )
    }
    assert (gains["before"]["t1.root"], gains["after"]["t1.root"]) == (3.0, 2.0)
    assert gains["before"].keys() - gains["after"].keys() == {"t1.n3"}
    with pytest.raises(FlaggedByRetraction, match="2 of 10 examples rest on nodes retracted since"):
        demand_not_flagged(world.home, open_snapshot(before.dir))


def test_an_invalidated_parent_flags_old_snapshots_only(world: World) -> None:
    world.node("t1.child", "t1.s", parent="t1.n1", fitness=5.0, asked="go on from warps 2", answered="block 64").save()
    refresh(world.home)
    before = export(world, "sft_trajectories", "step", "before")
    world.retract("node", "t1.n1", kind="invalidate")
    world.save()
    refresh(world.home)
    after = export(world, "sft_trajectories", "step", "after")
    assert "block 64" in text_of(after)  # the child stays, and its prompt is the invalidated parent's text
    demand_not_flagged(world.home, open_snapshot(after.dir))
    with pytest.raises(FlaggedByRetraction):
        demand_not_flagged(world.home, open_snapshot(before.dir))


def test_a_session_tagged_as_personal_data_is_withheld_from_training_and_open_to_an_audit(world: World) -> None:
    world.tag("session", "t1.s", "pii").save()
    with pytest.raises(RefusedByPolicy, match="does not know yet; run `espalier refresh`"):
        export(world, "dpo_pairs", None, "between")
    refresh(world.home)
    training, audit = (export(world, "dpo_pairs", None, purpose, purpose=purpose) for purpose in ("train", "audit"))
    assert {node.split(".")[0] for node in sources_of(training)} == {"t2"}
    assert training.left_out == {"policy: tag pii": audit.rows - training.rows}
    assert {node.split(".")[0] for node in sources_of(audit)} == {"t1", "t2"}


def test_the_manifest_pins_every_input_through_the_chain_of_views(world: World) -> None:
    manifest = open_snapshot(export(world, "grpo_cohorts", None, "d").dir).manifest
    pinned = manifest["input_versions"]
    assert {"nodes", "prompt_history", "cohorts", "node_reach", "node_tags"} <= set(pinned)
    assert pinned["nodes"] == world.tables.version("nodes")
    assert manifest["view_digest"]


def test_a_refresh_that_changed_nothing_gives_the_equal_snapshot_id(world: World, tmp_path: Path) -> None:
    before = export(world, "dpo_pairs", None, "before")
    refresh(world.home)
    assert export(world, "dpo_pairs", None, "after").dataset_id == before.dataset_id

"""The nightly compaction as Dagster runs it: it says what it did per table, and makes nothing stale."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
import yaml

from dagster_project.definitions import defs
from dagster_project.instance import open_instance
from dagster_project.loop_runs import metadata_of, run_job
from dagster_project.maintenance import compaction_schedule
from dagster_project.resources import HomeResource
from store.home import Home
from store.settings import CONF
from views.refresh import refresh
from views.registry import declare_views
from world import World


@pytest.fixture
def world(home: Home) -> World:
    """Six sessions, each ingested by itself, and views that have read them."""
    world = World(home).task("t")
    declare_views(world.tables)
    for number in range(6):
        world.session(f"s{number}").node(f"n{number}", f"s{number}", fitness=1.0, asked="q", answered="a").save()
    refresh(home)
    return world


def run(world: World) -> dg.ExecuteInProcessResult:
    with open_instance(world.home) as instance:
        return run_job(defs, "compact", instance=instance, resources={"home": HomeResource(path=str(world.home.path))})


def test_it_compacts_every_table_and_says_files_before_and_after(world: World) -> None:
    said = metadata_of(run(world), "compaction")
    rows = {record.data["table"]: record.data for record in said["tables"].records}
    assert (rows["nodes"]["files_before"], rows["nodes"]["files_after"]) == ("6", "1")
    assert rows["tasks"]["reason"] == "lies well"
    assert said["files_after"] < said["files_before"]
    assert len(world.tables.files("nodes")) == 1
    again = metadata_of(run(world), "compaction")
    assert (again["compacted"], again["files_before"]) == (0, said["files_after"])


def test_it_moves_no_data_version_and_removes_no_file(world: World) -> None:
    before = {name: world.tables.data_version(name) for name in world.tables.names()}
    assert metadata_of(run(world), "compaction")["removed_files"] == 0
    assert {name: world.tables.data_version(name) for name in world.tables.names()} == before
    assert world.tables.read("nodes", version=6).num_rows == 6


def test_it_vacuums_where_the_settings_say_so(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    settings = yaml.safe_load((conf / "storage.yaml").read_text())
    settings["nightly"]["vacuum"] = True
    settings["retention"] |= {"time_travel_days": 0, "change_feed_days": 0}
    (conf / "storage.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("ESPALIER_CONF", str(conf))
    run(world)
    refresh(world.home)  # now the views have read the compacted version, too
    assert metadata_of(run(world), "compaction")["removed_files"] > 6
    assert {result.mode for result in refresh(world.home).values()} == {"none"}


def test_an_empty_home_has_nothing_to_compact(home: Home) -> None:
    with open_instance(home) as instance:
        result = run_job(defs, "compact", instance=instance, resources={"home": HomeResource(path=str(home.path))})
    assert metadata_of(result, "compaction")["files_before"] == 0


def test_it_runs_every_night_unless_it_is_switched_off() -> None:
    assert compaction_schedule.default_status == dg.DefaultScheduleStatus.RUNNING
    assert (compaction_schedule.cron_schedule, compaction_schedule.execution_timezone) == ("30 3 * * *", "UTC")


def test_nothing_stands_on_it() -> None:
    graph = defs.resolve_asset_graph()
    node = graph.get(dg.AssetKey("compaction"))
    assert not node.child_keys
    assert {dg.AssetKey("nodes"), dg.AssetKey("dpo_pairs")} <= node.parent_keys

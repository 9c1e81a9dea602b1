"""A dataset can be made again after its tables were compacted, changed and vacuumed, until it is erased."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from store.compaction import compact_table
from store.errors import VersionGone
from store.home import open_home
from store.retention import vacuum_table
from store.storage_settings import read_storage_settings
from training.snapshots import export_view
from views.refresh import refresh
from views.registry import declare_views
from world import World

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.parquet")}


def keep_house(world: World, *, force: bool = False) -> int:
    """Compact and vacuum everything with 0 days of retention; returns how many files went."""
    settings = read_storage_settings()
    names = [name for name in world.tables.names() if world.tables.exists(name)]
    for name in names:
        compact_table(world.tables, name, settings)
    later = datetime.now(UTC) + timedelta(days=1)
    retention = settings.retention.with_days(0.0)
    return sum(vacuum_table(world.tables, name, retention, now=later, force=force).removed_files for name in names)


def test_a_dataset_is_made_again_from_the_version_that_its_manifest_names(tmp_path: Path) -> None:
    world = World(open_home(tmp_path / "home")).task("t")
    declare_views(world.tables)
    for number in range(8):
        world.pair(f"s{number}").save()
        refresh(world.home)
    first = export_view(world.home, "dpo_pairs", tmp_path / "first", now=NOW)
    named = world.tables.version("dpo_pairs")
    for fitness in (3.0, 4.0):
        world.node("s1-0", "s1", fitness=fitness).save()
        refresh(world.home)
    keep_house(world)
    refresh(world.home)
    keep_house(world)
    again = export_view(world.home, "dpo_pairs", tmp_path / "again", version=named, now=NOW)
    assert again.dataset_id == first.dataset_id
    assert shards(tmp_path / "again") == shards(tmp_path / "first")
    assert keep_house(world, force=True) > 0
    with pytest.raises(VersionGone, match=f"dpo_pairs@{named} "):
        export_view(world.home, "dpo_pairs", tmp_path / "gone", version=named, now=NOW)

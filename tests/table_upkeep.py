"""What happens to tables beside rows: equal rows written again, compaction, vacuum, another process."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from memory_tables import MemoryTables
from store import known_logs
from store.compaction import compact_table
from store.delta import CHANGE, Tables
from store.retention import vacuum_table
from store.schema import TABLES
from store.storage_settings import StorageSettings, read_storage_settings
from world import World

NOTHING_LEFT = read_storage_settings().retention.with_days(0.0)


def do_upkeep(world: World, kind: str) -> bool:
    """Do it to the tables of a world; False where these tables know no such thing."""
    tables = world.tables
    there = [name for name in tables.names() if tables.exists(name)]
    if kind == "rewrite equal rows":
        for name in set(there) & world.written.keys():
            rewrite_equal_rows(world, name)
    elif kind == "replace by equal rows":
        for name in set(there) & world.written.keys():
            tables.replace_all(name, [rows_as_saved(world, name)], planned_at=tables.version(name) or 0)
    elif kind == "restart":
        known_logs._logs.clear()  # what another process would not know
        world.tables = tables.reopened() if isinstance(tables, MemoryTables) else Tables(world.home)
    elif kind == "compact":
        for name in there:
            compact(tables, name)
    elif isinstance(tables, MemoryTables) and kind == "vacuum":
        return False  # nothing that anybody needs goes
    else:
        for name in there:
            vacuum(tables, name, force=kind == "vacuum by force")
    return True


def rows_as_saved(world: World, name: str) -> pa.Table:
    """The rows that a table holds, sorted."""
    rows = pa.Table.from_pylist(list(world.written[name].values()), schema=TABLES[name].columns)
    return rows.sort_by([(column, "ascending") for column in TABLES[name].sort])


def rewrite_equal_rows(world: World, name: str) -> None:
    """One commit whose feed says that every third row changed, and whose rows are what they were."""
    rows = rows_as_saved(world, name)
    rows = rows.take(pa.array(range(0, rows.num_rows, 3), pa.int64()))
    changes = rows.append_column(CHANGE, pa.array(["update"] * rows.num_rows, pa.string()))
    world.tables.commit_rows(name, changes, planned_at=world.tables.version(name) or 0)


def compact(tables: Tables, name: str) -> None:
    """Compact a table even where it lies well enough."""
    if isinstance(tables, MemoryTables):
        tables.compact(name)
        return
    read = read_storage_settings()
    eager = read.model_copy(update={"compact_when": read.compact_when.model_copy(update={"small_files": 1})})
    assert isinstance(eager, StorageSettings)
    compact_table(tables, name, eager)


def vacuum(tables: Tables, name: str, *, force: bool) -> None:
    """Remove what nobody needs; by force, whatever the latest version does not need."""
    if isinstance(tables, MemoryTables):
        tables.forget(name)
        return
    vacuum_table(tables, name, NOTHING_LEFT, now=datetime.now(UTC) + timedelta(days=1), force=force)

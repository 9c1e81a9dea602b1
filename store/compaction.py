"""Keeps the physical design: files of about one size, sorted, whose ranges of session_seq do not overlap.

A compaction is one commit that moves no row (`dataChange` is false: the change feed has nothing of it) and repeats
the `userMetadata` of the commit before, watermarks and `data_version` included. delta-rs has two compactions of its
own. `optimize.compact` joins files in the order in which they were written, so a late row of an old session makes a
file that spans everything; `optimize.z_order` sorts, but writes the whole table anew whenever it is called. This one
rewrites what lies badly and nothing else.

A plan lands on the version it was made against or not at all. Whoever committed meanwhile mostly added rows, which
leaves the plan right, so the files that are written already are committed on top; where a file of the plan was
removed, everything is planned again, and after a few tries the table is left for the next time. delta-rs drops a
transaction id at such commits, which nothing rests on: a refresh is guarded by the version it was planned at, and
counts on from `refresh` in the metadata.
"""

import contextlib
import json
import time
from dataclasses import dataclass
from typing import Any

from deltalake import PostCommitHookProperties
from deltalake.transaction import AddAction, RemoveAction

from store.commits import COMPACTION, LostRace, commit_properties, lost_races, user_metadata
from store.delta import Tables
from store.duckdb_connection import short_connection
from store.layout import DataFile, Layout, read_layout
from store.rewriting import Rewriting
from store.storage_settings import StorageSettings
from store.table_log import checkpoint, keep_log

TRIES = 5
LIES_WELL = "lies well"
KEEPS_LOG = PostCommitHookProperties(cleanup_expired_logs=False)  # what of the log may go, a vacuum decides


@dataclass(frozen=True)
class CompactionResult:
    """What a compaction did to one table; `version` is its commit, None where it made none.

    `lookup_*` is how many files a lookup of one session opens, in the worst case.
    """

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    lookup_before: int
    lookup_after: int
    version: int | None
    reason: str


class FilesMoved(Exception):
    """A file of the plan is no part of the table any more; plan again."""


def compact_table(tables: Tables, name: str, settings: StorageSettings, *, dry_run: bool = False) -> CompactionResult:
    """Bring the files of a table to the physical design; a table that lies well is left as it is.

    Args:
        tables: Where the table lies.
        name: The table.
        settings: What the files should be like.
        dry_run: Only say why it would be compacted.

    Raises:
        UnknownName: The table was never created.
    """
    for _ in range(TRIES):
        layout = read_layout(tables.open(name), tables.schema(name).sort, settings.files)
        reason = layout.needs_compaction(settings.compact_when)
        if reason is None:
            return _result(layout, layout, None, LIES_WELL)
        if dry_run:
            return _result(layout, layout, None, reason)
        keep_log(tables, name)
        try:
            version = _rewrite(tables, name, settings)
        except FilesMoved:
            continue
        if version is None:
            return _result(layout, layout, None, f"{reason}; none can be joined to another")
        after = read_layout(tables.open(name, version=version), tables.schema(name).sort, settings.files)
        checkpoint(tables, name, after_commits=settings.checkpoint_commits)
        return _result(layout, after, version, reason)
    return _result(layout, layout, None, "other writers kept changing its files; left for the next time")


def _rewrite(tables: Tables, name: str, settings: StorageSettings) -> int | None:
    """Write and commit; None where no file would be gained.

    What was written for nothing is removed, but only where it is certain that no commit names it: what an
    interrupt leaves is an unfinished write like any other, which a vacuum removes.
    """
    table = tables.open(name)
    layout = read_layout(table, tables.schema(name).sort, settings.files)
    removed: set[DataFile] = set()
    added: list[AddAction] = []
    may_be_committed = False
    try:
        with short_connection() as connection:
            sort = tables.schema(name).sort
            for files, written in Rewriting(
                table, tables.path(name), sort, layout, settings.files, connection
            ).written():
                removed |= files
                added += written
        if not removed:
            return None
        rows_before = sum(file.num_rows for file in removed)
        rows_after = sum(json.loads(action.stats)["numRecords"] for action in added)
        assert rows_before == rows_after, f"{name}: {rows_before} rows would become {rows_after}"
        may_be_committed = True
        return _commit(tables, name, removed, added, settings)
    except FilesMoved:
        may_be_committed = False
        raise
    finally:
        if not may_be_committed:
            for action in added:
                (tables.path(name) / action.path).unlink(missing_ok=True)


def _result(before: Layout, after: Layout, version: int | None, reason: str) -> CompactionResult:
    return CompactionResult(
        files_before=len(before.files),
        files_after=len(after.files),
        bytes_before=before.size_bytes,
        bytes_after=after.size_bytes,
        lookup_before=before.files_per_lookup,
        lookup_after=after.files_per_lookup,
        version=version,
        reason=reason,
    )


def _commit(
    tables: Tables, name: str, removed: set[DataFile], added: list[AddAction], settings: StorageSettings
) -> int:
    """Exchange the files on top of the latest version, whichever that is by now; returns the new version.

    Raises:
        FilesMoved: One of the files left the table, or others keep committing first; nothing was committed.
    """
    for _ in range(TRIES):
        table = tables.open(name)
        there = {file.path for file in read_layout(table, tables.schema(name).sort, settings.files).files}
        if {action.path for action in added} <= there:  # it landed, though what followed the commit failed
            return int(table.version())
        if not {file.path for file in removed} <= there:
            break
        now = int(time.time() * 1000)
        gone = [RemoveAction(file.path, False, now, file.size_bytes, {}) for file in sorted(removed)]
        metadata: dict[str, Any] = user_metadata(table.history(1)[0])
        data_version = int(metadata.get("data_version", table.version()))
        metadata[COMPACTION] = {"files_removed": len(removed), "files_added": len(added)}
        planned_at = table.version()
        with contextlib.suppress(LostRace), lost_races():
            table.create_write_transaction(
                [*added, *gone],
                mode="append",
                schema=table.schema(),
                commit_properties=commit_properties(metadata, data_version),
                post_commithook_properties=KEEPS_LOG,
            )
            return int(planned_at + 1)
    raise FilesMoved

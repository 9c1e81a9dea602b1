"""Removes files that nothing needs any more, and never one that somebody does.

A vacuum keeps everything since the earliest of: the days of time travel and of change feed in conf/storage.yaml, what
any view has not read yet, and the oldest version that a dataset names which is not erased. It deletes files and makes
no commit. delta-rs has a vacuum too, which serves here only to say, by a dry run, what the latest version does
not refer to: what it would delete is not what may go. In full, it removes the change data of versions that it is
told to keep; otherwise it removes no change data ever; and after a compaction it removes files that appends had added,
which the change feed still reads. Either way it writes two commits without `userMetadata`, so that every view
over the table would be refreshed, and a view itself would have lost its watermarks.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from store.delta import Tables
from store.errors import VersionGone
from store.needs import Need, change_feed, consumers, datasets, time_travel, version_days_ago
from store.storage_settings import RetentionSettings
from store.table_log import FileActions, clean_log, file_actions

CHANGE_DATA = "_change_data"


@dataclass(frozen=True)
class VacuumResult:
    """What a vacuum removed, or would; every version from `kept_from` on can be read, and `kept_for` says for whom."""

    removed_files: int
    removed_bytes: int
    kept_from: int
    kept_for: str
    breaks: tuple[str, ...]  # who needed what was removed, and what that means; empty without force


def vacuum_table(
    tables: Tables,
    name: str,
    settings: RetentionSettings,
    *,
    now: datetime,
    force: bool = False,
    dry_run: bool = False,
) -> VacuumResult:
    """Remove data files, change data and commit files that nothing needs.

    Args:
        tables: Where the table lies, and the views whose commits say how far they have read.
        name: The table.
        settings: How long its past stays readable; a model with 0 days leaves the latest version.
        now: The clock.
        force: Keep what the settings promise and nothing else: what views and datasets lose is in `breaks`.
        dry_run: Only say what would go.

    Raises:
        UnknownName: The table was never created.
    """
    promised_versions = time_travel(tables, name, settings, now)
    promised_changes = change_feed(tables, name, settings, now)
    followed, named = consumers(tables, name), datasets(tables, name)
    held = [] if force else [*followed, *named]
    versions_from = min([promised_versions, *held], key=lambda need: need.version)
    changes_from = min([promised_changes, *held], key=lambda need: need.version)
    commits = list(file_actions(tables, name))  # read once: what others commit meanwhile is neither kept nor named
    kept = _files_kept(tables, name, commits, versions_from.version, changes_from.version)
    named_files = {path for commit in commits for path in commit.files}
    unfinished = now - timedelta(hours=settings.unfinished_hours)
    going = sorted(_removable(tables, name, kept, named_files, older_than=unfinished))
    size = sum(path.stat().st_size for path in going)
    lost = {path.relative_to(tables.path(name)).as_posix() for path in going}
    breaks = _broken(tables, name, followed, named, commits, lost)
    if not dry_run:
        for path in going:
            path.unlink(missing_ok=True)
        told = version_days_ago(tables, name, settings.history_days, now)
        needed = [need.version for need in (promised_versions, promised_changes, *followed, *named)]
        clean_log(tables, name, before=min(told, *needed))
    return VacuumResult(len(going), size, versions_from.version, versions_from.reason, tuple(breaks))


def _broken(
    tables: Tables, name: str, followed: list[Need], named: list[Need], commits: list[FileActions], going: set[str]
) -> list[str]:
    """What is lost with these files: a feed that somebody still follows, a version that a dataset names."""
    broken = []
    for need in followed:
        feed = {path for commit in commits if commit.version > need.version for path in commit.feed}
        if feed & going:
            broken.append(need.broken)
    for need in named:
        with suppress(VersionGone):  # it was lost before
            if _files_of(tables, name, need.version) & going:
                broken.append(need.broken)
    return broken


def _files_kept(
    tables: Tables, name: str, commits: list[FileActions], versions_from: int, changes_from: int
) -> set[str]:
    """Files of every version from the first number on, and of the feed of every version after the second."""
    kept = _files_of(tables, name, None)
    latest = tables.version(name) or 0
    for version in range(versions_from, latest + 1):  # the first that can still be opened
        try:
            kept |= _files_of(tables, name, version)
            break
        except VersionGone:
            continue
    for commit in commits:
        if commit.version > versions_from:
            kept |= commit.added
        if commit.version > changes_from:
            kept |= commit.feed
    return kept


def _files_of(tables: Tables, name: str, version: int | None) -> set[str]:
    return set(pa.table(tables.open(name, version=version).get_add_actions(flatten=True))["path"].to_pylist())


def _removable(tables: Tables, name: str, kept: set[str], named: set[str], *, older_than: datetime) -> Iterator[Path]:
    """Files on disk that are not kept; one that no commit names may be about to be committed, unless it is old."""
    root = tables.path(name)
    table = tables.open(name)
    unused = set(table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True))
    for path in [*root.glob("*.parquet"), *(root / CHANGE_DATA).glob("*.parquet")]:
        relative = path.relative_to(root).as_posix()
        if relative in kept or relative not in unused:
            continue
        if relative in named or path.stat().st_mtime < older_than.timestamp():
            yield path

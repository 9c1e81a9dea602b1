"""The `_delta_log` of a table: what each commit did to files, checkpoints, and which commit files may go.

delta-rs removes commit files older than 30 days whenever an ordinary commit makes a checkpoint, whoever still needs
them: a dataset that names a version older than that could not be made again. `keep_log` switches that off.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake.exceptions import CommitFailedError

from store.commits import commit_properties, user_metadata
from store.delta import Tables

COMMIT = re.compile(r"\d{20}\.json")
CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")
OF_A_VERSION = re.compile(r"\d{20}\..*")
NO_CLEANING = {"delta.enableExpiredLogCleanup": "false"}


@dataclass(frozen=True)
class FileActions:
    """What one commit did to files; paths are relative to the table.

    The change feed of the commit is its change data where it has some, else the files that it added and removed.
    """

    version: int
    added: frozenset[str]
    removed: frozenset[str]
    change_data: frozenset[str]
    moved: frozenset[str]  # of added and removed, those that changed rows

    @property
    def feed(self) -> frozenset[str]:
        """The files that the change feed of this commit is read from."""
        return self.change_data or self.moved

    @property
    def files(self) -> frozenset[str]:
        """Every file that the commit names."""
        return self.added | self.removed | self.change_data


def log_folder(tables: Tables, name: str) -> Path:
    """Where the log of a table lies."""
    return tables.path(name) / "_delta_log"


def file_actions(tables: Tables, name: str) -> Iterator[FileActions]:
    """What each commit whose commit file is there did to files, oldest first."""
    for path in sorted(log_folder(tables, name).iterdir()):
        if COMMIT.fullmatch(path.name):
            yield _read_commit(path)


def _read_commit(path: Path) -> FileActions:
    named: dict[str, set[str]] = {"add": set(), "remove": set(), "cdc": set()}
    moved = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        for kind, action in json.loads(line).items():
            if kind in named:
                named[kind].add(action["path"])
                if kind != "cdc" and action.get("dataChange", True):
                    moved.add(action["path"])
    return FileActions(
        version=int(path.name[:20]),
        added=frozenset(named["add"]),
        removed=frozenset(named["remove"]),
        change_data=frozenset(named["cdc"]),
        moved=frozenset(moved),
    )


def checkpoint(tables: Tables, name: str, *, after_commits: int) -> bool:
    """Write a checkpoint where opening the table replays so many commits or more; it is no commit of its own."""
    table = tables.open(name)
    if table.version() - max(_checkpoints(tables, name), default=0) < after_commits:
        return False
    table.create_checkpoint()
    return True


def keep_log(tables: Tables, name: str) -> bool:
    """Switch delta-rs's own removal of commit files off, once per table; True where that took a commit.

    The commit repeats the `userMetadata` before it. A lost race leaves it for the next time.
    """
    table = tables.open(name)
    if table.metadata().configuration.get("delta.enableExpiredLogCleanup") == "false":
        return False
    said: dict[str, Any] = user_metadata(table.history(1)[0])
    data_version = int(said.get("data_version", table.version()))
    try:
        table.alter.set_table_properties(NO_CLEANING, commit_properties=commit_properties(said, data_version))
    except CommitFailedError:
        return False
    return True


def clean_log(tables: Tables, name: str, *, before: int) -> int:
    """Remove commit files and checkpoints of versions that no version from `before` on is built upon; says how many.

    That takes a checkpoint at `before` or earlier. The oldest go first, so that an interrupt leaves no hole.
    """
    base = max((version for version in _checkpoints(tables, name) if version <= before), default=0)
    going = [
        path
        for path in sorted(log_folder(tables, name).iterdir())
        if OF_A_VERSION.fullmatch(path.name) and int(path.name[:20]) < base
    ]
    for path in going:
        path.unlink(missing_ok=True)
    return len(going)


def _checkpoints(tables: Tables, name: str) -> list[int]:
    return [int(path.name[:20]) for path in log_folder(tables, name).iterdir() if CHECKPOINT.fullmatch(path.name)]

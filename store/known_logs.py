"""What this process knows of Delta logs, kept between calls: opening a table of thousands of files takes tens of ms,
reading the commits since it was opened a fraction of one.

A folder that was replaced by another table is noticed by its log entry, which was written at another time.
"""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

PRUNED_BY = ("session_seq", "task_id")
KEPT_VERSIONS = 4  # listings of a table that are kept; a refresh needs the one before and after a commit
KEPT_LOGS = 200  # tables, those of a few homes
FEW_COMMITS = 50  # further apart, a version is listed anew
UNUSUAL = ("%", "://")  # a path that a log writes otherwise than the file system has it


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a table's version, as the Delta log tells it."""

    path: str
    size_bytes: int
    num_rows: int
    bounds: dict[str, tuple[Any, Any]]  # column of PRUNED_BY to its (min, max); absent where the log does not say


@dataclass(frozen=True)
class Listing:
    """The files of a version by their path, and what is asked of all of them at once."""

    by_path: dict[str, DataFile]

    @cached_property
    def files(self) -> list[DataFile]:
        """Every file."""
        return list(self.by_path.values())

    @cached_property
    def num_rows(self) -> int:
        """Rows of all files together."""
        return sum(file.num_rows for file in self.files)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)

    def holding(self, asked: Mapping[str, Iterable[Any] | None]) -> list[DataFile]:
        """Files that can hold rows with any of these values, by columns of PRUNED_BY; None asks for no value."""
        can_hold = np.ones(len(self.files), bool)
        for column, values in asked.items():
            if values is not None:
                lows, highs, unknown = self._bounds[column]
                wanted = np.array(sorted(set(values)), dtype=lows.dtype if len(lows) else None)
                places = np.searchsorted(wanted, lows)
                in_bounds = places < len(wanted)
                in_bounds[in_bounds] = wanted[places[in_bounds]] <= highs[in_bounds]
                can_hold[~unknown] &= in_bounds
        if can_hold.all():
            return self.files
        return [self.files[place] for place in np.flatnonzero(can_hold)]

    @cached_property
    def _bounds(self) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Per column of PRUNED_BY the least and the greatest value of each file whose log says so, and which do not."""
        found = {}
        for column in PRUNED_BY:
            known = [file.bounds[column] for file in self.files if column in file.bounds]
            unknown = np.array([column not in file.bounds for file in self.files], bool)
            kind = object if column == "task_id" else np.int64
            lows, highs = (np.array([bound[end] for bound in known], kind) for end in (0, 1))
            found[column] = lows, highs, unknown
        return found


@dataclass
class KnownLog:
    """One table's log: a handle at some version, and which files recent versions have."""

    root: Path
    handle: DeltaTable | None = None
    written_at: int = 0
    lock: Any = field(default_factory=threading.RLock)
    listings: "OrderedDict[tuple[int, int], Listing]" = field(default_factory=OrderedDict)

    def moved_to_latest(self) -> DeltaTable:
        """The handle at the latest version; who asks holds the lock for as long as it must not move.

        Raises:
            DeltaError: As delta-rs raises it for a table that cannot be opened.
        """
        handle = self.handle
        if handle is not None:
            try:
                if self.written_at != entry_written_at(self.root, handle.version()):
                    handle = None
                else:
                    handle.update_incremental()
            except (DeltaError, OSError):
                handle = None
        if handle is None:
            self.listings.clear()
            handle = DeltaTable(self.root)
        self.handle, self.written_at = handle, entry_written_at(self.root, handle.version())
        return handle

    def listing(self, version: int, open_version: Callable[[], DeltaTable]) -> Listing:
        """Files of a version; read from the log entries since a version that is known, where few.

        Args:
            version: Delta version.
            open_version: Opens the table at that version, where it must be listed anew.
        """
        with self.lock:
            key = (version, entry_written_at(self.root, version))
            if key not in self.listings:
                files = self._advanced(version)
                self.listings[key] = Listing(_listed(open_version(), self.root) if files is None else files)
                while len(self.listings) > KEPT_VERSIONS:
                    self.listings.popitem(last=False)
            self.listings.move_to_end(key)
            return self.listings[key]

    def _advanced(self, version: int) -> dict[str, DataFile] | None:
        """The files of a version from an earlier listing and the commits since; None where that cannot be told."""
        earlier = [
            (known, written)
            for known, written in self.listings
            if version - FEW_COMMITS <= known < version and written and written == entry_written_at(self.root, known)
        ]
        if not earlier:
            return None
        start = max(earlier)
        files = dict(self.listings[start].by_path)
        try:
            for between in range(start[0] + 1, version + 1):
                text = (self.root / "_delta_log" / f"{between:020}.json").read_text(encoding="utf-8")
                for line in text.splitlines():
                    action = json.loads(line)
                    if "metaData" in action or "protocol" in action:
                        return None
                    _apply(files, action, self.root)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return files


_logs: OrderedDict[str, KnownLog] = OrderedDict()
_adding = threading.Lock()


def known_log(root: Path) -> KnownLog:
    """What this process knows of the log under a table's folder."""
    with _adding:
        log = _logs.setdefault(str(root), KnownLog(root))
        _logs.move_to_end(str(root))
        while len(_logs) > KEPT_LOGS:
            _logs.popitem(last=False)
        return log


def entry_written_at(root: Path, version: int) -> int:
    """When a version's log entry was written, in ns; 0 where only a checkpoint tells of it."""
    try:
        return os.stat(root / "_delta_log" / f"{version:020}.json").st_mtime_ns
    except FileNotFoundError:
        return 0


def _apply(files: dict[str, DataFile], action: dict[str, Any], root: Path) -> None:
    for kind in ("remove", "add"):
        if kind not in action:
            continue
        said = action[kind]
        if any(mark in said["path"] for mark in UNUSUAL):
            raise ValueError(said["path"])
        path = str(root / said["path"])
        if kind == "remove":
            files.pop(path, None)
            continue
        stats = json.loads(said["stats"])
        bounds = {
            column: (stats["minValues"][column], stats["maxValues"][column])
            for column in PRUNED_BY
            if stats.get("minValues", {}).get(column) is not None and stats.get("maxValues", {}).get(column) is not None
        }
        files[path] = DataFile(path, said["size"], stats["numRecords"], bounds)


def _listed(table: DeltaTable, root: Path) -> dict[str, DataFile]:
    actions = pa.table(table.get_add_actions(flatten=True))
    listed = zip(*(actions[column].to_pylist() for column in ("path", "size_bytes", "num_records")), strict=True)
    bounds: list[dict[str, tuple[Any, Any]]] = [{} for _ in range(actions.num_rows)]
    for column in PRUNED_BY:
        if f"min.{column}" in actions.column_names:
            lows, highs = actions[f"min.{column}"].to_pylist(), actions[f"max.{column}"].to_pylist()
            for known, low, high in zip(bounds, lows, highs, strict=True):
                if low is not None and high is not None:
                    known[column] = (low, high)
    return {
        str(root / path): DataFile(str(root / path), size or 0, rows or 0, known)
        for (path, size, rows), known in zip(listed, bounds, strict=True)
    }

"""Tables that keep their versions in memory, so that hundreds of histories run where Delta would run a dozen.

Each version is a small Parquet file with all its rows; the change feed is kept as it was committed. What is
real stays real: planner, feeds, SQL and walks are those of the program. Delta itself is tested beside it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from store.delta import CHANGE, Commit, LostRace, Tables
from store.errors import VersionGone
from store.home import Home
from store.known_logs import DataFile, Listing

FEED_TYPES = {"insert": "insert", "delete": "delete"}


class MemoryTables(Tables):
    """Tables of one history; `folder` takes the Parquet files."""

    def __init__(self, home: Home, folder: Path) -> None:
        super().__init__(home)
        self.folder = folder
        self.versions: dict[str, list[dict[tuple[Any, ...], dict[str, Any]]]] = {}
        self.feeds: dict[str, list[list[dict[str, Any]]]] = {}
        self.commit_metadata: dict[str, list[dict[str, Any]]] = {}
        self.kept_from: dict[str, int] = {}  # the earliest version whose rows, and last whose changes, are still there
        self.on_disk: set[str] = set()

    def reopened(self) -> "MemoryTables":
        """The same tables as another process would open them."""
        other = MemoryTables(self.home, self.folder)
        shared = ("versions", "feeds", "commit_metadata", "kept_from", "on_disk")
        vars(other).update({name: getattr(self, name) for name in shared})
        return other

    def compact(self, name: str) -> None:
        """A commit that moves no row and repeats what the last one said."""
        self._append(name, self.versions[name][-1], [], self.commit_metadata[name][-1])

    def forget(self, name: str) -> None:
        """Lose all that only older versions than the latest need."""
        self.kept_from[name] = len(self.versions[name]) - 1

    def exists(self, name: str) -> bool:
        return name in self.versions

    def version(self, name: str) -> int | None:
        return len(self.versions[name]) - 1 if name in self.versions else None

    def latest(self, name: str) -> tuple[int, dict[str, Any]]:
        return len(self.versions[name]) - 1, self.commit_metadata[name][-1]

    def table_id(self, name: str) -> str | None:
        return name if name in self.versions else None

    def last_transaction(self, name: str, application: str) -> int | None:
        return None

    def commit_digest(self, name: str, version: int) -> str | None:
        return f"{name}@{version}"

    def has_declared_columns(self, name: str) -> bool:
        return True

    def create(self, name: str) -> None:
        if name not in self.versions:
            self._append(name, {}, [], {})

    def data_files(
        self,
        name: str,
        *,
        version: int | None = None,
        session_seqs: Iterable[int] | None = None,
        task_ids: Iterable[str] | None = None,
        must_exist: bool = True,
    ) -> list[DataFile]:
        number = self.version(name) if version is None else version
        if number is None:
            return []
        if number < self.kept_from.get(name, 0):
            raise VersionGone(f"{name}@{number}")
        path = self.folder / f"{name}-{number}.parquet"
        if path.name not in self.on_disk:
            rows = list(self.versions[name][number].values())
            pq.write_table(pa.Table.from_pylist(rows, schema=self.schema(name).columns), path)
            self.on_disk.add(path.name)
        return list(self._listing(name, number).files)

    def _listing(self, name: str, version: int) -> Listing:
        path = str(self.folder / f"{name}-{version}.parquet")
        return Listing({path: DataFile(path, 0, len(self.versions[name][version]), {})})

    def changes(
        self, name: str, *, start: int, end: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        if start <= self.kept_from.get(name, -1):
            raise VersionGone(f"change feed of {name} from version {start}")
        schema = self.schema(name).columns
        fields = [schema.field(column) for column in columns or schema.names]
        rows = [
            {**row, "_commit_version": version}
            for version, images in enumerate(self.feeds.get(name, []))
            if start <= version <= (len(self.versions[name]) if end is None else end)
            for row in images
        ]
        shape = pa.schema([*fields, pa.field("_change_type", pa.string()), pa.field("_commit_version", pa.int64())])
        return pa.Table.from_pylist(rows, schema=shape)

    def commit_rows(
        self,
        name: str,
        changes: pa.Table,
        *,
        planned_at: int,
        metadata: dict[str, Any] | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> Commit:
        if self.version(name) != planned_at:
            raise LostRace(name)
        key = self.schema(name).key
        rows = dict(self.versions[name][-1])
        images: list[dict[str, Any]] = []
        counts = {"insert": 0, "update": 0, "delete": 0}
        for change in changes.to_pylist():
            kind = change.pop(CHANGE)
            identity = tuple(change[column] for column in key)
            assert (identity in rows) == (kind != "insert"), (name, kind, identity)
            counts[kind] += 1
            if kind == "update":
                images.append({**rows[identity], "_change_type": "update_preimage"})
                images.append({**change, "_change_type": "update_postimage"})
            else:
                images.append({**(rows[identity] if kind == "delete" else change), "_change_type": FEED_TYPES[kind]})
            if kind == "delete":
                del rows[identity]
            else:
                rows[identity] = change
        self._append(name, rows, images, metadata or {})
        return Commit(planned_at + 1, counts["insert"], counts["update"], counts["delete"])

    def replace_all(
        self,
        name: str,
        rows: Iterable[pa.Table],
        *,
        planned_at: int,
        metadata: dict[str, Any] | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> Commit:
        if self.version(name) != planned_at:
            raise LostRace(name)
        key = self.schema(name).key
        new = [row for part in rows for row in part.to_pylist()]
        old = list(self.versions[name][-1].values())
        images = [{**row, "_change_type": kind} for kind, part in (("delete", old), ("insert", new)) for row in part]
        self._append(name, {tuple(row[column] for column in key): row for row in new}, images, metadata or {})
        return Commit(planned_at + 1, len(new), 0, len(old))

    def _append(
        self, name: str, rows: dict[tuple[Any, ...], Any], images: list[dict[str, Any]], metadata: dict[str, Any]
    ) -> None:
        self.versions.setdefault(name, []).append(rows)
        self.feeds.setdefault(name, []).append(images)
        self.commit_metadata.setdefault(name, []).append(metadata)

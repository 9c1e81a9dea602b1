"""Reading Delta tables: what there is, rows at a version, changes between versions, and what each commit said."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from store.commits import user_metadata, version_ranges
from store.duckdb_connection import short_connection
from store.errors import TableDamaged, UnknownName, VersionGone
from store.home import Home
from store.known_logs import PRUNED_BY, DataFile, Listing, known_log
from store.schema import TABLES, TableSchema


class ReadableTables:
    """All Delta tables of one home, base tables, maintained relations and views alike; nothing here writes."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._schemas: dict[str, TableSchema] = dict(TABLES)

    # ---- what there is ----------------------------------------------------------------------

    def declare(self, schema: TableSchema) -> None:
        """Make a maintained relation or view known by its schema, so that an unbuilt one reads as empty."""
        self._schemas[schema.name] = schema

    def names(self) -> list[str]:
        """Every declared table and view, sorted."""
        return sorted(self._schemas)

    def schema(self, name: str) -> TableSchema:
        """The declared schema of a table.

        Raises:
            UnknownName: Nothing of this name is declared.
        """
        if name not in self._schemas:
            raise UnknownName(f"no table or view {name!r}; there are {', '.join(self.names())}.")
        return self._schemas[name]

    def path(self, name: str) -> Path:
        """Folder of the Delta table."""
        return self.home.tables / name

    def exists(self, name: str) -> bool:
        """Whether the table was created."""
        log = self.path(name) / "_delta_log"
        # A folder without a commit is what a creation that was killed leaves.
        return log.is_dir() and any(
            file[0].isdigit() and file.endswith((".json", ".parquet")) for file in os.listdir(log)
        )

    def open(self, name: str, *, version: int | None = None) -> DeltaTable:
        """The delta-rs handle, at a version or the latest.

        Raises:
            UnknownName: The table was never created.
            VersionGone: The version does not exist, or its files were removed.
            TableDamaged: No version can be opened.
        """
        try:
            return DeltaTable(self.path(name), version=version)
        except TableNotFoundError as error:
            if version is not None and self.exists(name):  # so delta-rs says where the version lies before the log
                raise VersionGone(f"{name}@{version} cannot be read; {self._readable(name)}.") from error
            missing = f"table {name} is empty so far; `espalier ingest` fills it."
            if name not in TABLES:
                missing = f"view {name} is not built yet; `espalier refresh` builds it."
            raise UnknownName(missing) from error
        except (DeltaError, OverflowError) as error:
            if version is None:
                raise TableDamaged(
                    f"table {name} cannot be opened ({str(error).strip().splitlines()[0]}); its log is "
                    f"{self.path(name) / '_delta_log'}: put that folder back from a copy, or begin another home."
                ) from error
            raise VersionGone(f"{name}@{version} cannot be read; {self._readable(name)}.") from error

    @contextmanager
    def at_latest(self, name: str) -> Iterator[DeltaTable]:
        """The process's own handle at the latest version; it moves for nobody else meanwhile.

        Raises:
            UnknownName: The table was never created.
            TableDamaged: No version can be opened.
        """
        log = known_log(self.path(name))
        with log.lock:
            try:
                table = log.moved_to_latest()
            except DeltaError:
                table = self.open(name)  # says what is wrong
            yield table

    def version(self, name: str) -> int | None:
        """The latest version, or None before the first commit."""
        if not self.exists(name):
            return None
        with self.at_latest(name) as table:
            return table.version()

    def data_version(self, name: str) -> int | None:
        """The last version that changed a row; None before the first commit."""
        if not self.exists(name):
            return None
        version, metadata = self.latest(name)
        value = metadata.get("data_version")
        return int(value) if value is not None else version

    def metadata(self, name: str) -> dict[str, Any]:
        """`userMetadata` of the latest commit; {} before the first."""
        return self.latest(name)[1] if self.exists(name) else {}

    def latest(self, name: str) -> tuple[int, dict[str, Any]]:
        """The latest version and the `userMetadata` of its commit, read from one handle.

        Raises:
            UnknownName: The table was never created.
        """
        with self.at_latest(name) as table:
            return table.version(), user_metadata(table.history(1)[0])

    def table_id(self, name: str) -> str | None:
        """What Delta calls the table, whatever folder it lies in; None before the first commit."""
        if not self.exists(name):
            return None
        with self.at_latest(name) as table:
            return str(table.metadata().id)

    def last_transaction(self, name: str, application: str) -> int | None:
        """The number of an application's last transaction on a table; None where it made none."""
        with self.at_latest(name) as table:
            return table.transaction_version(application)

    def commit_digest(self, name: str, version: int) -> str | None:
        """What tells a version's commit from any other with its number; None where only a checkpoint tells of it."""
        try:
            with (self.path(name) / "_delta_log" / f"{version:020}.json").open("rb") as entry:
                # Files are named at random and commits hold their time, so that the beginning says enough.
                return sha256(f"{os.fstat(entry.fileno()).st_size} ".encode() + entry.read(4096)).hexdigest()[:16]
        except FileNotFoundError:
            return None

    def history(self, name: str) -> list[dict[str, Any]]:
        """Every commit, newest first: version, timestamp (ms), operation, metadata, metrics."""
        commits = []
        for entry in self.open(name).history():
            metrics = entry.get("operationMetrics") or {}
            commits.append(
                {
                    "version": entry["version"],
                    "timestamp": entry.get("timestamp"),
                    "operation": entry.get("operation"),
                    "metadata": user_metadata(entry),
                    "metrics": metrics if isinstance(metrics, dict) else {},
                }
            )
        return commits

    # ---- reading ------------------------------------------------------------------------------

    def data_files(
        self,
        name: str,
        *,
        version: int | None = None,
        session_seqs: Iterable[int] | None = None,
        task_ids: Iterable[str] | None = None,
        must_exist: bool = True,
    ) -> list[DataFile]:
        """Parquet files of a version, pruned by the log's statistics to those that can hold what is asked for.

        Args:
            name: The table.
            version: Delta version; None is the latest.
            session_seqs: Only files that can hold rows of these sessions.
            task_ids: Only files that can hold rows of these tasks.
            must_exist: Look for each file of a version that is named; off where only the log's word is wanted.

        Raises:
            VersionGone: A file of that version was removed.
        """
        pinned = self.version(name) if version is None else version
        if pinned is None:
            return []
        files = self._listing(name, pinned).holding(dict(zip(PRUNED_BY, (session_seqs, task_ids), strict=True)))
        if version is not None and must_exist:
            gone = [file for file in files if not os.path.exists(file.path)]
            if gone:
                lost = f"{name}@{version} lost {len(gone)} of its {len(files)} files"
                raise VersionGone(f"{lost}; {self._readable(name)}.")
        return files

    def _listing(self, name: str, version: int) -> Listing:
        return known_log(self.path(name)).listing(version, lambda: self.open(name, version=version))

    def files(
        self,
        name: str,
        *,
        version: int | None = None,
        session_seqs: Iterable[int] | None = None,
        task_ids: Iterable[str] | None = None,
    ) -> list[str]:
        """Paths of `data_files`, sorted."""
        found = self.data_files(name, version=version, session_seqs=session_seqs, task_ids=task_ids)
        return sorted(file.path for file in found)

    def num_rows(self, name: str, *, version: int | None = None) -> int:
        """Rows of a version by the Delta log's own count; no file is opened."""
        pinned = self.version(name) if version is None else version
        return 0 if pinned is None else self._listing(name, pinned).num_rows

    def size_bytes(self, name: str, *, version: int | None = None) -> int:
        """Bytes of a version's files by the Delta log's own count; no file is opened."""
        pinned = self.version(name) if version is None else version
        return 0 if pinned is None else self._listing(name, pinned).size_bytes

    def read(
        self,
        name: str,
        *,
        version: int | None = None,
        columns: Sequence[str] | None = None,
        session_seqs: Iterable[int] | None = None,
    ) -> pa.Table:
        """Rows of a table at a version; empty with the declared columns before the first commit.

        Args:
            name: The table.
            version: Delta version; None is the latest.
            columns: Columns to read; None is all declared ones.
            session_seqs: Only rows of these sessions (by cluster key).

        Raises:
            VersionGone: That version cannot be read any more.
        """
        schema = self.schema(name).columns
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        seqs = None if session_seqs is None else sorted(set(session_seqs))
        files = self.files(name, version=version, session_seqs=seqs)
        if not files or seqs == []:
            return schema.empty_table()
        selected = ", ".join(f'"{field.name}"' for field in schema)
        where = "" if seqs is None else f" where session_seq in ({', '.join(map(str, seqs))})"
        with short_connection() as connection:
            rows = connection.sql(
                f"select {selected} from read_parquet($files, union_by_name = true){where}", params={"files": files}
            ).to_arrow_table()
        return rows.cast(schema)

    def changes(
        self, name: str, *, start: int, end: int | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Row changes of versions start..end (both included): the columns, `_change_type`, `_commit_version`.

        `columns` names the table's columns to read; None is all declared ones.

        `_change_type` is insert, update_preimage, update_postimage or delete. Empty when start lies past the end.

        Raises:
            VersionGone: The feed cannot be read from `start`.
        """
        latest = self.version(name)
        last = latest if end is None or latest is None else min(end, latest)
        schema = self.schema(name).columns
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        feed_columns = [pa.field("_change_type", pa.string()), pa.field("_commit_version", pa.int64())]
        feed_schema = pa.schema([*schema, *feed_columns])
        if latest is None or last is None or start > last:
            return feed_schema.empty_table()
        try:
            with self.at_latest(name) as table:
                names = [field.name for field in feed_schema]
                feed = pa.table(table.load_cdf(starting_version=start, ending_version=last, columns=names).read_all())
        except Exception as error:  # delta-rs raises several kinds when files are gone
            raise VersionGone(f"change feed of {name} from version {start} is gone; {self._readable(name)}.") from error
        return pa.table([feed[field.name].cast(field.type) for field in feed_schema], schema=feed_schema)

    def _readable(self, name: str) -> str:
        versions = [entry["version"] for entry in self.open(name).history()]
        root = self.path(name)
        readable = []
        for version in sorted(versions):
            try:
                paths = pa.table(DeltaTable(root, version=version).get_add_actions(flatten=True))["path"].to_pylist()
            except DeltaError:
                continue
            if all((root / path).exists() for path in paths):
                readable.append(version)
        return f"versions that can be read: {version_ranges(readable)}" if readable else "no version can be read"

"""The Delta verbs that write: create, and commits that cannot double a row; what reads is in delta_reading.

Every commit is optimistic: it is planned against one table version and lands as exactly the next one, or
somebody else was first and it is planned again. delta-rs accepts a repeated transaction id, so this is the
only guard against two writers that append the same rows. Every commit carries `userMetadata`, one JSON
object that both engines read and write; its `data_version` is the last version that changed a row.
"""

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from store.commits import LostRace, commit_properties, lost_races, metadata_text, plan_again_until_committed
from store.delta_reading import ReadableTables
from store.difference import CHANGE, changed_rows
from store.duckdb_connection import quiet_connection, short_connection
from store.known_logs import PRUNED_BY
from store.log_entry import CHANGE_TYPE, commit_changes, write_change_data
from store.row_files import RowFiles, num_records
from store.schema import TableSchema
from store.storage_settings import StorageSettings, read_storage_settings

__all__ = ["CHANGE", "Commit", "LostRace", "Tables", "plan_again_until_committed", "quiet_connection"]


@dataclass(frozen=True)
class Commit:
    """What one commit did; `version` is the Delta version it became."""

    version: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


class Tables(ReadableTables):
    """All Delta tables of one home, to read and to commit to."""

    @functools.cached_property
    def storage(self) -> StorageSettings:
        """conf/storage.yaml, read at the first write."""
        return read_storage_settings()

    def create(self, name: str) -> None:
        """Create an empty table with the change feed on; does nothing where it exists."""
        if self.exists(name):
            return
        schema = self.schema(name)
        try:
            DeltaTable.create(
                self.path(name),
                _plain(schema.columns),
                mode="ignore",
                description=schema.about,
                configuration={
                    "delta.enableChangeDataFeed": "true",
                    "delta.dataSkippingStatsColumns": ",".join(schema.statistics),
                    "delta.enableExpiredLogCleanup": "false",  # a vacuum decides what of the log may go
                },
                commit_properties=commit_properties({}, 0),
            )
        except (CommitFailedError, DeltaError):
            if not self.exists(name):
                raise

    def commit_rows(
        self,
        name: str,
        changes: pa.Table,
        *,
        planned_at: int,
        metadata: dict[str, Any] | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> Commit:
        """Insert, update and delete rows as one commit on top of the version the plan was made against.

        Args:
            name: The table; must exist.
            changes: The table's columns plus `_change` (insert, update, delete). No key may occur twice.
                A commit without rows is an empty append: it moves metadata and no row.
            planned_at: Version the changes were computed from.
            metadata: Goes into `userMetadata`.
            transaction: (application, n) recorded with the commit.

        Raises:
            LostRace: The table moved since `planned_at`; plan again.
        """
        schema = self.schema(name)
        kinds = pc.value_counts(changes[CHANGE]).to_pylist() if changes.num_rows else []
        counts = {kind["values"]: kind["counts"] for kind in kinds}
        data_version = planned_at + 1 if changes.num_rows else (self.data_version(name) or 0)
        properties = commit_properties(metadata or {}, data_version, transaction)
        with self._planned_at(name, planned_at) as table:
            files = self._row_files(table, name, planned_at)
        new = changes.filter(pc.not_equal(changes[CHANGE], "delete"))
        added = files.write(new) if new.num_rows else []
        if set(counts) <= {"insert"}:
            with self._planned_at(name, planned_at) as table:
                self._commit(table, added, properties)
        else:
            gone = changes.filter(pc.not_equal(changes[CHANGE], "insert"))
            split = files.split(gone.select(_placing(schema)))
            with self._planned_at(name, planned_at):
                commit_changes(
                    self.path(name),
                    planned_at + 1,
                    added=[*split.staying, *added],
                    removed=split.touched,
                    change_data=write_change_data(self.path(name), _images(schema, changes, split.gone)),
                    metrics={f"num_{kind}": count for kind, count in sorted(counts.items())},
                    user_metadata=metadata_text(metadata or {}, data_version),
                    transaction=transaction,
                )
        return Commit(
            planned_at + 1,
            inserted=counts.get("insert", 0),
            updated=counts.get("update", 0),
            deleted=counts.get("delete", 0),
        )

    def upsert(
        self,
        name: str,
        rows: pa.Table,
        *,
        update: bool = True,
        metadata: dict[str, Any] | None = None,
    ) -> Commit | None:
        """Insert rows with new keys and, unless `update` is off, rewrite rows whose content differs.

        Equal rows are never rewritten, so that no change-feed row says otherwise.

        Returns:
            The commit, or None where everything was there already.
        """
        if rows.num_rows == 0:
            return None
        self.create(name)
        return plan_again_until_committed(lambda: self._upsert_once(name, rows, update=update, metadata=metadata))

    def _upsert_once(
        self, name: str, rows: pa.Table, *, update: bool, metadata: dict[str, Any] | None
    ) -> Commit | None:
        version = self.version(name)
        assert version is not None
        changes = self.difference(name, rows, version=version, update=update)
        if changes.num_rows == 0:
            return None
        return self.commit_rows(name, changes, planned_at=version, metadata=metadata)

    def difference(self, name: str, rows: pa.Table, *, version: int, update: bool = True) -> pa.Table:
        """What must change in a version of the table so that it holds `rows`: the rows plus `_change`."""
        schema = self.schema(name)
        rows = rows.select(schema.columns.names).cast(schema.columns)
        seqs = set(rows["session_seq"].to_pylist()) if "session_seq" in schema.columns.names else None
        there = self.read(name, version=version, session_seqs=seqs)
        return changed_rows(schema, rows=rows, there=there, update=update)

    def has_declared_columns(self, name: str) -> bool:
        """Whether the stored table has the columns and types that are declared now."""
        return bool(self.open(name).schema() == Schema.from_arrow(_plain(self.schema(name).columns)))

    def replace_all(
        self,
        name: str,
        rows: pa.Table | Iterable[pa.Table],
        *,
        planned_at: int,
        metadata: dict[str, Any] | None = None,
        transaction: tuple[str, int] | None = None,
    ) -> Commit:
        """Put other rows, with the columns as they are declared now, in the place of all rows, as one commit.

        Its feed deletes every old row and inserts every new one; older versions keep their own columns. Where there
        was no row, it is an append.

        Args:
            name: The table; must exist.
            rows: All rows with the declared columns, or parts of them that are made as they are written.
            planned_at: Version the rows were computed beside.
            metadata: Goes into `userMetadata`, with what it has come to when the last part is made; where the columns
                change, as it is now.
            transaction: (application, n) recorded with the commit.

        Raises:
            LostRace: The table moved since `planned_at`; plan again.
        """
        schema = self.schema(name)
        metadata = {} if metadata is None else metadata
        parts = [rows] if isinstance(rows, pa.Table) else rows
        inserted = 0

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal inserted
            for part in made_ahead(parts):
                inserted += part.num_rows
                yield from part.select(schema.columns.names).cast(_plain(schema.columns)).to_batches()

        deleted = self.num_rows(name, version=planned_at)
        if self.has_declared_columns(name):
            with self._planned_at(name, planned_at) as table:
                files = self._row_files(table, name, planned_at)
            old = [_removed(self.path(name), file.path, file.size_bytes) for file in files.files]
            made = made_ahead(parts)
            # Parts follow the sessions. What is sorted by something else is narrow, and is sorted as one.
            sorted_in = made if files.is_clustered else [pa.concat_tables(made)]
            added = [action for part in sorted_in for action in files.write(part)]
            inserted = sum(num_records(action) for action in added)
            with self._planned_at(name, planned_at) as table:
                self._commit(table, [*added, *old], commit_properties(metadata, planned_at + 1, transaction))
        else:
            stream = pa.RecordBatchReader.from_batches(_plain(schema.columns), batches())
            rows_per_group = self.storage.files.rows_per_group
            with self._planned_at(name, planned_at):
                write_deltalake(
                    self.open(name, version=planned_at),
                    stream,
                    mode="overwrite",
                    schema_mode="overwrite",
                    commit_properties=commit_properties(metadata, planned_at + 1, transaction),
                    writer_properties=WriterProperties(compression="ZSTD", max_row_group_size=rows_per_group),
                    target_file_size=self.storage.files.clustered_bytes,
                )
        return Commit(planned_at + 1, inserted=inserted, deleted=deleted)

    @contextlib.contextmanager
    def _planned_at(self, name: str, version: int) -> Iterator[DeltaTable]:
        """The table to commit to; whoever finds that it has moved since `version` has lost the race."""
        with self.at_latest(name) as table:
            if table.version() != version:
                raise LostRace(f"{name} is at {table.version()}, planned at {version}")
            with lost_races():
                yield table

    def _row_files(self, table: DeltaTable, name: str, version: int) -> RowFiles:
        files = self.data_files(name, version=version, must_exist=False)
        return RowFiles(table, self.path(name), self.schema(name), files, self.storage.files)

    def _commit(
        self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
    ) -> None:
        table.create_write_transaction(
            list(actions), mode="append", schema=table.schema(), commit_properties=properties
        )


def made_ahead(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same parts, each made in a thread of its own while the one before is used.

    delta-rs asks for rows from inside its own runtime, where no other table may be opened; and a second core is of use.
    """
    ready: queue.Queue[pa.Table | BaseException | None] = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: pa.Table | BaseException | None) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return

    def make() -> None:
        try:
            for part in parts:
                put(part)
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:  # it is raised again where the parts are used
            put(error)

    maker = threading.Thread(target=make, name="espalier-rows", daemon=True)
    maker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        maker.join()


def _images(schema: TableSchema, changes: pa.Table, gone: pa.Table) -> pa.Table:
    """The change data of a commit: every changed row as it was and as it is, with `_change_type`."""
    columns = _plain(schema.columns)
    same_key = " and ".join(f'gone."{column}" is not distinct from changes."{column}"' for column in schema.key)
    listed = ", ".join(f'"{column}"' for column in columns.names)
    with short_connection() as connection:
        connection.register("changes", changes)
        connection.register("gone", gone)
        old = connection.sql(
            f"select {', '.join(f'gone.{column}' for column in columns.names)}, "
            f"case {CHANGE} when 'delete' then 'delete' else 'update_preimage' end as {CHANGE_TYPE} "
            f"from gone inner join changes on {same_key}"
        ).to_arrow_table()
        new = connection.sql(
            f"select {listed}, case {CHANGE} when 'insert' then 'insert' else 'update_postimage' end as {CHANGE_TYPE} "
            f"from changes where {CHANGE} <> 'delete'"
        ).to_arrow_table()
    shape = pa.schema([*columns, pa.field(CHANGE_TYPE, pa.string())])
    return pa.concat_tables([old.cast(shape), new.cast(shape)])


def _placing(schema: TableSchema) -> list[str]:
    """The columns by which a row that goes is found: its key, and where it lies."""
    return list(dict.fromkeys([*schema.key, *(column for column in PRUNED_BY if column in schema.columns.names)]))


def _removed(root: Path, path: str, size: int) -> RemoveAction:
    return RemoveAction(Path(path).relative_to(root).as_posix(), True, int(time.time() * 1000), size, {})


def _plain(columns: pa.Schema) -> pa.Schema:
    """The columns without what they mean, which Delta would keep in its log at every commit."""
    return pa.schema([pa.field(field.name, field.type) for field in columns])

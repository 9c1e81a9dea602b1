"""The files that a compaction writes in the place of those that lie badly; committing them is compaction.py's."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from store.compaction_plan import Run, loose_files, plan_runs
from store.data_files import FileWriter
from store.layout import AXIS, NO_SESSION, DataFile, Layout
from store.storage_settings import FileSettings

ENOUGH, TOO_MUCH = 0.7, 1.5  # times the target: a file below the first is filled up, above the second is cut
BATCH_FILES = 32  # times the target: what is sorted at once in a table without sessions


class Rewriting:
    """One plan for one version of a table: reads its files and writes the new ones beside them."""

    def __init__(
        self,
        table: DeltaTable,
        folder: Path,
        sort: tuple[str, ...],
        layout: Layout,
        settings: FileSettings,
        connection: duckdb.DuckDBPyConnection,
    ) -> None:
        self.folder = folder
        self.layout = layout
        self.settings = settings
        self.connection = connection
        self.writer = FileWriter.of(table, folder, settings.rows_per_group)
        columns = self.writer.columns.names
        self.columns = ", ".join(f'"{column}"' for column in columns)
        self.order = ", ".join(f'"{column}" nulls last' for column in sort if column in columns)
        self.bytes_per_row = 1.0

    def written(self) -> Iterator[tuple[set[DataFile], list[AddAction]]]:
        """Files that go, with the files that take their place."""
        if not self.layout.is_clustered:
            yield from self._batches()
            return
        loose = loose_files(self.layout)
        for run in plan_runs(self.layout, self._sessions(loose)):
            yield run.files, list(self._write_run(run))

    def _paths(self, files: set[DataFile]) -> list[str]:
        return sorted(str(self.folder / file.path) for file in files)

    def _batches(self) -> Iterator[tuple[set[DataFile], list[AddAction]]]:
        """Small files of a table without sessions, as many at once as fit into memory."""
        batch: set[DataFile] = set()
        for file in loose_files(self.layout):
            batch.add(file)
            if sum(file.size_bytes for file in batch) >= BATCH_FILES * self.layout.target_bytes:
                yield batch, list(self._write_batch(batch))
                batch = set()
        if len(batch) > 1:
            yield batch, list(self._write_batch(batch))

    def _write_batch(self, batch: set[DataFile]) -> Iterator[AddAction]:
        sql = f"select {self.columns} from read_parquet($files, union_by_name = true) order by {self.order}"
        rows = self.connection.sql(sql, params={"files": self._paths(batch)}).to_arrow_table()
        yield from self._cut(rows.cast(self.writer.columns))

    def _sessions(self, loose: list[DataFile]) -> dict[DataFile, list[int]]:
        """Where on the axis the rows of each loose file lie; only that column is read."""
        sessions = {file: [file.first] for file in loose if file.first == file.last}
        wide = {str(self.folder / file.path): file for file in loose if file.first < file.last}
        if wide:
            counted = self.connection.sql(
                f"select filename, list(distinct coalesce({AXIS}, {NO_SESSION}))"
                " from read_parquet($files, filename = true, union_by_name = true) group by filename",
                params={"files": list(wide)},
            ).fetchall()
            sessions |= {wide[path]: numbers for path, numbers in counted}
        return sessions

    def _write_run(self, run: Run) -> Iterator[AddAction]:
        """Write the rows of a run as files of the target size, cut between sessions."""
        self.connection.register("run_sessions", pa.table({"session": pa.array(sorted(run.sessions), pa.int64())}))
        rows_of = self._rows_of_sessions(run)
        sessions = sorted(rows_of)
        size = sum(file.size_bytes for file in run.files) / max(sum(file.num_rows for file in run.files), 1)
        self.bytes_per_row = max(size, 1e-3)
        start = 0
        while start < len(sessions):
            end = self._fill(sessions, rows_of, start)
            rows = self._read(run, sessions[start], sessions[end - 1])
            encoded = self.writer.encode(rows)
            for _ in range(3):  # the estimate is corrected by what the rows really take
                self.bytes_per_row = max(encoded.size / rows.num_rows, 1e-3)
                is_short = encoded.size < ENOUGH * self.layout.target_bytes and end < len(sessions)
                is_long = encoded.size > TOO_MUCH * self.layout.target_bytes and end - start > 1
                better = self._fill(sessions, rows_of, start)
                if better == end or not (is_short or is_long):
                    break
                end = better
                rows = self._read(run, sessions[start], sessions[end - 1])
                encoded = self.writer.encode(rows)
            yield from self._cut(rows, encoded)
            start = end

    def _fill(self, sessions: list[int], rows_of: dict[int, int], start: int) -> int:
        """Where a file that begins at `start` should end: at about the target, with no small remainder left over."""
        target_rows = self.layout.target_bytes / self.bytes_per_row
        end, num_rows = start + 1, rows_of[sessions[start]]
        while end < len(sessions) and num_rows + rows_of[sessions[end]] <= target_rows:
            num_rows += rows_of[sessions[end]]
            end += 1
        left = 0
        for session in sessions[end:]:
            left += rows_of[session]
            if left >= target_rows * self.settings.small_share or num_rows + left > TOO_MUCH * target_rows:
                return end
        return len(sessions)

    def _rows_of_sessions(self, run: Run) -> dict[int, int]:
        counted = self.connection.sql(
            f"select session, count(*) from ({self._source(run, f'coalesce({AXIS}, {NO_SESSION}) as session')})"
            " group by session",
            params=self._parameters(run, run.files),
        ).fetchall()
        return dict(counted)

    def _source(self, run: Run, columns: str, between: str = "true") -> str:
        """The rows of a run: all of its whole files, and of the others those of its sessions."""
        place = f"coalesce({AXIS}, {NO_SESSION})"
        parts = []
        if run.whole:
            parts.append(f"select {columns} from read_parquet($whole, union_by_name = true) where {between}")
        if run.parts:
            parts.append(
                f"select {columns} from read_parquet($parts, union_by_name = true) where {between} and {place} in "
                "(select session from run_sessions)"
            )
        return " union all ".join(parts)

    def _parameters(self, run: Run, files: set[DataFile]) -> dict[str, list[str]]:
        named = {"whole": self._paths(files & set(run.whole)), "parts": self._paths(files & run.parts)}
        return {name: paths for name, paths in named.items() if paths}

    def _read(self, run: Run, first: int, last: int) -> pa.Table:
        """Rows of a run from one session to another, both included, sorted; only files that can hold them are read."""
        near = {file for file in run.files if file.first <= last and first <= file.last}
        part = Run([file for file in run.whole if file in near], run.parts & near, run.sessions)
        between = f"{AXIS} between {first} and {last}"
        if first == NO_SESSION:
            between = f"({AXIS} is null or {between})"
        sql = f"select {self.columns} from ({self._source(part, self.columns, between)}) order by {self.order}"
        rows = self.connection.sql(sql, params=self._parameters(part, near)).to_arrow_table()
        return rows.cast(self.writer.columns)

    def _cut(self, rows: pa.Table, encoded: pa.Buffer | None = None) -> Iterator[AddAction]:
        """Write rows as one file, or as several where they are one session that is larger than a file."""
        encoded = self.writer.encode(rows) if encoded is None else encoded
        pieces = round(encoded.size / self.layout.target_bytes)
        if pieces < 2 or encoded.size <= TOO_MUCH * self.layout.target_bytes:
            yield self.writer.write(rows, encoded)
            return
        step = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            yield self.writer.write(piece, self.writer.encode(piece))

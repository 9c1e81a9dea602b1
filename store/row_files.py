"""Rows as Parquet files of the physical design, and which files a change of rows touches.

delta-rs' own merge writes what it touched as files that mix all touched sessions, so that after a few scattered
corrections every lookup opens every file. Here the rows of a touched file that stay keep their place, in a file of
their own; new rows are cut between sessions.
"""

import bisect
import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from store.data_files import FileWriter
from store.duckdb_connection import short_connection
from store.known_logs import PRUNED_BY, DataFile
from store.schema import TableSchema
from store.storage_settings import FileSettings

AXIS = "session_seq"
REWRITERS = 2  # files rewritten at once: encoding is most of the time, and lets go of the interpreter
COMPRESSION = 0.25  # of a table without files to learn it from


@dataclass(frozen=True)
class Split:
    """What takes the place of touched files: files of the rows that stay; and the rows that go."""

    touched: list[DataFile]
    staying: list[AddAction]
    gone: pa.Table


class RowFiles:
    """Writes rows into the folder of a table; they are no part of it until they are committed."""

    def __init__(
        self, table: DeltaTable, folder: Path, schema: TableSchema, files: Sequence[DataFile], settings: FileSettings
    ) -> None:
        self.schema = schema
        self.files = files
        self.writer = FileWriter.of(table, folder, settings.rows_per_group)
        self.is_clustered = schema.sort[0] == AXIS
        num_bytes, num_rows = sum(file.size_bytes for file in files), sum(file.num_rows for file in files)
        self.target_bytes = settings.target_bytes(is_clustered=AXIS in schema.columns.names, table_bytes=num_bytes)
        self.bytes_per_row = num_bytes / num_rows if num_rows else None

    def write(self, rows: pa.Table) -> list[AddAction]:
        """Write new rows, sorted, as files that each hold neighbouring sessions; returns what a commit adds."""
        ordered = rows.select(self.schema.columns.names).sort_by([(name, "ascending") for name in self.schema.sort])
        return [
            dataclasses.replace(action, data_change=True)
            for group in self._neighbouring(ordered.cast(self.writer.columns))
            for action in self._cut(group)
        ]

    def split(self, gone: pa.Table) -> Split:
        """Write the files that hold rows with the keys of `gone` anew, without those rows.

        Args:
            gone: Key columns, and where the table has them session_seq and task_id, of rows that go.

        Raises:
            AssertionError: A key is in no file: what is to be changed was planned against other rows.
        """
        near = self.files
        for column in {*PRUNED_BY} & {*gone.column_names}:
            values = sorted(set(gone[column].to_pylist()) - {None})
            near = [file for file in near if column not in file.bounds or _holds_any(values, *file.bounds[column])]
        touched = self._places(near, gone)
        if sum(map(len, touched.values())) < gone.num_rows:  # a row that changes its session or task lies where it was
            touched = self._places(self.files, gone)
        found = sum(map(len, touched.values()))
        assert found == gone.num_rows, f"{self.schema.name}: {gone.num_rows} rows should go, {found} are there"
        by_path = {file.path: file for file in self.files}
        staying: list[AddAction] = []
        going: list[pa.Table] = []

        def rewrite(path: str) -> tuple[list[AddAction], pa.Table]:
            stays, goes = self._parted(path, touched[path])
            return [self._encoded(stays)] if stays.num_rows else [], goes

        with ThreadPoolExecutor(REWRITERS) as pool:
            for written, goes in pool.map(rewrite, sorted(touched)):
                staying += written
                going.append(goes)
        return Split([by_path[path] for path in sorted(touched)], staying, pa.concat_tables(going))

    def _places(self, files: Iterable[DataFile], gone: pa.Table) -> dict[str, list[int]]:
        """Paths of files that hold a key of `gone`, to the row numbers in them; only key columns are read."""
        paths = [file.path for file in files]
        places: dict[str, list[int]] = {}
        if not paths:
            return places
        with short_connection() as connection:
            connection.register("gone", gone)
            found = connection.sql(
                "select filename, file_row_number "
                "from read_parquet($paths, filename = true, file_row_number = true, union_by_name = true) as stored "
                f"where exists (select 1 from gone where {self._same_key()}) order by filename, file_row_number",
                params={"paths": paths},
            ).fetchall()
        for path, place in found:
            places.setdefault(path, []).append(place)
        return places

    def _parted(self, path: str, places: list[int]) -> tuple[pa.Table, pa.Table]:
        """Rows of a file that stay, and those at these ascending places, which go; each in the file's order."""
        with pq.ParquetFile(path) as file:  # a thread for each file already
            rows = file.read(self.writer.columns.names, use_threads=False).cast(self.writer.columns)
        starts = [0, *(place + 1 for place in places)]
        stays = [rows.slice(start, end - start) for start, end in zip(starts, [*places, rows.num_rows], strict=True)]
        return pa.concat_tables(stays), rows.take(pa.array(places, pa.int64()))

    def _same_key(self) -> str:
        return " and ".join(f'stored."{column}" is not distinct from gone."{column}"' for column in self.schema.key)

    def _encoded(self, rows: pa.Table) -> AddAction:
        return self.writer.write(rows, self.writer.encode(rows))

    def _neighbouring(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows in groups that no stored file lies between: so a file of them spans no foreign session."""
        if not self.is_clustered or not self.files or rows.num_rows < 2 or rows[AXIS].null_count:
            yield from [rows] if rows.num_rows else []
            return
        starts = np.sort([file.bounds[AXIS][0] for file in self.files if AXIS in file.bounds])
        place = np.searchsorted(starts, rows[AXIS].to_numpy(zero_copy_only=False), side="right")
        cuts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), rows.num_rows]
        for first, last in itertools.pairwise(cuts):
            yield rows.slice(first, last - first)

    def _cut(self, rows: pa.Table) -> Iterator[AddAction]:
        """Write rows as files of about the target size, cut between sessions where the table is clustered by them."""
        guess = self.bytes_per_row or max(rows.nbytes * COMPRESSION / rows.num_rows, 1e-3)
        pieces = max(1, round(rows.num_rows * guess / self.target_bytes))
        ends = [round(rows.num_rows * piece / pieces) for piece in range(1, pieces + 1)]
        if self.is_clustered and pieces > 1 and not rows[AXIS].null_count:
            seqs = rows[AXIS].to_numpy(zero_copy_only=False)
            borders = np.append(np.flatnonzero(np.diff(seqs)) + 1, rows.num_rows)
            ends = sorted({int(borders[min(np.searchsorted(borders, end), len(borders) - 1)]) for end in ends})
        first = 0
        written = 0
        for end in ends:
            action = self._encoded(rows.slice(first, end - first))
            written += action.size
            yield action
            first = end
        self.bytes_per_row = max(written / rows.num_rows, 1e-3)


def num_records(action: AddAction) -> int:
    """Rows of a file that was just written."""
    return int(json.loads(action.stats)["numRecords"])


def _holds_any(ordered: list[Any], first: Any, last: Any) -> bool:
    place = bisect.bisect_left(ordered, first)
    return place < len(ordered) and ordered[place] <= last

"""Writing Parquet files for a table, with the statistics that its log keeps of them."""

import json
import math
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

LONGEST_TEXT = 32  # characters of a text in the log's statistics; a greatest one that was cut gets a last character
LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True)
class FileWriter:
    """Writes files into the folder of a table; they are no part of it until they are committed."""

    folder: Path
    columns: pa.Schema
    statistics: tuple[str, ...]
    rows_per_group: int

    @classmethod
    def of(cls, table: DeltaTable, folder: Path, rows_per_group: int) -> "FileWriter":
        """A writer for the columns that the table has, declared or not, and the statistics that it keeps."""
        columns = pa.schema(table.schema().to_arrow())
        kept = table.metadata().configuration.get("delta.dataSkippingStatsColumns", "")
        return cls(folder, columns, tuple(name for name in kept.split(",") if name in columns.names), rows_per_group)

    def encode(self, rows: pa.Table) -> pa.Buffer:
        """The rows as the bytes of one Parquet file."""
        sink = pa.BufferOutputStream()
        # Statistics of long texts and lists cost bytes and time in every file, and prune nothing.
        kept = list(self.statistics)
        pq.write_table(rows, sink, compression="zstd", row_group_size=self.rows_per_group, write_statistics=kept)
        return sink.getvalue()

    def write(self, rows: pa.Table, encoded: pa.Buffer) -> AddAction:
        """Put an encoded file into the folder; returns what a commit that moves no row adds."""
        path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        (self.folder / path).write_bytes(encoded)
        return AddAction(
            path=path,
            size=encoded.size,
            partition_values={},
            modification_time=int(time.time() * 1000),
            data_change=False,
            stats=json.dumps(self._statistics(rows), allow_nan=False),
        )

    def _statistics(self, rows: pa.Table) -> dict[str, Any]:
        least, greatest, nulls = {}, {}, {}
        for name in self.statistics:
            column = rows[name]
            nulls[name] = column.null_count
            if column.null_count == len(column) or not _is_ordered(column.type):
                continue
            ends = pc.min_max(column).as_py()
            if any(isinstance(value, float) and not math.isfinite(value) for value in ends.values()):
                continue
            least[name], greatest[name] = ends["min"], ends["max"]
            if isinstance(least[name], str):
                least[name] = least[name][:LONGEST_TEXT]
                if len(greatest[name]) > LONGEST_TEXT:
                    greatest[name] = greatest[name][:LONGEST_TEXT] + LAST_CHARACTER
        return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind))

"""Writes examples as Parquet shards whose bytes depend on the examples alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from training.example_rows import MESSAGE_COLUMNS, Examples
from training.quiet import quiet_environment
from training.snapshot_folder import file_digest
from training.splits import DatasetSettings, splits_of

if TYPE_CHECKING:
    import datasets

WRITER = {"compression": "zstd", "compression_level": 3, "version": "2.6", "data_page_version": "1.0"}


def write_splits(examples: Examples, folder: Path, settings: DatasetSettings) -> dict[str, dict[str, Any]]:
    """Write at least one example as `data/SPLIT-00000-DIGEST.parquet` … into a folder.

    The digest in the name is for `load_dataset`: its cache knows a local folder by the folder's own name and the
    file names on its card, so with equal names it would answer from another snapshot, retracted rows and all.

    Returns:
        Split → rows, and its shards in order (path, rows, sha256), as the manifest holds them.
    """
    quiet_environment()
    import datasets

    datasets.disable_progress_bars()
    features = features_of(examples)
    (folder / "data").mkdir(parents=True)
    splits = splits_of((row["task_id"] for row in examples.rows), settings)
    written = {}
    for split in sorted(set(splits), reverse=True):  # train before test
        rows = [row for row, of_split in zip(examples.rows, splits, strict=True) if of_split == split]
        shards = []
        for number, part in enumerate(_parts(rows, settings.rows_per_shard)):
            unnamed = folder / "data" / "writing.parquet"
            pq.write_table(_encode(part, features), unnamed, row_group_size=settings.rows_per_group, **WRITER)
            digest = file_digest(unnamed)
            path = f"data/{split}-{number:05d}-{digest[:16]}.parquet"
            unnamed.rename(folder / path)
            shards.append({"path": path, "rows": len(part), "sha256": digest})
        written[split] = {"rows": len(rows), "shards": shards}
    return written


def features_of(examples: Examples) -> "datasets.Features":
    """The explicit features of a snapshot; message turns have tool columns only where some turn uses tools."""
    from datasets import Features, Json, List, Value

    turn: dict[str, Any] = {"role": Value("string"), "content": Value("string")}
    if examples.has_tools:
        turn |= {"tool_calls": List(Json()), "tool_call_id": Value("string")}
    plain = pa.schema([field for field in examples.columns if field.name not in MESSAGE_COLUMNS])
    known = Features.from_arrow_schema(plain)
    return Features({name: List(turn) if name in MESSAGE_COLUMNS else known[name] for name in examples.columns.names})


def _encode(rows: list[dict[str, Any]], features: "datasets.Features") -> pa.Table:
    from datasets import Dataset

    schema = features.arrow_schema
    table = Dataset.from_list(rows, features=features).data.table
    return table.cast(schema).replace_schema_metadata(schema.metadata)


def _parts(rows: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]

"""Reads a snapshot folder back: its manifest, its rows, and whether they are still what was exported."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from store.delta import Tables
from store.errors import BadInput, FlaggedByRetraction
from store.home import Home
from store.ids import canonical_json, stable_id
from training.current_reach import demand_current, held_nodes, newly_reached
from views.registry import declare_views

if TYPE_CHECKING:
    import datasets

MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class SnapshotFolder:
    """An exported snapshot on disk."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def dataset_id(self) -> str:
        """Digest of the manifest."""
        return manifest_id(self.manifest)

    @property
    def form(self) -> str:
        """path, step, pairs, cohorts or values."""
        return str(self.manifest["form"])

    def table(self, split: str) -> pa.Table:
        """Rows of a split in the snapshot's order; a split that is absent has no rows and no columns."""
        shards = self.manifest["splits"].get(split, {"shards": []})["shards"]
        parts = [pq.read_table(self.directory / shard["path"]) for shard in shards]
        return pa.concat_tables(parts) if parts else pa.table({})

    def dataset(self, split: str) -> "datasets.Dataset":
        """Rows of a split as a Hugging Face dataset, read without any cache on disk."""
        import datasets

        table = self.table(split)
        features = datasets.Features.from_arrow_schema(table.schema)
        return datasets.Dataset(datasets.table.InMemoryTable(table), info=datasets.DatasetInfo(features=features))


def manifest_id(manifest: dict[str, Any]) -> str:
    """The dataset_id of a manifest: a digest of all it says."""
    return stable_id("dataset", canonical_json(manifest))


def open_snapshot(directory: Path | str) -> SnapshotFolder:
    """Open an exported snapshot and check every shard against its digest.

    Raises:
        BadInput: It is no snapshot, or a shard is missing or is not the one that was exported.
    """
    folder = Path(directory)
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{folder} is no exported snapshot ({MANIFEST_FILE} cannot be read); make one with "
            "`espalier export VIEW DIR`."
        ) from error
    for shard in shards:
        file = folder / shard["path"]
        if not file.is_file() or file_digest(file) != shard["sha256"]:
            raise BadInput(
                f"{file} is not the file that was exported (expected SHA-256 {shard['sha256'][:12]}…); "
                "export the snapshot again into another folder."
            )
    return SnapshotFolder(folder, manifest)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def demand_not_flagged(home: Home, snapshot: SnapshotFolder) -> None:
    """Refuse a snapshot of which a retraction has since reached a node.

    A node that was reached before the snapshot's view was built does not count: the view took it into account.

    Raises:
        FlaggedByRetraction: Some example rests on a node that was retracted after the export, or a retraction
            is recorded that no refresh has walked yet.
    """
    tables = Tables(home)
    declare_views(tables)
    demand_current(tables)
    reached = newly_reached(tables, snapshot.manifest["input_versions"].get("node_reach"))
    if not reached:
        return
    flagged: list[str] = []
    retractions: set[str] = set()
    for split in snapshot.manifest["splits"]:
        table = snapshot.table(split)
        for example_id, held in zip(table["example_id"].to_pylist(), held_nodes(table), strict=True):
            hits = [reached[node_id] for node_id in held if node_id in reached]
            if hits:
                flagged.append(example_id)
                retractions.update(hits)
    if flagged:
        raise FlaggedByRetraction(
            f"{snapshot.directory}: {len(flagged)} of {snapshot.manifest['rows']} examples rest on nodes retracted "
            f"since by {', '.join(sorted(retractions)[:3])} (first: {sorted(flagged)[0]}); refresh, export again and "
            "train on that."
        )

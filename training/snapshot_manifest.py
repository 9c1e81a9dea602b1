"""What a snapshot says of itself: everything that its bytes follow from, and no time and no path."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from store.delta import Tables
from store.ids import canonical_json, sha256_text
from training.current_reach import input_versions
from training.example_rows import Examples
from training.snapshot_files import WRITER
from training.splits import RULE, DatasetSettings

MANIFEST_VERSION = 1


@dataclass(frozen=True)
class PinnedView:
    """A view version and what it was made from."""

    version: int
    data_version: int
    view_digest: str | None  # of the view's SQL and parameters
    inputs: dict[str, int]  # table → its version, through the view's own inputs too


def pin_view(tables: Tables, view: str, version: int | None) -> PinnedView:
    """Pin a version of a view, the latest one where `version` is None.

    Raises:
        UnknownName: The view was never built.
        VersionGone: The version cannot be read.
    """
    latest = tables.open(view, version=version).version()
    commits = {commit["version"]: commit["metadata"] for commit in tables.history(view)}
    metadata = commits.get(latest, {})
    return PinnedView(
        latest,
        int(metadata.get("data_version", latest)),
        metadata.get("view_digest"),
        input_versions(tables, view, metadata),
    )


def make_manifest(
    view: str,
    pinned: PinnedView,
    examples: Examples,
    request: dict[str, str],
    splits: dict[str, Any],
    settings: DatasetSettings,
    tables: Tables,
) -> dict[str, Any]:
    """The manifest of a snapshot whose shards are written; `request` is principal, purpose and policy digest."""
    sources = union_over(examples, "source_node_ids")
    return {
        "manifest_version": MANIFEST_VERSION,
        "view": view,
        "form": examples.form,
        "view_version": pinned.version,
        "data_version": pinned.data_version,
        "view_digest": pinned.view_digest,
        "input_versions": pinned.inputs,
        "policy": request,
        "split": {"rule": RULE, "salt": settings.split_salt, "test_percent": settings.test_percent},
        "splits": splits,
        "rows": len(examples.rows),
        "left_out": examples.left_out,
        "columns": examples.columns.names,
        "tags": union_over(examples, "tags"),
        "fitness_bases": sorted({row["fitness_basis"] for row in examples.rows if row["fitness_basis"] is not None}),
        "retractions": _retractions_in_force(tables, pinned),
        "num_source_nodes": len(sources),
        "source_nodes_digest": sha256_text(canonical_json(sources)),
        "writer": {**WRITER, "pyarrow": pa.__version__, "rows_per_group": settings.rows_per_group},
    }


def _retractions_in_force(tables: Tables, pinned: PinnedView) -> list[str]:
    version = pinned.inputs.get("node_reach")
    if version is None:
        return []
    reach = tables.read("node_reach", version=version, columns=["retraction_id"])
    return sorted(set(reach["retraction_id"].to_pylist()))


def union_over(examples: Examples, column: str) -> list[str]:
    """All values of a list column over the examples, sorted."""
    return sorted({value for row in examples.rows for value in row[column]})

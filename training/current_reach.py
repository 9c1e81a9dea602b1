"""What retractions and tags reach now, which may be more than a view or a snapshot knew when it was made."""

from contextlib import suppress
from typing import Any

import pyarrow as pa

from store.delta import Tables
from store.errors import FlaggedByRetraction, RefusedByPolicy, VersionGone
from views.registry import SCHEMAS

WATERMARKS = "watermarks"
HELD_NODES = ("source_node_ids", "best_descendant_id")  # columns that name nodes whose content or score a row holds


def input_versions(tables: Tables, view: str, metadata: dict[str, Any]) -> dict[str, int]:
    """Versions of all that a view version was made from, through its own inputs too: table → version.

    Args:
        tables: Where the views lie.
        view: The view.
        metadata: `userMetadata` of the commit of that version.
    """
    direct = {name: at for name, at in (metadata.get(WATERMARKS) or {}).items() if at is not None}
    versions = dict(direct)
    for name in sorted(set(direct) & set(SCHEMAS)):
        for commit in tables.history(name):
            if commit["version"] == direct[name]:
                versions = {**input_versions(tables, name, commit["metadata"]), **versions}
    return dict(sorted(versions.items()))


def demand_current(tables: Tables) -> None:
    """Refuse to go on while a retraction or a tag is recorded that was not walked yet.

    Raises:
        FlaggedByRetraction: There are retractions since the last refresh of node_reach.
        RefusedByPolicy: There are tags since the last refresh of node_tags.
    """
    for table, relation, error in (
        ("retractions", "node_reach", FlaggedByRetraction),
        ("tag_assignments", "node_tags", RefusedByPolicy),
    ):
        recorded = tables.data_version(table)
        walked = tables.metadata(relation).get(WATERMARKS, {}).get(table)
        if recorded and (walked is None or walked < recorded):
            raise error(f"{table} has rows that {relation} does not know yet; run `espalier refresh` first.")


def newly_reached(tables: Tables, since_version: int | None) -> dict[str, str]:
    """Nodes that a retraction reaches now and did not at a version of `node_reach`: node_id → retraction_id.

    With `since_version` None, or a version that is gone, every node that is reached now counts.
    """
    columns = ["retraction_id", "node_id"]
    now = tables.read("node_reach", columns=columns).to_pylist()
    before: list[dict[str, str]] = []
    if since_version is not None:
        with suppress(VersionGone):
            before = tables.read("node_reach", version=since_version, columns=columns).to_pylist()
    known = {(row["retraction_id"], row["node_id"]) for row in before}
    return {row["node_id"]: row["retraction_id"] for row in now if (row["retraction_id"], row["node_id"]) not in known}


def held_nodes(rows: pa.Table) -> list[set[str]]:
    """For each row of a view or snapshot the nodes whose content it holds, or whose score is its label."""
    columns = [rows[name].to_pylist() for name in HELD_NODES if name in rows.column_names]
    return [
        {node_id for value in values for node_id in (value if isinstance(value, list) else [value])} - {None}
        for values in zip(*columns, strict=True)
    ]


def tags_now(tables: Tables) -> dict[str, set[str]]:
    """Effective tags of every tagged node: node_id → tags."""
    tags: dict[str, set[str]] = {}
    rows: pa.Table = tables.read("node_tags", columns=["node_id", "tag"])
    for node_id, tag in zip(rows["node_id"].to_pylist(), rows["tag"].to_pylist(), strict=True):
        tags.setdefault(node_id, set()).add(tag)
    return tags

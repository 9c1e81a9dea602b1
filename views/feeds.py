"""Change feeds since a watermark, and what they come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from store.delta import Tables
from store.schema import TableSchema

TYPE, VERSION = "_change_type", "_commit_version"
LEAVING = ("update_preimage", "delete")
FOLLOWED = {  # columns that any view asks a feed for: each feed is read once, and texts are not read at all
    "tasks": ("task_id",),
    "sessions": ("session_id", "session_seq", "user_id", "model"),
    "nodes": (
        "node_id",
        "session_id",
        "session_seq",
        "task_id",
        "parent_id",
        "copy_of",
        "context",
        "source_id",
        "model",
        "verifier",
    ),
    "prompt_history": ("node_id", "turn", "session_seq"),
    "change_log": ("session_seq",),
    "node_edges": ("src", "dst", "kind", "session_seq"),
    "retractions": ("retraction_id", "scope_id", "kind", "reinstates"),
    "tag_assignments": ("assignment_id", "tag", "action"),
    "crossing_edges": ("src", "dst", "kind", "session_seq", "src_session_seq"),
    "node_tags": ("node_id", "tag", "session_seq"),
    "node_reach": ("retraction_id", "node_id", "session_seq"),
    "task_scores": ("node_id", "session_seq", "task_id"),
    "task_bars": ("task_id", "fitness_basis", "environment_digest", "bar"),
    "cohorts": ("cohort_id", "node_id", "session_seq"),
}


def followed(schema: TableSchema) -> tuple[str, ...]:
    """The columns of a table's feed that are read; of one that no view followed so far, key and place."""
    places = [column for column in ("session_seq", "task_id") if column in schema.columns.names]
    return FOLLOWED.get(schema.name) or tuple(dict.fromkeys([*schema.key, *places]))


@dataclass(frozen=True)
class NetChange:
    """One key's row before and after a run of commits; None where it did not exist."""

    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Feeds:
    """Feeds of tables up to their pinned versions, each read once however many views follow it."""

    def __init__(self, tables: Tables, pins: dict[str, int | None]) -> None:
        self.tables = tables
        self.pins = pins
        self._read: dict[tuple[str, int | None, int | None], pa.Table] = {}

    def rows(self, name: str, since: int | None) -> pa.Table:
        """Changes after the version `since` (None: from the first), in the columns that views follow.

        Raises:
            VersionGone: The feed cannot be read from there.
        """
        end = self.pins[name]
        wanted = (name, since, end)
        if wanted not in self._read:
            start = 0 if since is None else since + 1
            columns = followed(self.tables.schema(name))
            if end is None or start > end:
                fields = [self.tables.schema(name).columns.field(column) for column in columns]
                self._read[wanted] = pa.schema(
                    [*fields, pa.field(TYPE, pa.string()), pa.field(VERSION, pa.int64())]
                ).empty_table()
            else:
                self._read[wanted] = self.tables.changes(name, start=start, end=end, columns=columns)
        return self._read[wanted]

    def values(self, name: str, since: int | None, column: str) -> set[Any]:
        """Distinct non-NULL values of a column over before and after images."""
        return set(self.rows(name, since)[column].unique().to_pylist()) - {None}

    def net(self, name: str, since: int | None, columns: Sequence[str]) -> list[NetChange]:
        """What the feed comes to per key in these columns; a row that ends as it began is no change.

        Raises:
            VersionGone: The feed cannot be read from there.
        """
        key = self.tables.schema(name).key
        names = list(dict.fromkeys([*key, *columns]))
        first: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        last: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        images = self.rows(name, since).select([*names, TYPE, VERSION]).to_pylist()
        images.sort(key=lambda image: (image[VERSION], image[TYPE] not in LEAVING))
        for image in images:
            row = {column: image[column] for column in names}
            identity = tuple(row[column] for column in key)
            is_leaving = image[TYPE] in LEAVING
            first.setdefault(identity, row if is_leaving else None)
            last[identity] = None if is_leaving else row
        return [NetChange(first[key], last[key]) for key in first if first[key] != last[key]]

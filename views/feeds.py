"""Change feeds since a watermark, and what they come to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from store.delta import Tables

TYPE, VERSION = "_change_type", "_commit_version"
LEAVING = ("update_preimage", "delete")


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
        self._read: dict[tuple[str, int | None, int | None, tuple[str, ...]], pa.Table] = {}

    def rows(self, name: str, since: int | None, columns: Sequence[str]) -> pa.Table:
        """Changes after the version `since` (None: from the first) with these columns.

        Raises:
            VersionGone: The feed cannot be read from there.
        """
        end = self.pins[name]
        wanted = (name, since, end, tuple(columns))
        if wanted not in self._read:
            start = 0 if since is None else since + 1
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
        return set(self.rows(name, since, [column])[column].unique().to_pylist()) - {None}

    def net(self, name: str, since: int | None, columns: Sequence[str]) -> list[NetChange]:
        """What the feed comes to per key in these columns; a row that ends as it began is no change.

        Raises:
            VersionGone: The feed cannot be read from there.
        """
        key = self.tables.schema(name).key
        names = list(dict.fromkeys([*key, *columns]))
        first: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        last: dict[tuple[Any, ...], dict[str, Any] | None] = {}
        images = self.rows(name, since, names).to_pylist()
        images.sort(key=lambda image: (image[VERSION], image[TYPE] not in LEAVING))
        for image in images:
            row = {column: image[column] for column in names}
            identity = tuple(row[column] for column in key)
            is_leaving = image[TYPE] in LEAVING
            first.setdefault(identity, row if is_leaving else None)
            last[identity] = None if is_leaving else row
        return [NetChange(first[key], last[key]) for key in first if first[key] != last[key]]

"""Reads the search ledger's feed: its rows already carry the lakehouse's columns, less what an ingest gives."""

from dataclasses import dataclass, field
from typing import Any

from store.artifacts import store_artifact
from store.home import Home
from store.ids import canonical_json, number_text, sha256_text, stable_id
from store.ledger_rows import FeedEntry
from store.schema import TABLES
from transforms.clocks import clock_fault
from transforms.structure import Row

FORMAT = "ledger"
READER_VERSION = "1"
FED_TABLES = ("prompt_history", "change_log", "tasks", "sessions", "nodes")


def ledger_source_id(ledger_id: str) -> str:
    """The source that rows of this ledger name."""
    return stable_id("f", FORMAT, ledger_id)


@dataclass
class FeedRows:
    """One stretch of a ledger's feed, sorted by table.

    `rows` holds the latest state of each row; `skipped` counts entries that a table's watermark already covers;
    `refused` are (entry, reason) of what no table can hold.
    """

    rows: dict[str, list[Row]]
    last: int
    read: int
    skipped: int = 0
    refused: list[tuple[FeedEntry, str]] = field(default_factory=list)

    def session_ids(self) -> list[str]:
        """Every session that a row names, in the order of the feed."""
        named = [row for name in ("sessions", "nodes", "prompt_history", "change_log") for row in self.rows[name]]
        return list(dict.fromkeys(row["session_id"] for row in named))


def read_feed(home: Home, entries: list[FeedEntry], watermarks: dict[str, int], source_id: str) -> FeedRows:
    """Turn feed entries into rows, less session_seq; a row that appears twice counts as it was last."""
    latest: dict[str, dict[tuple[Any, ...], Row]] = {name: {} for name in FED_TABLES}
    found = FeedRows({}, last=entries[-1].feed_seq, read=len(entries))
    for entry in entries:
        if entry.feed_seq <= watermarks.get(entry.table, 0):
            found.skipped += 1
            continue
        reason = _refusal(entry)
        if reason is not None:
            found.refused.append((entry, reason))
            continue
        row = _table_row(home, entry) | {"source_id": source_id}
        key = tuple(row[column] for column in TABLES[entry.table].key)
        found.skipped += key in latest[entry.table]
        latest[entry.table][key] = row
    found.rows = {name: list(rows.values()) for name, rows in latest.items()}
    return found


def _refusal(entry: FeedEntry) -> str | None:
    if entry.table not in FED_TABLES:
        return f"the ledger fed a row of {entry.table!r}; it may feed {', '.join(FED_TABLES)}"
    if entry.table == "change_log":
        return clock_fault(entry.row["field"], entry.row["step"], entry.row["recorded_step"])
    return None


def _table_row(home: Home, entry: FeedEntry) -> Row:
    row: Row = dict.fromkeys(TABLES[entry.table].columns.names)
    row.update({name: value for name, value in entry.row.items() if name in row})
    for name, value in row.items():
        if isinstance(value, dict):  # a JSON column handed over as a mapping
            row[name] = canonical_json(value)
    if entry.table == "nodes":
        _complete_node(home, row)
    return row


def _complete_node(home: Home, row: Row) -> None:
    if row["artifact"] is not None:
        row["artifact"], row["artifact_digest"] = store_artifact(home, row["artifact"])
    row["fitness_text"] = number_text(row["fitness"])
    row["reward_text"] = number_text(row["reward"])
    row["context"] = row["context"] or []
    if row["environment"] is not None and row["environment_digest"] is None:
        row["environment_digest"] = sha256_text(row["environment"])

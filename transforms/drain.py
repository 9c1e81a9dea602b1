"""Drains the search ledger into the tables, each row exactly once, wherever an earlier drain was killed.

Every table carries, in the metadata of its own commits, the last feed number it holds. `sources` is written last,
so its watermark says how far all tables are; a table that is further skips what it has.
"""

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url

from store.delta import Tables
from store.home import Home
from store.ids import canonical_json, sha256_text
from store.ledger_rows import FeedEntry
from transforms.counts import IngestReport, SourceCounts
from transforms.logs import ledger as reader
from transforms.quarantine import quarantine_row
from transforms.structure import Row, edges_of
from transforms.write import WATERMARKS, Progress, add_commit, commit_difference, kept_metadata, register_sessions

ENTRIES_AT_ONCE = 100_000
CLOSING_TABLE = "sources"
FED_ORDER = ("prompt_history", "change_log", "node_edges", "tasks", "sessions", "nodes")
INSERT_ONLY = frozenset({"prompt_history", "change_log", "node_edges"})


def ingest_ledger(home: Home, *, now: datetime, progress: Progress | None = None) -> IngestReport:
    """Bring everything that the home's ledger has committed into the tables.

    Args:
        home: The home; one without a ledger has nothing to drain.
        now: Clock for what is recorded.
        progress: Called with one line after each step; the names of the tables written come in this order.

    Returns:
        The report; all zero where nothing new was committed, in which case no table moves.

    Raises:
        LedgerBusy: The ledger stayed locked.
        CommitConflict: Other writers kept committing first.
    """
    report = IngestReport()
    if not _has_ledger(home):
        return report
    from store.ledger import open_ledger

    say = progress or (lambda line: None)
    tables = Tables(home)
    with open_ledger(home) as ledger:
        while True:
            watermarks = {name: _watermark(tables, name, ledger.ledger_id) for name in (*FED_ORDER, CLOSING_TABLE)}
            entries = ledger.feed(watermarks[CLOSING_TABLE], ENTRIES_AT_ONCE)
            if not entries:
                break
            report.files = 1
            _drain_entries(tables, ledger.ledger_id, entries, watermarks, now=now, say=say, report=report)
            if len(entries) < ENTRIES_AT_ONCE:
                break
    report.check()
    return report


def _drain_entries(
    tables: Tables,
    ledger_id: str,
    entries: list[FeedEntry],
    watermarks: dict[str, int],
    *,
    now: datetime,
    say: Progress,
    report: IngestReport,
) -> None:
    source_id = reader.ledger_source_id(ledger_id)
    feed = reader.read_feed(tables.home, entries, watermarks, source_id)
    added: Counter[str] = Counter()
    counts = SourceCounts()
    counts.add("quarantined", len(feed.refused))
    metadata = {WATERMARKS: {ledger_id: feed.last}}
    _number_sessions(tables, feed, metadata, added)
    say("numbered sessions")
    rows = {**feed.rows, "node_edges": edges_of(feed.rows["nodes"])}
    changed = added["sessions"]
    for name in FED_ORDER:
        commit = commit_difference(
            tables,
            name,
            rows[name],
            metadata=metadata,
            insert_only=name in INSERT_ONLY,
        )
        if commit is not None:
            added[name] += commit.inserted
            changed += 0 if name == "node_edges" else commit.inserted + commit.updated
        say(f"wrote {name}")
    # A session that was registered and then filled in one drain is one record, not two.
    stored = min(changed, feed.read - len(feed.refused))
    counts.add("stored", stored)
    counts.add("already_there", feed.read - len(feed.refused) - stored)
    _keep_refused(tables, feed, source_id, now, report)
    _keep_source(tables, ledger_id, source_id, feed, now)
    say("wrote sources")
    report.add_rows(added)
    report.add_counts(counts)


def _number_sessions(tables: Tables, feed: reader.FeedRows, metadata: dict[str, Any], added: Counter[str]) -> None:
    """Give every row its cluster key; sessions seen for the first time get the next ones."""
    stated = {row["session_id"]: row for row in feed.rows["sessions"]}
    empty = dict.fromkeys(tables.schema("sessions").columns.names)
    # A long feed is read in stretches, and a session's row may stand in a later one.
    wanted = [stated.get(session_id, empty | {"session_id": session_id}) for session_id in feed.session_ids()]
    numbered, commit = register_sessions(tables, wanted, metadata=metadata)
    add_commit(added, "sessions", commit)
    for name in ("sessions", "nodes", "prompt_history", "change_log"):
        for row in feed.rows[name]:
            row["session_seq"] = numbered[row["session_id"]]["session_seq"]


def _keep_refused(tables: Tables, feed: reader.FeedRows, source_id: str, now: datetime, report: IngestReport) -> None:
    rows: list[Row] = []
    for entry, reason in feed.refused:
        data = canonical_json(entry.row).encode("utf-8", "backslashreplace")
        place = f"{entry.table} feed {entry.feed_seq}"
        rows.append(
            quarantine_row(
                place, reason, data, source_id=source_id, path=reader.FORMAT, log_format=reader.FORMAT, now=now
            )
        )
        report.quarantine_reasons[reason] = report.quarantine_reasons.get(reason, 0) + 1
    commit_difference(tables, "quarantine", rows, insert_only=True)


def _keep_source(tables: Tables, ledger_id: str, source_id: str, feed: reader.FeedRows, now: datetime) -> None:
    """The ledger's row of `sources`: its counts add up over all drains, its size is the last feed number.

    What a killed drain had stored counts as stored, so the row does not depend on where it was killed.
    """
    counts = SourceCounts()
    counts.add("quarantined", len(feed.refused))
    counts.add("stored", feed.read - len(feed.refused))
    stored = [row for row in tables.read("sources").to_pylist() if row["source_id"] == source_id]
    before = stored[0] if stored else {}
    row = {
        "source_id": source_id,
        "path": "ledger",
        "digest": sha256_text(f"{ledger_id}@{feed.last}"),
        "size_bytes": feed.last,
        "format": reader.FORMAT,
        "reader_version": reader.READER_VERSION,
        "ingested_at": now,
        **{name: (before.get(name) or 0) + count for name, count in counts.columns().items()},
    }
    commit_difference(tables, CLOSING_TABLE, [row], metadata={WATERMARKS: {ledger_id: feed.last}}, empty_too=True)


def _watermark(tables: Tables, name: str, ledger_id: str) -> int:
    return int(kept_metadata(tables, name).get(WATERMARKS, {}).get(ledger_id, 0))


def _has_ledger(home: Home) -> bool:
    """Whether there is a ledger to drain; opening a missing SQLite file would make one."""
    url = make_url(home.ledger_url)
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return True
    return Path(url.database or "").exists()

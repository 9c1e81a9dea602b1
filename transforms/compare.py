"""Compares records with what is stored: new, already there, or the same key with other content."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from store.delta import Tables
from transforms import records as kinds
from transforms.clocks import is_correction
from transforms.corrections import Corrections
from transforms.counts import STORED_BEFORE, SourceCounts
from transforms.quarantine import quarantine_row
from transforms.records import Record, Source
from transforms.rows import change_row, json_text, message_row, node_row, session_row, tag_row, task_row
from transforms.stored import Stored, change_key, rows_in
from transforms.structure import Row

SAME_NODE = ("artifact_digest", "parent_id", "metrics")  # what no later file may say otherwise
SAME_TURN = ("role", "content", "tool_calls", "tool_call_id")
KEPT_OF_A_SESSION = ("session_id", "session_seq", "task_id", "next_step", "source_id")


@dataclass
class Comparison:
    """What a batch adds. Sessions and tasks are whole rows as they should be; the rest are new rows only.

    `reread_changes` are sessions with a change that this file stored before, in an ingest that may have been killed
    before it came to the nodes.
    """

    tasks: dict[str, Row] = field(default_factory=dict)
    sessions: dict[str, Row] = field(default_factory=dict)
    nodes: list[Row] = field(default_factory=list)
    messages: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    tags: list[Row] = field(default_factory=list)
    quarantine: list[Row] = field(default_factory=list)
    reread_changes: set[str] = field(default_factory=set)
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    reasons: Counter[str] = field(default_factory=Counter)

    def add_to(self, counts: dict[str, SourceCounts]) -> None:
        """Add the outcomes to the books of each file (which a defaultdict opens)."""
        for source_id, outcomes in self.outcomes.items():
            for outcome, count in outcomes.items():
                counts[source_id].add(outcome, count)


def compare_records(
    tables: Tables, items: Iterable[tuple[Source, Record]], stored: Stored, *, now: datetime
) -> Comparison:
    """Sort a batch into what is new and what is not; nothing is written, except artifact files."""
    found = Comparison()
    items = list(items)
    comparer = _Comparer(tables, stored, found, now)
    comparer.load_small_tables(items)
    for number, (source, record) in enumerate(items):
        comparer.tagged_at = now + timedelta(microseconds=number)  # of two lines on one tag the last counts
        comparer.compare(source, record)
    return found


class _Comparer:
    """Holds what was seen so far, stored and new."""

    def __init__(self, tables: Tables, stored: Stored, found: Comparison, now: datetime) -> None:
        self.tables = tables
        self.stored = stored
        self.found = found
        self.now = self.tagged_at = now
        self.nodes = dict(stored.nodes)
        self.messages = dict(stored.messages)
        self.changes = dict(stored.changes)
        self.corrections = Corrections(stored)
        self.sessions = {session_id: dict(row) for session_id, row in stored.sessions.items()}
        self.tasks: dict[str, Row] = {}
        self.tag_ids: set[str] = set()
        found.sessions = self.sessions

    def load_small_tables(self, items: list[tuple[Source, Record]]) -> None:
        tasks = [record.task_id for _, record in items if isinstance(record, kinds.TaskRecord)]
        self.tasks = {row["task_id"]: row for row in rows_in(self.tables, "tasks", "task_id", tasks)}
        tags = [
            tag_row(record, source.source_id, self.now)["assignment_id"]
            for source, record in items
            if isinstance(record, kinds.TagRecord)
        ]
        self.tag_ids = {row["assignment_id"] for row in rows_in(self.tables, "tag_assignments", "assignment_id", tags)}

    def compare(self, source: Source, record: Record) -> None:
        if isinstance(record, kinds.NodeRecord):
            self._count(source, self._node(source, record))
            for turn in record.messages:
                self._count(source, self._message(source, turn))
        elif isinstance(record, kinds.MessageRecord):
            outcome = self._message(source, record)
            # A turn of a node that no file has shown yet is kept, invisible until the node arrives.
            self._count(source, "waiting" if outcome == "stored" and record.node_id not in self.nodes else outcome)
        elif isinstance(record, kinds.ChangeRecord):
            self._count(source, self._change(source, record))
        elif isinstance(record, kinds.SessionRecord):
            self._count(source, self._session(source, record))
        elif isinstance(record, kinds.TaskRecord):
            self._count(source, self._task(source, record))
        elif isinstance(record, kinds.TagRecord):
            self._count(source, self._tag(source, record))
        elif isinstance(record, kinds.Repeated):
            self._count(source, "already_there", record.count)
        elif isinstance(record, kinds.Conflicting):
            self._count(source, "conflicting", record.count)
            self._keep(source, record.place, record.reason, record.data)
        elif isinstance(record, kinds.Quarantined):
            self._count(source, "quarantined")
            self.found.reasons[record.reason] += 1
            self._keep(source, record.place, record.reason, record.data)
        else:
            self._count(source, "waiting" if isinstance(record, kinds.Waiting) else "stripped")

    def _node(self, source: Source, record: kinds.NodeRecord) -> str:
        row = node_row(record, source.source_id, self.tables.home)
        known = self.nodes.get(record.node_id)
        if known is not None:
            differs = [name for name in SAME_NODE if known[name] != row[name]]
            if known["session_id"] != record.session_id:
                differs.append("session_id")
            return self._known(source, record, known, differs, f"node {record.node_id}")
        row["log_counts"] = record.visits is not None
        row["task_id"] = record.task_id or self.sessions[record.session_id]["task_id"]
        self.nodes[record.node_id] = row
        self.corrections.add_node(row)
        self.found.nodes.append(row)
        return "stored"

    def _message(self, source: Source, record: kinds.MessageRecord) -> str:
        row = message_row(record, source.source_id)
        known = self.messages.get((record.node_id, record.turn))
        if known is not None:
            differs = [name for name in SAME_TURN if known[name] != row[name]]
            return self._known(source, record, known, differs, f"turn {record.turn} of node {record.node_id}")
        self.messages[record.node_id, record.turn] = row
        self.found.messages.append(row)
        return "stored"

    def _change(self, source: Source, record: kinds.ChangeRecord) -> str:
        row = change_row(record, source.source_id)
        is_late = is_correction(record.field, self.sessions[record.session_id]["status"])
        if is_late and record.recorded_step is None:
            known = self.corrections.stored_row(record, row)
            if known is None:
                row |= {"recorded_step": self.corrections.recorded_step(record), "n": 0}
        else:
            known = self.changes.get(change_key(row))
        if known is not None and _is_recorded(known):
            differs = ["new_value"] if known["new_value"] != row["new_value"] else []
            outcome = self._known(source, record, known, differs, f"change of {record.field} at step {record.step}")
            if outcome == STORED_BEFORE:
                self.found.reread_changes.add(record.session_id)
            return outcome
        self.changes[change_key(row)] = row
        self.corrections.add_change(row)
        self.found.changes.append(row)
        return "stored"

    def _session(self, source: Source, record: kinds.SessionRecord) -> str:
        row = session_row(record, source.source_id)
        known = self.sessions.get(record.session_id)
        if known is None:
            self.sessions[record.session_id] = row
            return "stored"
        differs = ["task_id"] if row["task_id"] and known["task_id"] and row["task_id"] != known["task_id"] else []
        if differs:
            return self._known(source, record, known, differs, f"session {record.session_id}")
        stated = {name: value for name, value in row.items() if value is not None and name not in KEPT_OF_A_SESSION}
        if known["task_id"] is None and row["task_id"] is not None:
            stated["task_id"] = row["task_id"]
        return self._update(source, known, stated)

    def _task(self, source: Source, record: kinds.TaskRecord) -> str:
        row = task_row(record, source.source_id)
        known = self.tasks.get(record.task_id)
        if known is None:
            self.tasks[record.task_id] = self.found.tasks[record.task_id] = row
            return "stored"
        # What one file does not know another may add; what is known stays.
        stated = {name: value for name, value in row.items() if value is not None and known[name] is None}
        outcome = self._update(source, known, stated)
        if outcome == "stored":
            self.found.tasks[record.task_id] = known
        return outcome

    def _tag(self, source: Source, record: kinds.TagRecord) -> str:
        row = tag_row(record, source.source_id, self.tagged_at)
        if row["assignment_id"] in self.tag_ids:
            return STORED_BEFORE
        self.tag_ids.add(row["assignment_id"])
        self.found.tags.append(row)
        return "stored"

    def _known(self, source: Source, record: Any, known: Row, differs: list[str], what: str) -> str:
        if not differs:
            return _there(source, known)
        reason = f"{what} is known with another {', '.join(differs)}; the first stays"
        if not source.has_own_run:
            reason += "; if this is another run, name it with --run NAME"
        data = (json_text(asdict(record)) or "").encode("utf-8", "backslashreplace")
        self._keep(source, record.place or source.file.name, reason, data)
        return "conflicting"

    def _update(self, source: Source, known: Row, stated: Row) -> str:
        changed = {name: value for name, value in stated.items() if known[name] != value}
        known.update(changed)
        return "stored" if changed else _there(source, known)

    def _keep(self, source: Source, place: str, reason: str, data: bytes) -> None:
        row = quarantine_row(
            place,
            reason,
            data,
            source_id=source.source_id,
            path=source.file.name,
            log_format=source.format,
            now=self.now,
        )
        self.found.quarantine.append(row)

    def _count(self, source: Source, outcome: str, count: int = 1) -> None:
        self.found.outcomes[source.source_id][outcome] += count


def _there(source: Source, known: Row) -> str:
    return STORED_BEFORE if known["source_id"] == source.source_id else "already_there"


def _is_recorded(row: Row) -> bool:
    return bool(row["origin"] == "recorded")

"""Brings a batch of records into the tables: compared with what is there, rebuilt by session, written in order.

The order of the commits makes a crash harmless: what a node needs is written before the node, and the row in
`sources` that says a file is done comes last. Whoever loses a race for `nodes` plans everything again.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from store.delta import LostRace, Tables, plan_again_until_committed
from store.errors import BadInput
from store.ids import stable_id
from transforms import records as kinds
from transforms.clocks import ENDED
from transforms.compare import Comparison, compare_records
from transforms.counts import SourceCounts
from transforms.rebuild import Genealogy, Rebuilt, rebuild_session
from transforms.records import Record, Source
from transforms.rows import set_digests
from transforms.stored import Stored, load_sessions, nodes_elsewhere, rows_in
from transforms.structure import Row, edges_of
from transforms.write import Progress, add_commit, commit_difference, register_sessions, replace_changes

BATCH_BYTES = 32 * 2**20  # of text; bounds what an ingest holds in memory


@dataclass
class Batch:
    """Records that go into the tables together, each with the file it came from.

    `tags` are those that the person named, in no file: (session_id, tag). `must_not_conflict` are sources that the
    person named and of which only --run can say whether they are another run. `records_before` counts the records of
    the same ingest that earlier batches held: tags are recorded a microsecond apart, so that the last line counts.
    """

    items: list[tuple[Source, Record]] = field(default_factory=list)
    tags: list[tuple[str, str]] = field(default_factory=list)
    must_not_conflict: set[str] = field(default_factory=set)
    records_before: int = 0
    size_bytes: int = 0

    def add(self, source: Source, record: Record) -> None:
        """Take one record."""
        self.items.append((source, record))
        if isinstance(record, kinds.NodeRecord):
            self.size_bytes += 500 + len(record.artifact or "")
            self.size_bytes += sum(100 + len(turn.content or "") for turn in record.messages)
        elif isinstance(record, kinds.MessageRecord):
            self.size_bytes += 100 + len(record.content or "")
        else:
            self.size_bytes += 200

    def following(self) -> "Batch":
        """An empty batch for the records that come next."""
        before = self.records_before + len(self.items)
        return Batch(must_not_conflict=self.must_not_conflict, records_before=before)

    @property
    def is_full(self) -> bool:
        """Whether it should be stored before more is read."""
        return self.size_bytes >= BATCH_BYTES


def store_batch(
    tables: Tables,
    batch: Batch,
    counts: dict[str, SourceCounts],
    reasons: Counter[str],
    *,
    now: datetime,
    say: Progress,
) -> Counter[str]:
    """Store a batch; count what became of each record.

    Args:
        tables: All tables.
        batch: The records; every session that a node names is in it or stored.
        counts: Books per source_id, added to.
        reasons: Reasons of what is quarantined, added to.
        now: Clock for tags and quarantine; a tag is recorded up to a microsecond per record later.
        say: Called after each table.

    Returns:
        Rows inserted, by table.

    Raises:
        BadInput: A source of `must_not_conflict` conflicts; nothing was written.
        CommitConflict: Other writers kept committing first.
    """
    added: Counter[str] = Counter()
    counted = False

    def attempt() -> None:
        nonlocal counted
        stored = load_sessions(tables, _session_ids(batch))
        clock = now + timedelta(microseconds=batch.records_before)
        comparison = compare_records(tables, batch.items, stored, now=clock)
        comparison.tags += _named_tags(tables, batch.tags, clock + timedelta(microseconds=len(batch.items)))
        _refuse_collisions(batch, comparison)
        if not counted:  # a lost race must not count our own first try as already there
            comparison.add_to(counts)
            reasons.update(comparison.reasons)
            counted = True
        _write(tables, comparison, stored, added, say)

    plan_again_until_committed(attempt)
    return added


def _named_tags(tables: Tables, named: list[tuple[str, str]], now: datetime) -> list[Row]:
    """Rows for tags of sessions that do not stand already; one that was taken away since gets another id."""
    stored = rows_in(tables, "tag_assignments", "target_id", [session_id for session_id, _ in named])
    stored.sort(key=lambda row: (row["recorded_at"], row["assignment_id"]))
    latest = {(row["target_id"], row["tag"]): row for row in stored if row["target_kind"] == "session"}
    rows = []
    for session_id, tag in named:
        last = latest.get((session_id, tag))
        if last is not None and last["action"] == "add":
            continue
        above = [] if last is None else [last["assignment_id"]]
        rows.append(
            {
                "assignment_id": stable_id("g", "--tag", session_id, tag, *above),
                "target_kind": "session",
                "target_id": session_id,
                "tag": tag,
                "action": "add",
                "reason": "named at ingest",
                "actor": "ingest",
                "recorded_at": now,
            }
        )
    return rows


def _refuse_collisions(batch: Batch, found: Comparison) -> None:
    for source, _ in batch.items:
        if source.source_id in batch.must_not_conflict and found.outcomes[source.source_id]["conflicting"]:
            raise BadInput(
                f"{source.file.path} names its nodes as an ingested run does and holds other content; "
                "if it is another run, say so with --run NAME, if it is the same one, its log was edited."
            )


def _session_ids(batch: Batch) -> set[str]:
    named = (kinds.SessionRecord, kinds.NodeRecord, kinds.MessageRecord, kinds.ChangeRecord)
    return {record.session_id for _, record in batch.items if isinstance(record, named)}


def _write(tables: Tables, found: Comparison, stored: Stored, added: Counter[str], say: Progress) -> None:
    rebuilt = _rebuild_touched(tables, found, stored)
    for session_id, session in rebuilt.items():
        found.sessions[session_id]["next_step"] = session.next_step
    numbered, commit = register_sessions(tables, [_before_its_end(row) for row in found.sessions.values()])
    add_commit(added, "sessions", commit)
    say("numbered sessions")

    nodes = [row for session in rebuilt.values() for row in session.nodes]
    changes = [row for session in rebuilt.values() for row in session.changes]
    for row in (*nodes, *changes, *found.messages, *found.sessions.values()):
        row["session_seq"] = numbered[row["session_id"]]["session_seq"]
    new_ids = {row["node_id"] for row in found.nodes}
    edges = edges_of(row for row in nodes if row["node_id"] in new_ids)
    seqs = {numbered[session_id]["session_seq"] for session_id in rebuilt}

    add_commit(added, "tag_assignments", commit_difference(tables, "tag_assignments", found.tags, insert_only=True))
    say("wrote tag_assignments")
    add_commit(added, "prompt_history", commit_difference(tables, "prompt_history", found.messages, insert_only=True))
    say("wrote prompt_history")
    add_commit(added, "change_log", replace_changes(tables, changes, seqs))
    say("wrote change_log")
    add_commit(added, "node_edges", commit_difference(tables, "node_edges", edges, insert_only=True))
    say("wrote node_edges")
    add_commit(added, "tasks", commit_difference(tables, "tasks", list(found.tasks.values())))
    say("wrote tasks")
    add_commit(added, "sessions", commit_difference(tables, "sessions", list(found.sessions.values())))
    say("wrote sessions")
    commit = commit_difference(tables, "nodes", nodes, planned_at=stored.nodes_version)
    add_commit(added, "nodes", commit)
    if commit is None and nodes and tables.version("nodes") != stored.nodes_version:
        raise LostRace("nodes moved while their change log was written")
    say("wrote nodes")
    add_commit(added, "quarantine", commit_difference(tables, "quarantine", found.quarantine, insert_only=True))
    say("wrote quarantine")


def _before_its_end(row: Row) -> Row:
    """A new session while its rows are written: its end comes after its changes, which it would make corrections."""
    return row | {"status": None} if row["status"] in ENDED else row


def _rebuild_touched(tables: Tables, found: Comparison, stored: Stored) -> dict[str, Rebuilt]:
    """Rebuild every session that gets a node, a turn or a change, and those whose nodes it gives an ancestor."""
    new_nodes: dict[str, list[Row]] = defaultdict(list)
    new_changes: dict[str, list[Row]] = defaultdict(list)
    for row in found.nodes:
        new_nodes[row["session_id"]].append(row)
    for row in found.changes:
        new_changes[row["session_id"]].append(row)
    touched = {*new_nodes, *new_changes, *found.reread_changes, *(row["session_id"] for row in found.messages)}
    if not touched:
        return {}
    _load_descendants_elsewhere(tables, found, stored, touched)
    genealogy = _genealogy(tables, found, stored)
    _set_all_digests(found, stored)
    failure_rewards = _failure_rewards(tables, found)
    return {
        session_id: rebuild_session(
            session_id,
            stored,
            new_nodes[session_id],
            new_changes[session_id],
            genealogy,
            failure_reward=failure_rewards.get(found.sessions[session_id]["task_id"]),
        )
        for session_id in sorted(touched)
    }


def _failure_rewards(tables: Tables, found: Comparison) -> dict[str, float | None]:
    """What a failure is rewarded with, by task."""
    task_ids = [row["task_id"] for row in found.sessions.values()]
    tasks = {row["task_id"]: row for row in rows_in(tables, "tasks", "task_id", task_ids)} | found.tasks
    return {task_id: row["failure_reward"] for task_id, row in tasks.items()}


def _load_descendants_elsewhere(tables: Tables, found: Comparison, stored: Stored, touched: set[str]) -> None:
    """Touch every stored session in which a node waited, however far down, for one of the new nodes as ancestor."""
    asked: set[str] = set()
    above = {row["node_id"] for row in found.nodes}
    while above:
        children = nodes_elsewhere(tables, stored.nodes_version, "parent_id", above)
        asked |= above
        sessions = {row["session_id"] for row in children}
        if sessions - set(stored.sessions):
            more = load_sessions(tables, sessions - set(stored.sessions))
            if more.nodes_version != stored.nodes_version:
                raise LostRace("nodes moved while descendants were read")
            for name in ("sessions", "nodes", "messages", "changes"):
                getattr(stored, name).update(getattr(more, name))
            for session_id, row in more.sessions.items():
                found.sessions.setdefault(session_id, dict(row))
        touched |= sessions
        above = {row["node_id"] for row in stored.nodes.values() if row["session_id"] in sessions} - asked


def _genealogy(tables: Tables, found: Comparison, stored: Stored) -> Genealogy:
    genealogy = Genealogy()
    genealogy.add(stored.nodes.values())
    genealogy.add(found.nodes)
    missing = {parent for parent in genealogy.parents.values() if parent and parent not in genealogy.parents}
    for row in nodes_elsewhere(tables, stored.nodes_version, "node_id", missing):
        genealogy.add_path(row)
    return genealogy


def _set_all_digests(found: Comparison, stored: Stored) -> None:
    """Digests of every node that is new or has a new turn, over all its turns."""
    turns: dict[str, list[Row]] = defaultdict(list)
    for row in (*stored.messages.values(), *found.messages):
        turns[row["node_id"]].append(row)
    changed = {row["node_id"] for row in found.messages}
    for row in found.nodes:
        set_digests(row, turns[row["node_id"]])
    for node_id in changed & set(stored.nodes):
        set_digests(stored.nodes[node_id], turns[node_id])

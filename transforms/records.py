"""What the log readers yield: frozen records that already carry the ids of the tables, and nothing of any format.

A reader knows one log format and no table; what comes after it knows the tables and no format. Fields that a log
does not state are None. Steps count from 0. `place` says where in the file a record stood.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JsonValue = Any


@dataclass(frozen=True)
class LogFile:
    """One file of a log, as found on disk.

    `name` is its path relative to what the person named; `digest` the SHA-256 of its bytes.
    """

    path: Path
    name: str
    digest: str
    size_bytes: int


@dataclass(frozen=True)
class Source:
    """One ingested file as a part of its run; a renamed copy of the file is the same source.

    `has_own_run` is false where only the log's first record tells its run from another one; then a conflict may
    mean that two runs collide, which `--run` can say.
    """

    source_id: str
    file: LogFile
    format: str
    reader_version: str
    has_own_run: bool = True


@dataclass(frozen=True)
class TaskRecord:
    """What a search tries to solve. `baseline_fitness` is higher-is-better already."""

    task_id: str
    domain: str | None = None
    specification: str | None = None
    metric: str | None = None
    direction: str | None = None
    baseline_fitness: float | None = None
    baseline_basis: str | None = None
    failure_reward: float | None = None
    place: str | None = None


@dataclass(frozen=True)
class SessionRecord:
    """One run of one search. `config`, `skills` and `budget` are JSON values."""

    session_id: str
    task_id: str | None
    user_id: str | None = None
    algorithm: str | None = None
    model: str | None = None
    run_id: str | None = None
    config: JsonValue = None
    skills: JsonValue = None
    budget: JsonValue = None
    ucb_constant: float | None = None
    status: str | None = None
    place: str | None = None


@dataclass(frozen=True)
class MessageRecord:
    """One chat turn of a node: its prompt turns, then the answer as the last assistant turn."""

    node_id: str
    session_id: str
    turn: int
    role: str
    content: str | None = None
    tool_calls: JsonValue = None
    tool_call_id: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    model_id: str | None = None
    tokenizer_digest: str | None = None
    finish_reason: str | None = None
    fidelity: str = "recorded"
    place: str | None = None


@dataclass(frozen=True)
class ContextRef:
    """Another node whose content was shown, pinned at the step of its session at which it was shown."""

    node_id: str
    session_id: str | None = None
    step: int | None = None
    role: str | None = None


@dataclass(frozen=True)
class LogOrder:
    """Where a log without steps puts a node: sorted by seconds, then by iteration, then by the native id.

    `seconds` is when the attempt was complete. It orders nodes and is never a step itself.
    """

    seconds: float | None
    iteration: int | None
    native_id: str

    def sort_key(self) -> tuple[float, int, str]:
        """Nodes without a time come first, by iteration."""
        return (
            float("-inf") if self.seconds is None else self.seconds,
            -1 if self.iteration is None else self.iteration,
            self.native_id,
        )

    def to_json(self) -> list[JsonValue]:
        """What `nodes.evidence` keeps, so that a later file can be fitted in."""
        return [self.seconds, self.iteration, self.native_id]


@dataclass(frozen=True)
class NodeRecord:
    """One attempt. `fitness` is finite and higher-is-better, or None; `reward` is what the log or its rule states.

    Exactly one of `step` (the log counts steps), `order` (the log orders its nodes otherwise) and neither (the
    order of the records counts) says where the node stands in its session.
    """

    node_id: str
    session_id: str
    task_id: str | None
    parent_id: str | None = None
    step: int | None = None
    order: LogOrder | None = None
    selected_step: int | None = None
    context: tuple[ContextRef, ...] = ()
    context_mode: str | None = None
    generation: int | None = None
    island: str | None = None
    operator: str | None = None
    copy_of: str | None = None
    copy_kind: str | None = None
    artifact: str | None = None
    fitness: float | None = None
    reward: float | None = None
    fitness_basis: str | None = "reported"
    environment: JsonValue = None
    metrics: JsonValue = None
    is_buggy: bool | None = None
    failure_class: str | None = None
    evidence: JsonValue = None
    verifier: str | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    outcome: str | None = None
    idempotency_key: str | None = None
    visits: int | None = None
    total_reward: float | None = None
    model: str | None = None
    messages: tuple[MessageRecord, ...] = ()
    place: str | None = None


@dataclass(frozen=True)
class ChangeRecord:
    """An assignment of a field that the log itself recorded; `node_id` None is the session's own field.

    Without a `recorded_step` it was written down at its step, or after the end of a session that is finished; then
    `said_before` (lines of the file before this one that say the same) tells whether it is stored already. A file
    that has shown no node yet (`has_nodes`) is a list of corrections, of which no other file holds a part.
    """

    session_id: str
    node_id: str | None
    field: str
    step: int
    recorded_step: int | None
    value: JsonValue
    n: int = 0
    said_before: int = 0
    has_nodes: bool = True
    place: str | None = None


@dataclass(frozen=True)
class TagRecord:
    """A governance tag put on, or taken off, a source, task, session, node or message."""

    target_kind: str
    target_id: str
    tag: str
    action: str = "add"
    reason: str | None = None
    actor: str | None = None
    place: str | None = None
    """Also tells two equal assignments of one file apart."""


@dataclass(frozen=True)
class Repeated:
    """Records that this log holds again, equal to ones already yielded (an overlapping checkpoint)."""

    count: int


@dataclass(frozen=True)
class Conflicting:
    """A record with a known key and other content; the first stays, this one's bytes go to quarantine."""

    place: str
    reason: str
    data: bytes
    count: int = 1


@dataclass(frozen=True)
class Stripped:
    """A record left out by rule."""

    place: str
    reason: str


@dataclass(frozen=True)
class Waiting:
    """A record that names something no file has shown yet; its file is read again next time."""

    place: str
    reason: str


@dataclass(frozen=True)
class Quarantined:
    """What could not be read: its bytes, its place, and why."""

    place: str
    reason: str
    data: bytes = field(repr=False)


Record = (
    TaskRecord
    | SessionRecord
    | NodeRecord
    | MessageRecord
    | ChangeRecord
    | TagRecord
    | Repeated
    | Conflicting
    | Stripped
    | Waiting
    | Quarantined
)

"""From records to rows of the tables: JSON columns as canonical text, artifacts by digest, digests of content."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from store.artifacts import store_artifact
from store.home import Home
from store.ids import canonical_json, message_digest, number_text, sha256_text, stable_id
from store.schema import TABLES
from transforms.records import ChangeRecord, MessageRecord, NodeRecord, SessionRecord, TagRecord, TaskRecord
from transforms.scoring import json_safe, plain_text
from transforms.structure import ORDER_KEY, Row


def to_arrow(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an arrow table with the declared columns; what a row leaves out is NULL, what it has more is dropped."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=TABLES[name].columns)


def json_text(value: Any) -> str | None:
    """A JSON value as a column holds it; None stays NULL."""
    return None if value is None else canonical_json(json_safe(value))


def task_row(record: TaskRecord, source_id: str) -> Row:
    """A row of `tasks`."""
    return _columns(record, "tasks") | {"source_id": source_id}


def session_row(record: SessionRecord, source_id: str) -> Row:
    """A row of `sessions`, less session_seq; a session without nodes is before step 0."""
    row = _columns(record, "sessions")
    row.update({name: json_text(getattr(record, name)) for name in ("config", "skills", "budget")})
    return row | {"next_step": 0, "session_seq": None, "source_id": source_id}


def message_row(record: MessageRecord, source_id: str) -> Row:
    """A row of `prompt_history`, less session_seq."""
    row = _columns(record, "prompt_history")
    row["tool_calls"] = json_text(record.tool_calls)
    row["token_ids"] = None if record.token_ids is None else list(record.token_ids)
    row["logprobs"] = None if record.logprobs is None else list(record.logprobs)
    return row | {"session_seq": None, "source_id": source_id}


def change_row(record: ChangeRecord, source_id: str) -> Row:
    """A recorded row of `change_log`, less session_seq and old_value; written down at its step unless it says when."""
    row = _columns(record, "change_log")
    value = canonical_json(json_safe(record.value))
    row["recorded_step"] = record.step if record.recorded_step is None else record.recorded_step
    return row | {"old_value": None, "new_value": value, "origin": "recorded", "source_id": source_id}


def tag_row(record: TagRecord, source_id: str, now: Any) -> Row:
    """A row of `tag_assignments`; the same assignment from the same file has the same id."""
    # A file's own tag goes to the id under which the file is known here.
    target_id = source_id if record.target_kind == "source" else record.target_id
    parts = (record.target_kind, target_id, record.tag, record.action, record.place)
    row = _columns(record, "tag_assignments") | {"target_id": target_id}
    return row | {"assignment_id": stable_id("g", source_id, *parts), "recorded_at": now}


def node_row(record: NodeRecord, source_id: str, home: Home) -> Row:
    """A row of `nodes`, less what depends on the rest of its session; a long artifact is written as a file."""
    row = _columns(record, "nodes")
    evidence = dict(record.evidence or {})
    if record.order is not None:
        evidence[ORDER_KEY] = record.order.to_json()
    artifact = None if record.artifact is None else plain_text(record.artifact)
    inline, digest = store_artifact(home, artifact)
    environment = json_text(record.environment)
    row.update(
        session_seq=None,
        context=[asdict(shown) for shown in record.context],
        artifact=inline,
        artifact_digest=digest,
        fitness_text=number_text(record.fitness),
        reward_text=number_text(record.reward),
        environment=environment,
        environment_digest=None if environment is None else sha256_text(environment),
        metrics=json_text(record.metrics),
        evidence=json_text(evidence or None),
        source_id=source_id,
        source_place=record.place,
    )
    return row


def set_digests(row: Row, messages: list[Row]) -> None:
    """Fill prompt_digest and content_digest of a node from all its turns, in order."""
    ordered = sorted(messages, key=lambda turn: turn["turn"])
    prompt = prompt_turns(ordered)
    row["prompt_digest"] = message_digest(prompt) if prompt else None
    row["content_digest"] = sha256_text(canonical_json([row["artifact_digest"], message_digest(ordered)]))


def prompt_turns(ordered: list[Row]) -> list[Row]:
    """What the proposer saw: the turns before the answer, which is the last assistant turn; all where there is none."""
    answers = [place for place, turn in enumerate(ordered) if turn["role"] == "assistant"]
    return ordered[: answers[-1]] if answers else ordered


def _columns(record: Any, table: str) -> Row:
    """The record's fields that are columns of the table, with text that UTF-8 can hold."""
    row: Row = {}
    for name in TABLES[table].columns.names:
        value = getattr(record, name, None)
        row[name] = plain_text(value) if isinstance(value, str) else value
    return row

"""Tasks and sessions in the ledger: what is searched, and how far each search is."""

import json
from typing import Any

from sqlalchemy import Connection, RowMapping, select, update

from store import ledger_schema as schema
from store.errors import UnknownName
from store.ids import canonical_json
from store.ledger_commit import FeedWriter
from store.ledger_rows import NewSession, SessionState


def put_task_row(connection: Connection, row: dict[str, Any]) -> None:
    """Insert a task, or update the columns that are given where one differs."""
    columns = schema.fed_columns("tasks")
    unknown = sorted(set(row) - set(columns))
    if unknown:
        raise UnknownName(f"tasks have no column {', '.join(unknown)}; they have {', '.join(columns)}.")
    tasks = schema.tasks
    is_this_task = tasks.c.task_id == row["task_id"]
    stored = connection.execute(select(tasks).where(is_this_task)).mappings().first()
    with FeedWriter(connection) as writer:
        if stored is None:
            writer.insert(tasks, [{**dict.fromkeys(columns), **row}])
        elif any(stored[column] != value for column, value in row.items()):
            connection.execute(update(tasks).where(is_this_task).values(**row, feed_seq=writer.next_number()))


def add_session(connection: Connection, session: NewSession) -> None:
    """Insert a session unless its id is there."""
    sessions = schema.sessions
    known = connection.execute(select(sessions.c.session_id).where(sessions.c.session_id == session.session_id))
    if known.first() is not None:
        return
    row: dict[str, Any] = dict.fromkeys(schema.fed_columns("sessions"))
    row.update(
        session_id=session.session_id,
        task_id=session.task_id,
        next_step=0,
        user_id=session.user_id,
        algorithm=session.algorithm,
        model=session.model,
        run_id=session.run_id,
        config=canonical_json(session.settings),
        budget=canonical_json({"attempts": session.attempts}),
        ucb_constant=session.ucb_constant,
        status="running",
        seed=session.seed,
        group_size=session.group_size,
        failure_reward=session.failure_reward,
        attempts_limit=session.attempts,
        attempts_reserved=0,
        attempts_settled=0,
        next_ordinal=0,
        model_dir=session.model_dir,
    )
    with FeedWriter(connection) as writer:
        writer.insert(sessions, [row])


def read_sessions(connection: Connection) -> list[SessionState]:
    """Every session, in the order in which they were last written."""
    rows = connection.execute(select(schema.sessions).order_by(schema.sessions.c.feed_seq)).mappings()
    return [_session_state(row) for row in rows]


def read_session(connection: Connection, session_id: str) -> SessionState:
    """One session; an unknown one is answered with the latest of those there are."""
    sessions = schema.sessions
    row = connection.execute(select(sessions).where(sessions.c.session_id == session_id)).mappings().one_or_none()
    if row is not None:
        return _session_state(row)
    latest = connection.execute(select(sessions.c.session_id).order_by(sessions.c.feed_seq.desc()).limit(5)).scalars()
    raise UnknownName(f"session {session_id} is not in this ledger; the latest are {', '.join(latest) or 'none yet'}.")


def set_session_status(connection: Connection, session_id: str, status: str, reason: str | None) -> None:
    """Change a session's status and the reason for it."""
    sessions = schema.sessions
    is_this_session = sessions.c.session_id == session_id
    current = read_session(connection, session_id)
    if (current.status, current.status_reason) != (status, reason):
        with FeedWriter(connection) as writer:
            values = {"status": status, "status_reason": reason, "feed_seq": writer.next_number()}
            connection.execute(update(sessions).where(is_this_session).values(values))


def _session_state(row: RowMapping) -> SessionState:
    names = set(SessionState.__dataclass_fields__) - {"settings"}
    return SessionState(settings=json.loads(row["config"]), **{name: row[name] for name in names})

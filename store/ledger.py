"""The search ledger: the live state of running searches, in SQL; a claim or a commit takes milliseconds.

Workers hold no state of their own: whatever one of them has claimed, another can finish. What is committed here
flows into the lakehouse through `feed`, like any other log.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, func, insert, inspect, select, update

from store import ledger_schema as schema
from store.errors import BadInput, UnknownName
from store.home import Home
from store.ids import stable_id
from store.ledger_claims import frontier_rows, take_claim
from store.ledger_commit import check_fence, commit_attempt, extend_lease
from store.ledger_connection import connect, database_clock, transaction
from store.ledger_rows import (
    Chooser,
    Claim,
    Committed,
    FeedEntry,
    FrontierRow,
    NewSession,
    Prompter,
    Proposal,
    SessionState,
)
from store.ledger_sessions import add_session, put_task_row, read_session, read_sessions, set_session_status
from store.verdicts import Verdict


def open_ledger(
    home_or_url: Home | str,
    *,
    busy_seconds: float = 10.0,
    ledger_id: str | None = None,
    at_point: Callable[[str], None] | None = None,
) -> "Ledger":
    """Open the ledger of a home, or the one at a database URL, and create what is missing.

    Args:
        home_or_url: A home folder, or an SQLAlchemy address such as `sqlite:///ledger.sqlite`.
        busy_seconds: How long to wait for another writer before giving up.
        ledger_id: The id a new ledger gets; drawn at random where it is None. An existing ledger keeps its own.
        at_point: Called with the name of each point at which a crash must cost nothing; tests kill there.

    Raises:
        LedgerBusy: Another process holds the write lock.
        HomeNotUsable: The database file cannot be opened or written.
        BadInput: The file is no ledger, or one of another schema version.
    """
    url = home_or_url.ledger_url if isinstance(home_or_url, Home) else home_or_url
    return Ledger(url, busy_seconds=busy_seconds, ledger_id=ledger_id, at_point=at_point)


class Ledger:
    """One open ledger; safe to share between threads, not to carry over a fork."""

    def __init__(
        self, url: str, *, busy_seconds: float, ledger_id: str | None, at_point: Callable[[str], None] | None
    ) -> None:
        self._busy_seconds = busy_seconds
        self._engine = connect(url, busy_seconds=busy_seconds)
        self._at_point = at_point or (lambda name: None)
        self.ledger_id = self._set_up(ledger_id)

    def close(self) -> None:
        """Let go of the database file."""
        self._engine.dispose()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _writing(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, writes=True, busy_seconds=self._busy_seconds)

    def _reading(self) -> AbstractContextManager[Connection]:
        return transaction(self._engine, writes=False, busy_seconds=self._busy_seconds)

    def _set_up(self, ledger_id: str | None) -> str:
        with self._reading() as connection:  # a ledger that is there is opened without the write lock
            is_there = inspect(connection).has_table(schema.ledger.name)
        if not is_there:
            with self._writing() as connection:
                schema.metadata.create_all(connection)
                if connection.execute(select(schema.ledger)).first() is None:
                    new_id = ledger_id or f"ledger_{uuid.uuid4().hex}"
                    connection.execute(
                        insert(schema.ledger).values(ledger_id=new_id, schema_version=schema.SCHEMA_VERSION, feed_seq=0)
                    )
        with self._reading() as connection:
            row = connection.execute(select(schema.ledger)).one()
        if row.schema_version != schema.SCHEMA_VERSION:
            raise BadInput(
                f"ledger {self._engine.url.render_as_string(hide_password=True)} has schema version "
                f"{row.schema_version}, and this program reads {schema.SCHEMA_VERSION}; name another home with --home."
            )
        return str(row.ledger_id)

    # ---- tasks and sessions

    def put_task(self, row: dict[str, Any]) -> None:
        """Add a task, or change what is known of it; an equal one changes nothing.

        Args:
            row: Values by the column names of `tasks`; a column that is left out stays as it is, NULL in a new task.

        Raises:
            UnknownName: A key is no column of `tasks`.
        """
        with self._writing() as connection:
            put_task_row(connection, row)

    def start_session(self, make: Callable[[str], NewSession], *parts: str | int | None) -> SessionState:
        """Add a session under an id that follows from its settings: the same settings again give another session.

        The id is chosen in the transaction that adds the session, so two searches that begin at once never share one.

        Args:
            make: From the id to the session, which may bear another; one that is there already stays as it is.
            parts: The settings that tell sessions apart.
        """
        with self._writing() as connection:
            known = set(connection.execute(select(schema.sessions.c.session_id)).scalars())
            launch = 0
            while (session_id := stable_id("s", self.ledger_id, *parts, launch)) in known:
                launch += 1
            session = make(session_id)
            add_session(connection, session)
        return self.session(session.session_id)

    def session(self, session_id: str) -> SessionState:
        """Where one session stands.

        Raises:
            UnknownName: There is no such session.
        """
        with self._reading() as connection:
            return read_session(connection, session_id)

    def sessions(self) -> list[SessionState]:
        """Every session, in the order in which they were last written."""
        with self._reading() as connection:
            return read_sessions(connection)

    def set_status(self, session_id: str, status: str, reason: str | None = None) -> None:
        """Say how a session stands (running, paused, done, failed) and why; the same again changes nothing.

        Raises:
            UnknownName: There is no such session.
        """
        with self._writing() as connection:
            set_session_status(connection, session_id, status, reason)

    # ---- claim, propose, commit

    def claim(
        self,
        session_id: str,
        *,
        worker_id: str,
        lease_seconds: float,
        choose: Chooser,
        make_prompt: Prompter,
    ) -> Claim | None:
        """Take the next group to make, an expired one first; None where nothing can be claimed now.

        The first claim of a session (ordinal 0) is its root: one node, no parent, no prompt, no attempt spent.
        Choice, prompt and reservation are one transaction, so two workers never spend the same attempt.

        Args:
            session_id: The session.
            worker_id: Who asks.
            lease_seconds: How long the claim is safe without a sign of life.
            choose: The policy: frontier rows to a choice, or None where it finds no parent.
            make_prompt: The chosen parent's artifact to the prompt that all siblings share.
        """
        with self._writing() as connection:
            claim = take_claim(
                connection,
                session_id,
                worker_id=worker_id,
                lease_seconds=lease_seconds,
                choose=choose,
                make_prompt=make_prompt,
            )
        if claim is not None:
            self._at_point("after claim")
        return claim

    def save_proposals(self, claim: Claim, proposals: Mapping[int, Proposal]) -> dict[int, Proposal]:
        """Keep siblings' answers before they are judged, all or none; one that was kept earlier wins.

        This, like every commit, starts the lease anew.

        Returns:
            What is kept now, by sibling.

        Raises:
            CommitConflict: The claim was taken over by another worker.
        """
        table = schema.proposals
        with self._writing() as connection:
            check_fence(connection, claim)
            stored = connection.execute(
                select(table.c.sibling, table.c.content).where(table.c.claim_id == claim.claim_id)
            ).all()
            kept = {sibling: Proposal(**content) for sibling, content in stored}
            for sibling in sorted(set(proposals) - set(kept)):
                connection.execute(
                    insert(table).values(claim_id=claim.claim_id, sibling=sibling, content=proposals[sibling].to_json())
                )
            extend_lease(connection, claim)
        self._at_point("after proposals saved")
        return {**proposals, **kept}

    def commit_node(
        self, claim: Claim, sibling: int, proposal: Proposal, verdict: Verdict, *, seconds: float | None = None
    ) -> Committed:
        """Commit one judged sibling: node, prompt, counts along the path, change log, budget, in one transaction.

        Idempotent by (session, ordinal, sibling): the same content again is `already_there`; other content is
        a `conflict`, which is written down and changes nothing.

        Raises:
            CommitConflict: The claim was taken over by another worker.
        """
        self._at_point("after judged")
        with self._writing() as connection:
            committed = commit_attempt(connection, claim, sibling, proposal, verdict, seconds)
            self._at_point("mid-commit")
        self._at_point("after commit")
        return committed

    def release(self, session_id: str, workers: Iterable[str]) -> int:
        """End the leases of workers that are gone, so that their claims can be taken at once; returns how many."""
        claims = schema.claims
        with self._writing() as connection:
            result = connection.execute(
                update(claims)
                .where(claims.c.session_id == session_id, claims.c.state == "open", claims.c.worker_id.in_(workers))
                .values(lease_until=database_clock(connection))
            )
            return result.rowcount

    def workers_of(self, session_id: str) -> list[str]:
        """Who holds the session's open claims."""
        claims = schema.claims
        with self._reading() as connection:
            held = select(claims.c.worker_id).where(claims.c.session_id == session_id, claims.c.state == "open")
            return sorted(set(connection.execute(held).scalars()))

    # ---- reading

    def frontier(self, session_id: str) -> list[FrontierRow]:
        """The nodes that may become parents: scored and not buggy, in the order of their steps."""
        with self._reading() as connection:
            return frontier_rows(connection, session_id)

    def nodes(self, session_id: str) -> list[dict[str, Any]]:
        """A session's nodes by step, under the lakehouse's column names."""
        columns = schema.fed_columns("nodes")
        with self._reading() as connection:
            rows = connection.execute(
                select(schema.nodes).where(schema.nodes.c.session_id == session_id).order_by(schema.nodes.c.step)
            ).mappings()
            return [{column: row[column] for column in columns} for row in rows]

    def node(self, node_id: str) -> dict[str, Any]:
        """One node under the lakehouse's column names.

        Raises:
            UnknownName: There is no such node.
        """
        with self._reading() as connection:
            row = (
                connection.execute(select(schema.nodes).where(schema.nodes.c.node_id == node_id))
                .mappings()
                .one_or_none()
            )
        if row is None:
            raise UnknownName(f"node {node_id} is not in this ledger; `nodes(session_id)` lists a session's.")
        return {column: row[column] for column in schema.fed_columns("nodes")}

    def claims(self, session_id: str) -> list[dict[str, Any]]:
        """A session's claims by ordinal, with the numbers that its policy weighed."""
        table = schema.claims
        with self._reading() as connection:
            rows = connection.execute(
                select(table).where(table.c.session_id == session_id).order_by(table.c.ordinal)
            ).mappings()
            return [dict(row) for row in rows]

    def feed(self, after: int, limit: int) -> list[FeedEntry]:
        """Rows written or changed since feed number `after`, in feed order, at most `limit`.

        A row that was changed appears once, as it is now, under its latest number. Entry numbers rise, with gaps
        where a later change took a row's number away.
        """
        found: list[FeedEntry] = []
        with self._reading() as connection:
            for name in schema.FED_TABLES:
                table, columns = schema.FED[name], schema.fed_columns(name)
                rows = connection.execute(
                    select(table).where(table.c.feed_seq > after).order_by(table.c.feed_seq).limit(limit)
                ).mappings()
                found += [FeedEntry(row["feed_seq"], name, {key: row[key] for key in columns}) for row in rows]
        return sorted(found, key=lambda entry: entry.feed_seq)[:limit]

    def last_feed_seq(self) -> int:
        """The highest feed number given out; 0 in a new ledger."""
        with self._reading() as connection:
            return int(connection.execute(select(func.max(schema.ledger.c.feed_seq))).scalar_one())

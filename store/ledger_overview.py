"""How the searches of a ledger stand: budgets, workers, stuck claims, failures by class. Reads, never writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, func, inspect, select

from store import ledger_schema as schema
from store.home import Home
from store.ledger_connection import connect, database_clock, transaction

PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class SessionOverview:
    """One session: its state, its budget, and what became of its attempts; `task` is the name it was started with."""

    session_id: str
    task: str
    task_id: str
    algorithm: str
    model: str | None
    status: str
    status_reason: str | None
    attempts_limit: int
    attempts_reserved: int
    attempts_settled: int
    nodes: int
    buggy: int
    best_fitness: float | None
    open_claims: int
    stuck_claims: int
    workers: tuple[str, ...]

    @property
    def buggy_rate(self) -> float | None:
        """Failed attempts of all nodes; None before the first node."""
        return self.buggy / self.nodes if self.nodes else None


@dataclass(frozen=True)
class LedgerOverview:
    """Every session, in the order in which they were last written, and failures by class over all of them."""

    sessions: tuple[SessionOverview, ...]
    failure_classes: dict[str, int]


def read_ledger_overview(home: Home) -> LedgerOverview:
    """Read how the searches stand; empty where there is no ledger yet. A locked ledger can be read.

    Raises:
        LedgerBusy: The ledger is locked against reading too.
        HomeNotUsable: The database file cannot be opened.
        BadInput: The file is no ledger.
    """
    if home.ledger_url.startswith("sqlite:///") and not home.ledger_path.exists():
        return LedgerOverview((), {})
    engine = connect(home.ledger_url, busy_seconds=PATIENCE_SECONDS)
    try:
        with transaction(engine, writes=False, busy_seconds=PATIENCE_SECONDS) as connection:
            if not inspect(connection).has_table(schema.ledger.name):
                return LedgerOverview((), {})
            return LedgerOverview(_sessions(connection), _failure_classes(connection))
    finally:
        engine.dispose()


def _sessions(connection: Connection) -> tuple[SessionOverview, ...]:
    nodes, claims, sessions = schema.nodes, schema.claims, schema.sessions
    counts = {
        row.session_id: row
        for row in connection.execute(
            select(
                nodes.c.session_id,
                func.count().label("nodes"),
                func.sum(case((nodes.c.is_buggy.is_(True), 1), else_=0)).label("buggy"),
            ).group_by(nodes.c.session_id)
        )
    }
    is_expired = (claims.c.lease_until < database_clock(connection)).label("is_expired")
    open_claims: dict[str, list[Any]] = {}
    for claim in connection.execute(
        select(claims.c.session_id, claims.c.worker_id, is_expired).where(claims.c.state == "open")
    ):
        open_claims.setdefault(claim.session_id, []).append(claim)
    rows = connection.execute(select(sessions).order_by(sessions.c.feed_seq))
    return tuple(_overview(row, counts.get(row.session_id), open_claims.get(row.session_id, [])) for row in rows)


def _overview(session: Any, count: Any, claims: Sequence[Any]) -> SessionOverview:
    return SessionOverview(
        session_id=session.session_id,
        task=json.loads(session.config or "{}").get("task") or session.task_id,
        task_id=session.task_id,
        algorithm=session.algorithm,
        model=session.model,
        status=session.status,
        status_reason=session.status_reason,
        attempts_limit=session.attempts_limit,
        attempts_reserved=session.attempts_reserved,
        attempts_settled=session.attempts_settled,
        nodes=int(count.nodes) if count else 0,
        buggy=int(count.buggy) if count else 0,
        best_fitness=session.best_fitness,
        open_claims=len(claims),
        stuck_claims=sum(bool(claim.is_expired) for claim in claims),
        workers=tuple(sorted({claim.worker_id for claim in claims})),
    )


def _failure_classes(connection: Connection) -> dict[str, int]:
    failure_class = schema.nodes.c.failure_class
    rows = connection.execute(
        select(failure_class, func.count().label("nodes"))
        .where(failure_class.is_not(None))
        .group_by(failure_class)
        .order_by(func.count().desc(), failure_class)
    )
    return {row.failure_class: int(row.nodes) for row in rows}

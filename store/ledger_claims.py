"""Claims: who makes which group of siblings, from which parent, on whose budget."""

from typing import Any

from sqlalchemy import Connection, RowMapping, case, func, insert, select, update

from store import ledger_schema as schema
from store.errors import UnknownName
from store.ids import stable_id
from store.ledger_commit import prompt_digest_of
from store.ledger_connection import database_clock
from store.ledger_rows import Chooser, Claim, FrontierRow, Message, Prompter, Proposal, sibling_seed


def take_claim(
    connection: Connection,
    session_id: str,
    *,
    worker_id: str,
    lease_seconds: float,
    choose: Chooser,
    make_prompt: Prompter,
) -> Claim | None:
    """An expired claim under its old ordinal, else a new one; None where neither can be had."""
    sessions = schema.sessions
    session = (
        connection.execute(select(sessions).where(sessions.c.session_id == session_id).with_for_update())
        .mappings()
        .one_or_none()
    )
    if session is None:
        raise UnknownName(f"session {session_id} is not in this ledger.")
    if session["status"] != "running":
        return None
    expired = _retake_expired(connection, session_id, worker_id=worker_id, lease_seconds=lease_seconds)
    if expired is not None:
        return _read_claim(connection, expired, lease_seconds)
    if session["next_ordinal"] == 0:
        values = _root_values()
    else:
        chosen = _next_values(connection, session, choose, make_prompt)
        if chosen is None:
            return None
        values = chosen
    ordinal = session["next_ordinal"]
    claim_id = stable_id("c", session_id, ordinal)
    now = database_clock(connection)
    connection.execute(
        insert(schema.claims).values(
            **values,
            claim_id=claim_id,
            session_id=session_id,
            ordinal=ordinal,
            num_committed=0,
            seed=sibling_seed(session_id, ordinal),
            state="open",
            worker_id=worker_id,
            fence=1,
            tries=1,
            lease_until=now + lease_seconds,
            heartbeat_at=now,
        )
    )
    spent = 0 if ordinal == 0 else values["group_size"]
    connection.execute(
        update(sessions)
        .where(sessions.c.session_id == session_id)
        .values(next_ordinal=ordinal + 1, attempts_reserved=sessions.c.attempts_reserved + spent)
    )
    return _read_claim(connection, claim_id, lease_seconds)


def frontier_rows(connection: Connection, session_id: str) -> list[FrontierRow]:
    """The session's scored, non-buggy nodes by step, with the groups made from each and those in flight."""
    nodes, claims = schema.nodes, schema.claims
    open_siblings = case((claims.c.state == "open", claims.c.group_size - claims.c.num_committed), else_=0)
    groups = (
        select(
            claims.c.parent_id,
            func.count().label("num_groups"),
            func.sum(open_siblings).label("in_flight"),
        )
        .where(claims.c.session_id == session_id)
        .group_by(claims.c.parent_id)
        .subquery()
    )
    names = ("node_id", "parent_id", "step", "depth", "fitness", "reward", "visits", "total_reward", "artifact_digest")
    rows = connection.execute(
        select(
            *(nodes.c[name] for name in names),
            func.coalesce(groups.c.num_groups, 0).label("num_groups"),
            func.coalesce(groups.c.in_flight, 0).label("in_flight"),
        )
        .select_from(nodes.outerjoin(groups, nodes.c.node_id == groups.c.parent_id))
        .where(nodes.c.session_id == session_id, nodes.c.is_buggy.is_(False), nodes.c.fitness.is_not(None))
        .order_by(nodes.c.step)
    ).mappings()
    return [FrontierRow(**row) for row in rows]


def _root_values() -> dict[str, Any]:
    return {
        "parent_id": None,
        "group_size": 1,
        "prompt": [],
        "prompt_digest": None,
        "selected_step": None,
        "policy_numbers": [],
    }


def _next_values(
    connection: Connection, session: RowMapping, choose: Chooser, make_prompt: Prompter
) -> dict[str, Any] | None:
    """A new group's parent, prompt and numbers; None where the budget is reserved or the policy finds no parent."""
    left = session["attempts_limit"] - session["attempts_reserved"]
    if left <= 0:
        return None
    choice = choose(frontier_rows(connection, session["session_id"]))
    if choice is None:
        return None
    artifact = connection.execute(
        select(schema.nodes.c.artifact).where(schema.nodes.c.node_id == choice.node_id)
    ).scalar_one()
    prompt: list[Message] = make_prompt(artifact)
    return {
        "parent_id": choice.node_id,
        "group_size": min(session["group_size"], left),
        "prompt": prompt,
        "prompt_digest": prompt_digest_of(prompt),
        "selected_step": session["next_step"] - 1,
        "policy_numbers": [
            {
                "node_id": row.node_id,
                "visits": row.visits,
                "total_reward": row.total_reward,
                "in_flight": row.in_flight,
            }
            for row in choice.weighed
        ],
    }


def _retake_expired(connection: Connection, session_id: str, *, worker_id: str, lease_seconds: float) -> str | None:
    claims = schema.claims
    now = database_clock(connection)
    claim_id = connection.execute(
        select(claims.c.claim_id)
        .where(claims.c.session_id == session_id, claims.c.state == "open", claims.c.lease_until <= now)
        .order_by(claims.c.ordinal)
        .limit(1)
    ).scalar_one_or_none()
    if claim_id is None:
        return None
    connection.execute(
        update(claims)
        .where(claims.c.claim_id == claim_id)
        .values(
            worker_id=worker_id,
            fence=claims.c.fence + 1,
            tries=claims.c.tries + 1,
            lease_until=now + lease_seconds,
            heartbeat_at=now,
        )
    )
    return str(claim_id)


def _read_claim(connection: Connection, claim_id: str, lease_seconds: float) -> Claim:
    claims, proposals, nodes = schema.claims, schema.proposals, schema.nodes
    row = connection.execute(select(claims).where(claims.c.claim_id == claim_id)).mappings().one()
    saved = connection.execute(
        select(proposals.c.sibling, proposals.c.content).where(proposals.c.claim_id == claim_id)
    ).all()
    committed = connection.execute(
        select(nodes.c.sibling).where(nodes.c.session_id == row["session_id"], nodes.c.ordinal == row["ordinal"])
    ).scalars()
    artifact = connection.execute(
        select(nodes.c.artifact).where(nodes.c.node_id == row["parent_id"])
    ).scalar_one_or_none()
    return Claim(
        claim_id=claim_id,
        session_id=row["session_id"],
        ordinal=row["ordinal"],
        parent_id=row["parent_id"],
        parent_artifact=artifact,
        group_size=row["group_size"],
        prompt=tuple(row["prompt"]),
        prompt_digest=row["prompt_digest"],
        seed=row["seed"],
        fence=row["fence"],
        tries=row["tries"],
        lease_seconds=lease_seconds,
        selected_step=row["selected_step"],
        proposals={sibling: Proposal(**content) for sibling, content in saved},
        committed=frozenset(committed),
    )

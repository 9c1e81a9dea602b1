"""One judged attempt becomes one node: its rows, the counts on its path, and the change log, in one transaction."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, RowMapping, Table, bindparam, insert, select, update

from store import ledger_schema as schema
from store.errors import CommitConflict
from store.ids import canonical_json, content_digest, message_digest, number_text, sha256_text, stable_id
from store.ledger_connection import database_clock
from store.ledger_rows import Claim, Committed, Message, Proposal, verdict_columns
from store.verdicts import Verdict


class FeedWriter:
    """Gives rows consecutive feed numbers, from the ledger's counter and under its lock; used as a context."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        counter = select(schema.ledger.c.feed_seq).with_for_update()
        self._last = int(connection.execute(counter).scalar_one())

    def __enter__(self) -> "FeedWriter":
        return self

    def __exit__(self, failure: type[BaseException] | None, *_rest: object) -> None:
        if failure is None:
            self.connection.execute(update(schema.ledger).values(feed_seq=self._last))

    def next_number(self) -> int:
        """The next feed number; an aborted transaction leaves no gap."""
        self._last += 1
        return self._last

    def insert(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows of one fed table, in their order."""
        self.connection.execute(insert(table), [row | {"feed_seq": self.next_number()} for row in rows])


def commit_attempt(
    connection: Connection, claim: Claim, sibling: int, proposal: Proposal, verdict: Verdict, seconds: float | None
) -> Committed:
    """Commit one sibling of a claim; repeating it changes nothing.

    Raises:
        CommitConflict: The claim was taken over by another worker, which will commit this sibling itself.
    """
    node_id = stable_id("n", claim.session_id, claim.ordinal, sibling)
    turns = [*claim.prompt, *([proposal.answer] if proposal.answer is not None else [])]
    digest = content_digest(proposal.artifact, turns)
    stored = connection.execute(select(schema.nodes).where(schema.nodes.c.node_id == node_id)).mappings().one_or_none()
    if stored is not None:
        return _repeated(connection, claim, sibling, stored, digest)
    check_fence(connection, claim)

    session = _take_step(connection, claim)
    step = int(session["next_step"]) - 1
    node = _node_row(connection, claim, sibling, proposal, verdict) | {
        "node_id": node_id,
        "task_id": session["task_id"],
        "step": step,
        "content_digest": digest,
        "seconds": seconds,
    }
    changes = [_change(node, name, None, node[name]) for name in ("fitness", "reward", "is_buggy", "failure_class")]
    with FeedWriter(connection) as writer:
        changes += _count_visit(writer, node)
        changes += _move_session(writer, session, node, is_root=claim.is_root)
        writer.insert(schema.change_log, changes)
        if turns:
            writer.insert(
                schema.prompt_history, [_turn_row(node, position, turn) for position, turn in enumerate(turns)]
            )
        writer.insert(schema.nodes, [node])
    _settle_claim(connection, claim)
    return Committed("committed", node_id, step)


def check_fence(connection: Connection, claim: Claim) -> None:
    """Refuse the late work of a worker whose lease ran out and whose claim went to another.

    Raises:
        CommitConflict: The claim carries another fence by now.
    """
    current = connection.execute(
        select(schema.claims.c.fence, schema.claims.c.state, schema.claims.c.worker_id).where(
            schema.claims.c.claim_id == claim.claim_id
        )
    ).one_or_none()
    if current is None or current.fence != claim.fence:
        holder = "nobody" if current is None else current.worker_id
        raise CommitConflict(
            f"claim {claim.ordinal} of session {claim.session_id} was taken over by {holder} "
            f"(fence {None if current is None else current.fence}, ours was {claim.fence}); our late work is dropped."
        )


def _repeated(connection: Connection, claim: Claim, sibling: int, stored: RowMapping, digest: str) -> Committed:
    if stored["content_digest"] == digest:
        return Committed("already_there", stored["node_id"], stored["step"])
    key = {"session_id": claim.session_id, "ordinal": claim.ordinal, "sibling": sibling, "digest_seen": digest}
    conflicts = schema.commit_conflicts
    known = connection.execute(select(conflicts.c.ordinal).filter_by(**key)).first()
    if known is None:
        connection.execute(
            insert(conflicts).values(
                **key, digest_stored=stored["content_digest"], recorded_at=database_clock(connection)
            )
        )
    return Committed("conflict", stored["node_id"], stored["step"])


def _take_step(connection: Connection, claim: Claim) -> RowMapping:
    """The session after its step counter moved: an update that returns, so no step is given twice or left out."""
    sessions = schema.sessions
    return (
        connection.execute(
            update(sessions)
            .where(sessions.c.session_id == claim.session_id)
            .values(next_step=sessions.c.next_step + 1)
            .returning(sessions)
        )
        .mappings()
        .one()
    )


def _node_row(
    connection: Connection, claim: Claim, sibling: int, proposal: Proposal, verdict: Verdict
) -> dict[str, Any]:
    ancestors: list[str] = []
    if claim.parent_id is not None:
        of_parent = select(schema.nodes.c.ancestors).where(schema.nodes.c.node_id == claim.parent_id)
        ancestors = [*connection.execute(of_parent).scalar_one(), claim.parent_id]
    judged = verdict_columns(verdict)
    row: dict[str, Any] = dict.fromkeys(schema.fed_columns("nodes"))
    row.update(judged)
    row.update(
        session_id=claim.session_id,
        parent_id=claim.parent_id,
        ancestors=ancestors,
        context=[],
        context_mode=None if claim.is_root else "rebuilt",
        selected_step=claim.selected_step,
        depth=len(ancestors),
        operator=proposal.operator,
        prompt_digest=claim.prompt_digest,
        artifact=proposal.artifact,
        artifact_digest=None if proposal.artifact is None else sha256_text(proposal.artifact),
        fitness_text=number_text(judged["fitness"]),
        reward_text=number_text(judged["reward"]),
        tokens=proposal.tokens,
        cost=proposal.cost,
        idempotency_key=f"{claim.session_id}/{claim.ordinal}/{sibling}",
        visits=0 if judged["reward"] is None else 1,
        total_reward=judged["reward"] or 0.0,
        model=proposal.model,
        source_place=f"claim {claim.ordinal} sibling {sibling}",
        ordinal=claim.ordinal,
        sibling=sibling,
    )
    return row


def _change(node: dict[str, Any], name: str, old: Any, new: Any, *, of: str | None = "itself") -> dict[str, Any]:
    """One assignment at the node's step; `of` names another node, or None for the session's own field."""
    return {
        "session_id": node["session_id"],
        "node_id": node["node_id"] if of == "itself" else of,
        "field": name,
        "step": node["step"],
        "recorded_step": node["step"],
        "n": 0,
        "old_value": old if old is None else canonical_json(old),
        "new_value": canonical_json(new),
        "origin": "recorded",
    }


def _count_visit(writer: FeedWriter, node: dict[str, Any]) -> list[dict[str, Any]]:
    """One visit and the reward on the node and along its path; an unscored attempt visits nobody."""
    changes = [_change(node, name, None, node[name]) for name in ("visits", "total_reward")]
    if node["reward"] is None:
        return changes
    if not node["ancestors"]:
        return changes
    nodes, connection = schema.nodes, writer.connection
    on_the_path = select(nodes.c.node_id, nodes.c.visits, nodes.c.total_reward).where(
        nodes.c.node_id.in_(node["ancestors"])
    )
    before = {row.node_id: row for row in connection.execute(on_the_path.with_for_update())}
    connection.execute(
        update(nodes)
        .where(nodes.c.node_id == bindparam("ancestor_id"))
        .values(
            visits=nodes.c.visits + 1,
            total_reward=nodes.c.total_reward + bindparam("reward_seen"),
            feed_seq=bindparam("number"),
        ),
        [
            {"ancestor_id": ancestor_id, "reward_seen": node["reward"], "number": writer.next_number()}
            for ancestor_id in node["ancestors"]
        ],
    )
    after = {row.node_id: row for row in connection.execute(on_the_path)}
    for ancestor_id in node["ancestors"]:
        for name in ("visits", "total_reward"):
            old, new = getattr(before[ancestor_id], name), getattr(after[ancestor_id], name)
            changes.append(_change(node, name, old, new, of=ancestor_id))
    return changes


def _move_session(
    writer: FeedWriter, session: RowMapping, node: dict[str, Any], *, is_root: bool
) -> list[dict[str, Any]]:
    """Settle the budget and keep the best; returns the session's own change rows."""
    settled = session["attempts_settled"] + (0 if is_root else 1)
    before = best = _real(session["best_fitness"])
    values: dict[str, Any] = {"attempts_settled": settled}
    if not node["is_buggy"] and node["fitness"] is not None and (best is None or node["fitness"] > best):
        best = node["fitness"]
        values |= {"best_fitness": best, "best_node_id": node["node_id"]}
    if settled >= session["attempts_limit"] and not is_root:
        values |= {"status": "done", "status_reason": None}
    sessions = schema.sessions
    writer.connection.execute(
        update(sessions)
        .where(sessions.c.session_id == session["session_id"])
        .values(**values, feed_seq=writer.next_number())
    )
    limit, first = session["attempts_limit"], node["step"] == 0
    changes = []
    if first or best != before:
        changes.append(_change(node, "best_so_far", None if first else before, best, of=None))
    if first or not is_root:
        changes.append(_change(node, "budget_left", None if first else limit - settled + 1, limit - settled, of=None))
    return changes


def _real(value: float | None) -> float | None:
    """A float even where SQLite's RETURNING hands a whole number out as an integer: 2.0 is logged as 2.0, not 2."""
    return None if value is None else float(value)


def _turn_row(node: dict[str, Any], position: int, turn: Message) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(schema.fed_columns("prompt_history"))
    row.update(turn)
    if turn.get("tool_calls") is not None:
        row["tool_calls"] = canonical_json(turn["tool_calls"])
    row.update(node_id=node["node_id"], session_id=node["session_id"], turn=position, fidelity="recorded")
    return row


def _settle_claim(connection: Connection, claim: Claim) -> None:
    claims = schema.claims
    extend_lease(connection, claim)
    connection.execute(
        update(claims).where(claims.c.claim_id == claim.claim_id).values(num_committed=claims.c.num_committed + 1)
    )
    connection.execute(
        update(claims)
        .where(claims.c.claim_id == claim.claim_id, claims.c.num_committed >= claims.c.group_size)
        .values(state="done")
    )


def extend_lease(connection: Connection, claim: Claim) -> None:
    """Move the end of a claim's lease to its full length from now, by the database's clock."""
    now = database_clock(connection)
    connection.execute(
        update(schema.claims)
        .where(schema.claims.c.claim_id == claim.claim_id)
        .values(lease_until=now + claim.lease_seconds, heartbeat_at=now)
    )


def prompt_digest_of(prompt: list[Message]) -> str | None:
    """Digest of a frozen prompt; None where there is none, as for the seed."""
    return message_digest(prompt) if prompt else None

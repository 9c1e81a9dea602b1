"""Small searches for the ledger's tests: verdicts with chosen numbers, a policy that is told its parent."""

from typing import Any

from store.ids import canonical_json, sha256_text
from store.ledger import Ledger
from store.ledger_rows import Choice, Claim, NewSession, Proposal
from store.verdicts import Verdict

LEASE = 60.0


def verdict(fitness: float | None, reward: float | None, failure_class: str | None = None) -> Verdict:
    environment = {"target": "h100"}
    outcome = "succeeded" if failure_class is None else ("unknown" if reward is None else "failed")
    return Verdict(
        verdict="accepted" if failure_class is None else "rejected",
        outcome=outcome,
        failure_class=failure_class,
        checks=(),
        metrics={},
        fitness=fitness,
        reward=reward,
        fitness_basis="estimated:h100:v1",
        environment=environment,
        environment_digest=sha256_text(canonical_json(environment)),
        verifier="judge@1",
    )


def answer(text: str, artifact: str | None = None) -> Proposal:
    turn = {"role": "assistant", "content": text}
    return Proposal(answer=turn, artifact=artifact or text, failure_class=None, operator="edit", model="scripted")


def new_session(session_id: str, *, attempts: int = 8, group_size: int = 2) -> NewSession:
    return NewSession(
        session_id=session_id,
        task_id="t1",
        algorithm="scripted",
        model="scripted",
        attempts=attempts,
        group_size=group_size,
        seed=0,
        failure_reward=0.0,
        settings={},
    )


def start(ledger: Ledger, *, attempts: int = 8, group_size: int = 2, session_id: str = "s1") -> str:
    ledger.put_task({"task_id": "t1", "domain": "kernel", "failure_reward": 0.0})
    ledger.start_session(lambda _: new_session(session_id, attempts=attempts, group_size=group_size))
    return session_id


def claim_from(ledger: Ledger, session_id: str, parent: str | None = None, **options: Any) -> Claim | None:
    """Claim a group from the named parent; from the first node of the frontier where none is named."""

    def choose(rows: Any) -> Choice | None:
        named = [row for row in rows if parent in (None, row.node_id)]
        return Choice(named[0].node_id, tuple(rows), "told") if named else None

    def make_prompt(artifact: str) -> list[dict[str, Any]]:
        return [{"role": "user", "content": f"improve {artifact}"}]

    settings = {"worker_id": "w1", "lease_seconds": LEASE} | options
    return ledger.claim(session_id, choose=choose, make_prompt=make_prompt, **settings)


def commit_root(ledger: Ledger, session_id: str, reward: float = 0.5) -> str:
    claim = claim_from(ledger, session_id)
    seed = Proposal(answer=None, artifact="seed", failure_class=None, operator="seed")
    return ledger.commit_node(claim, 0, seed, verdict(0.0, reward)).node_id


def values_of(ledger: Ledger, node_id: str | None, field: str) -> list[tuple[int, str | None, str]]:
    """(step, old, new) of one field in the change log, in feed order."""
    rows = [entry.row for entry in ledger.feed(0, 10_000) if entry.table == "change_log"]
    return [(r["step"], r["old_value"], r["new_value"]) for r in rows if (r["node_id"], r["field"]) == (node_id, field)]

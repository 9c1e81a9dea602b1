"""A ledger with a few committed attempts, made through the ledger's own verbs."""

from store.home import Home
from store.ids import sha256_text
from store.ledger import open_ledger
from store.ledger_rows import Choice, NewSession, Proposal
from store.verdicts import Verdict

SCORES = (0.0, 0.25, None, 0.5, 0.75)  # the seed, then two groups of two; None fails by its own fault


def fill_ledger(home: Home, session_id: str, *, ledger_id: str = "ledger_test", scores=SCORES) -> None:
    """Add one session: a seed and groups of two siblings, each made from the best node so far."""
    left = list(scores)
    with open_ledger(home, ledger_id=ledger_id) as ledger:
        ledger.put_task({"task_id": "t_ledger", "domain": "kernel", "direction": "max", "failure_reward": 0.0})
        ledger.start_session(
            lambda _: NewSession(
                session_id, "t_ledger", "greedy", "rules", len(scores) - 1, 2, 0, 0.0, settings={"seed": 0}
            )
        )
        while left:
            claim = ledger.claim(
                session_id,
                worker_id="w",
                lease_seconds=60,
                choose=lambda rows: Choice(max(rows, key=lambda row: row.fitness).node_id, tuple(rows), "best"),
                make_prompt=lambda artifact: [{"role": "user", "content": f"improve {artifact}"}],
            )
            assert claim is not None
            for sibling in range(claim.group_size):
                fitness = left.pop(0)
                answer = None if claim.is_root else {"role": "assistant", "content": f"edit {len(left)}"}
                proposal = Proposal(
                    answer, f"kernel {session_id} {len(left)}", None, "seed" if claim.is_root else "edit"
                )
                ledger.commit_node(claim, sibling, proposal, verdict_of(fitness), seconds=0.5)


def verdict_of(fitness: float | None) -> Verdict:
    """A verdict: accepted with a fitness, or rejected by the candidate's own fault."""
    works = fitness is not None
    return Verdict(
        "accepted" if works else "rejected",
        "succeeded" if works else "failed",
        None if works else "syntax",
        (),
        {"est_us": 1.0},
        fitness,
        fitness if works else 0.0,
        "estimated:h100:v1",
        {"gpu": "h100"},
        sha256_text("h100"),
        "judge@1",
    )

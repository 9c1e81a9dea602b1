"""A search process for the crash test: it kills itself with SIGKILL at the n-th arrival at a named point.

Run as `python search_child.py URL SESSION PAID_FILE [POINT N]`. Every proposal that is paid for is a line in PAID_FILE.
"""

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernel_search.judge.estimate import BASIS, METRIC
from kernel_search.proposers import make_proposer
from kernel_search.search import make_worker
from kernel_search.search_settings import read_search_settings
from kernel_search.tasks import kernel_task
from kernel_search.worker import is_gone
from store.ids import canonical_json, sha256_text
from store.ledger import Ledger, open_ledger
from store.ledger_rows import NewSession
from store.verdicts import Verdict

TASK = "softmax"


class DigestJudge:
    """Stands in for the judge, whose start takes longer than this whole search: a verdict drawn from the text."""

    def judge_many(self, items: Iterable[tuple[str, Any, int]]) -> Iterator[Verdict]:
        for source, task, _seed in items:
            number = int(sha256_text(source)[:8], 16) % 10
            works = number >= 3 or source == task.seed_source
            yield Verdict(
                verdict="accepted" if works else "rejected",
                outcome="succeeded" if works else "failed",
                failure_class=None if works else "wrong_values",
                checks=(),
                metrics={METRIC: 100.0 - number},
                fitness=number / 10 if works else None,
                reward=0.2 + number / 20 if works else 0.0,
                fitness_basis=BASIS,
                environment={"target": "h100"},
                environment_digest=sha256_text(canonical_json({"target": "h100"})),
                verifier="digest@1",
                seconds=0.0,
            )


class PaidProposer:
    """The rules, with a line in a file for every answer."""

    def __init__(self, paid: Path) -> None:
        self._rules = make_proposer("rules", read_search_settings())
        self._paid = paid
        self.name, self.run_id = self._rules.name, None

    def propose(self, requests: list[Any]) -> list[Any]:
        with self._paid.open("a") as lines:
            lines.writelines(f"{request.seed}\n" for request in requests)
        return self._rules.propose(requests)


def start_session(ledger: Ledger, session_id: str, attempts: int) -> None:
    """The session that every process of one test works on."""
    ledger.start_session(
        lambda _: NewSession(
            session_id=session_id,
            task_id=kernel_task(TASK).task_id,
            algorithm="greedy",
            model="rules",
            attempts=attempts,
            group_size=4,
            seed=0,
            failure_reward=0.0,
            settings={
                "task": TASK,
                "policy": "greedy",
                "proposer": "rules",
                "settings": read_search_settings().model_dump(),
            },
        )
    )


def work(url: str, session_id: str, paid: Path, point: str | None = None, arrivals: int = 0) -> None:
    """Work on the session; die at the given arrival at the point, if one is given."""
    left = arrivals

    def at_point(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    with open_ledger(url, ledger_id="ledger_test", at_point=at_point) as ledger:
        ledger.release(session_id, [worker for worker in ledger.workers_of(session_id) if is_gone(worker)])
        make_worker(ledger, session_id, PaidProposer(paid), DigestJudge()).work()


if __name__ == "__main__":
    url, session_id, paid, *death = sys.argv[1:]
    work(url, session_id, Path(paid), death[0] if death else None, int(death[1]) if death else 0)

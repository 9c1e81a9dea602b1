"""A worker: claim, propose, judge, commit, again. What it knows another worker can read in the ledger."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_search.edits import Applied, apply_edits, render_prompt
from kernel_search.proposers import Proposer, Request
from kernel_search.search_settings import SearchSettings
from kernel_search.tasks import KernelTask
from store.errors import BadInput, CommitConflict, PipelineError
from store.ids import stable_id
from store.ledger import Ledger
from store.ledger_rows import Chooser, Claim, Proposal, sibling_seed
from store.verdicts import Check, Verdict

if TYPE_CHECKING:
    from kernel_search.judge import Judge

# Every candidate is judged on the same drawn inputs: equal text has an equal verdict, and the judge may remember it.
JUDGE_SEED = 0
WAIT_SECONDS = 0.2  # between two looks at a session whose last claims are in other workers' hands
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Worker:
    """Everything that one worker works with."""

    ledger: Ledger
    session_id: str
    task: KernelTask
    choose: Chooser
    proposer: Proposer
    judge: "Judge"
    settings: SearchSettings
    worker_id: str
    progress: Progress | None = None

    def work(self) -> None:
        """Work until the budget is settled, the session is paused, or there is no parent to work from.

        Raises:
            ProposerDown: The proposer gives no answers; the session says so and can be resumed.
            BadInput: The task's own starting kernel was rejected.
        """
        with self._leaving_a_clear_state():
            while True:
                claim = self.ledger.claim(
                    self.session_id,
                    worker_id=self.worker_id,
                    lease_seconds=self.settings.lease_seconds,
                    choose=self.choose,
                    make_prompt=lambda artifact: render_prompt(self.task, artifact),
                )
                if claim is not None:
                    try:
                        self._make_group(claim)
                    except CommitConflict:
                        continue  # another worker took this claim over and finishes it
                elif not self._may_wait():
                    return
                else:
                    time.sleep(WAIT_SECONDS)

    def _make_group(self, claim: Claim) -> None:
        proposals = self._seed() if claim.is_root else self._proposals(claim)
        open_siblings = [sibling for sibling in sorted(proposals) if sibling not in claim.committed]
        to_judge = [artifact for sibling in open_siblings if (artifact := proposals[sibling].artifact) is not None]
        verdicts = iter(self.judge.judge_many((artifact, self.task, JUDGE_SEED) for artifact in to_judge))
        for sibling in open_siblings:
            proposal = proposals[sibling]
            verdict = next(verdicts) if proposal.artifact is not None else self._own_fault(proposal)
            seconds = (proposal.seconds or 0.0) + (verdict.seconds or 0.0)
            self.ledger.commit_node(claim, sibling, proposal, verdict, seconds=seconds)
            if claim.is_root:
                self._after_the_root(verdict)
            if self.progress is not None:
                state = self.ledger.session(self.session_id)
                self.progress(state.attempts_settled, state.attempts_limit)

    def _seed(self) -> dict[int, Proposal]:
        seed = Proposal(answer=None, artifact=self.task.seed_source, failure_class=None, operator="seed")
        return {0: seed}

    def _proposals(self, claim: Claim) -> dict[int, Proposal]:
        """The group's proposals by sibling: those that were saved before, and new ones for the rest."""
        proposals = dict(claim.proposals)
        missing = [sibling for sibling in range(claim.group_size) if sibling not in proposals]
        if not missing:
            return proposals
        assert claim.parent_artifact is not None
        started = time.monotonic()
        requests = [
            Request(claim.prompt, sibling_seed(claim.session_id, claim.ordinal, sibling)) for sibling in missing
        ]
        answers = self.proposer.propose(requests)
        seconds = (time.monotonic() - started) / len(missing)
        new: dict[int, Proposal] = {}
        for sibling, answer in zip(missing, answers, strict=True):
            applied = apply_edits(claim.parent_artifact, answer.turn["content"])
            new[sibling] = Proposal(
                answer=answer.turn,
                artifact=applied.source,
                failure_class=applied.failure_class,
                operator=_operator(applied),
                model=self.proposer.name,
                tokens=answer.tokens,
                seconds=seconds,
                cost=answer.cost,
            )
        saved = self.ledger.save_proposals(claim, new)
        return proposals | saved

    def _own_fault(self, proposal: Proposal) -> Verdict:
        """The verdict on an answer that gave no candidate: nothing was judged, so the seed's judge stands for it."""
        root = self.ledger.node(stable_id("n", self.session_id, 0, 0))
        return Verdict(
            verdict="rejected",
            outcome="failed",
            failure_class=proposal.failure_class,
            checks=(Check("proposal", False, f"the answer is {proposal.failure_class}"),),
            metrics={},
            fitness=None,
            reward=self.task.failure_reward,
            fitness_basis=root["fitness_basis"],
            environment=json.loads(root["environment"]),
            environment_digest=root["environment_digest"],
            verifier=root["verifier"],
        )

    def _after_the_root(self, verdict: Verdict) -> None:
        if not verdict.is_accepted:
            raise BadInput(
                f"the starting kernel of task {self.task.name} was rejected ({verdict.failure_class}); "
                f"`espalier judge {self.task.seed_path.name} --task {self.task.name}` shows why."
            )
        self.ledger.put_task(
            {
                "task_id": self.task.task_id,
                "baseline_fitness": verdict.fitness,
                "baseline_basis": verdict.fitness_basis,
                "baseline_environment_digest": verdict.environment_digest,
            }
        )

    def _may_wait(self) -> bool:
        """Whether open claims of living workers may still bring this one work."""
        state = self.ledger.session(self.session_id)
        if state.status != "running":
            return False
        holders = self.ledger.workers_of(self.session_id)
        if not holders:
            self.ledger.set_status(self.session_id, "failed", "no accepted node is left to go on from")
            return False
        self.ledger.release(self.session_id, [worker for worker in holders if is_gone(worker)])
        return True

    @contextmanager
    def _leaving_a_clear_state(self) -> Iterator[None]:
        """On an error or Ctrl-C, say in the session what happened and let others have the claim at once."""
        try:
            yield
        except BaseException as error:
            status = "failed" if isinstance(error, Exception) else "paused"
            reason = str(error) if isinstance(error, PipelineError) else type(error).__name__
            self.ledger.release(self.session_id, [self.worker_id])
            if self.ledger.session(self.session_id).status == "running":
                self.ledger.set_status(self.session_id, status, reason)
            raise


def _operator(applied: Applied) -> str:
    names = "+".join(edit.name for edit in applied.edits)
    return names if applied.failure_class in (None, "no_op") else applied.failure_class or names


def this_worker() -> str:
    """An identity that outlives no process: host, process number, and when that process began."""
    return f"{socket.gethostname()}:{os.getpid()}:{_began(os.getpid())}"


def is_gone(worker_id: str) -> bool:
    """Whether a worker of this machine has ended; workers elsewhere are judged by their lease alone."""
    host, number, began = worker_id.rsplit(":", 2)
    return host == socket.gethostname() and _began(int(number)) != began


def _began(process: int) -> str:
    """Clock ticks from boot to the start of a process, which tells a reused number apart; empty where it is gone."""
    try:
        fields: Any = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else str(fields[19])

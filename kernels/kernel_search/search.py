"""A search from start to summary: the session, its workers, and what came of it."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_search.grammar import KINDS
from kernel_search.judge.estimate import METRIC
from kernel_search.policies import make_policy
from kernel_search.proposers import Proposer, make_proposer
from kernel_search.search_settings import SearchSettings, read_search_settings
from kernel_search.tasks import KernelTask, kernel_task
from kernel_search.worker import Progress, Worker, is_gone, this_worker
from store.errors import WrongUse
from store.home import Home
from store.ledger import Ledger, open_ledger
from store.ledger_rows import NewSession

if TYPE_CHECKING:
    from kernel_search.judge import Judge


@dataclass(frozen=True)
class BestNode:
    """The fittest node of a session, the seed included; `est_us` is a model's estimate, not a measurement."""

    node_id: str
    fitness: float
    est_us: float | None


@dataclass(frozen=True)
class SearchSummary:
    """What a search came to.

    `nodes` counts the seed, `attempts` does not. Every attempt is a node, so unparsable, inapplicable and no-op
    answers are among the attempts; `duplicates` are candidates equal to an earlier node other than their parent.
    """

    session_id: str
    task: str
    state: str
    nodes: int
    attempts: int
    valid: int
    best: BestNode | None
    unparsable: int
    inapplicable: int
    no_ops: int
    duplicates: int
    failure_classes: dict[str, int] = field(default_factory=dict)
    kinds_used: dict[str, int] = field(default_factory=dict)


def run_search(
    home: Home,
    *,
    task: str,
    policy: str = "greedy",
    proposer: str = "rules",
    steps: int,
    workers: int = 1,
    group_size: int = 4,
    seed: int = 0,
    model_dir: Path | str | None = None,
    judge: "Judge | None" = None,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
) -> SearchSummary:
    """Search one task for better kernels, in a new session; every attempt becomes a node in the ledger.

    Args:
        home: Where the ledger lies.
        task: Name of a kernel task.
        policy: Who chooses parents.
        proposer: `rules`, `uniform` or `model`.
        steps: Attempts; the seed kernel, which is judged first, is not one.
        workers: Worker processes; one works in this process, with `judge` if one is given.
        group_size: Siblings from one prompt.
        seed: Part of the session's id, from which every random choice follows.
        model_dir: The model's folder or hub name, for the proposer `model`.
        judge: An open judge to use; else one is started and closed.
        progress: Called with (attempts settled, attempts in all).
        ledger: An open ledger to use; else the home's is opened and closed.

    Raises:
        UnknownName: No such task, policy or proposer.
        WrongUse: A number that cannot be right, or a model where none is used.
        ProposerDown: The proposer stopped answering; `resume_session` goes on.
    """
    settings = read_search_settings()
    the_task = kernel_task(task)
    make_policy(policy, settings)
    if min(steps, workers, group_size) < 1:
        raise WrongUse(f"steps {steps}, workers {workers}, group size {group_size}: each must be at least 1.")
    folder = None if model_dir is None else _lasting_name(model_dir)
    the_proposer = make_proposer(proposer, settings, model_dir=folder)

    def new_session(session_id: str) -> NewSession:
        return NewSession(
            session_id=session_id,
            task_id=the_task.task_id,
            algorithm=policy,
            model=the_proposer.name,
            attempts=steps,
            group_size=group_size,
            seed=seed,
            failure_reward=the_task.failure_reward,
            settings={
                "task": task,
                "policy": policy,
                "proposer": proposer,
                "group_size": group_size,
                "seed": seed,
                "settings": settings.model_dump(),
            },
            run_id=the_proposer.run_id,
            model_dir=folder,
        )

    with _ledger_of(home, settings, ledger) as opened:
        opened.put_task(_task_row(the_task))
        session_id = opened.start_session(new_session, task, policy, the_proposer.name, seed).session_id
        return _search(home, opened, session_id, the_proposer, workers=workers, judge=judge, progress=progress)


def resume_session(
    home: Home,
    session_id: str,
    *,
    workers: int = 1,
    judge: "Judge | None" = None,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
) -> SearchSummary:
    """Go on with a session that was paused, failed or killed; one that is done is only summed up.

    The session keeps the settings it was started with. With one worker the result equals that of an unbroken search.

    Raises:
        UnknownName: There is no such session.
        ProposerDown: The proposer does not answer.
    """
    with _ledger_of(home, read_search_settings(), ledger) as opened:
        state = opened.session(session_id)
        if state.status == "done":
            return summarise(opened, session_id)
        settings = session_settings(opened, session_id)
        the_proposer = make_proposer(state.settings["proposer"], settings, model_dir=state.model_dir)
        opened.release(session_id, [worker for worker in opened.workers_of(session_id) if is_gone(worker)])
        opened.set_status(session_id, "running")
        return _search(home, opened, session_id, the_proposer, workers=workers, judge=judge, progress=progress)


def session_settings(ledger: Ledger, session_id: str) -> SearchSettings:
    """The settings of conf/search.yaml as they were when the session began."""
    return SearchSettings.model_validate(ledger.session(session_id).settings["settings"])


def make_worker(
    ledger: Ledger, session_id: str, proposer: Proposer, judge: "Judge", progress: Progress | None = None
) -> Worker:
    """A worker of this process for one session."""
    state, settings = ledger.session(session_id), session_settings(ledger, session_id)
    return Worker(
        ledger=ledger,
        session_id=session_id,
        task=kernel_task(state.settings["task"]),
        choose=make_policy(state.settings["policy"], settings),
        proposer=proposer,
        judge=judge,
        settings=settings,
        worker_id=this_worker(),
        progress=progress,
    )


def summarise(ledger: Ledger, session_id: str) -> SearchSummary:
    """Count what a session came to, from its nodes alone."""
    state, nodes = ledger.session(session_id), ledger.nodes(session_id)
    attempts = [node for node in nodes if node["parent_id"] is not None]
    failures = Counter(node["failure_class"] for node in attempts if node["failure_class"] is not None)
    applied = [node for node in attempts if node["artifact_digest"] is not None]
    kinds = Counter(name for node in applied for name in node["operator"].split("+"))
    best = next((node for node in nodes if node["node_id"] == state.best_node_id), None)
    return SearchSummary(
        session_id=session_id,
        task=state.settings["task"],
        state=state.status,
        nodes=len(nodes),
        attempts=len(attempts),
        valid=sum(node["is_buggy"] is False for node in attempts),
        best=None if best is None else BestNode(best["node_id"], best["fitness"], _estimate(best)),
        unparsable=failures["unparsable"],
        inapplicable=failures["inapplicable"],
        no_ops=failures["no_op"],
        duplicates=_count_duplicates(nodes),
        failure_classes=dict(sorted(failures.items())),
        kinds_used={kind: kinds[kind] for kind in KINDS if kinds[kind]},
    )


def _search(
    home: Home,
    ledger: Ledger,
    session_id: str,
    proposer: Proposer,
    *,
    workers: int,
    judge: "Judge | None",
    progress: Progress | None,
) -> SearchSummary:
    if workers > 1:
        from kernel_search.worker_processes import work_in_processes

        work_in_processes(home, ledger, session_id, workers=workers, progress=progress)
    else:
        with _judge_to_use(judge) as the_judge:
            make_worker(ledger, session_id, proposer, the_judge, progress).work()
    return summarise(ledger, session_id)


@contextmanager
def _ledger_of(home: Home, settings: SearchSettings, ledger: Ledger | None) -> Iterator[Ledger]:
    if ledger is not None:
        yield ledger
        return
    with open_ledger(home, busy_seconds=settings.ledger_busy_seconds) as opened:
        yield opened


def _judge_to_use(judge: "Judge | None") -> Any:
    from kernel_search.judge import Judge

    return nullcontext(judge) if judge is not None else Judge()


def _lasting_name(model_dir: Path | str) -> str:
    """A folder's absolute path, so that a resumed search finds it from anywhere; what is no folder is a hub name."""
    return str(Path(model_dir).absolute()) if Path(model_dir).is_dir() else str(model_dir)


def _task_row(task: KernelTask) -> dict[str, Any]:
    return {
        "task_id": task.task_id,
        "domain": "kernel",
        "specification": f"{task.name}: {task.specification} {task.signature}",
        "metric": METRIC,
        "direction": "min",
        "failure_reward": task.failure_reward,
    }


def _estimate(node: dict[str, Any]) -> float | None:
    value = json.loads(node["metrics"]).get(METRIC)
    return None if value is None else float(value)


def _count_duplicates(nodes: list[dict[str, Any]]) -> int:
    digest_of = {node["node_id"]: node["artifact_digest"] for node in nodes}
    seen: set[str] = set()
    duplicates = 0
    for node in nodes:
        digest = node["artifact_digest"]
        if digest in seen and digest != digest_of.get(node["parent_id"]):
            duplicates += 1
        if digest is not None:
            seen.add(digest)
    return duplicates

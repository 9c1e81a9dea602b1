"""The values that cross between the ledger and those who work with it: all frozen, none holds a connection."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from store.ids import canonical_json, sha256_text
from store.verdicts import Verdict

Message = dict[str, Any]


@dataclass(frozen=True)
class NewSession:
    """What a session is before its first attempt.

    `attempts` limits proposals; the seed node costs none. `failure_reward` is the task's. `settings` go into
    the session's config as JSON. `model_dir` stays in the ledger, since it names a place on this machine.
    """

    session_id: str
    task_id: str
    algorithm: str
    model: str
    attempts: int
    group_size: int
    seed: int
    failure_reward: float | None
    settings: dict[str, Any]
    run_id: str | None = None
    user_id: str | None = None
    ucb_constant: float | None = None
    model_dir: str | None = None


@dataclass(frozen=True)
class SessionState:
    """Where a session stands."""

    session_id: str
    task_id: str
    algorithm: str
    model: str
    run_id: str | None
    settings: dict[str, Any]
    seed: int
    group_size: int
    failure_reward: float | None
    attempts_limit: int
    attempts_reserved: int
    attempts_settled: int
    next_step: int
    next_ordinal: int
    best_fitness: float | None
    best_node_id: str | None
    status: str
    status_reason: str | None
    model_dir: str | None


@dataclass(frozen=True)
class FrontierRow:
    """One node that a policy may choose as parent, with what the search knows of it now.

    `num_groups` counts the groups already made from it, open ones included; `in_flight` its own siblings that
    are claimed and not committed yet (virtual loss, never logged).
    """

    node_id: str
    parent_id: str | None
    step: int
    depth: int
    fitness: float
    reward: float | None
    visits: int
    total_reward: float
    artifact_digest: str | None
    num_groups: int
    in_flight: int


@dataclass(frozen=True)
class Choice:
    """A policy's answer: the parent, and the rows it weighed."""

    node_id: str
    weighed: tuple[FrontierRow, ...]
    reason: str


@dataclass(frozen=True)
class Proposal:
    """One sibling's answer, saved before it is judged so that it is paid for once.

    `answer` is the assistant turn as it was sampled (content, and token_ids, logprobs, temperature, … where known),
    None for the seed, which nobody proposed. `artifact` is the candidate, None where the answer gave none.
    """

    answer: Message | None
    artifact: str | None
    failure_class: str | None
    operator: str
    model: str | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain mapping for the ledger's JSON column."""
        return asdict(self)


@dataclass(frozen=True)
class Claim:
    """The right to make one group of siblings from one frozen prompt, for as long as the lease lasts."""

    claim_id: str
    session_id: str
    ordinal: int
    parent_id: str | None
    parent_artifact: str | None
    group_size: int
    prompt: tuple[Message, ...]
    prompt_digest: str | None
    seed: int
    fence: int
    tries: int
    lease_seconds: float
    selected_step: int | None
    proposals: dict[int, Proposal] = field(default_factory=dict)
    committed: frozenset[int] = frozenset()

    @property
    def is_root(self) -> bool:
        """Whether this claim makes the session's first node from the task's own starting kernel."""
        return self.ordinal == 0


@dataclass(frozen=True)
class Committed:
    """What a commit came to: `committed`, `already_there`, or `conflict` (same key, other content)."""

    state: str
    node_id: str
    step: int | None


@dataclass(frozen=True)
class FeedEntry:
    """One row for the lakehouse, under the lakehouse's column names."""

    feed_seq: int
    table: str
    row: dict[str, Any]


Chooser = Callable[[Sequence[FrontierRow]], Choice | None]
Prompter = Callable[[str], list[Message]]


def sibling_seed(session_id: str, ordinal: int, sibling: int | None = None) -> int:
    """The random seed of one sibling (of the whole group where sibling is None), 63 bits."""
    return int(sha256_text(canonical_json([session_id, ordinal, sibling]))[:16], 16) >> 1


def verdict_columns(verdict: Verdict) -> dict[str, Any]:
    """The node columns that a verdict fills."""
    is_buggy = {"succeeded": False, "failed": True}.get(verdict.outcome)
    return {
        "fitness": verdict.fitness,
        "reward": verdict.reward,
        "fitness_basis": verdict.fitness_basis,
        "environment": canonical_json(verdict.environment),
        "environment_digest": verdict.environment_digest,
        "metrics": canonical_json(verdict.metrics),
        "is_buggy": is_buggy,
        "failure_class": verdict.failure_class,
        "evidence": canonical_json(
            {**verdict.evidence, "checks": [asdict(check) for check in verdict.checks]},
        ),
        "verifier": verdict.verifier,
        "outcome": verdict.outcome,
    }

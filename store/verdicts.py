"""What a judge says of one candidate: the value that crosses from judge to ledger."""

from dataclasses import dataclass, field
from typing import Any

ESTIMATE_HEADING = "model estimate, not run on a GPU"  # stands over every number that a judge estimated


@dataclass(frozen=True)
class Check:
    """One thing the judge looked at."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The judge's answer on one candidate file.

    `fitness` is higher-is-better and None unless the candidate was accepted and scored; `reward` is what
    learning uses, None where the harness and not the candidate failed (outcome `unknown`).
    """

    verdict: str  # accepted | rejected
    outcome: str  # succeeded | failed | unknown
    failure_class: str | None
    checks: tuple[Check, ...]
    metrics: dict[str, Any]
    fitness: float | None
    reward: float | None
    fitness_basis: str  # kind:version, such as estimated:h100:v1
    environment: dict[str, Any]
    environment_digest: str
    verifier: str  # identity@version
    evidence: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the candidate passed every check."""
        return self.verdict == "accepted"

"""What an ingest reports, and the sum that must hold at every ingest."""

from collections import Counter
from dataclasses import dataclass, field

OUTCOMES = ("stored", "already_there", "conflicting", "stripped", "waiting", "quarantined")
STORED_BEFORE = "stored before"  # there already, from an earlier or a killed ingest of this very file


@dataclass
class SourceCounts:
    """What became of the records of one file: read = the sum of all outcomes.

    `stored_before` are those already there that came from this very file: for the person they are already there,
    in the file's row of `sources` they are stored, so that row does not depend on where an ingest was killed.
    """

    read: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    stored_before: int = 0

    def add(self, outcome: str, count: int = 1) -> None:
        """Count records that a reader yielded, and what became of them."""
        if outcome == STORED_BEFORE:
            outcome = "already_there"
            self.stored_before += count
        assert outcome in OUTCOMES, outcome
        self.read += count
        self.outcomes[outcome] += count

    def check(self) -> None:
        """The books of a file must add up; anything else is an error of ours."""
        assert self.read == sum(self.outcomes.values()), (self.read, dict(self.outcomes))

    def columns(self) -> dict[str, int]:
        """As columns of `sources`."""
        columns = {"read": self.read} | {name: self.outcomes[name] for name in OUTCOMES}
        columns["stored"] += self.stored_before
        columns["already_there"] -= self.stored_before
        return columns


@dataclass
class IngestReport:
    """What one ingest did.

    `sessions`, `nodes`, `messages` and `changes` count rows that this run added. The other counts are records:
    read = stored + already_there + conflicting + stripped + waiting + quarantined. A file whose bytes were ingested
    before is not read again (`unchanged_files`); its records count as they are, which is already there.
    `quarantine_reasons` maps a reason to how often it occurred.
    """

    files: int = 0
    skipped_files: int = 0
    unchanged_files: int = 0
    sessions: int = 0
    nodes: int = 0
    messages: int = 0
    changes: int = 0
    read: int = 0
    stored: int = 0
    already_there: int = 0
    conflicting: int = 0
    stripped: int = 0
    waiting: int = 0
    quarantined: int = 0
    quarantine_reasons: dict[str, int] = field(default_factory=dict)

    def add_rows(self, added: Counter[str]) -> None:
        """Add rows that reached the tables."""
        self.sessions += added["sessions"]
        self.nodes += added["nodes"]
        self.messages += added["prompt_history"]
        self.changes += added["change_log"]

    def add_counts(self, counts: SourceCounts) -> None:
        """Add the records of one file."""
        counts.check()
        self.read += counts.read
        for outcome in OUTCOMES:
            setattr(self, outcome, getattr(self, outcome) + counts.outcomes[outcome])

    def check(self) -> None:
        """The books of the whole run must add up."""
        assert self.read == sum(getattr(self, outcome) for outcome in OUTCOMES), self

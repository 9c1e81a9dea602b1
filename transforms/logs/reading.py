"""What a reader is given, and what it gives back."""

from dataclasses import dataclass, field
from typing import Protocol

from store.ids import stable_id
from transforms.records import LogFile, Record, Source
from transforms.structure import Row

Yielded = tuple[Source, Record]


@dataclass(frozen=True)
class LogToRead:
    """The files of one log.

    `run` is what --run named; `resume_at` maps the digest of a grown file to the bytes that were ingested before.
    """

    files: tuple[LogFile, ...]
    run: str | None = None
    resume_at: dict[str, int] = field(default_factory=dict)


def unreadable_source(file: LogFile, log_format: str) -> Source:
    """The source of a file that names no run: known by its name and its bytes."""
    return Source(stable_id("f", log_format, "unreadable", file.name, file.digest), file, log_format, "1")


class Known(Protocol):
    """What a reader may ask about the tables."""

    def task_of_session(self, session_id: str) -> Row | None:
        """task_id, direction, metric and failure_reward of a stored session's task; None: no such session."""

    def sessions_of_nodes(self, node_ids: list[str]) -> dict[str, str]:
        """The session of each of these nodes that is stored."""

"""Which launch each program of a run folder belongs to.

A launch begins with a root program. A program belongs to the root that its parents lead to; where they lead out of
what is known, to the latest root that is not younger than it, since a later launch cannot have made it earlier.
"""

import re
from dataclasses import dataclass

from store.ids import canonical_json, sha256_text, stable_id
from transforms.logs.reading import Known
from transforms.records import LogFile, LogOrder

UNIQUE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(_migrant_\d+)*")


@dataclass(frozen=True)
class ProgramHead:
    """What of a program all others of its folder must know; small, so that a whole folder fits in memory."""

    native_id: str
    parent_id: str | None
    order: LogOrder
    code_digest: str
    metric_names: tuple[str, ...]
    content_digest: str
    num_turns: int
    file: LogFile


@dataclass(frozen=True)
class Launch:
    """One start of OpenEvolve: its programs, its session and task, and the run that ids are made from.

    `run` is None where program ids are UUIDs, which are the same run wherever they turn up. `stored` names the session
    of each program that the tables hold already: checkpoints that came one by one, without their root, may have
    begun another session than the one the root gives.
    """

    session_id: str
    task_id: str
    run: str | None
    native_ids: tuple[str, ...]
    has_own_run: bool
    stored: dict[str, str]

    def session_of(self, native_id: str) -> str:
        """The session of a program: the one it is stored in, else the launch's."""
        return self.stored.get(native_id, self.session_id)

    def node_id(self, native_id: str, log_format: str) -> str:
        """The node id of a program, which need not be known."""
        return program_node_id(log_format, self.run, native_id)


def program_node_id(log_format: str, run: str | None, native_id: str) -> str:
    """A program's node id; one with a UUID needs no run, so that a parent outside the folder has an id as well."""
    return stable_id("n", log_format, None if is_unique(native_id) and run is None else run, native_id)


def is_unique(native_id: str) -> bool:
    """Whether a program id can be no other program's: a UUID, or a migrant's name made from one."""
    return UNIQUE_ID.fullmatch(native_id) is not None


def sort_into_launches(heads: dict[str, ProgramHead], known: Known, log_format: str, run: str | None) -> list[Launch]:
    """Sort all programs of one run folder into launches, oldest first.

    Args:
        heads: All programs by native id.
        known: The tables; a launch of which some program is stored goes on in that session.
        log_format: Format name, part of every id.
        run: The run that `--run` named.
    """
    roots = sorted((head for head in heads.values() if head.parent_id is None), key=lambda head: head.order.sort_key())
    members: dict[str | None, list[ProgramHead]] = {root.native_id: [] for root in roots}
    for head in sorted(heads.values(), key=lambda head: head.order.sort_key()):
        top = _top_of(head, heads)
        members.setdefault(top.native_id if top.parent_id is None else _root_before(top, roots), []).append(head)
    return [
        _launch(heads.get(root_id or ""), programs, known, log_format, run)
        for root_id, programs in members.items()
        if programs
    ]


def _top_of(head: ProgramHead, heads: dict[str, ProgramHead]) -> ProgramHead:
    """The oldest known program above this one."""
    passed = {head.native_id}
    while head.parent_id in heads and head.parent_id not in passed:
        head = heads[head.parent_id]
        passed.add(head.native_id)
    return head


def _root_before(head: ProgramHead, roots: list[ProgramHead]) -> str | None:
    earlier = [root for root in roots if root.order.sort_key() <= head.order.sort_key()]
    return earlier[-1].native_id if earlier else None


def _launch(
    root: ProgramHead | None, programs: list[ProgramHead], known: Known, log_format: str, run: str | None
) -> Launch:
    first = root or programs[0]
    immutable = canonical_json([first.native_id, first.order.seconds, first.code_digest])
    unique = all(is_unique(head.native_id) for head in programs)
    id_run = run if run is not None else (None if unique else sha256_text(immutable))
    native_ids = tuple(head.native_id for head in programs)
    node_ids = {native_id: program_node_id(log_format, id_run, native_id) for native_id in native_ids}
    parent_ids = [program_node_id(log_format, id_run, head.parent_id) for head in programs if head.parent_id]
    there = known.sessions_of_nodes([*node_ids.values(), *parent_ids])
    # A launch that is stored in part goes on in that session, even where its root was not known then.
    stored = {native_id: there[node_id] for native_id, node_id in node_ids.items() if node_id in there}
    begun = [there[node_id] for node_id in (*node_ids.values(), *parent_ids) if node_id in there]
    session_id = begun[0] if begun else stable_id("s", log_format, run, sha256_text(immutable))
    task = known.task_of_session(session_id)
    # Launches from one starting program, measured alike, are attempts at one task.
    start = [first.code_digest, first.metric_names] if root is not None else [session_id]
    task_id = (task and task["task_id"]) or stable_id("t", log_format, sha256_text(canonical_json(start)))
    return Launch(session_id, task_id, id_run, native_ids, has_own_run=unique or run is not None, stored=stored)

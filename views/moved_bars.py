"""What a bar that moved means to leaves: those between its old and its new value come or go, no other can tell.

A bar of many sessions moves with almost every new one. To compute all rows of every session with such a leaf would
cost many times what the change itself does, so that only what the paths to these leaves are made of is computed.
(Spark computes their sessions.)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from views.crossing import linked_sessions
from views.engine import Engine, Scope
from views.feeds import NetChange

BAR_KEY = ("task_id", "fitness_basis", "environment_digest")
LINKS = ("node_id", "parent_id", "copy_of", "context")


@dataclass(frozen=True)
class MovedBars:
    """Leaves that reach their bar no more (`lost`) or now (`gained`): node_id to session_seq."""

    lost: dict[str, int] = field(default_factory=dict)
    gained: dict[str, int] = field(default_factory=dict)

    def outside(self, session_seqs: Iterable[int]) -> "MovedBars":
        """The same without what is computed again anyway."""
        done = set(session_seqs)
        lost, gained = (
            {leaf_id: seq for leaf_id, seq in leaves.items() if seq not in done} for leaves in (self.lost, self.gained)
        )
        return MovedBars(lost, gained)

    def __str__(self) -> str:
        return f"moved bars let in {len(self.gained)} and shut out {len(self.lost)} leaves elsewhere"


def moved_bars(engine: Engine, moved: Iterable[NetChange]) -> tuple[MovedBars, set[int]]:
    """Find the leaves that changes of `task_bars` concern, and the sessions with a leaf of a bar that came or went."""
    bars = [
        (*((change.after or change.before or {})[column] for column in BAR_KEY), *_values(change)) for change in moved
    ]
    bars = [bar for bar in bars if bar[0] is not None]  # no leaf is measured against the bar of no task
    if not bars:
        return MovedBars(), set()
    shape = pa.schema(
        [*((column, pa.string()) for column in BAR_KEY), ("before", pa.float64()), ("after", pa.float64())]
    )
    engine.keep("moved_bars", pa.table(list(zip(*bars, strict=True)), schema=shape))
    scores = engine.select_from("task_scores", Scope(task_ids=frozenset(bar[0] for bar in bars)))
    same_key = " and ".join(f"scores.{column} is not distinct from bars.{column}" for column in BAR_KEY)
    lost: dict[str, int] = {}
    gained: dict[str, int] = {}
    sessions: set[int] = set()
    for node_id, session_seq, before, after in engine.run(f"""
        select scores.node_id, scores.session_seq, bars.before, bars.after
        from ({scores}) as scores inner join moved_bars as bars on {same_key}
        where scores.is_leaf and (
            bars.before is null or bars.after is null
            or scores.fitness >= least(bars.before, bars.after) and scores.fitness < greatest(bars.before, bars.after)
        )
    """):
        if before is None or after is None:
            sessions.add(session_seq)
        else:
            (lost if after > before else gained)[node_id] = session_seq
    return MovedBars(lost, gained), sessions


def _values(change: NetChange) -> list[float | None]:
    return [image["bar"] if image else None for image in (change.before, change.after)]


def paths_to(engine: Engine, leaves: dict[str, int]) -> Scope:
    """The scope of all that the rows of these leaves are made from.

    That is their ancestors, what those were shown, and the originals of either; other sessions' nodes that were shown
    come with any scope. An ancestor that has no row belongs to it too, since the change log may know of it. Some nodes
    may look like leaves in it that are none.
    """
    sessions = frozenset(linked_sessions(engine, leaves.values()))
    nodes = engine.select_from("nodes", Scope(session_seqs=sessions), columns=LINKS)
    links = {
        node_id: (parent_id, copy_of, shown)
        for node_id, parent_id, copy_of, shown in engine.run(
            f"select node_id, parent_id, copy_of, [item.node_id for item in coalesce(context, [])] from ({nodes})"
        )
    }
    nothing: tuple[None, None, list[str]] = (None, None, [])
    wanted: set[str | None] = {None}
    pending: set[str | None] = set(leaves)
    while pending:
        wanted |= pending
        pending = {link for node_id in pending for link in links.get(node_id, nothing)[:2]} - wanted
    pending = {shown for node_id in wanted for shown in links.get(node_id, nothing)[2]} - wanted
    while pending:
        wanted |= pending
        pending = {links.get(node_id, nothing)[1] for node_id in pending} - wanted
    return Scope(session_seqs=sessions, node_ids=frozenset(node_id for node_id in wanted if node_id is not None))

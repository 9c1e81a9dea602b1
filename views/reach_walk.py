"""node_reach: which nodes the retractions in force reach, by scope and by what was made from what.

`invalidate` reaches the scope's nodes and their copies; `withdraw` everything made from them. A retraction
that a change touches is walked again from its scope; the others keep their rows.
"""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from store.duckdb_connection import quoted
from views.edges import edges_from, with_session_seq
from views.engine import Engine
from views.feeds import Feeds
from views.walk import Labelled, spread

MATCHED_BY = ("session_id", "task_id", "source_id", "model", "verifier", "session_seq")

# Scopes are predicates: a node that arrives later and matches is reached at the next refresh.
SCOPE_NODES = {
    "node": "select node_id from {nodes} where node_id = {scope_id}",
    "subtree": "select node_id from {nodes} where node_id = {scope_id}",
    "session": "select node_id from {nodes} where session_id = {scope_id}",
    "task": "select node_id from {nodes} where task_id = {scope_id}",
    "source": "select node_id from {nodes} where source_id = {scope_id}",
    "verifier": "select node_id from {nodes} where verifier = {scope_id}",
    "user": "select nodes.node_id from {nodes} as nodes inner join {sessions} as sessions "
    "on nodes.session_id = sessions.session_id where sessions.user_id = {scope_id}",
    "model": "select nodes.node_id from {nodes} as nodes left join {sessions} as sessions "
    "on nodes.session_id = sessions.session_id where coalesce(nodes.model, sessions.model) = {scope_id}",
    "tag": "select distinct node_id from {node_tags} where tag = {scope_id}",
}
SCOPE_KINDS = tuple(SCOPE_NODES)


@dataclass(frozen=True)
class Retraction:
    """A retraction in force."""

    retraction_id: str
    scope_kind: str
    scope_id: str
    kind: str


@dataclass(frozen=True)
class ReachChanges:
    """What moved since the watermark, as the walk needs it."""

    named: frozenset[str]  # retractions that came, or were taken back
    moved_nodes: frozenset[str]  # nodes that a scope may take up or let go
    edge_starts: frozenset[str]  # of new edges
    edge_ends: frozenset[str]  # of lost edges

    @property
    def num_keys(self) -> int:
        """How many retractions, nodes and edges moved."""
        return len(self.named) + len(self.moved_nodes) + len(self.edge_starts) + len(self.edge_ends)


def reach_changes(feeds: Feeds, watermarks: dict[str, int | None], engine: Engine) -> ReachChanges:
    """Read the feeds of retractions, nodes, sessions, tags and edges since the watermark.

    Raises:
        VersionGone: A feed cannot be read from there.
    """
    named = {
        text
        for change in feeds.net("retractions", watermarks["retractions"], ["reinstates", "kind", "scope_id"])
        for row in (change.before, change.after)
        if row
        for text in (row["retraction_id"], row["reinstates"])
        if text
    }
    moved = {
        (change.before or change.after or {})["node_id"]
        for name, columns in (("nodes", MATCHED_BY), ("node_tags", ("session_seq",)))
        for change in feeds.net(name, watermarks[name], columns)
    }
    sessions = {
        (change.before or change.after or {})["session_id"]
        for change in feeds.net("sessions", watermarks["sessions"], ["user_id", "model"])
    }
    if sessions:
        asked = engine.keep_texts("asked_sessions", sessions)
        moved |= engine.column(
            f"select node_id from {engine.scan('nodes')} where session_id in (select item from {asked})"
        )
    edges = feeds.net("node_edges", watermarks["node_edges"], ["session_seq"])
    return ReachChanges(
        named=frozenset(named),
        moved_nodes=frozenset(moved),
        edge_starts=frozenset(change.after["src"] for change in edges if change.after),
        edge_ends=frozenset(change.before["dst"] for change in edges if change.before),
    )


class ReachWalk:
    """Computes rows of node_reach over an engine's pinned tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        rows = engine.run(
            "select retraction_id, scope_kind, scope_id, kind, reinstates "
            f"from {engine.scan('retractions')} order by recorded_at, retraction_id"
        )
        self.takes_back = {row[0]: row[4] for row in rows if row[4] is not None}
        taken_back = self._taken_back()
        self.in_force = {row[0]: Retraction(*row[:4]) for row in rows if row[4] is None and row[0] not in taken_back}

    def _taken_back(self) -> set[str]:
        """Ids taken back by a row that is not itself taken back; rows in a circle take nothing back."""
        takers: dict[str, list[str]] = {}
        for taker, target in self.takes_back.items():
            takers.setdefault(target, []).append(taker)
        taken: dict[str, bool] = {}

        def is_taken(row_id: str, above: tuple[str, ...] = ()) -> bool:
            if row_id not in taken:
                taken[row_id] = any(
                    taker not in above and not is_taken(taker, (*above, row_id)) for taker in takers.get(row_id, ())
                )
            return taken[row_id]

        return {row_id for row_id in takers if is_taken(row_id)}

    def all_rows(self) -> pa.Table:
        """Every row, walked from the start."""
        return self._walk(self.in_force)

    def changed_rows(self, changes: ReachChanges) -> tuple[pa.Table, str]:
        """The rows that the changes concern, and a condition that selects the old rows they stand against."""
        again = self._touched(changes)
        listed = ", ".join(map(quoted, sorted(again))) or "null"
        return self._walk(again & self.in_force.keys()), f"retraction_id in ({listed})"

    def scope_nodes(self, retraction: Retraction, condition: str = "true") -> set[str]:
        """Existing nodes that the scope names by itself; of a subtree, its whole tree with its copies."""
        scan = self.engine.scan
        sql = SCOPE_NODES[retraction.scope_kind].format(
            nodes=scan("nodes"),
            sessions=scan("sessions"),
            node_tags=scan("node_tags"),
            scope_id=quoted(retraction.scope_id),
        )
        found = self.engine.column(f"select node_id from ({sql}) where {condition}")
        if retraction.scope_kind != "subtree":
            return found
        seeds = {("subtree", node_id) for node_id in found}
        tree = spread(seeds, edges_from(self.engine), lambda _, kind: kind in ("parent", "copy"))
        return {node_id for _, node_id in tree}

    def reached_by(self, retraction: Retraction) -> set[str]:
        """Every node that a retraction reaches, in force or not."""
        seeds = {("reached", node_id) for node_id in self.scope_nodes(retraction)}
        follows_all = retraction.kind == "withdraw"
        reached = spread(seeds, edges_from(self.engine), lambda _, edge: follows_all or edge == "copy")
        return {node_id for _, node_id in reached}

    def _touched(self, changes: ReachChanges) -> set[str]:
        """Retractions whose reach may be another than it was."""
        again = set(changes.named)
        pending = list(changes.named)
        while pending:  # what takes back, or gives back, a named retraction decides over it too
            target = self.takes_back.get(pending.pop())
            if target is not None and target not in again:
                again.add(target)
                pending.append(target)
        engine = self.engine
        engine.keep_texts("moved_nodes", changes.moved_nodes)
        engine.keep_texts("edge_nodes", changes.edge_starts | changes.edge_ends | changes.moved_nodes)
        again |= engine.column(
            f"select retraction_id from {engine.scan('node_reach')} where node_id in (select item from edge_nodes)"
        )
        if changes.moved_nodes:
            again |= {
                retraction.retraction_id
                for retraction in self.in_force.values()
                if retraction.retraction_id not in again
                and self._names_any(retraction, "node_id in (select item from moved_nodes)")
            }
        return again

    def _names_any(self, retraction: Retraction, condition: str) -> bool:
        named = Retraction(
            retraction.retraction_id,
            "node" if retraction.scope_kind == "subtree" else retraction.scope_kind,
            retraction.scope_id,
            retraction.kind,
        )
        return bool(self.scope_nodes(named, condition))

    def _walk(self, retraction_ids: Collection[str]) -> pa.Table:
        seeds: set[Labelled] = {
            (retraction_id, node_id)
            for retraction_id in retraction_ids
            for node_id in self.scope_nodes(self.in_force[retraction_id])
        }
        kinds = {retraction_id: self.in_force[retraction_id].kind for retraction_id in retraction_ids}
        reached = spread(
            seeds, edges_from(self.engine), lambda label, edge: kinds[label] == "withdraw" or edge == "copy"
        )
        ordered = sorted(reached)
        columns = {
            "retraction_id": [label for label, _ in ordered],
            "node_id": [node_id for _, node_id in ordered],
            "effect": ["self" if pair in seeds else "derived" for pair in ordered],
            "kind": [kinds[label] for label, _ in ordered],
        }
        return with_session_seq(self.engine, columns)

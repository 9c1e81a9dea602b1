"""node_reach: which nodes the retractions in force reach, by scope and by what was made from what.

`invalidate` reaches the scope's nodes and their copies; `withdraw` everything made from them. New nodes and
edges push the reach forward; a retraction that came, was taken back, or may have lost a node is walked again
from its scope; the others keep their rows.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from store.duckdb_connection import quoted
from views.edges import EdgeReader, near, starting_places
from views.engine import EVERYTHING, Engine, Scope
from views.feeds import Feeds
from views.registry import view_schema
from views.walk import Labelled, spread

MATCHED_BY = ("session_id", "task_id", "source_id", "model", "verifier", "session_seq")
NODE_COLUMNS = ("node_id", *MATCHED_BY)

# Scopes are predicates: a node that arrives later and matches is reached at the next refresh.
SCOPE_NODES = {
    "node": "select node_id, session_seq from placed where node_id = {scope_id}",
    "subtree": "select node_id, session_seq from placed where node_id = {scope_id}",
    "session": "select node_id, session_seq from placed where session_id = {scope_id}",
    "task": "select node_id, session_seq from placed where task_id = {scope_id}",
    "source": "select node_id, session_seq from placed where source_id = {scope_id}",
    "verifier": "select node_id, session_seq from placed where verifier = {scope_id}",
    "user": "select node_id, placed.session_seq from placed inner join {sessions} as sessions "
    "on placed.session_id = sessions.session_id where sessions.user_id = {scope_id}",
    "model": "select node_id, placed.session_seq from placed left join {sessions} as sessions "
    "on placed.session_id = sessions.session_id where coalesce(placed.model, sessions.model) = {scope_id}",
    "tag": "select distinct node_id, session_seq from ({node_tags}) where tag = {scope_id}",
}
SCOPE_KINDS = tuple(SCOPE_NODES)
WITHIN_SESSIONS = {"session": "session_id", "user": "user_id"}  # by a column of `sessions`


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
    rows: pa.Table  # nodes that a scope may take up, as they are now: NODE_COLUMNS
    tagged: pa.Table  # (node_id, tag, session_seq) that came
    losing_nodes: dict[str, int]  # nodes that a scope or an edge may let go, with their session then
    new_edges: dict[tuple[str, str, str], int]  # (src, dst, kind) to dst's session

    @property
    def num_keys(self) -> int:
        """How many retractions, nodes, tags and edges moved."""
        moved = self.rows.num_rows + self.tagged.num_rows
        return int(moved) + len(self.named) + len(self.losing_nodes) + len(self.new_edges)


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
    nodes = feeds.net("nodes", watermarks["nodes"], MATCHED_BY)
    tags = feeds.net("node_tags", watermarks["node_tags"], ["session_seq"])
    edges = feeds.net("node_edges", watermarks["node_edges"], ["session_seq"])
    sessions = feeds.net("sessions", watermarks["sessions"], ["session_seq", "user_id", "model"])
    losing = {change.before["dst"]: change.before["session_seq"] for change in edges if change.before}
    for change in (*nodes, *tags):
        if change.before:
            losing[change.before["node_id"]] = change.before["session_seq"]
    rows = [change.after for change in nodes if change.after]
    if sessions:  # whose session it is, or which model ran, may be another: all of its nodes may go or come
        seqs = frozenset(row["session_seq"] for change in sessions for row in (change.before, change.after) if row)
        scope = Scope(session_seqs=seqs)
        there = engine.arrow(engine.select_from("nodes", scope, columns=NODE_COLUMNS)).to_pylist()
        corrected = {change.before["session_id"] for change in sessions if change.before}
        rows += there
        losing |= {row["node_id"]: row["session_seq"] for row in there if row["session_id"] in corrected}
    return ReachChanges(
        named=frozenset(named),
        rows=_table(engine, "nodes", rows, NODE_COLUMNS),
        tagged=_table(engine, "node_tags", [change.after for change in tags if change.after], None),
        losing_nodes=losing,
        new_edges={(row["src"], row["dst"], row["kind"]): row["session_seq"] for c in edges if (row := c.after)},
    )


def _table(engine: Engine, name: str, rows: list[dict[str, object]], columns: tuple[str, ...] | None) -> pa.Table:
    schema = engine.tables.schema(name).columns
    wanted = pa.schema([schema.field(column) for column in columns or schema.names])
    return pa.Table.from_pylist(rows, schema=wanted)


class ReachWalk:
    """Computes rows of node_reach over an engine's pinned tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.edges = EdgeReader(engine)
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
        return self._rows(self._walk(self.in_force))

    def changed_rows(self, changes: ReachChanges) -> tuple[pa.Table, str]:
        """The rows that the changes concern, and a select over the old rows they stand against."""
        engine = self.engine
        now = zip(changes.rows["node_id"].to_pylist(), changes.rows["session_seq"].to_pylist(), strict=True)
        self.edges.place(now)
        self.edges.place_unless_known((dst, session_seq) for (_, dst, _), session_seq in changes.new_edges.items())
        engine.keep("moved_rows", changes.rows)
        engine.keep("moved_tags", changes.tagged)
        carried = self._carried_over(changes.new_edges)
        seeds = {pair for pair in self._scoped_moves() if pair[0] not in changes.named}
        again = self._touched(changes, carried.keys() | seeds)
        effects = self._walk(again & self.in_force.keys())
        seeds = {pair for pair in seeds if pair[0] not in again}
        moved = {
            **changes.losing_nodes,
            **dict(zip(changes.rows["node_id"].to_pylist(), changes.rows["session_seq"].to_pylist(), strict=True)),
            **{node_id: self.edges.places[node_id] for _, node_id in seeds},
        }
        stored = {pair: effect for pair, effect in self._reach_of(moved).items() if pair[0] not in again}
        gained = seeds | {pair for pair in carried if pair[0] not in again}
        gained -= self._known({node_id for _, node_id in gained})
        pushed = spread(gained, self.edges, self._follows, self._known)
        effects |= dict.fromkeys(pushed, "derived") | stored | dict.fromkeys(seeds, "self")
        engine.keep_texts("moved_nodes", moved)
        engine.keep_texts("retractions_again", again)
        places = frozenset({*changes.losing_nodes.values(), *moved.values()})
        where = EVERYTHING if again else Scope(session_seqs=places)
        concerned = "retraction_id in (select item from retractions_again) or node_id in (select item from moved_nodes)"
        return self._rows(effects), f"select * from ({engine.select_from('node_reach', where)}) where {concerned}"

    def scope_nodes(self, retraction: Retraction) -> set[str]:
        """Existing nodes that the scope names by itself; of a subtree, its whole tree with its copies."""
        found = self._matching(retraction, self._nodes_to_look_at(retraction), f"select * from {self._scan_tags()}")
        if retraction.scope_kind != "subtree":
            return found
        seeds = {("subtree", node_id) for node_id in found}
        tree = spread(seeds, self.edges, lambda _, kind: kind in ("parent", "copy"))
        return {node_id for _, node_id in tree}

    def reached_by(self, retraction: Retraction) -> set[str]:
        """Every node that a retraction reaches, in force or not."""
        seeds = {("reached", node_id) for node_id in self.scope_nodes(retraction)}
        follows_all = retraction.kind == "withdraw"
        reached = spread(seeds, self.edges, lambda _, edge: follows_all or edge == "copy")
        return {node_id for _, node_id in reached}

    def _scan_tags(self) -> str:
        return self.engine.scan("node_tags")

    def _nodes_to_look_at(self, retraction: Retraction) -> str:
        """A select over at least the nodes of a scope."""
        scope = EVERYTHING
        if retraction.scope_kind == "task":  # of a node, which its session's need not be
            scope = Scope(task_ids=frozenset({retraction.scope_id}))
        elif retraction.scope_kind in WITHIN_SESSIONS:
            named = f"{WITHIN_SESSIONS[retraction.scope_kind]} = {quoted(retraction.scope_id)}"
            scope = Scope(session_seqs=frozenset(self.engine.sessions_with(named)))
        return self.engine.select_from("nodes", scope, columns=NODE_COLUMNS)

    def _matching(self, retraction: Retraction, nodes: str, node_tags: str) -> set[str]:
        sql = SCOPE_NODES[retraction.scope_kind].format(
            sessions=self.engine.scan("sessions"), node_tags=node_tags, scope_id=quoted(retraction.scope_id)
        )
        return self.edges.place(self.engine.run(f"with placed as ({nodes}) {sql}"))

    def _scoped_moves(self) -> set[Labelled]:
        """(retraction_id, node_id) of moved nodes and tags that a scope names."""
        return {
            (retraction.retraction_id, node_id)
            for retraction in self.in_force.values()
            for node_id in self._matching(retraction, "select * from moved_rows", "select * from moved_tags")
        }

    def _carried_over(self, new_edges: Mapping[tuple[str, str, str], int]) -> dict[Labelled, str]:
        """(retraction_id, dst) that new edges bring from where they start, to the edge's kind."""
        if not new_edges or not self.in_force:
            return {}
        starts = starting_places(self.engine, {(src, dst): seq for (src, dst, _), seq in new_edges.items()})
        reached_at: dict[str, list[str]] = {}
        for retraction_id, node_id in self._reach_of(starts):
            reached_at.setdefault(node_id, []).append(retraction_id)
        return {
            (retraction_id, dst): kind
            for src, dst, kind in new_edges
            for retraction_id in reached_at.get(src, ())
            if retraction_id in self.in_force and self._carries(retraction_id, kind)
        }

    def _carries(self, retraction_id: str, edge: str) -> bool:
        """Whether anything of a retraction goes along edges of a kind: its withdrawal, or its subtree itself."""
        is_subtree = self.in_force[retraction_id].scope_kind == "subtree"
        return self._follows(retraction_id, edge) or (is_subtree and edge in ("parent", "copy"))

    def _follows(self, retraction_id: str, edge: str) -> bool:
        return self.in_force[retraction_id].kind == "withdraw" or edge == "copy"

    def _touched(self, changes: ReachChanges, moving: Iterable[Labelled]) -> set[str]:
        """Retractions to walk again: those named, those that may have lost a node, and subtrees that may have grown."""
        again = set(changes.named)
        pending = list(changes.named)
        while pending:  # what takes back, or gives back, a named retraction decides over it too
            target = self.takes_back.get(pending.pop())
            if target is not None and target not in again:
                again.add(target)
                pending.append(target)
        again |= {retraction_id for retraction_id, _ in self._reach_of(changes.losing_nodes)}
        return again | {rid for rid, _ in moving if self.in_force[rid].scope_kind == "subtree"}

    def _known(self, node_ids: set[str]) -> set[Labelled]:
        return set(self._reach_of({node_id: self.edges.places[node_id] for node_id in node_ids}))

    def _reach_of(self, places: Mapping[str, int | None]) -> dict[Labelled, str]:
        """(retraction_id, node_id) of stored rows of these nodes, to their effect."""
        if not places:
            return {}
        asked = self.engine.keep_texts("asked_nodes", places)
        rows = self.engine.run(f"""
            select retraction_id, node_id, effect, session_seq
            from ({self.engine.select_from("node_reach", near(places))}) where node_id in (select item from {asked})
        """)
        self.edges.place_unless_known((node_id, session_seq) for _, node_id, _, session_seq in rows)
        return {(retraction_id, node_id): effect for retraction_id, node_id, effect, _ in rows}

    def _walk(self, retraction_ids: Collection[str]) -> dict[Labelled, str]:
        """All that these retractions in force reach, from their scopes, with the effect."""
        seeds: set[Labelled] = {
            (retraction_id, node_id)
            for retraction_id in retraction_ids
            for node_id in self.scope_nodes(self.in_force[retraction_id])
        }
        reached = spread(seeds, self.edges, self._follows)
        return {pair: "self" if pair in seeds else "derived" for pair in reached}

    def _rows(self, effects: Mapping[Labelled, str]) -> pa.Table:
        ordered = sorted(effects)
        columns = {
            "retraction_id": [label for label, _ in ordered],
            "node_id": [node_id for _, node_id in ordered],
            "effect": [effects[pair] for pair in ordered],
            "kind": [self.in_force[label].kind for label, _ in ordered],
        }
        return self.edges.with_places(columns, view_schema("node_reach").columns)

"""crossing_edges: what leaves a session. Few rows, so that nobody needs to look through all nodes or edges for them.

A row stands for an edge (of node_edges), or for a parent, original or context that a node's own row names, whose
source is in another session or has not arrived. Within a session the cluster key finds everything; across
sessions, ids are hashes and only this relation says where to look.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from store.duckdb_connection import quoted
from views.engine import EVERYTHING, Engine, Scope
from views.feeds import Feeds

LINKED_BY = ("session_seq", "parent_id", "copy_of", "context")
NODE_COLUMNS = ("node_id", "session_seq", "parent_id", "copy_of", "context")
EDGE_COLUMNS = ("src", "dst", "kind", "session_seq")

LEAVING = """
with links as (
    select parent_id as src, node_id as dst, 'parent' as kind, session_seq, false as is_edge from placed_nodes
    where parent_id is not null
    union all
    select copy_of, node_id, 'copy', session_seq, false from placed_nodes where copy_of is not null
    union all
    select shown.node_id, node_id, 'context', session_seq, false
    from (select node_id, session_seq, unnest(context) as shown from placed_nodes) where shown.node_id is not null
    union all
    select src, dst, kind, session_seq, true from ({edges})
)
select src, dst, kind, max(session_seq) as session_seq, bool_or(is_edge) as is_edge
from links
where not exists (
    select 1 from placed_nodes where placed_nodes.node_id = links.src and placed_nodes.session_seq = links.session_seq
)
group by src, dst, kind
"""


@dataclass(frozen=True)
class CrossingChanges:
    """What moved since the watermark."""

    session_seqs: frozenset[int]  # sessions with a node or an edge that moved
    places: dict[str, int | None]  # nodes that came or moved: where they are now; NULL: gone

    @property
    def num_keys(self) -> int:
        """How many sessions are looked through again."""
        return len(self.session_seqs)


def crossing_changes(feeds: Feeds, watermarks: dict[str, int | None]) -> CrossingChanges:
    """Read the feeds of nodes and edges since the watermark.

    Raises:
        VersionGone: A feed cannot be read from there.
    """
    sessions: set[int] = set()
    places: dict[str, int | None] = {}
    for change in feeds.net("nodes", watermarks["nodes"], LINKED_BY):
        sessions |= {row["session_seq"] for row in (change.before, change.after) if row}
        before = change.before["session_seq"] if change.before else None
        after = change.after["session_seq"] if change.after else None
        if before != after:
            places[(change.after or change.before or {})["node_id"]] = after
    for change in feeds.net("node_edges", watermarks["node_edges"], ["session_seq"]):
        sessions |= {row["session_seq"] for row in (change.before, change.after) if row}
    return CrossingChanges(frozenset(sessions), places)


class CrossingWalk:
    """Computes rows of crossing_edges over an engine's pinned tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def all_rows(self) -> pa.Table:
        """Every row."""
        self._keep_leaving(EVERYTHING)
        return self._placed(known={}, moved={})

    def changed_rows(self, changes: CrossingChanges) -> tuple[pa.Table, str]:
        """The rows that the changes concern, and a select over the old rows they stand against."""
        engine = self.engine
        scope = Scope(session_seqs=changes.session_seqs)
        self._keep_leaving(scope)
        stored = engine.scan("crossing_edges")
        engine.keep_texts("moved_nodes", changes.places)
        old_rows = f"select * from {stored} where {scope.condition()} or src in (select item from moved_nodes)"
        # Rows of other sessions whose source moved stay as they are, but for the place of their source.
        engine.run(f"""
            insert into leaving select src, dst, kind, session_seq, is_edge from {stored}
            where src in (select item from moved_nodes) and not ({scope.condition()})
        """)
        known = dict(
            engine.run(
                f"select src, src_session_seq from {stored} where src in (select src from leaving) "
                "and src not in (select item from moved_nodes)"
            )
        )
        return self._placed(known=known, moved=changes.places), old_rows

    def _keep_leaving(self, scope: Scope) -> None:
        """Make the temporary table `leaving`: what leaves the scope's sessions, its sources not placed yet."""
        nodes = self.engine.select_from("nodes", scope, columns=NODE_COLUMNS)
        self.engine.run(f"create or replace temp table placed_nodes as {nodes}")
        edges = self.engine.select_from("node_edges", scope, columns=EDGE_COLUMNS)
        self.engine.run(f"create or replace temp table leaving as {LEAVING.format(edges=edges)}")

    def _sessions_of_the_tasks(self) -> Scope:
        """The sessions of the tasks that what leaves belongs to: copies and parents seldom come from elsewhere."""
        sessions = self.engine.scan("sessions")
        tasks = f"select task_id from {sessions} where session_seq in (select session_seq from leaving)"
        return Scope(session_seqs=frozenset(self.engine.sessions_with(f"task_id in ({tasks})")))

    def _named_sessions(self) -> Scope:
        """The sessions that contexts in question say they were shown from."""
        named = self.engine.run("""
            select distinct shown.session_id
            from (select unnest(context) as shown from placed_nodes)
            where shown.node_id in (select src from leaving) and shown.session_id is not null
        """)
        listed = ", ".join(quoted(session_id) for (session_id,) in named) or "null"
        return Scope(session_seqs=frozenset(self.engine.sessions_with(f"session_id in ({listed})")))

    def _placed(self, known: dict[str, int | None], moved: dict[str, int | None]) -> pa.Table:
        """The rows of `leaving` with the session of each source: as the feed says, as was known, or looked up."""
        places = {**known, **moved}
        asked = self.engine.column("select src from leaving") - places.keys()
        for near in (self._named_sessions, self._sessions_of_the_tasks):  # few files, and mostly it lies in them
            asked -= places.keys()
            if asked:
                places |= places_of(self.engine, asked, near())
        asked -= places.keys()
        places |= places_of(self.engine, asked)
        self.engine.keep(
            "source_places",
            pa.table(
                {
                    "src": pa.array(list(places), pa.string()),
                    "src_session_seq": pa.array(list(places.values()), pa.int64()),
                }
            ),
        )
        return self.engine.arrow("""
            select leaving.src, leaving.dst, leaving.kind, leaving.session_seq, places.src_session_seq, leaving.is_edge
            from leaving left join source_places as places on leaving.src = places.src
        """)


def places_of(engine: Engine, node_ids: Iterable[str], scope: Scope = EVERYTHING) -> dict[str, int]:
    """The session of each node that exists in the scope; over everything, two columns of every file are read."""
    asked = set(node_ids)
    if not asked:
        return {}
    engine.keep_texts("asked_places", asked)
    nodes = engine.select_from("nodes", scope, columns=("node_id", "session_seq"))
    return dict(engine.run(f"select * from ({nodes}) where node_id in (select item from asked_places)"))


def linked_sessions(engine: Engine, sessions: Iterable[int]) -> set[int]:
    """The sessions, and all that parents and copies across sessions link to them, in both directions."""
    found = set(sessions)
    if not found:
        return found
    links: dict[int, set[int]] = {}
    for one, other in session_pairs(engine):
        links.setdefault(one, set()).add(other)
        links.setdefault(other, set()).add(one)
    pending = list(found)
    while pending:
        for session in links.get(pending.pop(), ()):
            if session not in found:
                found.add(session)
                pending.append(session)
    return found


def session_pairs(engine: Engine) -> list[tuple[int, int]]:
    """Pairs of sessions that a parent or a copy links."""
    return [
        (one, other)
        for one, other in engine.run(f"""
            select distinct session_seq, src_session_seq from {engine.scan("crossing_edges")}
            where kind <> 'context' and src_session_seq is not null
        """)
    ]

"""node_tags: a node's own tags (its messages', session's, task's and source's too), spread to what was made from it.

Only what changed is walked: new nodes, edges and assignments push forward; where something was taken away,
the tags concerned are walked again from their start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from store.duckdb_connection import quoted
from views.edges import EdgeReader, near, starting_places
from views.engine import EVERYTHING, Engine, Scope
from views.feeds import Feeds
from views.registry import view_schema
from views.walk import Labelled, spread

PLACED_BY = ("session_id", "task_id", "source_id", "session_seq")

ACTIVE = """
with assignments as (
    select target_kind, target_id, tag, action, row_number() over (
        partition by target_kind, target_id, tag order by recorded_at desc, assignment_id desc
    ) as age
    from {tag_assignments}
)
select target_kind, target_id, tag from assignments where age = 1 and action = 'add'
"""
OWN_TAGS = """
with node_targets as (
    select tag, target_id as node_id from active_tags where target_kind = 'node'
    union select tag, regexp_replace(target_id, '#[^#]*$', '') from active_tags where target_kind = 'message'
),
placed as ({nodes}),
own_tags as (
    select tag, placed.node_id, session_seq from node_targets inner join placed on node_targets.node_id = placed.node_id
    union select tag, node_id, session_seq from active_tags inner join placed
        on target_kind = 'session' and target_id = placed.session_id
    union select tag, node_id, session_seq from active_tags inner join placed
        on target_kind = 'task' and target_id = placed.task_id
    union select tag, node_id, session_seq from active_tags inner join placed
        on target_kind = 'source' and target_id = placed.source_id
)
select tag, node_id, session_seq from own_tags where {condition}
"""


@dataclass(frozen=True)
class TagChanges:
    """What moved since the watermark, as the walk needs it."""

    rows: tuple[dict[str, object], ...]  # nodes that came or moved, as they are now
    losing_nodes: dict[str, int]  # nodes whose tags may have gone, with their session then
    new_edges: dict[tuple[str, str], int]  # (src, dst) to dst's session
    added_tags: frozenset[str]  # an assignment came
    lost_tags: frozenset[str]  # an assignment went, or took a tag away
    num_keys: int = field(default=0)  # how many nodes, edges and tags moved


def tag_changes(feeds: Feeds, watermarks: dict[str, int | None]) -> TagChanges:
    """Read the feeds of nodes, edges and assignments since the watermark.

    Raises:
        VersionGone: A feed cannot be read from there.
    """
    nodes = feeds.net("nodes", watermarks["nodes"], PLACED_BY)
    edges = feeds.net("node_edges", watermarks["node_edges"], ["session_seq"])
    assignments = feeds.net("tag_assignments", watermarks["tag_assignments"], ["tag", "action"])
    losing = {change.before["dst"]: change.before["session_seq"] for change in edges if change.before}
    losing |= {change.before["node_id"]: change.before["session_seq"] for change in nodes if change.before}
    came = [change.after for change in assignments if change.after]
    went = [change.before for change in assignments if change.before]
    rows = tuple(change.after for change in nodes if change.after)
    new_edges = {(row["src"], row["dst"]): row["session_seq"] for change in edges if (row := change.after)}
    added = frozenset(row["tag"] for row in came if row["action"] == "add")
    lost = frozenset({row["tag"] for row in came if row["action"] != "add"} | {row["tag"] for row in went})
    num_keys = len({row["node_id"] for row in rows} | losing.keys()) + len(new_edges) + len(added | lost)
    return TagChanges(rows, losing, new_edges, added, lost, num_keys)


class TagWalk:
    """Computes rows of node_tags over an engine's pinned tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.edges = EdgeReader(engine)
        self.staying = frozenset(engine.settings.tags_that_stay)
        active = ACTIVE.format(tag_assignments=engine.scan("tag_assignments"))
        engine.run(f"create or replace temp table active_tags as {active}")

    def all_rows(self) -> pa.Table:
        """Every row, walked from the start."""
        return self._rows(spread(self._own_tags(self._nodes_of("true")), self.edges, self._follows))

    def changed_rows(self, changes: TagChanges) -> tuple[pa.Table, str]:
        """The rows that the changes concern, and a select over the old rows they stand against."""
        engine = self.engine
        self.edges.place((str(row["node_id"]), int(str(row["session_seq"]))) for row in changes.rows)
        self.edges.place_unless_known((dst, session_seq) for (_, dst), session_seq in changes.new_edges.items())
        engine.keep_texts("tags_again", [])
        lost = {tag for tag, _ in self._tags_of(changes.losing_nodes)}
        engine.keep_texts("tags_again", changes.lost_tags | lost)
        engine.keep_texts("added_tags", changes.added_tags)
        again, added = "tag in (select item from tags_again)", "tag in (select item from added_tags)"
        walked_again = spread(self._own_tags(self._nodes_of(again), again), self.edges, self._follows)
        moved = self._keep_moved(changes)
        gained = self._own_tags(self._nodes_of(f"{added} and not {again}"), f"{added} and not {again}")
        gained |= self._own_tags("select * from moved_rows", f"not {again}")
        gained |= self._carried_over(changes.new_edges)
        gained -= self._tags_of({node_id: self.edges.places[node_id] for _, node_id in gained})
        pushed = spread(gained, self.edges, self._follows, self._known)
        unmoved = self._tags_of(moved)
        engine.keep_texts("moved_nodes", moved)
        places = frozenset({*changes.losing_nodes.values(), *moved.values()})
        where = EVERYTHING if changes.lost_tags | lost else Scope(session_seqs=places)
        concerned = f"{again} or node_id in (select item from moved_nodes)"
        old_rows = f"select * from ({engine.select_from('node_tags', where)}) where {concerned}"
        return self._rows(walked_again | pushed | unmoved), old_rows

    def _keep_moved(self, changes: TagChanges) -> dict[str, int]:
        """Make `moved_rows` known; returns every node whose rows may be others now, with its session."""
        columns = ("node_id", *PLACED_BY)
        schema = pa.schema([self.engine.tables.schema("nodes").columns.field(name) for name in columns])
        self.engine.keep("moved_rows", pa.Table.from_pylist(list(changes.rows), schema=schema))
        return {**changes.losing_nodes, **{str(row["node_id"]): int(str(row["session_seq"])) for row in changes.rows}}

    def _follows(self, tag: str, _kind: str) -> bool:
        return tag not in self.staying

    def _nodes_of(self, condition: str) -> str:
        """A select over at least the nodes that active assignments with this condition on `tag` name."""
        columns = ("node_id", *PLACED_BY)
        targets = self.engine.run(f"select distinct target_kind, target_id from active_tags where {condition}")
        sessions = {target for kind, target in targets if kind == "session"}
        tasks = {target for kind, target in targets if kind == "task"}
        if len(sessions) + len(tasks) < len(targets):  # an id alone does not say where its nodes lie
            return self.engine.select_from("nodes", EVERYTHING, columns=columns)
        seqs = self.engine.sessions_of_tasks(tasks) if tasks else set()
        if sessions:
            seqs |= self.engine.sessions_with(f"session_id in ({', '.join(map(quoted, sorted(sessions)))})")
        return self.engine.select_from("nodes", Scope(session_seqs=frozenset(seqs)), columns=columns)

    def _own_tags(self, nodes: str, condition: str = "true") -> set[Labelled]:
        """(tag, node_id) of existing nodes by active assignments; the latest row per target and tag counts."""
        rows = self.engine.run(OWN_TAGS.format(nodes=nodes, condition=condition))
        self.edges.place((node_id, session_seq) for _, node_id, session_seq in rows)
        return {(tag, node_id) for tag, node_id, _ in rows}

    def _known(self, node_ids: set[str]) -> set[Labelled]:
        return self._tags_of({node_id: self.edges.places[node_id] for node_id in node_ids})

    def _tags_of(self, places: Mapping[str, int | None]) -> set[Labelled]:
        """Tags that nodes carried at the watermark, less those that are walked again."""
        if not places:
            return set()
        asked = self.engine.keep_texts("asked_nodes", places)
        rows = self.engine.run(f"""
            select tag, node_id, session_seq from ({self.engine.select_from("node_tags", near(places))})
            where node_id in (select item from {asked}) and tag not in (select item from tags_again)
        """)
        self.edges.place_unless_known((node_id, session_seq) for _, node_id, session_seq in rows)
        return {(tag, node_id) for tag, node_id, _ in rows}

    def _carried_over(self, new_edges: dict[tuple[str, str], int]) -> set[Labelled]:
        """Tags that new edges bring to their ends from where they start, in the same session or another."""
        if not new_edges:
            return set()
        starts = starting_places(self.engine, new_edges)
        tags_at: dict[str, list[str]] = {}
        for tag, node_id in self._tags_of(starts):
            tags_at.setdefault(node_id, []).append(tag)
        return {(tag, dst) for src, dst in new_edges for tag in tags_at.get(src, ()) if tag not in self.staying}

    def _rows(self, labelled: set[Labelled]) -> pa.Table:
        ordered = sorted(labelled)
        columns = {"node_id": [node_id for _, node_id in ordered], "tag": [tag for tag, _ in ordered]}
        return self.edges.with_places(columns, view_schema("node_tags").columns)

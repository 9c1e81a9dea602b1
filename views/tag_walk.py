"""node_tags: a node's own tags (its messages', session's, task's and source's too), spread to what was made from it.

Only what changed is walked: new nodes, edges and assignments push forward; where something was taken away,
the tags concerned are walked again from their start.
"""

from dataclasses import dataclass

import pyarrow as pa

from views.edges import edges_from, with_session_seq
from views.engine import Engine
from views.feeds import Feeds
from views.walk import Labelled, spread

PLACED_BY = ("session_id", "task_id", "source_id", "session_seq")

OWN_TAGS = """
with assignments as (
    select target_kind, target_id, tag, action, row_number() over (
        partition by target_kind, target_id, tag order by recorded_at desc, assignment_id desc
    ) as age
    from {tag_assignments}
),
active as (select target_kind, target_id, tag from assignments where age = 1 and action = 'add'),
node_targets as (
    select tag, target_id as node_id from active where target_kind = 'node'
    union select tag, regexp_replace(target_id, '#[^#]*$', '') from active where target_kind = 'message'
),
own_tags as (
    select tag, nodes.node_id from node_targets inner join {nodes} as nodes on node_targets.node_id = nodes.node_id
    union select tag, node_id from active inner join {nodes} as nodes
        on target_kind = 'session' and target_id = nodes.session_id
    union select tag, node_id from active inner join {nodes} as nodes
        on target_kind = 'task' and target_id = nodes.task_id
    union select tag, node_id from active inner join {nodes} as nodes
        on target_kind = 'source' and target_id = nodes.source_id
)
select tag, node_id from own_tags where {condition}
"""


@dataclass(frozen=True)
class TagChanges:
    """What moved since the watermark, as the walk needs it."""

    moved_nodes: frozenset[str]  # new, gone, or in another session, task or source; and ends of lost edges
    losing_nodes: frozenset[str]  # of these, nodes whose tags may have gone
    new_edges: frozenset[tuple[str, str]]
    added_tags: frozenset[str]  # an assignment came
    lost_tags: frozenset[str]  # an assignment went, or took a tag away

    @property
    def num_keys(self) -> int:
        """How many nodes, edges and tags moved."""
        return len(self.moved_nodes) + len(self.new_edges) + len(self.added_tags | self.lost_tags)


def tag_changes(feeds: Feeds, watermarks: dict[str, int | None]) -> TagChanges:
    """Read the feeds of nodes, edges and assignments since the watermark.

    Raises:
        VersionGone: A feed cannot be read from there.
    """
    nodes = feeds.net("nodes", watermarks["nodes"], PLACED_BY)
    edges = feeds.net("node_edges", watermarks["node_edges"], ["session_seq"])
    assignments = feeds.net("tag_assignments", watermarks["tag_assignments"], ["tag", "action"])
    lost_ends = {change.before["dst"] for change in edges if change.before}
    lost_nodes = {change.before["node_id"] for change in nodes if change.before}
    new_nodes = {change.after["node_id"] for change in nodes if change.after}
    came = [change.after for change in assignments if change.after]
    went = [change.before for change in assignments if change.before]
    return TagChanges(
        moved_nodes=frozenset(lost_nodes | new_nodes | lost_ends),
        losing_nodes=frozenset(lost_nodes | lost_ends),
        new_edges=frozenset((change.after["src"], change.after["dst"]) for change in edges if change.after),
        added_tags=frozenset(row["tag"] for row in came if row["action"] == "add"),
        lost_tags=frozenset({row["tag"] for row in came if row["action"] != "add"} | {row["tag"] for row in went}),
    )


class TagWalk:
    """Computes rows of node_tags over an engine's pinned tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.staying = frozenset(engine.settings.tags_that_stay)

    def all_rows(self) -> pa.Table:
        """Every row, walked from the start."""
        return self._rows(spread(self._own_tags("true"), edges_from(self.engine), self._follows))

    def changed_rows(self, changes: TagChanges) -> tuple[pa.Table, str]:
        """The rows that the changes concern, and a condition that selects the old rows they stand against."""
        engine = self.engine
        engine.keep_texts("moved_nodes", changes.moved_nodes)
        engine.keep_texts("losing_nodes", changes.losing_nodes)
        lost = engine.column(
            f"select tag from {engine.scan('node_tags')} where node_id in (select item from losing_nodes)"
        )
        again = changes.lost_tags | lost
        engine.keep_texts("tags_again", again)
        engine.keep_texts("added_tags", changes.added_tags)
        walked_again = spread(self._own_tags("tag in (select item from tags_again)"), edges_from(engine), self._follows)
        gained = self._own_tags(
            "tag not in (select item from tags_again) and "
            "(tag in (select item from added_tags) or node_id in (select item from moved_nodes))"
        )
        gained |= self._carried_over(changes.new_edges)
        gained -= self._tags_of({node_id for _, node_id in gained})
        pushed = spread(gained, edges_from(engine), self._follows, self._tags_of)
        unmoved = self._tags_of(set(changes.moved_nodes))
        old_rows = "tag in (select item from tags_again) or node_id in (select item from moved_nodes)"
        return self._rows(walked_again | pushed | unmoved), old_rows

    def _follows(self, tag: str, _kind: str) -> bool:
        return tag not in self.staying

    def _own_tags(self, condition: str) -> set[Labelled]:
        """(tag, node_id) of existing nodes by active assignments; the latest row per target and tag counts."""
        scan = self.engine.scan
        sql = OWN_TAGS.format(tag_assignments=scan("tag_assignments"), nodes=scan("nodes"), condition=condition)
        return {(tag, node_id) for tag, node_id in self.engine.run(sql)}

    def _tags_of(self, node_ids: set[str]) -> set[Labelled]:
        """Tags that nodes carried at the watermark, less those that are walked again."""
        asked = self.engine.keep_texts("asked_nodes", node_ids)
        rows = self.engine.run(f"""
            select tag, node_id from {self.engine.scan("node_tags")}
            where node_id in (select item from {asked}) and tag not in (select item from tags_again)
        """)
        return {(tag, node_id) for tag, node_id in rows}

    def _carried_over(self, new_edges: frozenset[tuple[str, str]]) -> set[Labelled]:
        tags_at: dict[str, list[str]] = {}
        for tag, node_id in self._tags_of({src for src, _ in new_edges}):
            tags_at.setdefault(node_id, []).append(tag)
        return {(tag, dst) for src, dst in new_edges for tag in tags_at.get(src, ()) if tag not in self.staying}

    def _rows(self, labelled: set[Labelled]) -> pa.Table:
        ordered = sorted(labelled)
        columns = {"node_id": [node_id for _, node_id in ordered], "tag": [tag for tag, _ in ordered]}
        return with_session_seq(self.engine, columns)

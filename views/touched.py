"""From change feeds to the keys that must be computed again: sessions, or tasks.

A row of a session depends on that session's own rows, on sessions linked to it by a parent or a copy that
crosses sessions, and on the existence and tags of nodes shown to it as context. Too many keys cost time; one
too few would be a wrong view.
"""

from dataclasses import dataclass

from store.errors import WrongUse
from views.crossing import linked_sessions
from views.definition import table_inputs
from views.engine import Engine, Scope
from views.feeds import Feeds, NetChange
from views.moved_bars import MovedBars, moved_bars

Watermarks = dict[str, int | None]


@dataclass(frozen=True)
class Touched:
    """Sessions whose rows are computed again, and single leaves of other ones that a bar's move concerns."""

    session_seqs: frozenset[int]
    moved_bars: MovedBars


def touched_tasks(feeds: Feeds, name: str, watermarks: Watermarks) -> set[str | None]:
    """Tasks of which a row of an input moved; None for rows without one.

    Raises:
        VersionGone: A feed cannot be read from its watermark.
    """
    tasks: set[str | None] = set()
    for table in table_inputs(name):
        tasks |= set(feeds.rows(table, watermarks[table])["task_id"].to_pylist())
    return tasks


def touched_sessions(engine: Engine, feeds: Feeds, name: str, watermarks: Watermarks) -> Touched:
    """Sessions (by session_seq) whose rows of a view may have changed.

    Raises:
        VersionGone: A feed cannot be read from its watermark.
        WrongUse: An input has no column that says which session a row belongs to.
    """
    sessions: set[int] = set()
    shown: dict[str, int] = {}
    bars = MovedBars()
    inputs = table_inputs(name)
    for table in inputs:
        since = watermarks[table]
        if table == "nodes":
            sessions |= feeds.values(table, since, "session_seq")
            shown |= _appeared_or_gone(feeds.net(table, since, ("session_seq", "copy_of")))
        elif table == "crossing_edges":
            sessions |= _both_ends(feeds.net(table, since, ("session_seq", "src_session_seq")))
        elif table == "tasks":
            sessions |= engine.sessions_of_tasks(feeds.values(table, since, "task_id"))
        elif table == "task_bars":
            bars, of_new_bars = moved_bars(engine, feeds.net(table, since, ["bar"]))
            sessions |= of_new_bars
        elif "session_seq" not in engine.tables.schema(table).columns.names:
            raise WrongUse(
                f"{name} is maintained by session_seq and reads {table}, whose rows belong to no session; "
                "maintain it by task_id, or let views/touched.py say which sessions a row concerns."
            )
        else:
            sessions |= feeds.values(table, since, "session_seq")
            if table == "node_tags":
                for change in feeds.net(table, since, ["session_seq"]):
                    shown |= {row["node_id"]: row["session_seq"] for row in (change.before, change.after) if row}
    if shown and {"nodes", "node_tags"} & set(inputs):
        sessions |= _shown_to(engine, shown)
    computed = linked_sessions(engine, sessions)
    return Touched(frozenset(computed), bars.outside(computed))


def _appeared_or_gone(moved: list[NetChange]) -> dict[str, int]:
    """Nodes that exist now and did not, or the other way round, or are a copy of something else; with their session."""
    return {row["node_id"]: row["session_seq"] for change in moved for row in (change.before, change.after) if row}


def _both_ends(moved: list[NetChange]) -> set[int]:
    """Sessions of the users of a link that came, went or found its source, and of a parent's or original's too."""
    images = [row for change in moved for row in (change.before, change.after) if row]
    ends = {row["session_seq"] for row in images}
    return ends | {row["src_session_seq"] for row in images if row["kind"] != "context"} - {None}


def _shown_to(engine: Engine, nodes: dict[str, int]) -> set[int]:
    """Sessions to which any of these nodes (with its session), or a copy of one, was shown from elsewhere."""
    crossing = engine.scan("crossing_edges")
    if not engine.run(f"select count(*) from {crossing}")[0][0]:
        return set()
    found: dict[str, int] = {}
    new = nodes
    while new:
        found = {**found, **new}
        engine.keep_texts("new_nodes", new)
        near = Scope(session_seqs=frozenset(new.values()))
        own = engine.select_from("nodes", near, columns=("node_id", "copy_of", "session_seq"))
        copies = engine.run(f"""
            select node_id, session_seq from ({own}) where copy_of in (select item from new_nodes)
            union
            select dst, session_seq from {crossing} where kind = 'copy' and src in (select item from new_nodes)
        """)
        new = {node_id: session_seq for node_id, session_seq in copies if node_id not in found}
    engine.keep_texts("shown_now", found)
    return engine.column(
        f"select distinct session_seq from {crossing} where kind = 'context' and src in (select item from shown_now)"
    )

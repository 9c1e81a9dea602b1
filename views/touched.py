"""From change feeds to the keys that must be computed again: sessions, or tasks.

A row of a session depends on that session's own rows, on sessions linked to it by a parent or a copy that
crosses sessions, and on the existence and tags of nodes shown to it as context. Too many keys cost time; one
too few would be a wrong view.
"""

from views.definition import table_inputs
from views.engine import Engine
from views.feeds import Feeds, NetChange

Watermarks = dict[str, int | None]
LINKED_BY = ("session_seq", "parent_id", "copy_of")


def touched_tasks(engine: Engine, feeds: Feeds, watermarks: Watermarks) -> set[str]:
    """Tasks whose bars may have moved.

    Raises:
        VersionGone: A feed cannot be read from its watermark.
    """
    tasks = feeds.values("tasks", watermarks["tasks"], "task_id")
    tasks |= feeds.values("nodes", watermarks["nodes"], "task_id")
    reached = feeds.values("node_reach", watermarks["node_reach"], "node_id")
    if reached:
        asked = engine.keep_texts("asked_nodes", reached)
        tasks |= engine.column(
            f"select task_id from {engine.scan('nodes')} where node_id in (select item from {asked})"
        )
    return tasks


def touched_sessions(engine: Engine, feeds: Feeds, name: str, watermarks: Watermarks) -> set[int]:
    """Sessions (by session_seq) whose rows of a view may have changed.

    Raises:
        VersionGone: A feed cannot be read from its watermark.
    """
    sessions: set[int] = set()
    inputs = table_inputs(name)
    for table in inputs:
        since = watermarks[table]
        if table == "nodes":
            moved = feeds.net(table, since, LINKED_BY)
            sessions |= feeds.values(table, since, "session_seq") | _neighbours(engine, moved)
            if "node_tags" in inputs:
                sessions |= _shown_to(engine, _appeared_or_gone(moved))
        elif table == "tasks":
            sessions |= _sessions_of_tasks(engine, feeds.values(table, since, "task_id"))
        elif table == "task_bars":
            sessions |= _between_bars(engine, feeds.net(table, since, ["bar"]))
        else:
            sessions |= feeds.values(table, since, "session_seq")
            if table == "node_tags":
                sessions |= _shown_to(engine, feeds.values(table, since, "node_id"))
    return _linked(engine, sessions) if sessions else sessions


def _neighbours(engine: Engine, moved: list[NetChange]) -> set[int]:
    """Sessions of nodes that moved nodes name, or that name them, as parent or original."""
    images = [row for change in moved for row in (change.before, change.after) if row]
    if not images:
        return set()
    named = {row[column] for row in images for column in ("parent_id", "copy_of")} - {None}
    engine.keep_texts("named_nodes", named)
    engine.keep_texts("moved_nodes", {row["node_id"] for row in images})
    return engine.column(f"""
        select distinct session_seq from {engine.scan("nodes")}
        where node_id in (select item from named_nodes)
            or parent_id in (select item from moved_nodes)
            or copy_of in (select item from moved_nodes)
    """)


def _appeared_or_gone(moved: list[NetChange]) -> set[str]:
    """Nodes that exist now and did not, or the other way round, or are a copy of something else than before."""
    return {
        (change.after or change.before or {})["node_id"]
        for change in moved
        if change.before is None or change.after is None or change.before["copy_of"] != change.after["copy_of"]
    }


def _shown_to(engine: Engine, node_ids: set[str]) -> set[int]:
    """Sessions to which any of these nodes, or a copy of one, was shown as context."""
    if not node_ids:
        return set()
    nodes = engine.scan("nodes")
    found = new = node_ids
    while new:
        engine.keep_texts("new_nodes", new)
        new = engine.column(f"select node_id from {nodes} where copy_of in (select item from new_nodes)") - found
        found = found | new
    engine.keep_texts("shown_now", found)
    return engine.column(f"""
        select distinct session_seq from (select session_seq, unnest(context).node_id as shown_id from {nodes})
        where shown_id in (select item from shown_now)
    """)


def _sessions_of_tasks(engine: Engine, task_ids: set[str]) -> set[int]:
    if not task_ids:
        return set()
    engine.keep_texts("asked_tasks", task_ids)
    nodes = engine.scan("nodes")
    return engine.column(f"select distinct session_seq from {nodes} where task_id in (select item from asked_tasks)")


def _between_bars(engine: Engine, moved: list[NetChange]) -> set[int]:
    """Sessions with a node whose fitness lies between a bar's old and new value: no other leaf can tell them apart."""
    sessions: set[int] = set()
    for change in moved:
        row = change.after or change.before or {}
        bars = [image["bar"] for image in (change.before, change.after) if image]
        inside = f"and fitness between {min(bars)!r} and {max(bars)!r}" if len(bars) == 2 else ""
        sessions |= {
            seq
            for (seq,) in engine.run(
                f"""
                select distinct session_seq from {engine.scan("nodes")}
                where task_id = $task and fitness_basis is not distinct from $basis
                    and environment_digest is not distinct from $environment {inside}
                """,
                {
                    "task": row["task_id"],
                    "basis": row["fitness_basis"],
                    "environment": row["environment_digest"],
                },
            )
        }
    return sessions


def _linked(engine: Engine, sessions: set[int]) -> set[int]:
    """The sessions, and all that are linked to them by parents and copies across sessions, in both directions."""
    found, pending = set(sessions), list(sessions)
    links = engine.session_links()
    while pending:
        for session in links.get(pending.pop(), ()):
            if session not in found:
                found.add(session)
                pending.append(session)
    return found

"""Edges and places of nodes for the walks, read from pinned tables as the walk asks for them."""

from collections.abc import Callable, Iterable

import pyarrow as pa

from views.engine import Engine
from views.walk import Edge


def edges_from(engine: Engine) -> Callable[[set[str]], Iterable[Edge]]:
    """A function that answers with the edges that leave any of some nodes."""
    edges = engine.scan("node_edges")

    def leaving(node_ids: set[str]) -> Iterable[Edge]:
        asked = engine.keep_texts("asked_nodes", node_ids)
        return engine.run(f"select src, dst, kind from {edges} where src in (select item from {asked})")

    return leaving


def with_session_seq(engine: Engine, columns: dict[str, list[str]]) -> pa.Table:
    """Columns of texts, among them node_id, with each node's session_seq.

    A node that has not arrived yet stands in the session that its edges name, where it will arrive.
    """
    engine.keep("reached_rows", pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()}))
    return engine.arrow(f"""
        with asked as (select distinct node_id from reached_rows),
        placed as (
            select node_id, session_seq from {engine.scan("nodes")} where node_id in (select node_id from asked)
        ),
        ends as (
            select dst as node_id, min(session_seq) as session_seq from {engine.scan("node_edges")}
            where dst in (select node_id from asked) group by dst
        )
        select reached_rows.*, coalesce(placed.session_seq, ends.session_seq) as session_seq
        from reached_rows left join placed using (node_id) left join ends using (node_id)
    """)

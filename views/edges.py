"""Edges for the walks, read session by session as a walk asks for them, and the places of the nodes it meets."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from views.engine import EVERYTHING, Engine, Scope
from views.walk import Edge

EDGE_COLUMNS = ("src", "dst", "kind", "session_seq")


class EdgeReader:
    """Called with node ids, answers with the edges that leave them; every node must be placed before.

    `places` holds the session_seq of each node met so far. A node that has not arrived yet stands in the session
    that its edges name, where it will arrive.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.places: dict[str, int] = {}
        self._loaded: set[int] = set()
        self._leaving: dict[str, set[tuple[str, str]]] = {}

    def place(self, rows: Iterable[tuple[str, int]]) -> set[str]:
        """Learn where nodes are; returns their ids."""
        placed = dict(rows)
        self.places |= placed
        return set(placed)

    def place_unless_known(self, rows: Iterable[tuple[str, int]]) -> None:
        """Learn where nodes are by a stored row or an edge, unless their own row said so."""
        for node_id, session_seq in rows:
            self.places.setdefault(node_id, session_seq)

    def __call__(self, node_ids: set[str]) -> Iterable[Edge]:
        """Edges (src, dst, kind) that leave any of these nodes."""
        self._load({self.places[node_id] for node_id in node_ids} - self._loaded)
        self._load_crossing(node_ids)
        for src in node_ids:
            for dst, kind in self._leaving.get(src, ()):
                yield src, dst, kind

    def _load(self, session_seqs: set[int]) -> None:
        """Read the edges that end in these sessions."""
        if session_seqs:
            self._loaded |= session_seqs
            scope = Scope(session_seqs=frozenset(session_seqs))
            self._keep(self.engine.run(self.engine.select_from("node_edges", scope, columns=EDGE_COLUMNS)))

    def _load_crossing(self, node_ids: set[str]) -> None:
        """Read the edges from these nodes to other sessions."""
        asked = self.engine.keep_texts("asked_nodes", node_ids)
        self._keep(
            self.engine.run(
                f"select {', '.join(EDGE_COLUMNS)} from {self.engine.scan('crossing_edges')} "
                f"where is_edge and src in (select item from {asked})"
            )
        )

    def _keep(self, edges: Iterable[tuple[str, str, str, int]]) -> None:
        for src, dst, kind, session_seq in edges:
            self._leaving.setdefault(src, set()).add((dst, kind))
            self.places.setdefault(dst, session_seq)

    def with_places(self, columns: dict[str, list[str]], schema: pa.Schema) -> pa.Table:
        """Columns of texts, among them node_id, with each node's session_seq, as rows of a relation."""
        seqs = [self.places[node_id] for node_id in columns["node_id"]]
        return pa.table({**columns, "session_seq": seqs}).select(schema.names).cast(schema)


def near(places: Mapping[str, int | None]) -> Scope:
    """Where to look for rows of these nodes; everywhere if the place of one is not known."""
    seqs = set(places.values())
    return EVERYTHING if None in seqs else Scope(session_seqs=frozenset(seq for seq in seqs if seq is not None))


def starting_places(engine: Engine, new_edges: Mapping[tuple[str, str], int]) -> dict[str, int | None]:
    """The session of each source of new edges ((src, dst) to dst's session); None where it has not arrived."""
    places: dict[str, int | None] = {src: session_seq for (src, _), session_seq in new_edges.items()}
    engine.keep_texts("edge_starts", places)
    crossing = f"select src, src_session_seq from {engine.scan('crossing_edges')}"
    return places | dict(engine.run(f"{crossing} where src in (select item from edge_starts)"))

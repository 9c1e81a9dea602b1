"""What the tables already hold of the sessions that an ingest touches."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from store.delta import Tables
from store.duckdb_connection import short_connection
from transforms.structure import Row

COMPARED_OF_A_TURN = ("node_id", "turn", "session_id", "role", "content", "tool_calls", "tool_call_id", "source_id")
PLACE_COLUMNS = ("node_id", "session_id", "parent_id", "ancestors")
ChangeKey = tuple[Any, ...]


@dataclass
class Stored:
    """Rows of whole sessions at one version of `nodes`, by their keys."""

    nodes_version: int
    sessions: dict[str, Row]
    nodes: dict[str, Row] = field(default_factory=dict)
    messages: dict[tuple[str, int], Row] = field(default_factory=dict)
    changes: dict[ChangeKey, Row] = field(default_factory=dict)

    def session_seqs(self) -> set[int]:
        """Cluster keys of the loaded sessions."""
        return {row["session_seq"] for row in self.sessions.values()}


def change_key(row: Row) -> ChangeKey:
    """The key of a change-log row."""
    return tuple(row[name] for name in ("session_id", "node_id", "field", "step", "recorded_step", "n"))


def load_sessions(tables: Tables, session_ids: Iterable[str]) -> Stored:
    """Load these sessions, as far as they are stored, with all their nodes, turns and changes."""
    tables.create("nodes")
    version = tables.version("nodes")
    assert version is not None
    stored = Stored(version, {row["session_id"]: row for row in rows_in(tables, "sessions", "session_id", session_ids)})
    seqs = stored.session_seqs()
    if not seqs:
        return stored
    nodes = tables.read("nodes", version=version, session_seqs=seqs).to_pylist()
    stored.nodes = {row["node_id"]: row for row in nodes}
    turns = tables.read("prompt_history", columns=COMPARED_OF_A_TURN, session_seqs=seqs).to_pylist()
    stored.messages = {(row["node_id"], row["turn"]): row for row in turns}
    changes = tables.read("change_log", session_seqs=seqs).to_pylist()
    stored.changes = {change_key(row): row for row in changes}
    return stored


def rows_in(tables: Tables, name: str, column: str, values: Iterable[str | None]) -> list[Row]:
    """Rows of a small table whose column is one of these values."""
    wanted = sorted({value for value in values if value is not None})
    rows = tables.read(name)
    return rows.filter(pc.is_in(rows[column], value_set=pa.array(wanted, pa.string()))).to_pylist() if wanted else []


def nodes_elsewhere(
    tables: Tables, version: int, condition: str, ids: Iterable[str], *, columns: tuple[str, ...] = PLACE_COLUMNS
) -> list[Row]:
    """A few columns of stored nodes in any session; by default their place in the graph.

    Args:
        tables: All tables.
        version: Version of `nodes`.
        condition: Column that must be one of `ids`: `node_id` or `parent_id`.
        ids: Node ids.
        columns: What to read.
    """
    wanted = sorted(set(ids))
    files = tables.files("nodes", version=version) if wanted else []
    if not files:
        return []
    with short_connection() as connection:
        connection.register("wanted", pa.table({"id": pa.array(wanted, pa.string())}))
        found = connection.sql(
            f"select {', '.join(columns)} from read_parquet($files, union_by_name = true) "
            f"where {condition} in (select id from wanted)",
            params={"files": files},
        ).to_arrow_table()
    rows: list[Row] = found.to_pylist()
    return rows

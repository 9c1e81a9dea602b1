"""One node with what it is judged by: its row, its artifact and its parent's, its chat turns."""

from dataclasses import dataclass
from typing import Any

from store.artifacts import load_artifact
from store.delta import Tables, quiet_connection
from store.errors import UnknownName
from store.home import Home

SUGGESTED = 5


@dataclass(frozen=True)
class NodeView:
    """A node as it stands in the latest tables; JSON columns of `row` are still text."""

    row: dict[str, Any]
    artifact: str | None
    parent_artifact: str | None
    messages: list[dict[str, Any]]  # in order of their turns


def read_node(home: Home, node_id: str) -> NodeView:
    """Read one node, its parent's artifact and its chat turns.

    Raises:
        UnknownName: No node has this id; ids that begin like it are suggested.
    """
    tables = Tables(home)
    rows = _rows(tables, "nodes", "node_id", node_id)
    if not rows:
        raise UnknownName(f"no node {node_id!r} in the tables; {_suggestion(tables, node_id)}")
    (row,) = rows
    parents = _rows(tables, "nodes", "node_id", row["parent_id"]) if row["parent_id"] else []
    messages = sorted(_rows(tables, "prompt_history", "node_id", node_id), key=lambda message: message["turn"])
    return NodeView(
        row=row,
        artifact=load_artifact(home, row["artifact"], row["artifact_digest"]),
        parent_artifact=load_artifact(home, parents[0]["artifact"], parents[0]["artifact_digest"]) if parents else None,
        messages=messages,
    )


def _rows(tables: Tables, name: str, column: str, value: str) -> list[dict[str, Any]]:
    files = tables.files(name)
    if not files:
        return []
    schema = tables.schema(name).columns
    columns = ", ".join(f'"{field}"' for field in schema.names)
    with quiet_connection() as connection:
        found = connection.sql(
            f"select {columns} from read_parquet($files, union_by_name = true) where {column} = $value",
            params={"files": files, "value": value},
        ).to_arrow_table()
    rows: list[dict[str, Any]] = found.cast(schema).to_pylist()
    return rows


def _suggestion(tables: Tables, node_id: str) -> str:
    ids = sorted(tables.read("nodes", columns=["node_id"])["node_id"].to_pylist())
    if not ids:
        return "there are none yet: `espalier ingest PATH` or `espalier search` adds some."
    alike = [known for known in ids if known.startswith(node_id[:6])][:SUGGESTED] or ids[:SUGGESTED]
    return f'there are {len(ids)}, such as {", ".join(alike)}; `espalier query "select node_id from nodes"` lists them.'

"""Tags and retractions of the oracle: sets that grow until nothing is added."""

from typing import Any

Row = dict[str, Any]
TableRows = dict[str, list[Row]]


def node_tags_rows(tables: TableRows, staying: set[str]) -> list[Row]:
    """Own tags of existing nodes, spread along every edge unless the tag stays."""
    latest: dict[tuple[str, str, str], Row] = {}
    for row in sorted(tables["tag_assignments"], key=lambda row: (row["recorded_at"], row["assignment_id"])):
        latest[(row["target_kind"], row["target_id"], row["tag"])] = row
    tagged: set[tuple[str, str]] = set()
    for (kind, target, tag), row in latest.items():
        if row["action"] != "add":
            continue
        for node in tables["nodes"]:
            names = {
                "node": node["node_id"],
                "message": node["node_id"],
                "session": node["session_id"],
                "task": node["task_id"],
                "source": node["source_id"],
            }
            wanted = target.rpartition("#")[0] if kind == "message" else target
            if names[kind] == wanted:
                tagged.add((node["node_id"], tag))
    grown = True
    while grown:
        more = {
            (edge["dst"], tag)
            for edge in tables["node_edges"]
            for node_id, tag in tagged
            if node_id == edge["src"] and tag not in staying
        }
        grown = not more <= tagged
        tagged |= more
    return [{"node_id": node_id, "tag": tag, "session_seq": place(tables, node_id)} for node_id, tag in tagged]


def node_reach_rows(tables: TableRows, tag_rows: list[Row]) -> list[Row]:
    """Every retraction that nothing takes back, with all it reaches."""
    rows = []
    for retraction in tables["retractions"]:
        if retraction["reinstates"] is None and is_in_force(tables, retraction["retraction_id"]):
            named = scope_nodes(tables, tag_rows, retraction)
            kinds = ("copy",) if retraction["kind"] == "invalidate" else ("copy", "parent", "context")
            for node_id in follow(tables, named, kinds):
                rows.append(
                    {
                        "retraction_id": retraction["retraction_id"],
                        "node_id": node_id,
                        "session_seq": place(tables, node_id),
                        "effect": "self" if node_id in named else "derived",
                        "kind": retraction["kind"],
                    }
                )
    return rows


def is_in_force(tables: TableRows, retraction_id: str) -> bool:
    takers = [row["retraction_id"] for row in tables["retractions"] if row["reinstates"] == retraction_id]
    return not any(is_in_force(tables, taker) for taker in takers)


def scope_nodes(tables: TableRows, tag_rows: list[Row], retraction: Row) -> set[str]:
    kind, wanted = retraction["scope_kind"], retraction["scope_id"]
    sessions = {row["session_id"]: row for row in tables["sessions"]}
    if kind == "tag":
        return {row["node_id"] for row in tag_rows if row["tag"] == wanted}
    named = set()
    for node in tables["nodes"]:
        session = sessions.get(node["session_id"], {})
        values = {
            "node": node["node_id"],
            "subtree": node["node_id"],
            "session": node["session_id"],
            "task": node["task_id"],
            "source": node["source_id"],
            "verifier": node["verifier"],
            "user": session.get("user_id"),
            "model": session.get("model") if node["model"] is None else node["model"],
        }
        if values[kind] == wanted:
            named.add(node["node_id"])
    return follow(tables, named, ("parent", "copy")) if kind == "subtree" else named


def follow(tables: TableRows, named: set[str], kinds: tuple[str, ...]) -> set[str]:
    found = set(named)
    while True:
        more = {edge["dst"] for edge in tables["node_edges"] if edge["src"] in found and edge["kind"] in kinds}
        if more <= found:
            return found
        found |= more


def place(tables: TableRows, node_id: str) -> int:
    """The node's session, or the one where its edges say it will arrive."""
    for node in tables["nodes"]:
        if node["node_id"] == node_id:
            return node["session_seq"]
    return min(edge["session_seq"] for edge in tables["node_edges"] if edge["dst"] == node_id)

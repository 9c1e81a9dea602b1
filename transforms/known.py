"""What readers may ask about the tables."""

from store.delta import Tables
from transforms.stored import nodes_elsewhere, rows_in
from transforms.structure import Row


class KnownTables:
    """Answers from the tables, remembered until something is stored."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.tasks: dict[str, Row | None] = {}

    def forget(self) -> None:
        """Ask again from now on."""
        self.tasks.clear()

    def task_of_session(self, session_id: str) -> Row | None:
        """task_id, direction, metric and failure_reward of a stored session's task; None: no such session."""
        if session_id not in self.tasks:
            self.tasks[session_id] = self._task_of_session(session_id)
        return self.tasks[session_id]

    def _task_of_session(self, session_id: str) -> Row | None:
        sessions = rows_in(self.tables, "sessions", "session_id", [session_id])
        if not sessions:
            return None
        tasks = rows_in(self.tables, "tasks", "task_id", [sessions[0]["task_id"]])
        task: Row = tasks[0] if tasks else {"direction": None, "metric": None, "failure_reward": None}
        return {name: task.get(name) for name in ("direction", "metric", "failure_reward")} | {
            "task_id": sessions[0]["task_id"]
        }

    def sessions_of_nodes(self, node_ids: list[str]) -> dict[str, str]:
        """The session of each of these nodes that is stored."""
        version = self.tables.version("nodes")
        if version is None:
            return {}
        found = nodes_elsewhere(self.tables, version, "node_id", node_ids)
        return {row["node_id"]: row["session_id"] for row in found}

"""What the oracle knows of single nodes: are they live, whose copies are they, what was said at them."""

import math
import unicodedata
from collections import defaultdict
from typing import Any

from oracle_walks import Row, TableRows, node_reach_rows, node_tags_rows
from views.settings import ViewSettings


class NodeFacts:
    """One reading of the base tables, node by node."""

    def __init__(self, tables: TableRows, settings: ViewSettings) -> None:
        self.tables = tables
        self.settings = settings
        self.nodes = {row["node_id"]: row for row in tables["nodes"]}
        self.tasks = {row["task_id"]: row for row in tables["tasks"]}
        self.sessions = {row["session_id"]: row for row in tables["sessions"]}
        self.tag_rows = node_tags_rows(tables, set(settings.tags_that_stay))
        self.reach_rows = node_reach_rows(tables, self.tag_rows)
        self.dead = {row["node_id"] for row in self.reach_rows}
        self.tags: dict[str, set[str]] = defaultdict(set)
        for row in self.tag_rows:
            self.tags[row["node_id"]].add(row["tag"])
        self.turns: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(tables["prompt_history"], key=lambda row: row["turn"]):
            self.turns[row["node_id"]].append(row)
        self.attempts = sorted(node_id for node_id, node in self.nodes.items() if node["copy_of"] is None)

    # ---- what a node is -------------------------------------------------------------------------

    def fitness(self, node_id: str) -> float | None:
        value = self.nodes[node_id]["fitness"]
        return value if value is not None and math.isfinite(value) else None

    def is_buggy(self, node_id: str) -> bool | None:
        said = self.nodes[node_id]["is_buggy"]
        if said is None and self.fitness(node_id) is not None:
            return False
        return said

    def is_live(self, node_id: str) -> bool:
        """No retraction in force reaches it."""
        return node_id not in self.dead

    def is_sound(self, node_id: str | None) -> bool:
        """A live attempt that did not fail."""
        return node_id in self.attempts and node_id not in self.dead and self.is_buggy(node_id) is False

    def original(self, node_id: str | None) -> str | None:
        """The end of a chain of copies, whether it exists or not; the id itself in a circle."""
        seen: list[str | None] = []
        here = node_id
        while here in self.nodes and self.nodes[here]["copy_of"] is not None:
            if here in seen:
                return node_id
            seen.append(here)
            here = self.nodes[here]["copy_of"]
        return here

    def parent(self, node_id: str) -> str | None:
        return self.original(self.nodes[node_id]["parent_id"])

    def group(self, node_id: str) -> tuple[Any, Any, Any]:
        node = self.nodes[node_id]
        return node["task_id"], node["fitness_basis"], node["environment_digest"]

    def sources(self, node_ids: list[str]) -> list[str]:
        found: set[str | None] = set(node_ids)
        for node_id in node_ids:
            found.add(self.parent(node_id))
            found |= {self.original(item["node_id"]) for item in self.nodes[node_id]["context"] or []}
        return sorted(node_id for node_id in found if node_id in self.attempts)

    def tags_of(self, source_ids: list[str]) -> list[str]:
        return sorted(set().union(*(self.tags[source_id] for source_id in source_ids)))

    # ---- what a node said -----------------------------------------------------------------------

    def answer(self, node_id: str) -> Row | None:
        spoken = [turn for turn in self.turns[node_id] if turn["role"] == "assistant"]
        if spoken:
            return message(spoken[-1])
        artifact = self.nodes[node_id]["artifact"]
        return None if artifact is None else message({"role": "assistant", "content": artifact})

    def prompt(self, node_id: str) -> list[Row]:
        spoken = [turn["turn"] for turn in self.turns[node_id] if turn["role"] == "assistant"]
        return [message(turn) for turn in self.turns[node_id] if not spoken or turn["turn"] < spoken[-1]]

    def own_turns(self, node_id: str) -> list[Row]:
        """All that was said at a node; an artifact is its answer where something was asked and no answer kept."""
        recorded = [message(turn) for turn in self.turns[node_id]]
        answer = self.answer(node_id)
        if recorded and answer is not None and not any(turn["role"] == "assistant" for turn in recorded):
            recorded.append(answer)
        return recorded


def message(turn: Row) -> Row:
    return {column: turn.get(column) for column in ("role", "content", "tool_calls", "tool_call_id")}


def is_visible(text: str | None) -> bool:
    return any(unicodedata.category(letter)[0] not in "ZC" and not letter.isspace() for letter in text or "")

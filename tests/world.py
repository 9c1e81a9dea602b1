"""Builds small worlds straight in the tables: nodes by hand, in a line or two each.

    world = World(home).task("t").session("s", "t")
    world.node("root", "s", fitness=0.0)
    world.node("a", "s", parent="root", fitness=1.0, asked="make it fast", answered="block 64")
    world.save()

Nothing is written before `save`, which compares with what is there, so that a world may be changed and saved
again like a log that grew or was corrected. What `node` is not told stays as it was.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from store.delta import CHANGE, Tables
from store.home import Home
from store.ids import canonical_json, message_digest, number_text, sha256_text

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Row = dict[str, Any]


def turns(*messages: str | tuple[str, str]) -> list[Row]:
    """Chat turns from texts, user and assistant in turn; a pair says the role itself."""
    spoken = []
    for place, message in enumerate(messages):
        role, content = message if isinstance(message, tuple) else (("user", "assistant")[place % 2], message)
        spoken.append({"role": role, "content": content})
    return spoken


def act(world: "World", action: dict[str, Any]) -> None:
    """Do what one entry of a case says: `{verb: words}`, by the names of World's methods, or `remove`.

    A conversation is a list of texts, `role: content` each.
    """
    ((verb, said),) = action.items()
    words = dict(said)
    if isinstance(words.get("asked"), list):
        words["asked"] = turns(*(_spoken(text) for text in words["asked"]))
    if verb == "remove":
        world.drop(words["table"], *words["key"])
    else:
        getattr(world, verb)(**words)


def _spoken(text: str) -> tuple[str, str]:
    role, _, content = text.partition(": ")
    return role, content


@dataclass
class World:
    """Rows of the base tables in memory, by key; `save` makes the tables equal to them."""

    home: Home
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=dict)
    clock: datetime = NOON
    tables: Tables = field(default=None)  # type: ignore[assignment]  # those of home unless given

    def __post_init__(self) -> None:
        self.tables = self.tables or Tables(self.home)
        self.written: dict[str, dict[tuple[Any, ...], Row]] = {}

    def put(self, table: str, **columns: Any) -> "World":
        """Set columns of one row; those not named keep their value, or are NULL in a new row."""
        schema = self.tables.schema(table)
        unknown = set(columns) - set(schema.columns.names)
        assert not unknown, f"{table} has no {sorted(unknown)}"
        key = tuple(columns.get(column) for column in schema.key)
        there = self.rows.setdefault(table, {}).setdefault(key, dict.fromkeys(schema.columns.names))
        there.update(columns)
        return self

    def drop(self, table: str, *key: Any) -> "World":
        """Take one row out."""
        del self.rows[table][key]
        return self

    def rows_of(self, table: str) -> list[Row]:
        """All rows of a table, as they will be saved."""
        return list(self.rows.get(table, {}).values())

    # ---- what people speak of -------------------------------------------------------------------

    def task(self, task_id: str, *, domain: str = "program", **columns: Any) -> "World":
        """A task."""
        return self.put("tasks", task_id=task_id, domain=domain, direction="max", **columns)

    def session(self, session_id: str, task_id: str = "t", **columns: Any) -> "World":
        """A session; its cluster key is one more than the greatest there is, from 1."""
        there = self.rows.get("sessions", {}).get((session_id,))
        seq = (
            there["session_seq"]
            if there
            else max((row["session_seq"] for row in self.rows_of("sessions")), default=0) + 1
        )
        return self.put("sessions", session_id=session_id, session_seq=seq, task_id=task_id, **columns)

    def node(
        self,
        node_id: str,
        session_id: str,
        *,
        asked: str | list[Row] | None = None,
        answered: str | None = None,
        shown: list[str] | None = None,
        **columns: Any,
    ) -> "World":
        """A node with its edges and turns; called again, it changes what it is told.

        Args:
            node_id: Its id.
            session_id: Its session, made before.
            asked: The prompt: one user turn, or all its turns.
            answered: The answer, kept as the artifact too.
            shown: Node ids of its context.
            columns: Columns of `nodes`; the task is the session's and the fitness is the reward, where these are not
                given; `parent` is parent_id.
        """
        session = self.rows["sessions"][(session_id,)]
        key = (node_id,)
        is_new = key not in self.rows.get("nodes", {})
        if "parent" in columns:
            columns["parent_id"] = columns.pop("parent")
        if is_new:
            own = [row for row in self.rows_of("nodes") if row["session_id"] == session_id]
            usual = {"step": len(own), "is_buggy": False, "fitness_basis": "reported", "task_id": session["task_id"]}
            columns = {**usual, **columns}
            columns.setdefault("selected_step", columns["step"] - 1)
        if "fitness" in columns:
            columns.setdefault("reward", columns["fitness"])
            columns["fitness_text"] = number_text(columns["fitness"])
        if "reward" in columns:
            columns["reward_text"] = number_text(columns["reward"])
        if shown is not None:
            columns["context"] = [{"node_id": other, "session_id": None, "step": None, "role": None} for other in shown]
        if answered is not None:
            columns.setdefault("artifact", answered)
            columns.setdefault("artifact_digest", sha256_text(answered))
        self.put("nodes", node_id=node_id, session_id=session_id, session_seq=session["session_seq"], **columns)
        if asked is not None or answered is not None:
            self.speak(node_id, asked, answered)
        self._edges(node_id)
        return self

    def pair(self, session_id: str) -> "World":
        """A session of three nodes: a root and two answers to one prompt, of which the second is better."""
        self.session(session_id).node(f"{session_id}-root", session_id, fitness=0.0)
        for place, fitness in enumerate((1.0, 2.0)):
            self.node(
                f"{session_id}-{place}",
                session_id,
                parent=f"{session_id}-root",
                fitness=fitness,
                asked="q",
                answered=f"a{place}",
            )
        return self

    def speak(self, node_id: str, asked: str | list[Row] | None, answered: str | None) -> "World":
        """Replace a node's turns, and its prompt_digest with them (NULL where nothing was asked)."""
        node = self.rows["nodes"][(node_id,)]
        history = self.rows.setdefault("prompt_history", {})
        for key in [key for key in history if key[0] == node_id]:
            del history[key]
        prompt = [] if asked is None else turns(asked) if isinstance(asked, str) else asked
        node["prompt_digest"] = message_digest(prompt) if prompt else None
        answer = [] if answered is None else [{"role": "assistant", "content": answered}]
        for turn, message in enumerate([*prompt, *answer]):
            self.put(
                "prompt_history",
                node_id=node_id,
                session_id=node["session_id"],
                session_seq=node["session_seq"],
                turn=turn,
                fidelity="recorded",
                **message,
            )
        return self

    def change(
        self,
        session_id: str,
        node_id: str | None,
        changed: str,
        step: int,
        value: Any,
        *,
        recorded_step: int | None = None,
        n: int = 0,
    ) -> "World":
        """One change-log row."""
        return self.put(
            "change_log",
            session_id=session_id,
            session_seq=self.rows["sessions"][(session_id,)]["session_seq"],
            node_id=node_id,
            field=changed,
            step=step,
            recorded_step=step if recorded_step is None else recorded_step,
            n=n,
            new_value=canonical_json(value),
            origin="recorded",
        )

    def tag(self, target_kind: str, target_id: str, tag: str, *, action: str = "add") -> "World":
        """One tag assignment, a second later than the last."""
        assignment_id = f"assignment-{len(self.rows_of('tag_assignments')):04d}"
        return self.put(
            "tag_assignments",
            assignment_id=assignment_id,
            target_kind=target_kind,
            target_id=target_id,
            tag=tag,
            action=action,
            reason="test",
            actor="test",
            recorded_at=self._tick(),
        )

    def retract(self, scope_kind: str, scope_id: str, *, kind: str = "withdraw") -> str:
        """One retraction row; returns its id."""
        retraction_id = f"retraction-{len(self.rows_of('retractions')):04d}"
        self.put(
            "retractions",
            retraction_id=retraction_id,
            scope_kind=scope_kind,
            scope_id=scope_id,
            kind=kind,
            reason="test",
            actor="test",
            recorded_at=self._tick(),
        )
        return retraction_id

    def reinstate(self, retraction_id: str) -> str:
        """One row that takes a retraction back; returns its own id."""
        row = self.rows["retractions"][(retraction_id,)]
        own_id = self.retract(row["scope_kind"], row["scope_id"], kind=row["kind"])
        self.put("retractions", retraction_id=own_id, reinstates=retraction_id)
        return own_id

    def _tick(self) -> datetime:
        self.clock += timedelta(seconds=1)
        return self.clock

    def _edges(self, node_id: str) -> None:
        """Make the edges that end at a node say what its row says."""
        node = self.rows["nodes"][(node_id,)]
        edges = self.rows.setdefault("node_edges", {})
        for key in [key for key in edges if key[1] == node_id]:
            del edges[key]
        sources = [(node["parent_id"], "parent"), (node["copy_of"], "copy")]
        sources += [(item["node_id"], "context") for item in node["context"] or []]
        for src, kind in sources:
            if src is not None:
                self.put("node_edges", src=src, dst=node_id, kind=kind, session_seq=node["session_seq"])

    # ---- writing --------------------------------------------------------------------------------

    def save(self, *only: str) -> "World":
        """Make the tables (or only those named) hold the rows: one commit per table that changed."""
        for table in only or sorted(self.rows):
            self._save_table(table)
        return self

    def _save_table(self, table: str) -> None:
        there = self.written.get(table, {})
        wanted = {key: dict(row) for key, row in self.rows.get(table, {}).items()}
        schema = self.tables.schema(table).columns
        moved = [
            {**row, CHANGE: "update" if key in there else "insert"}
            for key, row in wanted.items()
            if there.get(key) != row
        ]
        moved += [{**row, CHANGE: "delete"} for key, row in there.items() if key not in wanted]
        if not moved:
            return
        self.tables.create(table)
        rows = pa.Table.from_pylist(moved, schema=pa.schema([*schema, pa.field(CHANGE, pa.string())]))
        version = self.tables.version(table)
        assert version is not None
        self.tables.commit_rows(table, rows, planned_at=version)
        self.written[table] = wanted

"""Taking back and giving back: rows in `retractions`, which act on every view at its next refresh.

Nothing is deleted. A scope is a predicate, so that a node that arrives later and matches is reached too.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from store.delta import Tables
from store.errors import UnknownName, WrongUse
from store.home import Home
from store.ids import stable_id
from views.crossing import CrossingWalk
from views.definition import table_inputs
from views.engine import Engine
from views.reach_walk import SCOPE_KINDS, ReachWalk
from views.reach_walk import Retraction as InForce
from views.refresh import pin_versions
from views.registry import declare_views
from views.settings import read_view_settings
from views.tag_walk import TagWalk

KINDS = ("invalidate", "withdraw")


@dataclass(frozen=True)
class Retraction:
    """One row of `retractions`, and what it reaches (or reached) at this moment.

    `is_new` is false where the same was in force already and nothing was written.
    """

    retraction_id: str
    scope_kind: str
    scope_id: str
    kind: str
    reinstates: str | None
    is_new: bool
    node_ids: tuple[str, ...]  # sorted; those of the scope and all that is derived from them


def retract(
    home: Home, *, scope_kind: str, scope_id: str, kind: str, reason: str, actor: str, now: datetime
) -> Retraction:
    """Take back the score (`invalidate`) or the content (`withdraw`) of everything in a scope.

    The same scope and kind twice is one retraction: the second call answers with the one in force.

    Args:
        home: Whose tables.
        scope_kind: node, subtree, session, task, source, user, model, verifier or tag.
        scope_id: What of that kind; a verifier is identity@version.
        kind: invalidate or withdraw.
        reason: Why, for whoever reads the row later.
        actor: Who.
        now: When, UTC.

    Raises:
        WrongUse: An unknown kind of scope or retraction, or an empty reason.
        UnknownName: No node is in this scope.
    """
    if scope_kind not in SCOPE_KINDS:
        raise WrongUse(f"cannot retract by {scope_kind!r}; scopes are {', '.join(SCOPE_KINDS)}.")
    if kind not in KINDS:
        raise WrongUse(f"cannot {kind!r}; a retraction is one of {', '.join(KINDS)}.")
    if not reason.strip():
        raise WrongUse("a retraction needs a reason; say why in --reason.")
    with _Reach(home, needs_tags=scope_kind == "tag") as reach:
        before = [
            row
            for row in reach.rows
            if (row["scope_kind"], row["scope_id"], row["kind"]) == (scope_kind, scope_id, kind)
            and row["reinstates"] is None
        ]
        for row in before:
            if row["retraction_id"] in reach.walk.in_force:
                return reach.answer(row, is_new=False)
        if not reach.walk.scope_nodes(InForce("", scope_kind, scope_id, kind)):
            raise UnknownName(
                f"no node is in {scope_kind} {scope_id!r}; "
                f"`espalier query` over nodes{_where_to_look(scope_kind)} shows what there is."
            )
        row = {
            "retraction_id": stable_id("retraction", scope_kind, scope_id, kind, len(before)),
            "scope_kind": scope_kind,
            "scope_id": scope_id,
            "kind": kind,
            "reason": reason,
            "actor": actor,
            "recorded_at": now,
            "reinstates": None,
        }
        reach.append(row)
        return reach.answer(row, is_new=True)


def reinstate(home: Home, retraction_id: str, *, reason: str, actor: str, now: datetime) -> Retraction:
    """Take a retraction back; its rows leave node_reach at the next refresh.

    Doing it twice changes nothing. `node_ids` of the answer are those that the retraction reached.

    Raises:
        UnknownName: There is no such retraction.
        WrongUse: The id names a reinstatement; retract again instead.
    """
    with _Reach(home, needs_tags=True) as reach:
        rows = {row["retraction_id"]: row for row in reach.rows}
        if retraction_id not in rows:
            known = ", ".join(sorted(reach.walk.in_force)) or "none"
            raise UnknownName(f"no retraction {retraction_id!r}; in force: {known}.")
        target = rows[retraction_id]
        if target["reinstates"] is not None:
            raise WrongUse(
                f"{retraction_id} is a reinstatement of {target['reinstates']}; "
                f"to withdraw again, `espalier retract {target['scope_kind']} {target['scope_id']}`."
            )
        node_ids = reach.node_ids(target)
        takers = [row for row in reach.rows if row["reinstates"] == retraction_id]
        is_new = retraction_id in reach.walk.in_force
        row = (
            takers[-1]
            if takers and not is_new
            else {
                **target,
                "retraction_id": stable_id("reinstatement", retraction_id, len(takers)),
                "reason": reason,
                "actor": actor,
                "recorded_at": now,
                "reinstates": retraction_id,
            }
        )
        if is_new:
            reach.append(row)
        return _answer(row, is_new=is_new, node_ids=node_ids)


def _where_to_look(scope_kind: str) -> str:
    return {"user": " and sessions", "model": " and sessions", "tag": " and node_tags"}.get(scope_kind, "")


def _answer(row: dict[str, Any], *, is_new: bool, node_ids: tuple[str, ...]) -> Retraction:
    named = {name: row[name] for name in ("retraction_id", "scope_kind", "scope_id", "kind", "reinstates")}
    return Retraction(**named, is_new=is_new, node_ids=node_ids)


class _Reach:
    """The retractions and what they reach, at the latest versions."""

    def __init__(self, home: Home, *, needs_tags: bool) -> None:
        self.needs_tags = needs_tags
        self.tables = Tables(home)
        declare_views(self.tables)

    def __enter__(self) -> "_Reach":
        pins = pin_versions(self.tables, ["node_reach", "node_tags"])
        self.engine = Engine(self.tables, pins, read_view_settings())
        if self.tables.metadata("crossing_edges").get("watermarks") != {
            name: pins[name] for name in table_inputs("crossing_edges")
        }:
            self.engine.replace("crossing_edges", CrossingWalk(self.engine).all_rows())
        if self.needs_tags:  # node_tags may lie behind the assignments
            self.engine.replace("node_tags", TagWalk(self.engine).all_rows())
        self.walk = ReachWalk(self.engine)
        self.rows = self.engine.arrow(
            f"select * from {self.engine.scan('retractions')} order by recorded_at, retraction_id"
        ).to_pylist()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def append(self, row: dict[str, Any]) -> None:
        schema = self.tables.schema("retractions").columns
        self.tables.upsert("retractions", pa.Table.from_pylist([row], schema=schema), update=False)

    def node_ids(self, row: dict[str, Any]) -> tuple[str, ...]:
        named = InForce(row["retraction_id"], row["scope_kind"], row["scope_id"], row["kind"])
        return tuple(sorted(self.walk.reached_by(named)))

    def answer(self, row: dict[str, Any], *, is_new: bool) -> Retraction:
        return _answer(row, is_new=is_new, node_ids=self.node_ids(row))

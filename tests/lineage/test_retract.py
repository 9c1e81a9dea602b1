"""Retractions: appended once, in force at the next refresh, given back by a row of their own."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lineage.retract import reinstate, retract
from store.errors import UnknownName, WrongUse
from store.home import open_home
from views.refresh import refresh
from views.registry import declare_views
from world import World

NOW = datetime(2026, 2, 1, tzinfo=UTC)
LATER = datetime(2026, 2, 2, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two sessions of two people; `shown` in the second one was made with `a` of the first in view."""
    world = World(open_home(tmp_path / "home")).task("t")
    declare_views(world.tables)
    world.session("s1", user_id="ann", model="m1").session("s2", user_id="bob")
    world.node("a", "s1", fitness=1.0, asked="q", answered="A", verifier="judge@1", source_id="f1")
    world.node("b", "s1", parent="a", fitness=2.0, asked="q", answered="B", verifier="judge@2", source_id="f1")
    world.node("copy", "s1", copy_of="a", fitness=1.0, source_id="f1")
    world.node("shown", "s2", fitness=3.0, asked="q", answered="C", shown=["a"], verifier="judge@1", source_id="f2")
    return world.tag("node", "b", "pii").save()


def rows(world: World, table: str) -> list[dict[str, object]]:
    return world.tables.read(table).to_pylist()


@pytest.mark.parametrize(
    ("scope_kind", "scope_id", "kind", "reached"),
    [
        ("node", "a", "withdraw", ("a", "b", "copy", "shown")),
        ("node", "a", "invalidate", ("a", "copy")),
        ("subtree", "a", "invalidate", ("a", "b", "copy")),
        ("session", "s2", "withdraw", ("shown",)),
        ("task", "t", "invalidate", ("a", "b", "copy", "shown")),
        ("source", "f2", "withdraw", ("shown",)),
        ("user", "ann", "invalidate", ("a", "b", "copy")),
        ("model", "m1", "invalidate", ("a", "b", "copy")),
        ("verifier", "judge@1", "invalidate", ("a", "copy", "shown")),
        ("tag", "pii", "withdraw", ("b",)),
    ],
)
def test_a_scope_reaches_its_nodes_and_what_follows_from_them(
    world: World, scope_kind: str, scope_id: str, kind: str, reached: tuple[str, ...]
) -> None:
    done = retract(world.home, scope_kind=scope_kind, scope_id=scope_id, kind=kind, reason="r", actor="me", now=NOW)
    assert (done.node_ids, done.is_new) == (reached, True)
    refresh(world.home, ["node_reach"])
    assert {row["node_id"] for row in rows(world, "node_reach")} == set(reached)
    (row,) = rows(world, "retractions")
    assert (row["scope_kind"], row["scope_id"], row["kind"]) == (scope_kind, scope_id, kind)
    assert (row["reason"], row["actor"], row["recorded_at"], row["reinstates"]) == ("r", "me", NOW, None)


def test_the_same_retraction_twice_is_one_until_it_is_reinstated(world: World) -> None:
    words = {"scope_kind": "node", "scope_id": "a", "kind": "withdraw", "reason": "r", "actor": "me"}
    first = retract(world.home, now=NOW, **words)
    again = retract(world.home, now=LATER, **words)
    assert (again.retraction_id, again.is_new, len(rows(world, "retractions"))) == (first.retraction_id, False, 1)
    back = reinstate(world.home, first.retraction_id, reason="it was fine", actor="me", now=LATER)
    assert (back.reinstates, back.is_new, back.node_ids) == (first.retraction_id, True, first.node_ids)
    assert not reinstate(world.home, first.retraction_id, reason="it was fine", actor="me", now=LATER).is_new
    refresh(world.home, ["sft_trajectories"])
    assert rows(world, "node_reach") == []
    third = retract(world.home, now=LATER, **words)
    assert third.is_new and third.retraction_id != first.retraction_id
    refresh(world.home, ["sft_trajectories"])
    assert {row["node_id"] for row in rows(world, "node_reach")} == {"a", "b", "copy", "shown"}
    assert rows(world, "sft_trajectories") == []


def test_what_is_wrong_is_refused_and_nothing_is_written(world: World) -> None:
    words = {"reason": "r", "actor": "me", "now": NOW}
    with pytest.raises(WrongUse, match="cannot retract by 'planet'; scopes are node, subtree, session"):
        retract(world.home, scope_kind="planet", scope_id="a", kind="withdraw", **words)
    with pytest.raises(WrongUse, match="cannot 'forget'; a retraction is one of invalidate, withdraw"):
        retract(world.home, scope_kind="node", scope_id="a", kind="forget", **words)
    with pytest.raises(WrongUse, match="needs a reason"):
        retract(world.home, scope_kind="node", scope_id="a", kind="withdraw", reason=" ", actor="me", now=NOW)
    with pytest.raises(UnknownName, match='no node is in node "a\' or true"'):
        retract(world.home, scope_kind="node", scope_id="a' or true", kind="withdraw", **words)
    with pytest.raises(UnknownName, match="no retraction 'r9'; in force: none"):
        reinstate(world.home, "r9", **words)
    assert rows(world, "retractions") == []


def test_a_reinstatement_cannot_be_reinstated(world: World) -> None:
    done = retract(world.home, scope_kind="node", scope_id="a", kind="withdraw", reason="r", actor="me", now=NOW)
    back = reinstate(world.home, done.retraction_id, reason="r", actor="me", now=LATER)
    with pytest.raises(WrongUse, match="is a reinstatement of"):
        reinstate(world.home, back.retraction_id, reason="r", actor="me", now=LATER)

"""Random histories of a small world: what can happen to the tables between two refreshes."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from world import World, turns

NODE_IDS = [f"n{number:02d}" for number in range(16)]
SESSIONS = {"s1": "t1", "s2": "t1", "s3": "t1", "s4": "t2"}
FITNESSES = [0.0, 0.5, 1.0, 1.0, 2.5, -1.0]
PROMPTS = ["make it fast", "make it small", [*turns(("system", "you tune kernels")), *turns("make it fast")]]
ANSWERS = ["block 32", "block 64", "warps 8", " \n", ""]
SCOPES = ["node", "subtree", "session", "task", "source", "user", "model", "verifier", "tag"]
Draw = Callable[[st.SearchStrategy[Any]], Any]


def new_world(world: World) -> World:
    """Two tasks, four sessions, no nodes."""
    world.task("t1", domain="kernel", specification="be fast").task("t2")
    for session_id, task_id in SESSIONS.items():
        world.session(session_id, task_id, user_id=f"user of {session_id}", ucb_constant=1.4)
    return world


def session_of(node_id: str) -> str:
    return f"s{int(node_id[1:]) % 4 + 1}"


def existing(world: World) -> list[str]:
    return sorted(key[0] for key in world.rows.get("nodes", {}))


def one_of(draw: Draw, choices: list[Any]) -> Any:
    return draw(st.sampled_from(choices))


def add_node(world: World, draw: Draw) -> None:
    """A node comes, at times before its parent, at times as a copy, at times without anything said."""
    absent = [node_id for node_id in NODE_IDS if node_id not in existing(world)]
    if not absent:
        return
    node_id = one_of(draw, absent)
    session_id = session_of(node_id)
    near = [other for other in NODE_IDS if session_of(other) == session_id and other != node_id]
    parent = one_of(draw, [None, *near, *near, *NODE_IDS])
    conversation = [] if parent not in existing(world) else conversation_at(world, parent)
    asked = one_of(draw, [None, *PROMPTS, [*conversation, *turns("go on")], [*conversation, *turns("go on")]])
    world.node(
        node_id,
        session_id,
        parent=None if parent == node_id else parent,
        asked=asked,
        answered=one_of(draw, [None, *ANSWERS]) if asked else None,
        artifact=one_of(draw, [None, "x = 1", "x = 2", "x = 10"]),
        operator=one_of(draw, [None, "draft", "improve"]),
        failure_class=one_of(draw, [None, None, "syntax", "timeout"]),
        shown=draw(st.lists(st.sampled_from(NODE_IDS), max_size=2, unique=True)),
        copy_of=one_of(draw, [None] * 6 + [other for other in NODE_IDS if other != node_id]),
        fitness=one_of(draw, [None, *FITNESSES]),
        is_buggy=one_of(draw, [False, False, False, True, None]),
        verifier=one_of(draw, ["judge@1", "judge@1", "judge@2", None]),
        environment_digest=one_of(draw, [None, None, "h100"]),
        source_id=one_of(draw, ["f1", "f2"]),
        model=one_of(draw, [None, "m1"]),
        depth=one_of(draw, [None, 0, 1]),
        generation=one_of(draw, [None, 1]),
    )


def conversation_at(world: World, node_id: str) -> list[Any]:
    rows = [row for row in world.rows_of("prompt_history") if row["node_id"] == node_id]
    return [{"role": row["role"], "content": row["content"]} for row in sorted(rows, key=lambda row: row["turn"])]


def correct_score(world: World, draw: Draw) -> None:
    """A score is corrected, lost or found; the reward follows or is unknown."""
    node_id = one_of(draw, existing(world))
    fitness = one_of(draw, [None, *FITNESSES])
    world.node(node_id, session_of(node_id), fitness=fitness, reward=one_of(draw, [None, fitness]))


def change_failure(world: World, draw: Draw) -> None:
    """A node turns out to have failed, or not."""
    node_id = one_of(draw, existing(world))
    world.node(node_id, session_of(node_id), is_buggy=one_of(draw, [True, False, None]))


def change_parent(world: World, draw: Draw) -> None:
    """A node moves under another parent, even in a circle or another session."""
    node_id = one_of(draw, existing(world))
    world.node(node_id, session_of(node_id), parent=one_of(draw, [None, *NODE_IDS]))


def change_original(world: World, draw: Draw) -> None:
    """A node is found to be a copy, or no copy after all."""
    node_id = one_of(draw, existing(world))
    world.node(node_id, session_of(node_id), copy_of=one_of(draw, [None, *NODE_IDS]))


def change_context(world: World, draw: Draw) -> None:
    """What was shown to a node is corrected."""
    node_id = one_of(draw, existing(world))
    world.node(node_id, session_of(node_id), shown=draw(st.lists(st.sampled_from(NODE_IDS), max_size=2, unique=True)))


def change_turns(world: World, draw: Draw) -> None:
    """Prompt and answer are read anew."""
    world.speak(one_of(draw, existing(world)), one_of(draw, [None, *PROMPTS]), one_of(draw, [None, *ANSWERS]))


def change_place(world: World, draw: Draw) -> None:
    """Facts that a scope or a comparison may ask for change."""
    node_id = one_of(draw, existing(world))
    column, value = one_of(
        draw,
        [
            ("source_id", "f2"),
            ("verifier", "judge@2"),
            ("model", None),
            ("environment_digest", "h100"),
            ("depth", 1),
            ("operator", "debug"),
            ("failure_class", "syntax"),
            ("step", 0),
        ],
    )
    world.node(node_id, session_of(node_id), **{column: value})


def remove_node(world: World, draw: Draw) -> None:
    """A node is erased with its turns and the edges that end at it."""
    node_id = one_of(draw, existing(world))
    world.drop("nodes", node_id)
    for table, column in (("node_edges", 1), ("prompt_history", 0)):
        for key in [key for key in world.rows.get(table, {}) if key[column] == node_id]:
            world.drop(table, *key)


def touch_node(world: World, draw: Draw) -> None:
    """Only its visits move, as after every backpropagation."""
    node_id = one_of(draw, existing(world))
    world.node(node_id, session_of(node_id), visits=draw(st.integers(0, 3)))


def log_change(world: World, draw: Draw) -> None:
    """A change-log row, at times dated back, at times clearing a field."""
    session_id = one_of(draw, list(SESSIONS))
    own = [node_id for node_id in existing(world) if session_of(node_id) == session_id]
    node_id = one_of(draw, [None, *own])
    fields = ["visits", "total_reward", "island", "reward"] if node_id else ["best_so_far", "budget_left"]
    changed = one_of(draw, fields)
    values: list[Any] = ["a", "b"] if changed == "island" else [0, 1, 2]
    values += [0.5] if changed in ("total_reward", "reward", "best_so_far", "budget_left") else []
    step = draw(st.integers(0, 3))
    later = step + draw(st.integers(0, 2))
    n = draw(st.integers(0, 1))
    world.change(session_id, node_id, changed, step, one_of(draw, [None, *values]), recorded_step=later, n=n)


def change_task(world: World, draw: Draw) -> None:
    """A baseline is set, bound to an environment, or withdrawn; the domain changes."""
    world.task(
        one_of(draw, ["t1", "t2"]),
        domain=one_of(draw, ["kernel", "program"]),
        baseline_fitness=one_of(draw, [None, 0.5]),
        baseline_basis="reported",
        baseline_environment_digest=one_of(draw, [None, "h100"]),
    )


def change_session(world: World, draw: Draw) -> None:
    """Whose session it was, or which model ran, is corrected."""
    session_id = one_of(draw, list(SESSIONS))
    world.session(
        session_id, SESSIONS[session_id], user_id=one_of(draw, ["ann", "bob"]), model=one_of(draw, [None, "m1"])
    )


def assign_tag(world: World, draw: Draw) -> None:
    """A tag is put on or taken off."""
    kind = one_of(draw, ["node", "message", "session", "task", "source"])
    node_id = one_of(draw, NODE_IDS)
    targets = {"node": node_id, "message": f"{node_id}#0", "session": session_of(node_id), "task": "t1", "source": "f1"}
    action = one_of(draw, ["add", "add", "remove"])
    world.tag(kind, targets[kind], one_of(draw, ["pii", "internal", "local"]), action=action)


def retract(world: World, draw: Draw) -> None:
    """A retraction of any scope and kind."""
    scope = one_of(draw, SCOPES)
    ids = {
        "session": "s1",
        "task": "t2",
        "source": "f2",
        "user": "ann",
        "model": "m1",
        "verifier": "judge@2",
        "tag": "pii",
    }
    scope_id = ids.get(scope) or one_of(draw, NODE_IDS)
    world.retract(scope, scope_id, kind=one_of(draw, ["invalidate", "withdraw"]))


def reinstate(world: World, draw: Draw) -> None:
    """A retraction, or a reinstatement, is taken back."""
    rows = sorted(key[0] for key in world.rows.get("retractions", {}))
    if rows:
        world.reinstate(one_of(draw, rows))


OPERATIONS: list[Callable[[World, Draw], None]] = [
    add_node,
    correct_score,
    change_failure,
    change_parent,
    change_original,
    change_context,
    change_turns,
    change_place,
    remove_node,
    touch_node,
    log_change,
    change_task,
    change_session,
    assign_tag,
    retract,
    reinstate,
]


def operate(world: World, draw: Draw, *, times: int) -> list[str]:
    """Do some operations, one in two of them a new node; returns their names."""
    done = []
    for _ in range(times):
        operation = one_of(draw, OPERATIONS + [add_node] * len(OPERATIONS) if existing(world) else [add_node])
        operation(world, draw)
        done.append(operation.__name__)
    return done

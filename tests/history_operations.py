"""What can happen to the tables: each operation draws the actions (see `world.act`) of one thing that happens."""

import random
from collections.abc import Callable
from typing import Any, TypeVar

from world import World

NODE_IDS = [f"n{number:02d}" for number in range(16)]
SESSIONS = {"s1": "t1", "s2": "t1", "s3": "t1", "s4": "t2"}
FITNESSES = [0.0, 0.5, 1.0, 1.0, 2.5, -1.0]
PROMPTS = [["user: make it fast"], ["user: make it small"], ["system: you tune kernels", "user: make it fast"]]
ANSWERS = ["block 32", "block 64", "warps 8", " \n", ""]
SCOPES = ["node", "subtree", "session", "task", "source", "user", "model", "verifier", "tag"]
SCOPE_IDS = {
    "session": "s1",
    "task": "t2",
    "source": "f2",
    "user": "ann",
    "model": "m1",
    "verifier": "judge@2",
    "tag": "pii",
}
Action = dict[str, Any]
Item = TypeVar("Item")


class Chance:
    """Draws from one source of random numbers."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def one_of(self, choices: list[Item]) -> Item:
        return self.source.choice(choices)

    def some_of(self, choices: list[Item], most: int) -> list[Item]:
        return self.source.sample(choices, min(self.source.randint(0, most), len(choices)))

    def number(self, first: int, last: int) -> int:
        return self.source.randint(first, last)

    def happens(self, probability: float) -> bool:
        return self.source.random() < probability


Operation = Callable[[World, Chance], list[Action]]


def new_world_actions() -> list[Action]:
    """Two tasks, four sessions, no nodes."""
    made = [{"task": {"task_id": "t1", "domain": "kernel", "specification": "be fast"}}, {"task": {"task_id": "t2"}}]
    return made + [new_session(session_id) for session_id in SESSIONS]


def new_session(session_id: str) -> Action:
    words = {"session_id": session_id, "task_id": SESSIONS[session_id], "user_id": f"user of {session_id}"}
    return {"session": {**words, "ucb_constant": 1.4}}


def session_of(node_id: str) -> str:
    return f"s{int(node_id[1:]) % 4 + 1}"


def existing(world: World) -> list[str]:
    return sorted(key[0] for key in world.rows.get("nodes", {}))


def conversation_at(world: World, node_id: str | None) -> list[str]:
    rows = [row for row in world.rows_of("prompt_history") if row["node_id"] == node_id]
    return [f"{row['role']}: {row['content']}" for row in sorted(rows, key=lambda row: row["turn"])]


def of_node(world: World, chance: Chance, **words: Any) -> list[Action]:
    """A change of one node that is there; none where there is none."""
    if not existing(world):
        return []
    node_id = chance.one_of(existing(world))
    return [{"node": {"node_id": node_id, "session_id": session_of(node_id), **words}}]


# ---- nodes come and go --------------------------------------------------------------------------------


def add_node(world: World, chance: Chance) -> list[Action]:
    """A node comes, at times before its parent, at times as a copy, at times without anything said."""
    absent = [node_id for node_id in NODE_IDS if node_id not in existing(world)]
    return node_actions(world, chance, chance.one_of(absent)) if absent else []


def add_late_node(world: World, chance: Chance) -> list[Action]:
    """A node comes that others named before it was there: as parent, as original, or as what they were shown."""
    there = set(existing(world))
    named = {row["src"] for row in world.rows_of("node_edges")} - there
    return node_actions(world, chance, chance.one_of(sorted(named)), step=0) if named else []


def node_actions(world: World, chance: Chance, node_id: str, **said: Any) -> list[Action]:
    session_id = session_of(node_id)
    others = [other for other in NODE_IDS if other != node_id]
    near = [other for other in others if session_of(other) == session_id]
    parent = chance.one_of([None, *near, *near, *others])
    so_far = conversation_at(world, parent)
    asked = chance.one_of([None, *PROMPTS, [*so_far, "user: go on"], [*so_far, "user: go on"]])
    words = {
        "node_id": node_id,
        "session_id": session_id,
        "parent": parent,
        "asked": asked,
        "answered": chance.one_of([None, *ANSWERS]) if asked else None,
        "artifact": chance.one_of([None, "x = 1", "x = 2", "x = 10"]),
        "operator": chance.one_of([None, "draft", "improve"]),
        "failure_class": chance.one_of([None, None, "syntax", "timeout"]),
        "shown": chance.some_of(others, 2),
        "copy_of": chance.one_of([None] * 6 + others),
        "fitness": chance.one_of([None, *FITNESSES]),
        "is_buggy": chance.one_of([False, False, False, True, None]),
        "verifier": chance.one_of(["judge@1", "judge@1", "judge@2", None]),
        "environment_digest": chance.one_of([None, None, "h100"]),
        "source_id": chance.one_of(["f1", "f2"]),
        "model": chance.one_of([None, "m1"]),
        "depth": chance.one_of([None, 0, 1]),
        "generation": chance.one_of([None, 1]),
        "task_id": chance.one_of([SESSIONS[session_id]] * 4 + ["t1", "t2"]),
        **said,
    }
    actions = [] if (session_id,) in world.rows.get("sessions", {}) else [new_session(session_id)]
    return [*actions, {"node": words}]


def remove_node(world: World, chance: Chance) -> list[Action]:
    """A node is erased with its turns and the edges that end at it."""
    if not existing(world):
        return []
    return removal(world, chance.one_of(existing(world)))


def removal(world: World, node_id: str) -> list[Action]:
    actions = [{"remove": {"table": "nodes", "key": [node_id]}}]
    for table, column in (("node_edges", 1), ("prompt_history", 0)):
        for key in [key for key in world.rows.get(table, {}) if key[column] == node_id]:
            actions.append({"remove": {"table": table, "key": list(key)}})
    return actions


def remove_session(world: World, chance: Chance) -> list[Action]:
    """A session is erased with all that it holds; should a node of it come back, it gets another number."""
    session_id = chance.one_of(sorted(SESSIONS))
    if (session_id,) not in world.rows.get("sessions", {}):
        return []
    nodes = [node_id for node_id in existing(world) if session_of(node_id) == session_id]
    actions = [action for node_id in nodes for action in removal(world, node_id)]
    rows = world.rows.get("change_log", {}).items()
    actions += [
        {"remove": {"table": "change_log", "key": list(key)}} for key, row in rows if row["session_id"] == session_id
    ]
    for table in ("prompt_history",):
        left = [key for key, row in world.rows.get(table, {}).items() if row["session_id"] == session_id]
        actions += [{"remove": {"table": table, "key": list(key)}} for key in left if key[0] not in nodes]
    return [*actions, {"remove": {"table": "sessions", "key": [session_id]}}]


def say_before_the_node(world: World, chance: Chance) -> list[Action]:
    """Turns and an edge are written, the node itself is not there yet: what an ingest leaves that was cut short."""
    absent = [node_id for node_id in NODE_IDS if node_id not in existing(world)]
    sessions = {key[0]: row for key, row in world.rows.get("sessions", {}).items()}
    absent = [node_id for node_id in absent if session_of(node_id) in sessions]
    if not absent:
        return []
    node_id = chance.one_of(absent)
    seq = sessions[session_of(node_id)]["session_seq"]
    turn = {"node_id": node_id, "session_id": session_of(node_id), "session_seq": seq, "turn": 0, "role": "user"}
    edge = {"src": chance.one_of(NODE_IDS), "dst": node_id, "kind": chance.one_of(["parent", "context"])}
    return [
        {"put": {"table": "prompt_history", **turn, "content": "make it fast", "fidelity": "recorded"}},
        {"put": {"table": "node_edges", **edge, "session_seq": seq}},
    ]


# ---- nodes are corrected ------------------------------------------------------------------------------


def correct_score(world: World, chance: Chance) -> list[Action]:
    """A score is corrected, lost or found; the reward follows or is unknown."""
    fitness = chance.one_of([None, *FITNESSES])
    return of_node(world, chance, fitness=fitness, reward=chance.one_of([None, fitness]))


def change_failure(world: World, chance: Chance) -> list[Action]:
    """A node turns out to have failed, or not."""
    return of_node(world, chance, is_buggy=chance.one_of([True, False, None]))


def change_parent(world: World, chance: Chance) -> list[Action]:
    """A node moves under another parent, even in a circle or another session."""
    return of_node(world, chance, parent=chance.one_of([None, *NODE_IDS]))


def change_original(world: World, chance: Chance) -> list[Action]:
    """A node is found to be a copy, even of a copy or in a circle, or no copy after all."""
    return of_node(world, chance, copy_of=chance.one_of([None, *NODE_IDS]))


def change_context(world: World, chance: Chance) -> list[Action]:
    """What was shown to a node is corrected."""
    return of_node(world, chance, shown=chance.some_of(NODE_IDS, 2))


def change_place(world: World, chance: Chance) -> list[Action]:
    """Facts that a scope or a comparison may ask for change."""
    changes: list[dict[str, Any]] = [
        {"source_id": "f2"},
        {"verifier": "judge@2"},
        {"model": None},
        {"environment_digest": "h100"},
        {"depth": 1},
        {"operator": "debug"},
        {"failure_class": "syntax"},
        {"step": 0},
        {"task_id": "t2"},
    ]
    return of_node(world, chance, **chance.one_of(changes))


def edit_prompt(world: World, chance: Chance) -> list[Action]:
    """Prompt and answer are read anew."""
    if not existing(world):
        return []
    node_id = chance.one_of(existing(world))
    words = {"asked": chance.one_of([None, *PROMPTS]), "answered": chance.one_of([None, *ANSWERS])}
    return [{"speak": {"node_id": node_id, **words}}]


def change_edge(world: World, chance: Chance) -> list[Action]:
    """An edge is lost, or found that no node's row names."""
    edges = sorted(world.rows.get("node_edges", {}))
    if edges and chance.happens(0.5):
        return [{"remove": {"table": "node_edges", "key": list(chance.one_of(edges))}}]
    if not existing(world):
        return []
    dst = chance.one_of(existing(world))
    seq = world.rows["nodes"][(dst,)]["session_seq"]
    edge = {"src": chance.one_of(NODE_IDS), "dst": dst, "kind": chance.one_of(["parent", "context", "copy"])}
    return [{"put": {"table": "node_edges", **edge, "session_seq": seq}}]


# ---- what a search knew -------------------------------------------------------------------------------


def backpropagate(world: World, chance: Chance) -> list[Action]:
    """Only visits move."""
    return of_node(world, chance, visits=chance.number(0, 3))


def log_change(world: World, chance: Chance) -> list[Action]:
    """A change-log row, at times clearing a field."""
    return logged(world, chance, step=chance.number(0, 3), delay=chance.number(0, 1))


def log_late_change(world: World, chance: Chance) -> list[Action]:
    """A change-log row that is dated back: it is about an early step and was recorded late."""
    return logged(world, chance, step=chance.number(0, 1), delay=chance.number(1, 3))


def logged(world: World, chance: Chance, *, step: int, delay: int) -> list[Action]:
    sessions = sorted(key[0] for key in world.rows.get("sessions", {}))
    if not sessions:
        return []
    session_id = chance.one_of(sessions)
    own = [node_id for node_id in existing(world) if session_of(node_id) == session_id]
    node_id = chance.one_of([None, *own])
    changed = chance.one_of(
        ["visits", "total_reward", "island", "reward"] if node_id else ["best_so_far", "budget_left"]
    )
    values: list[Any] = ["a", "b"] if changed == "island" else [0, 1, 2]
    values += [0.5] if changed in ("total_reward", "reward", "best_so_far", "budget_left") else []
    words = {"session_id": session_id, "node_id": node_id, "changed": changed, "step": step}
    words |= {"value": chance.one_of([None, *values]), "recorded_step": step + delay, "n": chance.number(0, 1)}
    return [{"change": words}]


def move_to_an_island(world: World, chance: Chance) -> list[Action]:
    """A node goes to another island; a migration leaves a copy there."""
    moving = [node_id for node_id in existing(world) if (session_of(node_id),) in world.rows["sessions"]]
    if not moving:
        return []
    node_id = chance.one_of(moving)
    island, step = chance.one_of(["a", "b"]), chance.number(0, 3)
    words = {"session_id": session_of(node_id), "node_id": node_id, "changed": "island", "step": step, "value": island}
    actions: list[Action] = [{"change": words}]
    beside = [other for other in NODE_IDS if session_of(other) == session_of(node_id) and other not in existing(world)]
    if beside and chance.happens(0.7):
        copy = {"node_id": chance.one_of(beside), "session_id": session_of(node_id), "parent": node_id}
        fitness = world.rows["nodes"][(node_id,)]["fitness"]
        actions.append({"node": {**copy, "copy_of": node_id, "copy_kind": "migrant", "fitness": fitness}})
    return actions


# ---- tasks and sessions -------------------------------------------------------------------------------


def change_task(world: World, chance: Chance) -> list[Action]:
    """A baseline is set, bound to an environment, or withdrawn; the domain or the text changes; the row is lost."""
    task_id = chance.one_of(["t1", "t2"])
    if (task_id,) in world.rows.get("tasks", {}) and chance.happens(0.15):
        return [{"remove": {"table": "tasks", "key": [task_id]}}]
    words = {
        "domain": chance.one_of(["kernel", "program"]),
        "specification": chance.one_of([None, "be fast", "be small"]),
        "baseline_fitness": chance.one_of([None, 0.5]),
        "baseline_basis": "reported",
        "baseline_environment_digest": chance.one_of([None, "h100"]),
    }
    return [{"task": {"task_id": task_id, **words}}]


def change_session(world: World, chance: Chance) -> list[Action]:
    """Whose session it was, or which model ran, is corrected."""
    sessions = sorted(key[0] for key in world.rows.get("sessions", {}))
    if not sessions:
        return []
    session_id = chance.one_of(sessions)
    words = {"user_id": chance.one_of(["ann", "bob"]), "model": chance.one_of([None, "m1"])}
    words["ucb_constant"] = chance.one_of([None, 1.4, 0.5])
    return [{"session": {"session_id": session_id, "task_id": SESSIONS[session_id], **words}}]


# ---- governance ---------------------------------------------------------------------------------------


def change_tag(world: World, chance: Chance) -> list[Action]:
    """A tag is put on or taken off."""
    node_id = chance.one_of(NODE_IDS)
    targets = {"node": node_id, "message": f"{node_id}#0", "session": session_of(node_id), "task": "t1", "source": "f1"}
    kind = chance.one_of(sorted(targets))
    words = {"tag": chance.one_of(["pii", "internal", "local"]), "action": chance.one_of(["add", "add", "remove"])}
    return [{"tag": {"target_kind": kind, "target_id": targets[kind], **words}}]


def retract(world: World, chance: Chance) -> list[Action]:
    """A retraction of any scope and kind."""
    scope = chance.one_of(SCOPES)
    scope_id = SCOPE_IDS.get(scope) or chance.one_of(NODE_IDS)
    return [{"retract": {"scope_kind": scope, "scope_id": scope_id, "kind": chance.one_of(["invalidate", "withdraw"])}}]


def reinstate(world: World, chance: Chance) -> list[Action]:
    """A retraction, or a reinstatement, is taken back."""
    rows = sorted(key[0] for key in world.rows.get("retractions", {}))
    return [{"reinstate": {"retraction_id": chance.one_of(rows)}}] if rows else []


OTHERS: list[Operation] = [
    add_late_node,
    remove_node,
    remove_session,
    say_before_the_node,
    correct_score,
    correct_score,
    change_failure,
    change_parent,
    change_original,
    change_context,
    change_place,
    edit_prompt,
    change_edge,
    backpropagate,
    log_change,
    log_late_change,
    move_to_an_island,
    change_task,
    change_session,
    change_tag,
    retract,
    retract,
    reinstate,
    reinstate,
    reinstate,
]
OPERATIONS: list[Operation] = OTHERS + [add_node] * 7
FIRST: list[Operation] = OTHERS + [add_node] * 2 * len(OTHERS)

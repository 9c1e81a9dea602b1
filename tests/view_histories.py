"""Random histories of small worlds, as data: what happens to the tables between refreshes, and how each one runs.

A history is drawn from a seed and is nothing but actions that `world.act` takes, so that a failing one can be made
smaller by leaving actions out, and pasted as a case.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from history_operations import (
    FIRST,
    OPERATIONS,
    Chance,
    Operation,
    add_node,
    new_world_actions,
    remove_node,
    retract,
)
from store.schema import TABLES, TableSchema
from world import World, act

ARRIVES = ["before", "before", "before", "before", "torn", "during"]
UPKEEP = ["rewrite equal rows", "replace by equal rows", "compact", "vacuum", "vacuum by force", "restart"]
LAGGING = ["task_bars", "sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples", "node_tags"]
WRITE_ORDER = (  # as ingest writes: a visible node has all its turns
    "tag_assignments", "prompt_history", "change_log", "node_edges", "tasks", "sessions", "nodes", "retractions",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One thing that happens, by the name of its operation."""

    kind: str
    actions: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Pass:
    """What happens before one refresh, and how that refresh runs.

    `rounds` are saved one after the other. The last may arrive `torn`: only its tables up to `torn_after` are there,
    as an ingest that was killed leaves it; or `during` the refresh, which must not see it.
    """

    rounds: tuple[tuple[Step, ...], ...]
    settings: dict[str, Any] = field(default_factory=dict)
    upkeep: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None  # views asked for; None is all
    arrives: str = "before"
    torn_after: str = "node_edges"

    def steps(self) -> list[Step]:
        """All that happens, in order."""
        return [step for steps in self.rounds for step in steps]


@dataclass(frozen=True)
class History:
    """Passes over one world; the settings and upkeep of the first history count for all that run beside it."""

    passes: tuple[Pass, ...]
    seed: str = ""

    def without_step(self, number: int, round_number: int, place: int) -> "History":
        """The same with one step left out."""
        one = self.passes[number]
        rounds = list(one.rounds)
        rounds[round_number] = rounds[round_number][:place] + rounds[round_number][place + 1 :]
        return self.with_pass(number, replace(one, rounds=tuple(rounds)))

    def with_pass(self, number: int, one: Pass) -> "History":
        """The same with another pass in the place of one."""
        return replace(self, passes=(*self.passes[:number], one, *self.passes[number + 1 :]))


class Declared:
    """Stands for tables where only their columns are asked for."""

    def schema(self, name: str) -> TableSchema:
        return TABLES[name]


def draw_history(seed: str, *, passes: int, first: int, most: int, upkeep: float = 0.12) -> History:
    """A history with `first` steps before its first refresh and up to `most` before each other one.

    `upkeep` is the probability of each kind of upkeep before a refresh.
    """
    chance = Chance(random.Random(seed))
    world = World(None, tables=Declared())  # type: ignore[arg-type]
    done: list[Pass] = []
    settings: dict[str, Any] = {}
    for number in range(passes):
        if not number or chance.happens(0.3):
            settings = draw_settings(chance)
        steps = [Step("begin", tuple(new_world_actions()))] if not number else []
        for action in [action for step in steps for action in step.actions]:
            act(world, action)
        for _ in range(first if not number else chance.number(0, most)):
            steps.append(_draw_step(world, chance, FIRST if not number else OPERATIONS))
        cut = chance.number(0, len(steps)) if chance.happens(0.5) else 0
        is_whole = not number or chance.happens(0.75)
        done.append(
            Pass(
                rounds=(tuple(steps[:cut]), tuple(steps[cut:])),
                settings=settings,
                upkeep=tuple(kind for kind in UPKEEP if number and chance.happens(upkeep)),
                names=None if is_whole else (chance.one_of(LAGGING),),
                arrives=chance.one_of(ARRIVES) if number else "before",
                torn_after=chance.one_of(list(WRITE_ORDER[:-1])),
            )
        )
    done[-1] = replace(done[-1], names=None, arrives="before")
    return History(tuple(done), seed)


def draw_history_of_every_kind(seed: str, *, passes: int, settings: dict[str, Any] | None = None) -> History:
    """Some nodes, then every operation once, in some order, with every kind of upkeep between."""
    chance = Chance(random.Random(seed))
    world = World(None, tables=Declared())  # type: ignore[arg-type]
    begin = Step("begin", tuple(new_world_actions()))
    for action in begin.actions:
        act(world, action)
    before = [begin, *(_draw_step(world, chance, [add_node]) for _ in range(7))]
    waiting = list(dict.fromkeys(OPERATIONS))
    chance.source.shuffle(waiting)
    done: list[Step] = []
    while waiting:
        operation = waiting.pop(0)
        actions = operation(world, chance)
        if not actions:  # not yet: there is nothing to take back, or nobody is missed
            done.append(_draw_step(world, chance, [retract, add_node, remove_node]))
            waiting.append(operation)
            continue
        for action in actions:
            act(world, action)
        done.append(Step(operation.__name__.replace("_", " "), tuple(actions)))
    share = -(-len(done) // passes)
    parts = [done[first : first + share] for first in range(0, len(done), share)]
    rest = [
        Pass((tuple(part),), settings=(settings or {}) if number else {}, upkeep=tuple(UPKEEP[number::passes]))
        for number, part in enumerate(parts)
    ]
    return History((Pass((tuple(before),)), *rest), seed)


def _draw_step(world: World, chance: Chance, operations: list[Operation]) -> Step:
    while True:
        operation: Callable[[World, Chance], list[dict[str, Any]]] = chance.one_of(operations)
        actions = operation(world, chance)
        if actions:
            break
    for action in actions:
        act(world, action)
    return Step(operation.__name__.replace("_", " "), tuple(actions))


def draw_settings(chance: Chance) -> dict[str, Any]:
    """Parameters of the views, and how the planner cuts the work."""
    return {
        "buggy_ancestors": chance.one_of(["cut", "drop"]),
        "buggy_rejected": chance.one_of([False, True]),
        "pair_across_prompts": chance.one_of([False, True]),
        "pair_margins": chance.one_of([{"kernel": 0.15}, {"kernel": 0.6}]),
        "max_pairs_per_parent": chance.one_of([2, 16]),
        "cohort_kinds": chance.one_of([["parent"], ["parent", "depth", "generation"]]),
        "tags_that_stay": chance.one_of([[], ["local"]]),
        "nodes_at_once": chance.one_of([3, 8, 40_000]),
        "from_nodes": chance.one_of([0, 10_000, 10_000]),
    }

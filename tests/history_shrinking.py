"""Makes a failing history small by leaving things out for as long as it fails, and writes it as a case."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import yaml

from view_histories import History, Pass

Fails = Callable[[Sequence[History]], bool]


def smallest(histories: Sequence[History], fails: Fails, *, tries: int = 400) -> list[History]:
    """The histories with all left out that the failure does not need; `tries` runs at most."""
    now = list(histories)
    left = tries
    shrunk = tries > 0
    while shrunk and left:
        shrunk = False
        for smaller in _smaller(now):
            left -= 1
            if fails(smaller):
                now, shrunk = smaller, True
                break
            if not left:
                break
    return now


def _smaller(histories: list[History]) -> Iterator[list[History]]:
    """Histories with one thing less, the largest things first."""
    if len(histories) > 1:
        for history in histories:
            yield [history]
        half = len(histories) // 2
        yield from (histories[:half], histories[half:])
    yield from _without_passes(histories)
    for place, history in enumerate(histories):
        for smaller in _smaller_history(history):
            yield [*histories[:place], smaller, *histories[place + 1 :]]


def _without_passes(histories: list[History]) -> Iterator[list[History]]:
    for number in range(len(histories[0].passes)):
        if number:  # what would have happened before it happens before the next
            yield [_joined(history, number - 1) for history in histories]
        if len(histories[0].passes) > 1:
            yield [
                replace(history, passes=history.passes[:number] + history.passes[number + 1 :]) for history in histories
            ]


def _joined(history: History, number: int) -> History:
    one, other = history.passes[number : number + 2]
    both = replace(other, rounds=(tuple(step for part in (*one.rounds, *other.rounds) for step in part),))
    return replace(history, passes=(*history.passes[:number], both, *history.passes[number + 2 :]))


def _smaller_history(history: History) -> Iterator[History]:
    for number, one in enumerate(history.passes):
        for place, steps in enumerate(one.rounds):
            if len(steps) > 3:
                for part in (steps[: len(steps) // 2], steps[len(steps) // 2 :]):
                    yield history.with_pass(
                        number, replace(one, rounds=(*one.rounds[:place], part, *one.rounds[place + 1 :]))
                    )
    for number, one in enumerate(history.passes):
        for plainer in _plainer(one):
            yield history.with_pass(number, plainer)
        for round_number, steps in enumerate(one.rounds):
            for place in range(len(steps)):
                yield history.without_step(number, round_number, place)
    yield from _with_fewer_words(history)


def _plainer(one: Pass) -> Iterator[Pass]:
    """The pass without its upkeep, its settings, its bad moment."""
    for kind in one.upkeep:
        yield replace(one, upkeep=tuple(other for other in one.upkeep if other != kind))
    for setting in one.settings:
        yield replace(one, settings={key: value for key, value in one.settings.items() if key != setting})
    if one.names:
        yield replace(one, names=None)
    if one.arrives != "before":
        yield replace(one, arrives="before")


NEEDED = ("node_id", "session_id", "task_id", "table", "key", "target_kind", "target_id", "tag", "scope_kind")
NEEDED += ("scope_id", "retraction_id", "changed", "step", "value", "src", "dst", "kind", "session_seq", "turn")


def _with_fewer_words(history: History) -> Iterator[History]:
    """Actions that say less of a row."""
    for number, one in enumerate(history.passes):
        for place, steps in enumerate(one.rounds):
            for at, step in enumerate(steps):
                for which, action in enumerate(step.actions):
                    ((verb, words),) = action.items()
                    if verb not in ("node", "session", "task"):
                        continue
                    for word in [word for word in words if word not in NEEDED]:
                        fewer = {verb: {key: value for key, value in words.items() if key != word}}
                        actions = (*step.actions[:which], fewer, *step.actions[which + 1 :])
                        new = (*steps[:at], replace(step, actions=actions), *steps[at + 1 :])
                        rounds = (*one.rounds[:place], new, *one.rounds[place + 1 :])
                        yield history.with_pass(number, replace(one, rounds=rounds))


def as_case(histories: Sequence[History], name: str) -> str:
    """Histories as an entry for tests/views/counterexamples.yaml."""
    told: list[dict[str, Any]] = []
    for number, leading in enumerate(histories[0].passes):
        rounds = []
        for place in range(max(len(history.passes[number].rounds) for history in histories)):
            rounds.append(
                [
                    [action for step in history.passes[number].rounds[place] for action in step.actions]
                    if place < len(history.passes[number].rounds)
                    else []
                    for history in histories
                ]
            )
        said: dict[str, Any] = {"rounds": [one for one in rounds if any(one)]}
        said |= {"settings": leading.settings} if leading.settings else {}
        said |= {"upkeep": list(leading.upkeep)} if leading.upkeep else {}
        said |= {"names": list(leading.names)} if leading.names else {}
        said |= {"arrives": leading.arrives} if leading.arrives != "before" else {}
        said |= {"torn_after": leading.torn_after} if leading.arrives == "torn" else {}
        told.append(said)
    entry = [{"case": name, "passes": told}]
    return yaml.safe_dump(entry, sort_keys=False, default_flow_style=None, width=118)


def from_case(case: dict[str, Any]) -> list[History]:
    """The histories of an entry."""
    from view_histories import Step

    passes = case["passes"]
    sides = max(len(one) for said in passes for one in said["rounds"])
    histories = []
    for side in range(sides):
        own = []
        for said in passes:
            rounds = tuple(
                tuple(Step("case", (action,)) for action in (one[side] if side < len(one) else []))
                for one in said["rounds"]
            )
            words = {key: value for key, value in said.items() if key in ("settings", "arrives", "torn_after")}
            words |= {key: tuple(said[key]) for key in ("upkeep", "names") if key in said}
            own.append(Pass(rounds=rounds, **words))
        histories.append(History(tuple(own), case["case"]))
    return histories

"""The lines of the native format, strict: an unknown key or a wrong type is an error that says what was possible."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from transforms.clocks import clock_fault
from transforms.logs.json_values import MAX_NESTING, demand_flat
from transforms.scoring import as_count, as_finite

Name = Annotated[str | int, Field(union_mode="left_to_right")]
Step = Annotated[int, Field(ge=0, lt=2**62)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(allow_inf_nan=False, ge=0)]


class Line(BaseModel):
    """Base of every line."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RunLine(Line):
    """The first line of a file: a name for the run that no other run has, such as a UUID."""

    type: Literal["run"]
    run: str = Field(min_length=1)
    version: Literal[1] = 1


class TaskLine(Line):
    """What is to be solved. `direction` says which way the metric is better."""

    type: Literal["task"]
    task: Name
    domain: str | None = None
    specification: str | None = None
    metric: str | None = None
    direction: Literal["max", "min"] = "max"
    baseline: Finite | None = None
    failure_reward: Finite | None = None


class SessionLine(Line):
    """One run of one search on one task; a later line for the same session adds to it."""

    type: Literal["session"]
    session: Name
    task: Name | None = None
    user: str | None = None
    algorithm: str | None = None
    model: str | None = None
    config: dict[str, Any] | None = None
    skills: list[Any] | dict[str, Any] | None = None
    budget: dict[str, Any] | None = None
    ucb_constant: Finite | None = None
    status: Literal["running", "paused", "done", "failed"] | None = None


class Turn(Line):
    """One chat turn."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    token_ids: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = None
    logprobs: list[Finite] | None = None
    temperature: Amount | None = None
    top_p: Amount | None = None
    top_k: Count | None = None
    model: str | None = None
    tokenizer_digest: str | None = None
    finish_reason: str | None = None


class MessageLine(Turn):
    """A chat turn on a line of its own; `turn` counts from 0."""

    type: Literal["message"]
    session: Name
    node: Name
    turn: Annotated[int, Field(ge=0, lt=2**31)]


class Shown(Line):
    """Another node, possibly of another session, and the step at which it was shown."""

    node: Name
    session: Name | None = None
    step: Step | None = None
    role: str | None = None


class NodeLine(Line):
    """One attempt. Only `session` and `node` are required."""

    type: Literal["node"]
    session: Name
    node: Name
    parent: Name | Shown | None = None
    context: list[Name | Shown] = []
    context_mode: Literal["inherited", "rebuilt"] | None = None
    step: Step | None = None
    selected_step: Step | None = None
    generation: Count | None = None
    island: Name | None = None
    operator: str | None = None
    copy_of: Name | Shown | None = None
    copy_kind: Literal["migrant", "island_seed", "seed_rerun", "carried_over"] | None = None
    messages: list[Turn] = []
    artifact: str | None = None
    metric: Any = None
    fitness: Any = None
    reward: Any = None
    fitness_basis: str | None = None
    environment: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    is_buggy: bool | None = None
    failure_class: str | None = None
    evidence: dict[str, Any] | None = None
    verifier: str | None = None
    tokens: Count | None = None
    seconds: Amount | None = None
    cost: Amount | None = None
    outcome: Literal["succeeded", "failed", "unknown"] | None = None
    idempotency_key: str | None = None
    visits: Count | None = None
    total_reward: Finite | None = None
    model: str | None = None


class ChangeLine(Line):
    """An assignment of a field from a step on; without `node` it is the session's own field."""

    type: Literal["change"]
    session: Name
    node: Name | None = None
    field: str = Field(min_length=1)
    step: Step
    recorded_step: Step | None = None
    value: Any


class TagLine(Line):
    """A governance tag on what the line names: a message, else a node, else a session, else a task."""

    type: Literal["tag"]
    tag: str = Field(min_length=1)
    action: Literal["add", "remove"] = "add"
    task: Name | None = None
    session: Name | None = None
    node: Name | None = None
    turn: Annotated[int, Field(ge=0)] | None = None
    reason: str | None = None
    actor: str | None = None


LINES: dict[str, type[Line]] = {
    "run": RunLine,
    "task": TaskLine,
    "session": SessionLine,
    "node": NodeLine,
    "message": MessageLine,
    "change": ChangeLine,
    "tag": TagLine,
}
FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "fitness": (int, float),
    "reward": (int, float),
    "total_reward": (int, float),
    "best_so_far": (int, float),
    "visits": (int,),
    "budget_left": (int, float),
    "is_buggy": (bool,),
    "failure_class": (str,),
    "island": (str, int),
}
SESSION_FIELDS = ("best_so_far", "budget_left")
NUMBERS = tuple(name for name, types in FIELD_TYPES.items() if float in types)


class NotALine(ValueError):
    """A line that cannot be taken; its text is the reason for the quarantine."""


def parse_line(value: Any) -> Line:
    """The line that a JSON value is.

    Raises:
        NotALine: It is none, with the reason.
    """
    if not isinstance(value, dict):
        raise NotALine(f"a JSON {type(value).__name__}, and each line must be an object with a type")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in LINES:
        raise NotALine(f"type {kind!r} is unknown; there are {', '.join(LINES)}")
    model = LINES[kind]
    try:
        line = model.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("lax", "strict", "union")))
        known = f"; a {kind} line has {', '.join(model.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise NotALine(f"{kind} line: {place}: {first['msg']}{known}") from error
    if isinstance(line, ChangeLine):
        _check_change(line)
    if isinstance(line, NodeLine):
        _check_choice(line)
    if isinstance(line, TagLine):
        _check_target(line)
    return line


def split_objects(text: str) -> Iterator[tuple[Any, str]]:
    """The JSON values of one line (two records may share it after a lost line end), each with its text.

    Raises:
        NotALine: What follows the values yielded so far is no JSON, or is nested too deeply.
    """
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise NotALine(f"no JSON ({str(error).splitlines()[0]})") from error
        part = text[at:end]
        if part.count("[") + part.count("{") > MAX_NESTING:
            try:
                demand_flat(value)
            except ValueError as error:
                raise NotALine(str(error)) from error
        yield value, part
        at = end


def _check_choice(line: NodeLine) -> None:
    """A parent is chosen before its child is evaluated; else the child's state would tell of its own future."""
    if line.step is not None and line.selected_step is not None and line.selected_step >= line.step:
        raise NotALine(f"node line: selected_step {line.selected_step} must be earlier than step {line.step}")


def _check_target(line: TagLine) -> None:
    """A name that cannot be found must not widen a tag to all of the file."""
    if line.node is not None and line.session is None:
        raise NotALine(f"tag line: node {line.node!r} is named without its session")
    if line.turn is not None and line.node is None:
        raise NotALine(f"tag line: turn {line.turn} is named without its node")


def _check_change(line: ChangeLine) -> None:
    if line.field not in FIELD_TYPES:
        raise NotALine(f"change line: field {line.field!r} is unknown; there are {', '.join(FIELD_TYPES)}")
    if (line.node is None) != (line.field in SESSION_FIELDS):
        raise NotALine(f"change line: {line.field} is a field of a {'node' if line.node is None else 'session'}")
    recorded_step = line.step if line.recorded_step is None else line.recorded_step
    fault = clock_fault(line.field, line.step, recorded_step)
    if fault is not None:
        raise NotALine(f"change line: {fault}")
    wanted = FIELD_TYPES[line.field]
    is_right = line.value is None or isinstance(line.value, wanted)
    if bool not in wanted and isinstance(line.value, bool):
        is_right = False
    if is_right and line.value is not None and line.field in NUMBERS:
        is_right = as_finite(line.value) is not None
    if is_right and line.value is not None and line.field == "visits":
        is_right = as_count(line.value) is not None
    if not is_right:
        names = "a finite number" if line.field in NUMBERS else " or ".join(t.__name__ for t in wanted)
        raise NotALine(f"change line: {line.field} is {line.value!r}, and must be {names} or null")

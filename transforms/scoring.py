"""From a raw metric to a fitness: finite and higher-is-better, or NULL with the reason."""

import math
from dataclasses import dataclass
from typing import Any

HARNESS = "harness."  # failure classes of the infrastructure begin like this; their reward stays unknown


@dataclass(frozen=True)
class Score:
    """What a log's metric says of one attempt. A failed attempt has no fitness and a `failure_class`."""

    fitness: float | None
    is_buggy: bool | None
    failure_class: str | None


def score_metric(value: Any, direction: str | None) -> Score:
    """Read a raw metric; lower-is-better is turned round.

    NaN, infinities, text, booleans and nothing at all are failures: never 0, never winning. Without a direction
    (`max` or `min`) a number cannot be compared, so it gives no fitness, but no failure either.
    """
    if value is None:
        return Score(None, True, "no_metric")
    number = as_number(value)
    if number is None:
        return Score(None, True, "non_numeric_metric")
    if not math.isfinite(number):
        return Score(None, True, "non_finite_metric")
    if direction not in ("max", "min"):
        return Score(None, False, None)
    # Adding 0.0 turns -0.0 into 0.0, so that equal scores have one text.
    return Score((number if direction == "max" else -number) + 0.0, False, None)


def as_number(value: Any) -> float | None:
    """The value as a float, infinite where it is too large; None for what is no number (booleans are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_finite(value: Any) -> float | None:
    """The value as a finite float; None for anything else."""
    number = as_number(value)
    return number if number is not None and math.isfinite(number) else None


def as_count(value: Any) -> int | None:
    """The value as a count that a table can hold; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62 else None


def reward_of(score: Score, failure_reward: float | None) -> float | None:
    """The reward of a foreign attempt: its fitness; where it failed by its own fault, the task's failure_reward.

    A broken harness and an unknown outcome are never rewarded.
    """
    if score.fitness is not None:
        return score.fitness
    if not score.is_buggy or (score.failure_class or "").startswith(HARNESS):
        return None
    return failure_reward


def json_safe(value: Any) -> Any:
    """A JSON value that JSON and UTF-8 can say: NaN and infinities as text, lone surrogates as escapes."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {plain_text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return plain_text(value) if isinstance(value, str) else value


def text_safe(value: Any) -> Any:
    """A JSON value whose texts UTF-8 can hold; its numbers stay as they are."""
    if isinstance(value, dict):
        return {plain_text(str(key)): text_safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [text_safe(item) for item in value]
    return plain_text(value) if isinstance(value, str) else value


def plain_text(text: str) -> str:
    """The text as UTF-8 can hold it: lone surrogates become their escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

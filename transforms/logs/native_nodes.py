"""Scores a native node line by the rules of its task."""

from dataclasses import dataclass
from typing import Any

from transforms.logs.native_lines import NodeLine
from transforms.scoring import HARNESS, Score, as_finite, reward_of, score_metric


@dataclass(frozen=True)
class TaskRules:
    """What of a task decides how its nodes are scored."""

    task_id: str | None
    direction: str | None
    metric: str | None
    failure_reward: float | None


@dataclass(frozen=True)
class NodeScore:
    """The columns of a node that its score decides."""

    fitness: float | None
    reward: float | None
    is_buggy: bool | None
    failure_class: str | None
    outcome: str
    metrics: dict[str, Any] | None


def node_score(line: NodeLine, rules: TaskRules) -> NodeScore:
    """Score a line: its `fitness`, else its `metric` in the task's direction; what the line states itself wins.

    A line with neither is a failure (`no_metric`), unless it says `is_buggy` itself or its outcome is unknown.
    """
    stated = line.model_fields_set
    score = _raw_score(line, rules)
    is_buggy = score.is_buggy if line.is_buggy is None else line.is_buggy
    failure_class = line.failure_class or (score.failure_class if is_buggy else None)
    if is_buggy and failure_class is None:
        failure_class = "unspecified"
    fitness = None if is_buggy else score.fitness
    final = Score(fitness, is_buggy, failure_class)
    reward = as_finite(line.reward) if "reward" in stated else reward_of(final, rules.failure_reward)
    outcome = line.outcome
    if outcome is None:
        is_harness = (failure_class or "").startswith(HARNESS)
        outcome = "unknown" if is_harness or is_buggy is None else ("failed" if is_buggy else "succeeded")
    if outcome == "unknown" and "reward" not in stated:
        reward = None
    return NodeScore(fitness, reward, is_buggy, failure_class, outcome, _metrics(line, rules))


def _raw_score(line: NodeLine, rules: TaskRules) -> Score:
    stated = line.model_fields_set
    if "fitness" in stated:
        return score_metric(line.fitness, "max")
    if "metric" in stated:
        return score_metric(line.metric, rules.direction)
    if line.failure_class is not None:
        return Score(None, True, line.failure_class)
    if line.is_buggy is not None or line.outcome == "unknown":
        return Score(None, line.is_buggy, None)
    return Score(None, True, "no_metric")


def _metrics(line: NodeLine, rules: TaskRules) -> dict[str, Any] | None:
    """The raw numbers as the log had them; the metric under its task's name for it."""
    if "metric" not in line.model_fields_set:
        return line.metrics
    name = rules.metric or "metric"
    return {name: line.metric, **(line.metrics or {})}

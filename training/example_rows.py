"""Turns rows of a training view into examples with exactly TRL's columns, plus ids; counts what is left out.

Rows of value_examples are for regression and keep the view's own columns.

No text is changed on the way. A row that a trainer could not use, or that the policy withholds, is left out
whole, for the first reason that applies.
"""

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lineage.policy import Decision
from store.errors import WrongUse

Row = dict[str, Any]
MESSAGE_COLUMNS = ("messages", "prompt", "completion", "chosen", "rejected")
TURNS = ("step", "path")

# form → columns of the snapshot that the view has under the same name, ids first
COPIED = {
    "path": ("example_id", "task_id", "session_id", "leaf_id", "node_ids", "messages", "fitness", "fitness_basis"),
    "pairs": (
        "example_id", "task_id", "session_id", "parent_id", "chosen_id", "rejected_id", "prompt", "chosen", "rejected",
        "chosen_fitness", "rejected_fitness", "gap", "fitness_basis", "prompt_origin",
    ),
    "cohorts": (
        "example_id", "task_id", "session_id", "parent_id", "cohort_id", "node_id", "kind", "same_prompt",
        "num_members", "prompt", "completion", "reward", "advantage", "advantage_unscaled", "fitness_basis", "verifier",
        "token_ids", "logprobs", "temperature", "top_p", "top_k", "model_id", "tokenizer_digest", "finish_reason",
    ),
    "values": (
        "example_id", "task_id", "session_id", "parent_id", "node_id", "step", "depth", "operator", "num_ancestors",
        "num_buggy_ancestors", "ancestor_failure_classes", "parent_reward", "best_ancestor_reward", "parent_visits",
        "parent_total_reward", "num_siblings_before", "num_buggy_siblings", "num_distinct_sibling_artifacts",
        "artifact_length", "artifact_length_change", "best_so_far", "budget_left", "is_buggy", "failure_class",
        "fitness", "reward", "fitness_basis", "environment_digest", "verifier", "gain", "best_descendant_id",
        "best_descendant_fitness", "num_descendants",
    ),
}  # fmt: skip
STEP_COLUMNS = pa.schema(
    [(name, pa.string()) for name in ("example_id", "task_id", "session_id", "leaf_id", "node_id", "parent_id")]
    + [("prompt", pa.null()), ("completion", pa.null()), ("fitness", pa.float64()), ("fitness_basis", pa.string())]
)
LINEAGE = pa.schema([("source_node_ids", pa.list_(pa.string())), ("tags", pa.list_(pa.string()))])


@dataclass
class Examples:
    """Examples in the order of the view's key, their columns, and why other rows are left out."""

    form: str
    rows: list[Row]
    columns: pa.Schema  # message columns carry the null type: their features depend on the rows
    has_tools: bool
    left_out: dict[str, int] = field(default_factory=dict)


def form_of(view: str, turns: str | None) -> str:
    """The form of a view's snapshot: path, step, pairs, cohorts or values.

    Raises:
        WrongUse: The view is no training view, `turns` is neither step nor path, or the view has no such choice.
    """
    if turns is not None and turns not in TURNS:
        raise WrongUse(f"turns {turns!r} is unknown; there are {' and '.join(TURNS)}.")
    forms = {
        "sft_trajectories": turns or TURNS[0],
        "dpo_pairs": "pairs",
        "grpo_cohorts": "cohorts",
        "value_examples": "values",
    }
    if view not in forms:
        raise WrongUse(f"{view!r} is no training view that can be exported; there are {', '.join(forms)}.")
    if turns is not None and view != "sft_trajectories":
        raise WrongUse(f"turns {turns!r} says nothing to {view}; leave it out, only sft_trajectories has two forms.")
    return forms[view]


def examples_of(
    view_rows: pa.Table,
    form: str,
    may_use: Callable[[list[str]], Decision],
    *,
    newer_tags: Mapping[str, set[str]],
    tell: Callable[[int], None],
) -> Examples:
    """Shape, check and filter the rows of a view.

    Args:
        view_rows: The view's rows, sorted by its key.
        form: What `form_of` said.
        may_use: The policy's answer for a row's tags.
        newer_tags: Tags of nodes as they are now; they count beside those that the row was built with.
        tell: Called with the number of view rows done, now and then.
    """
    candidates = _steps(view_rows) if form == "step" else _whole_rows(view_rows, form)
    kept: list[Row] = []
    left_out: Counter[str] = Counter()
    has_tools = False
    for number, row in enumerate(candidates):
        if number % 1000 == 0:
            tell(number)
        tags = set(row["tags"]).union(*(newer_tags.get(node_id, ()) for node_id in row["source_node_ids"]))
        row["tags"] = sorted(tags)
        decision = may_use(row["tags"])
        reason = f"policy: {decision.reason}" if not decision.allowed else _unusable(row)
        if reason is None:
            reason = _parse_tool_calls(row)
        if reason is not None:
            left_out[reason] += 1
            continue
        has_tools = has_tools or any(
            turn["tool_calls"] or turn["tool_call_id"] for name in MESSAGE_COLUMNS for turn in row.get(name) or ()
        )
        kept.append(row)
    if not has_tools:
        for row in kept:
            _drop_tool_keys(row)
    return Examples(form, kept, _columns(view_rows.schema, form), has_tools, dict(sorted(left_out.items())))


def _whole_rows(view_rows: pa.Table, form: str) -> Iterator[Row]:
    names = [*COPIED[form], *LINEAGE.names]
    for batch in view_rows.select(names).to_batches(max_chunksize=1000):
        yield from batch.to_pylist()


def _steps(view_rows: pa.Table) -> Iterator[Row]:
    """One example per node with a prompt on any of the paths; a node on several paths comes with the first."""
    seen: set[str] = set()
    for batch in view_rows.to_batches(max_chunksize=1000):
        for path in batch.to_pylist():
            for step in path["steps"] or ():
                if step["node_id"] in seen:
                    continue
                seen.add(step["node_id"])
                answer = {
                    "role": "assistant",
                    "content": step["answer"],
                    "tool_calls": step["tool_calls"],
                    "tool_call_id": None,
                }
                yield {
                    "example_id": f"{path['example_id']}#{step['node_id']}",
                    "task_id": path["task_id"],
                    "session_id": path["session_id"],
                    "leaf_id": path["leaf_id"],
                    "node_id": step["node_id"],
                    "parent_id": step["parent_id"],
                    "prompt": step["prompt"],
                    "completion": [answer],
                    "fitness": step["fitness"],
                    "fitness_basis": step["fitness_basis"],
                    "source_node_ids": step["source_node_ids"],
                    "tags": step["tags"],
                }


def _unusable(row: Row) -> str | None:
    """Why no trainer could use this row; None where it can."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in row.values()):
        return "not_finite"  # finite scores of 1e308 have an infinite gap and no mean
    if not any(name in row for name in MESSAGE_COLUMNS):
        return None
    if "messages" in row:
        answers = [turn for turn in row["messages"] or () if turn["role"] == "assistant"]
        if not answers:
            return "no_assistant_turn"
        return None if any(_is_visible(turn) for turn in answers) else "empty_answer"
    if not row["prompt"]:
        return "no_prompt"
    answers = [row[name] for name in ("completion", "chosen", "rejected") if name in row]
    if any(not turns or not any(_is_visible(turn) for turn in turns) for turns in answers):
        return "empty_answer"
    return "equal_answers" if "chosen" in row and row["chosen"] == row["rejected"] else None


def _is_visible(turn: Row) -> bool:
    """Whether a turn says anything: calls a tool, or has a character that is no space and no control character."""
    return bool(turn["tool_calls"]) or any(unicodedata.category(mark)[0] not in "ZC" for mark in turn["content"] or "")


def _parse_tool_calls(row: Row) -> str | None:
    """Replace the JSON text of tool calls by the calls themselves."""
    for name in MESSAGE_COLUMNS:
        for turn in row.get(name) or ():
            if turn["tool_calls"] is None:
                continue
            try:
                calls = json.loads(turn["tool_calls"])
            except ValueError:
                return "unreadable_tool_calls"
            if not isinstance(calls, list):
                return "unreadable_tool_calls"
            turn["tool_calls"] = calls
    return None


def _drop_tool_keys(row: Row) -> None:
    for name in MESSAGE_COLUMNS:
        for turn in row.get(name) or ():
            del turn["tool_calls"], turn["tool_call_id"]


def _columns(view_schema: pa.Schema, form: str) -> pa.Schema:
    if form == "step":
        return pa.schema([*STEP_COLUMNS, *LINEAGE])
    fields = [
        pa.field(name, pa.null() if name in MESSAGE_COLUMNS else view_schema.field(name).type) for name in COPIED[form]
    ]
    return pa.schema([*fields, *LINEAGE])

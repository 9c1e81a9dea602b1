"""Small training views written straight into their tables: named edits of kernels, by hand or by the dozen."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from store.delta import CHANGE, Tables
from store.home import Home, open_home
from store.ids import message_digest
from views.registry import declare_views, view_schema

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
POINTS = {
    "softmax": {"block": ("1024", "512", "next_pow2"), "warps": ("2", "4", "8"), "form": ("loop", "fused")},
    "vector_add": {"block": ("256", "512", "1024"), "warps": ("2", "4", "8"), "unroll": ("1", "2", "4")},
    "matmul": {"block_m": ("32", "64", "128"), "block_n": ("32", "64", "128"), "stages": ("1", "2", "3")},
}


def turn(role: str, content: str | None, tool_calls: str | None = None) -> dict[str, Any]:
    """One chat turn as the views hold it."""
    return {"role": role, "content": content, "tool_calls": tool_calls, "tool_call_id": None}


def edit_prompt(task: str, values: dict[str, str]) -> str:
    """The text of a short named-edit prompt."""
    return f"task {task} shape 8192x4096 sm90\n" + "\n".join(f"{name} {value}" for name, value in values.items())


def applies(task: str, answer: str) -> bool:
    """Whether every line of an answer sets an edit point of the task to a value that it can have."""
    lines = [line.split(" ") for line in answer.split("\n")]
    return all(len(line) == 2 and line[1] in POINTS[task].get(line[0], ()) for line in lines)


def random_edit(rng: random.Random) -> tuple[str, str, str]:
    """(task, prompt, answer) of one edit."""
    task = rng.choice(sorted(POINTS))
    values = {name: rng.choice(choices) for name, choices in POINTS[task].items()}
    name = rng.choice(sorted(values))
    other = rng.choice([value for value in POINTS[task][name] if value != values[name]])
    return task, edit_prompt(task, values), f"{name} {other}"


class TrainingWorld:
    """A home whose training views hold what a test says."""

    def __init__(self, folder: Path) -> None:
        self.home: Home = open_home(folder / "home")
        self.tables = Tables(self.home)
        declare_views(self.tables)
        self.folder = folder

    def write(self, view: str, rows: list[dict[str, Any]], **inputs: int) -> None:
        """Commit rows to a view; keys that a row lacks are NULL."""
        schema = view_schema(view).columns
        full = [{name: row.get(name) for name in schema.names} | {CHANGE: "insert"} for row in rows]
        changes = pa.Table.from_pylist(full, schema=pa.schema([*schema, pa.field(CHANGE, pa.string())]))
        self.tables.create(view)
        version = self.tables.version(view)
        assert version is not None
        self.tables.commit_rows(view, changes, planned_at=version, metadata={"watermarks": inputs, "view_digest": "d"})

    def paths(self, edits: list[tuple[str, str, str]], *, tags: tuple[str, ...] = (), first: int = 0) -> None:
        """Write one sft_trajectories row per edit: a path of one node n<i> that answered one prompt."""
        rows = [
            path_row(f"n{number}", task, [step(f"n{number}", prompt, answer, tags=tags)], tags=tags)
            for number, (task, prompt, answer) in enumerate(edits, start=first)
        ]
        self.write("sft_trajectories", rows)

    def random_paths(self, count: int, *, seed: int = 1) -> None:
        """Write `count` random edits as paths."""
        rng = random.Random(seed)
        self.paths([random_edit(rng) for _ in range(count)])


def step(
    node_id: str, prompt: str, answer: str, *, tags: tuple[str, ...] = (), parent_id: str | None = None
) -> dict[str, Any]:
    """One step of a path."""
    turns = [turn("user", prompt)]
    return {
        "node_id": node_id,
        "parent_id": parent_id,
        "step": 1,
        "prompt": turns,
        "answer": answer,
        "tool_calls": None,
        "prompt_digest": message_digest(turns),
        "fitness": 0.5,
        "fitness_text": "0.5",
        "fitness_basis": "estimated:h100:v1",
        "source_node_ids": sorted({node_id, *([parent_id] if parent_id else [])}),
        "tags": sorted(tags),
    }


def path_row(leaf_id: str, task_id: str, steps: list[dict[str, Any]], *, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    """An sft_trajectories row made of steps."""
    return {
        "leaf_id": leaf_id,
        "example_id": f"sft_trajectories/{leaf_id}",
        "session_id": "s1",
        "session_seq": 1,
        "task_id": task_id,
        "node_ids": [one["node_id"] for one in steps],
        "messages": [part for one in steps for part in [*one["prompt"], turn("assistant", one["answer"])]],
        "steps": steps,
        "fitness": 0.5,
        "fitness_basis": "estimated:h100:v1",
        "source_node_ids": sorted({node for one in steps for node in one["source_node_ids"]}),
        "tags": sorted(tags),
        "row_digest": leaf_id,
    }


def pair_row(chosen_id: str, rejected_id: str, *, chosen: str = "warps 8", rejected: str = "warps 2") -> dict[str, Any]:
    """A dpo_pairs row."""
    prompt = edit_prompt("softmax", {"block": "1024", "warps": "4", "form": "loop"})
    return {
        "chosen_id": chosen_id,
        "rejected_id": rejected_id,
        "example_id": f"dpo_pairs/{chosen_id}/{rejected_id}",
        "session_id": "s1",
        "session_seq": 1,
        "task_id": "softmax",
        "prompt": [turn("user", prompt)],
        "chosen": [turn("assistant", chosen)],
        "rejected": [turn("assistant", rejected)],
        "chosen_fitness": 0.4,
        "rejected_fitness": 0.1,
        "gap": 0.3,
        "fitness_basis": "estimated:h100:v1",
        "prompt_origin": "recorded",
        "source_node_ids": sorted({chosen_id, rejected_id}),
        "tags": [],
        "row_digest": chosen_id + rejected_id,
    }


def value_row(node_id: str, *, gain: float | None = None, best: str | None = None) -> dict[str, Any]:
    """A value_examples row."""
    return {
        "node_id": node_id,
        "example_id": f"value_examples/{node_id}",
        "session_id": "s1",
        "session_seq": 1,
        "task_id": "softmax",
        "step": 1,
        "ancestor_failure_classes": ["syntax"],
        "is_buggy": False,
        "fitness": 0.5,
        "fitness_basis": "estimated:h100:v1",
        "gain": gain,
        "best_descendant_id": best,
        "best_descendant_fitness": None if gain is None else 0.5 + gain,
        "num_descendants": 1 if best else 0,
        "source_node_ids": [node_id],
        "tags": [],
        "row_digest": node_id,
    }


def member_row(cohort_id: str, node_id: str, *, reward: float, advantage: float, answer: str) -> dict[str, Any]:
    """A grpo_cohorts row."""
    prompt = edit_prompt("softmax", {"block": "1024", "warps": "4", "form": cohort_id})
    return {
        "cohort_id": cohort_id,
        "node_id": node_id,
        "example_id": f"grpo_cohorts/{cohort_id}/{node_id}",
        "session_id": "s1",
        "session_seq": 1,
        "task_id": "softmax",
        "kind": "parent",
        "same_prompt": True,
        "prompt": [turn("user", prompt)],
        "completion": [turn("assistant", answer)],
        "reward": reward,
        "advantage": advantage,
        "advantage_unscaled": 0.0,
        "num_members": 2,
        "fitness_basis": "estimated:h100:v1",
        "source_node_ids": [node_id],
        "tags": [],
        "row_digest": node_id,
    }

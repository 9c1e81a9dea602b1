"""What value_examples must hold, in plain Python: what was known at a node's own step, and what came of the node."""

import json
from typing import Any

from oracle_nodes import NodeFacts
from oracle_walks import Row

COMPARED = ("session_id", "fitness_basis", "environment_digest", "verifier")


def value_rows(facts: NodeFacts) -> list[Row]:
    """One row per live attempt that is known to have failed or not, without row_digest."""
    return [
        value_row(facts, node_id)
        for node_id in facts.attempts
        if node_id not in facts.dead
        and facts.is_buggy(node_id) is not None
        and facts.nodes[node_id]["step"] is not None
    ]


def value_row(facts: NodeFacts, node_id: str) -> Row:
    node, up = facts.nodes[node_id], ancestors(facts, node_id)
    parent = up[0] if up else None
    rewards = [known(facts, node, ancestor, "reward") for ancestor in up]
    live_up = [
        facts.nodes[ancestor] | {"is_buggy": facts.is_buggy(ancestor)} for ancestor in up if facts.is_live(ancestor)
    ]
    before = [
        other
        for other in facts.attempts
        if facts.is_live(other)
        and facts.nodes[other]["session_id"] == node["session_id"]
        and facts.parent(other) == facts.parent(node_id)
        and facts.nodes[other]["step"] < node["step"]
    ]
    artifacts = {facts.nodes[other]["artifact_digest"] or facts.nodes[other]["artifact"] for other in before}
    length, parents_length = size(facts, node_id), size(facts, parent)
    has_score = facts.is_buggy(node_id) is False
    fitness = facts.fitness(node_id) if has_score else None
    offspring = [other for other in facts.attempts if facts.is_live(other) and node_id in ancestors(facts, other)]
    best = best_of(facts, node, offspring)
    best_fitness = None if best is None else facts.fitness(best)
    sources = facts.sources([node_id])
    as_they_are = ("session_id", "session_seq", "task_id", "step", "depth", "operator", "failure_class")
    as_they_are += ("reward", "reward_text", "fitness_basis", "environment_digest", "verifier")
    return {
        "node_id": node_id,
        "example_id": f"value_examples/{node_id}",
        **{column: node[column] for column in as_they_are},
        "parent_id": facts.parent(node_id),
        "num_ancestors": len(up),
        "num_buggy_ancestors": sum(1 for row in live_up if row["is_buggy"]),
        "ancestor_failure_classes": sorted({row["failure_class"] for row in live_up} - {None}),
        "parent_reward": rewards[0] if rewards else None,
        "best_ancestor_reward": max((reward for reward in rewards if reward is not None), default=None),
        "parent_visits": known(facts, node, parent, "visits") if parent else None,
        "parent_total_reward": known(facts, node, parent, "total_reward") if parent else None,
        "num_siblings_before": len(before),
        "num_buggy_siblings": sum(1 for other in before if facts.is_buggy(other)),
        "num_distinct_sibling_artifacts": len(artifacts - {None}),
        "artifact_length": length,
        "artifact_length_change": None if None in (length, parents_length) else length - parents_length,
        "best_so_far": known(facts, node, None, "best_so_far"),
        "budget_left": known(facts, node, None, "budget_left"),
        "is_buggy": facts.is_buggy(node_id),
        "fitness": fitness,
        "fitness_text": node["fitness_text"] if has_score else None,
        "gain": None if fitness is None or best_fitness is None else best_fitness - fitness,
        "best_descendant_id": best,
        "best_descendant_fitness": best_fitness,
        "best_descendant_fitness_text": None if best is None else facts.nodes[best]["fitness_text"],
        "num_descendants": len(offspring),
        "source_node_ids": sources,
        "score_refs": [] if best is None else [f"nodes/{best}"],
        "tags": facts.tags_of(sources),
    }


def ancestors(facts: NodeFacts, node_id: str) -> list[str]:
    """The way up, nearest first, while it stays in the session and goes back in time."""
    found: list[str] = []
    here = facts.nodes[node_id]
    while True:
        above = facts.parent(here["node_id"])
        if above not in facts.attempts or above is None:
            return found
        parent = facts.nodes[above]
        if parent["session_id"] != here["session_id"] or not parent["step"] < here["step"]:
            return found
        found.append(above)
        here = parent


def best_of(facts: NodeFacts, node: Row, offspring: list[str]) -> str | None:
    compared = [
        other
        for other in offspring
        if facts.is_sound(other)
        and facts.fitness(other) is not None
        and all(facts.nodes[other][column] == node[column] for column in COMPARED)
    ]
    return min(compared, key=lambda other: (-(facts.fitness(other) or 0.0), other), default=None)


def known(facts: NodeFacts, node: Row, holder: str | None, field: str) -> Any:
    """value(S, S) at S = the node's own step, in its session's clock."""
    seen = [
        row
        for row in facts.tables["change_log"]
        if (row["session_id"], row["node_id"], row["field"]) == (node["session_id"], holder, field)
        and row["step"] <= node["step"]
        and row["recorded_step"] <= node["step"]
    ]
    if not seen:
        return None
    return json.loads(max(seen, key=lambda row: (row["step"], row["recorded_step"], row["n"]))["new_value"])


def size(facts: NodeFacts, node_id: str | None) -> int | None:
    artifact = facts.nodes[node_id]["artifact"] if node_id else None
    return None if artifact is None else len(artifact)

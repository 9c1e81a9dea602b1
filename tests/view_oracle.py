"""What the views must hold, in plain Python over the rows of the base tables; it shares no SQL with them.

Slow and simple on purpose: each rule of the design is one function that a reader can check against its text.
"""

import math
import statistics
from collections import defaultdict
from typing import Any

from oracle_nodes import NodeFacts, is_visible, message
from oracle_value import value_rows
from oracle_walks import Row, TableRows
from views.settings import ViewSettings


def expected_views(tables: TableRows, settings: ViewSettings) -> dict[str, list[Row]]:
    """Every maintained relation and view, rows without row_digest."""
    return Oracle(tables, settings).views()


class Oracle(NodeFacts):
    """The views over one reading of the base tables."""

    def __init__(self, tables: TableRows, settings: ViewSettings) -> None:
        super().__init__(tables, settings)
        self.bars = {(row["task_id"], row["fitness_basis"], row["environment_digest"]): row for row in self.task_bars()}

    def views(self) -> dict[str, list[Row]]:
        return {
            "crossing_edges": self.crossing_edges(),
            "node_tags": self.tag_rows,
            "node_reach": self.reach_rows,
            "task_scores": self.task_scores(),
            "task_bars": list(self.bars.values()),
            "cohorts": self.cohorts(),
            "sft_trajectories": self.sft_trajectories(),
            "dpo_pairs": self.dpo_pairs(),
            "grpo_cohorts": self.grpo_cohorts(),
            "value_examples": value_rows(self),
        }

    # ---- maintained relations -------------------------------------------------------------------

    def crossing_edges(self) -> list[Row]:
        links = {(row["src"], row["dst"], row["kind"]): (row["session_seq"], True) for row in self.tables["node_edges"]}
        for node_id, node in self.nodes.items():
            named = [(node["parent_id"], "parent"), (node["copy_of"], "copy")]
            named += [(item["node_id"], "context") for item in node["context"] or []]
            for src, kind in named:
                if src is not None:
                    links.setdefault((src, node_id, kind), (node["session_seq"], False))
        rows = []
        for (src, dst, kind), (session_seq, is_edge) in links.items():
            home = self.nodes[src]["session_seq"] if src in self.nodes else None
            if home != session_seq:
                rows.append({"src": src, "dst": dst, "kind": kind, "session_seq": session_seq})
                rows[-1] |= {"src_session_seq": home, "is_edge": is_edge}
        return rows

    def task_scores(self) -> list[Row]:
        columns = ("node_id", "session_seq", "task_id", "fitness_basis", "environment_digest", "fitness")
        with_children = {self.parent(node_id) for node_id in self.attempts if self.is_sound(node_id)}
        return [
            {column: self.nodes[node_id][column] for column in columns} | {"is_leaf": node_id not in with_children}
            for node_id in self.attempts
            if self.is_sound(node_id) and self.fitness(node_id) is not None
        ]

    def task_bars(self) -> list[Row]:
        groups: dict[tuple[Any, Any, Any], list[float]] = defaultdict(list)
        for node_id in self.attempts:
            value = self.fitness(node_id)
            if self.is_sound(node_id) and value is not None:
                groups[self.group(node_id)].append(value)
        return [self.bar_row(group, sorted(values, reverse=True)) for group, values in groups.items()]

    def bar_row(self, group: tuple[Any, Any, Any], values: list[float]) -> Row:
        task_id, basis, environment = group
        task = self.tasks.get(task_id)
        bar, origin = values[math.ceil(len(values) / 4) - 1], "top_quarter"
        if task is not None and task["baseline_fitness"] is not None and task["baseline_basis"] == basis:
            bound = task["baseline_environment_digest"]
            if bound is None or bound == environment:
                bar, origin = task["baseline_fitness"], "baseline"
        return {
            "task_id": task_id,
            "fitness_basis": basis,
            "environment_digest": environment,
            "bar": bar,
            "origin": origin,
            "num_nodes": len(values),
        }

    def cohort_members(self) -> dict[tuple[Any, ...], list[str]]:
        groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
        for node_id in self.attempts:
            node = self.nodes[node_id]
            if node_id in self.dead or self.is_buggy(node_id) is None or node["reward"] is None:
                continue
            places = {
                "parent": (self.parent(node_id), node["prompt_digest"]) if node["prompt_digest"] else None,
                "depth": node["depth"],
                "generation": node["generation"],
            }
            comparable = (node["session_id"], *self.group(node_id)[1:], node["verifier"])
            for kind in self.settings.cohort_kinds:
                if places[kind] is not None:
                    groups[(kind, places[kind], comparable)].append(node_id)
        return {key: members for key, members in groups.items() if len(members) > 1}

    def cohorts(self) -> list[Row]:
        rows = []
        for (kind, *_), members in self.cohort_members().items():
            digests = {self.nodes[member]["prompt_digest"] for member in members}
            for member in members:
                node = self.nodes[member]
                shared = ("session_id", "session_seq", "task_id", "prompt_digest", "fitness_basis")
                shared += ("environment_digest", "verifier", "reward", "reward_text")
                rows.append(
                    {
                        "cohort_id": f"{kind} of {members[0]}",
                        "node_id": member,
                        **{column: node[column] for column in shared},
                        "kind": kind,
                        "parent_id": self.parent(member),
                        "same_prompt": len(digests) == 1 and None not in digests,
                        "num_members": len(members),
                    }
                )
        return rows

    # ---- views ----------------------------------------------------------------------------------

    def grpo_cohorts(self) -> list[Row]:
        cohorts = self.cohorts()
        rewards: dict[str, list[float]] = defaultdict(list)
        for row in cohorts:
            rewards[row["cohort_id"]].append(row["reward"])
        rows = []
        for row in cohorts:
            group, member = rewards[row["cohort_id"]], row["node_id"]
            gap = 0.0 if len(set(group)) == 1 else row["reward"] - statistics.fmean(group)
            answer, sources = self.answer(member), self.sources([member])
            spoken = [turn for turn in self.turns[member] if turn["role"] == "assistant"]
            sampled = ("token_ids", "logprobs", "temperature", "top_p", "top_k")
            sampled += ("model_id", "tokenizer_digest", "finish_reason")
            rows.append(
                {
                    **row,
                    "example_id": f"grpo_cohorts/{row['cohort_id']}/{member}",
                    "prompt": self.prompt(member) or None,
                    "completion": None if answer is None else [answer],
                    "advantage": gap / (statistics.stdev(group) + 1e-4),
                    "advantage_unscaled": gap,
                    **{column: spoken[-1][column] if spoken else None for column in sampled},
                    "source_node_ids": sources,
                    "score_refs": [row["cohort_id"]],
                    "tags": self.tags_of(sources),
                }
            )
        return rows

    def dpo_pairs(self) -> list[Row]:
        by_parent: dict[tuple[Any, Any], list[Row]] = defaultdict(list)
        for chosen in self.attempts:
            for rejected in self.attempts:
                row = self.pair(chosen, rejected)
                if row is not None:
                    by_parent[(row["session_id"], row["parent_id"])].append(row)
        kept = []
        for rows in by_parent.values():
            rows.sort(key=lambda row: (row["gap"] is None, -(row["gap"] or 0.0), row["chosen_id"], row["rejected_id"]))
            kept += rows[: self.settings.max_pairs_per_parent]
        return kept

    def pair(self, chosen: str, rejected: str) -> Row | None:
        better, worse = self.nodes[chosen], self.nodes[rejected]
        same = ("session_id", "fitness_basis", "environment_digest")
        if chosen == rejected or any(better[column] != worse[column] for column in same):
            return None
        if self.parent(chosen) != self.parent(rejected) or not self.is_sound(chosen) or rejected in self.dead:
            return None
        gap = self.gap(chosen, rejected)
        answers = self.answer(chosen), self.answer(rejected)
        if gap == "too small" or None in answers or answers[0] == answers[1]:
            return None
        if not all(is_visible(answer["content"]) for answer in answers if answer is not None):
            return None
        prompt, digest, origin = self.shared_prompt(chosen, rejected)
        if not prompt:
            return None
        sources = self.sources([chosen, rejected])
        has_score = self.is_buggy(rejected) is False
        return {
            "chosen_id": chosen,
            "rejected_id": rejected,
            "example_id": f"dpo_pairs/{chosen}/{rejected}",
            "session_id": better["session_id"],
            "session_seq": better["session_seq"],
            "task_id": better["task_id"],
            "parent_id": self.parent(chosen),
            "prompt": prompt,
            "chosen": [answers[0]],
            "rejected": [answers[1]],
            "prompt_digest": digest,
            "prompt_origin": origin,
            "chosen_fitness": better["fitness"],
            "chosen_fitness_text": better["fitness_text"],
            "rejected_fitness": worse["fitness"] if has_score else None,
            "rejected_fitness_text": worse["fitness_text"] if has_score else None,
            "gap": gap,
            "fitness_basis": better["fitness_basis"],
            "environment_digest": better["environment_digest"],
            "source_node_ids": sources,
            "score_refs": [],
            "tags": self.tags_of(sources),
        }

    def gap(self, chosen: str, rejected: str) -> Any:
        """The gap, None where the rejected one failed and may be used, or "too small"."""
        best, other = self.fitness(chosen), self.fitness(rejected)
        failed = self.is_buggy(rejected)
        if best is None or failed is None or (failed and not self.settings.buggy_rejected):
            return "too small"
        if failed:
            return None
        task = self.tasks.get(self.nodes[chosen]["task_id"])
        domain = task["domain"] if task else None
        margin = self.settings.pair_margins.get(domain, self.settings.pair_margin)
        return best - other if other is not None and best > other + margin else "too small"

    def shared_prompt(self, chosen: str, rejected: str) -> tuple[list[Row], str | None, str]:
        digest = self.nodes[chosen]["prompt_digest"]
        if digest is not None and digest == self.nodes[rejected]["prompt_digest"]:
            return self.prompt(chosen), digest, "recorded"
        parent = self.nodes.get(self.parent(chosen) or "")
        if not self.settings.pair_across_prompts or parent is None or parent["artifact"] is None:
            return [], None, "rebuilt"
        task = self.tasks.get(parent["task_id"])
        texts = [task["specification"] if task else None, parent["artifact"]]
        text = "\n".join(part for part in texts if part is not None)
        return [message({"role": "user", "content": text})], None, "rebuilt"

    def sft_trajectories(self) -> list[Row]:
        with_children = {self.parent(node_id) for node_id in self.attempts if self.is_sound(node_id)}
        leaves = [node_id for node_id in self.attempts if self.is_sound(node_id) and node_id not in with_children]
        return [row for leaf in leaves if (row := self.trajectory(leaf)) is not None]

    def trajectory(self, leaf: str) -> Row | None:
        node, value, bar = self.nodes[leaf], self.fitness(leaf), self.bars.get(self.group(leaf))
        if node["task_id"] is None or value is None or bar is None or value < bar["bar"]:
            return None  # without a task there is no bar to reach
        path: list[str] = []
        here: str | None = leaf
        while here is not None and self.is_sound(here):
            if here in path:
                return None  # a circle of parents has no beginning
            path.insert(0, here)
            here = self.parent(here)
        cut_after = here if here in self.attempts else None
        if self.settings.buggy_ancestors == "drop" and cut_after is not None and cut_after not in self.dead:
            return None
        messages = self.conversation(path)
        if not any(turn["role"] == "assistant" for turn in messages):
            return None
        sources = self.sources(path)
        same = ("session_id", "session_seq", "task_id", "fitness", "fitness_text")
        same += ("fitness_basis", "environment_digest")
        return {
            "leaf_id": leaf,
            "example_id": f"sft_trajectories/{leaf}",
            **{column: node[column] for column in same},
            "node_ids": path,
            "messages": messages,
            "steps": [self.step(node_id) for node_id in path if self.is_exchange(node_id)],
            "states": [self.state(node_id) for node_id in path],
            "cut_after_id": cut_after,
            "source_node_ids": sources,
            "score_refs": ["/".join(["task_bars", *("?" if part is None else part for part in self.group(leaf))])],
            "tags": self.tags_of(sources),
        }

    def conversation(self, path: list[str]) -> list[Row]:
        so_far: list[Row] = []
        parents_turns: list[Row] = []
        for node_id in path:
            own, prompt = self.own_turns(node_id), self.prompt(node_id)
            if not own:
                new = []
            elif prompt[: len(so_far)] == so_far:
                new = own[len(so_far) :]
            elif parents_turns and prompt[: len(parents_turns)] == parents_turns:
                new = own[len(parents_turns) :]
            else:
                new = [turn for turn in own if turn["role"] != "system" or turn not in so_far]
            so_far = so_far + new
            parents_turns = own
        return so_far

    def is_exchange(self, node_id: str) -> bool:
        answer = self.answer(node_id)
        return bool(self.prompt(node_id)) and answer is not None and is_visible(answer["content"])

    def step(self, node_id: str) -> Row:
        node, answer, sources = self.nodes[node_id], self.answer(node_id), self.sources([node_id])
        assert answer is not None
        return {
            "node_id": node_id,
            "parent_id": self.parent(node_id),
            "step": node["step"],
            "prompt": self.prompt(node_id),
            "answer": answer["content"],
            "tool_calls": answer["tool_calls"],
            "prompt_digest": node["prompt_digest"],
            "fitness": node["fitness"],
            "fitness_text": node["fitness_text"],
            "fitness_basis": node["fitness_basis"],
            "source_node_ids": sources,
            "tags": self.tags_of(sources),
        }

    def state(self, node_id: str) -> Row:
        node, parent = self.nodes[node_id], self.parent(node_id)
        grandparent = self.parent(parent) if parent in self.attempts and parent is not None else None
        visits, reward = self.known(node, parent, "visits"), self.known(node, parent, "total_reward")
        above = self.known(node, grandparent, "visits")
        constant = (self.sessions.get(node["session_id"]) or {}).get("ucb_constant")
        ucb = None
        if None not in (visits, reward, above, constant) and visits > 0 and above > 0:
            ucb = reward / visits + constant * math.sqrt(math.log(above) / visits)
        return {
            "node_id": node_id,
            "parent_id": parent,
            "selected_step": node["selected_step"],
            "visits": visits,
            "total_reward": reward,
            "ucb": ucb,
            "island": self.known(node, parent, "island"),
            "best_so_far": self.known(node, None, "best_so_far"),
            "budget_left": self.known(node, None, "budget_left"),
        }

    def known(self, node: Row, holder: str | None, field: str) -> Any:
        """value(S, S) at S = the node's selected_step, in its session's clock."""
        at = node["selected_step"]
        is_session_field = field in ("best_so_far", "budget_left")
        if at is None or (holder is None and not is_session_field):
            return None
        seen = [
            row
            for row in self.tables["change_log"]
            if row["session_id"] == node["session_id"]
            and row["node_id"] == holder
            and row["field"] == field
            and row["step"] <= at
            and row["recorded_step"] <= at
        ]
        if not seen:
            return None
        text = max(seen, key=lambda row: (row["step"], row["recorded_step"], row["n"]))["new_value"]
        return None if text == "null" else text.strip('"') if field == "island" else float(text)

"""Every maintained relation and view: its columns with their meaning, and the order in which they refresh.

The maintained relations come first (what leaves a session, is tagged, reached, good enough, comparable), then
the training views. All are Delta tables with a change feed, and inputs of each other as listed in their
definitions. `row_digest` covers every column of a row, so two rows are equal if their digests are.
"""

import pyarrow as pa

from store.delta import Tables
from store.errors import UnknownName
from store.schema import COUNT, FLOAT, TEXT, TableSchema

MESSAGE = pa.struct([("role", TEXT), ("content", TEXT), ("tool_calls", TEXT), ("tool_call_id", TEXT)])
MESSAGES = pa.list_(MESSAGE)  # TRL's conversational form; tool_calls is JSON text, NULL where there are none
TEXTS = pa.list_(TEXT)
STATES = pa.list_(
    pa.struct(
        [
            ("node_id", TEXT),
            ("parent_id", TEXT),
            ("selected_step", COUNT),
            ("visits", COUNT),
            ("total_reward", FLOAT),
            ("ucb", FLOAT),
            ("island", TEXT),
            ("best_so_far", FLOAT),
            ("budget_left", FLOAT),
        ]
    )
)
STEPS = pa.list_(
    pa.struct(
        [
            ("node_id", TEXT),
            ("parent_id", TEXT),
            ("step", COUNT),
            ("prompt", MESSAGES),
            ("answer", TEXT),
            ("tool_calls", TEXT),
            ("prompt_digest", TEXT),
            ("fitness", FLOAT),
            ("fitness_text", TEXT),
            ("fitness_basis", TEXT),
            ("source_node_ids", TEXTS),
            ("tags", TEXTS),
        ]
    )
)

Column = tuple[str, pa.DataType, str]


def _relation(
    name: str,
    about: str,
    *,
    key: tuple[str, ...],
    columns: list[Column],
    statistics: tuple[str, ...],
    sort: tuple[str, ...],
) -> TableSchema:
    fields = [pa.field(column, kind, metadata={"about": meaning}) for column, kind, meaning in columns]
    return TableSchema(name, pa.schema(fields), key, statistics, sort, about)


SESSION_SEQ: Column = ("session_seq", COUNT, "cluster key")
SOURCE_NODE_IDS: Column = (
    "source_node_ids",
    TEXTS,
    "originals whose content the row holds: its nodes, the parent that was its prompt, their pinned context; sorted",
)
SCORE_REFS: Column = ("score_refs", TEXTS, "which bar or cohort the row was measured against")
TAGS: Column = ("tags", TEXTS, "effective tags of source_node_ids, sorted")
ROW_DIGEST: Column = ("row_digest", TEXT, "md5 over the view's digest and every column, floats by their exact inputs")

CROSSING_EDGES = _relation(
    "crossing_edges",
    "Edges and links that leave a session: those whose source is in another one, or has not arrived.",
    key=("src", "dst", "kind"),
    columns=[
        ("src", TEXT, "node whose content was used"),
        ("dst", TEXT, "node that used it"),
        ("kind", TEXT, "parent, context or copy"),
        ("session_seq", COUNT, "cluster key of dst's session"),
        ("src_session_seq", COUNT, "cluster key of src's session; NULL where src has not arrived"),
        ("is_edge", pa.bool_(), "node_edges has it: tags and withdrawals spread along it"),
    ],
    statistics=("session_seq",),
    sort=("session_seq", "dst", "src", "kind"),
)

NODE_TAGS = _relation(
    "node_tags",
    "Effective governance tags: a node's own, and those that cling to it through what it was made from.",
    key=("node_id", "tag"),
    columns=[("node_id", TEXT, "the node"), SESSION_SEQ, ("tag", TEXT, "the tag")],
    statistics=("session_seq", "node_id", "tag"),
    sort=("session_seq", "node_id", "tag"),
)

NODE_REACH = _relation(
    "node_reach",
    "Nodes that an active retraction reaches; a node is live if it has no row here.",
    key=("retraction_id", "node_id"),
    columns=[
        ("retraction_id", TEXT, "the retraction"),
        ("node_id", TEXT, "the node it reaches"),
        SESSION_SEQ,
        ("effect", TEXT, "self: the scope names it; derived: made from one that it names"),
        ("kind", TEXT, "invalidate or withdraw"),
    ],
    statistics=("session_seq", "node_id", "retraction_id"),
    sort=("session_seq", "node_id", "retraction_id"),
)

TASK_SCORES = _relation(
    "task_scores",
    "The fitness of every node that counts for its task's bar, kept task by task.",
    key=("node_id",),
    columns=[
        ("node_id", TEXT, "a live, non-buggy node with a fitness that is no copy"),
        SESSION_SEQ,
        ("task_id", TEXT, "its task"),
        ("fitness_basis", TEXT, "what the fitness was measured by"),
        ("environment_digest", TEXT, "where; NULL where unknown"),
        ("fitness", FLOAT, "the fitness"),
        ("is_leaf", pa.bool_(), "no live, non-buggy node was made from it: a trajectory can end here"),
        ROW_DIGEST,
    ],
    statistics=("session_seq", "task_id"),
    sort=("task_id", "session_seq", "node_id"),
)

TASK_BARS = _relation(
    "task_bars",
    "The fitness from which a leaf is worth learning from, per task, basis and environment.",
    key=("task_id", "fitness_basis", "environment_digest"),
    columns=[
        ("task_id", TEXT, "the task"),
        ("fitness_basis", TEXT, "what the fitness was measured by"),
        ("environment_digest", TEXT, "where; NULL where unknown"),
        ("bar", FLOAT, "smallest fitness that qualifies"),
        ("origin", TEXT, "baseline, or top_quarter: the ceil(n/4)-th best of n nodes"),
        ("num_nodes", COUNT, "n: live, non-buggy nodes with a fitness that are no copies"),
        ROW_DIGEST,
    ],
    statistics=("task_id", "fitness_basis", "bar"),
    sort=("task_id", "fitness_basis", "environment_digest"),
)

COHORTS = _relation(
    "cohorts",
    "Which nodes may be compared by reward: members of one session, basis, environment and verifier.",
    key=("cohort_id", "node_id"),
    columns=[
        ("cohort_id", TEXT, "digest of what its members share"),
        ("node_id", TEXT, "the member"),
        ("session_id", TEXT, "the session"),
        SESSION_SEQ,
        ("task_id", TEXT, "the task"),
        ("kind", TEXT, "parent (same parent and prompt), depth or generation"),
        ("parent_id", TEXT, "the member's parent, an original"),
        ("prompt_digest", TEXT, "the member's prompt"),
        ("fitness_basis", TEXT, "shared basis"),
        ("environment_digest", TEXT, "shared environment"),
        ("verifier", TEXT, "shared verifier"),
        ("same_prompt", pa.bool_(), "all members answered the same prompt"),
        ("num_members", COUNT, "members, at least 2"),
        ("reward", FLOAT, "the member's reward"),
        ("reward_text", TEXT, "repr of reward"),
        ROW_DIGEST,
    ],
    statistics=("session_seq", "cohort_id", "node_id", "task_id"),
    sort=("session_seq", "cohort_id", "node_id"),
)

SFT_TRAJECTORIES = _relation(
    "sft_trajectories",
    "Paths that lead to a leaf which reaches its task's bar, as conversations.",
    key=("leaf_id",),
    columns=[
        ("leaf_id", TEXT, "last node of the path"),
        ("example_id", TEXT, "sft_trajectories/leaf_id"),
        ("session_id", TEXT, "the leaf's session"),
        SESSION_SEQ,
        ("task_id", TEXT, "the leaf's task"),
        ("node_ids", TEXTS, "the path, first node to leaf"),
        ("messages", MESSAGES, "the whole path as one conversation; nothing is repeated"),
        ("steps", STEPS, "one prompt and answer per path node that has both, in path order; for --turns step"),
        ("states", STATES, "one per path node: what the search knew of its parent when it was chosen"),
        ("fitness", FLOAT, "the leaf's fitness"),
        ("fitness_text", TEXT, "repr of fitness"),
        ("fitness_basis", TEXT, "what the fitness was measured by"),
        ("environment_digest", TEXT, "where; NULL where unknown"),
        ("cut_after_id", TEXT, "existing node below which the path begins, since it is buggy or retracted; else NULL"),
        SOURCE_NODE_IDS,
        SCORE_REFS,
        TAGS,
        ROW_DIGEST,
    ],
    statistics=("session_seq", "leaf_id", "session_id", "task_id", "fitness"),
    sort=("session_seq", "leaf_id"),
)

DPO_PAIRS = _relation(
    "dpo_pairs",
    "Siblings of which one is better by more than the margin.",
    key=("chosen_id", "rejected_id"),
    columns=[
        ("chosen_id", TEXT, "the better node"),
        ("rejected_id", TEXT, "the worse node"),
        ("example_id", TEXT, "dpo_pairs/chosen_id/rejected_id"),
        ("session_id", TEXT, "the session of both"),
        SESSION_SEQ,
        ("task_id", TEXT, "the task"),
        ("parent_id", TEXT, "their parent, an original; NULL for roots"),
        ("prompt", MESSAGES, "what both were asked"),
        ("chosen", MESSAGES, "the better answer, one assistant turn"),
        ("rejected", MESSAGES, "the worse answer, one assistant turn"),
        ("prompt_digest", TEXT, "shared digest of the prompt; NULL where it was rebuilt"),
        ("prompt_origin", TEXT, "recorded, or rebuilt from the parent where the two prompts differ"),
        ("chosen_fitness", FLOAT, "fitness of chosen"),
        ("chosen_fitness_text", TEXT, "its repr"),
        ("rejected_fitness", FLOAT, "fitness of rejected; NULL where it failed"),
        ("rejected_fitness_text", TEXT, "its repr"),
        ("gap", FLOAT, "chosen_fitness - rejected_fitness; NULL where rejected failed"),
        ("fitness_basis", TEXT, "shared basis"),
        ("environment_digest", TEXT, "shared environment"),
        SOURCE_NODE_IDS,
        SCORE_REFS,
        TAGS,
        ROW_DIGEST,
    ],
    statistics=("session_seq", "chosen_id", "rejected_id", "session_id", "task_id", "gap"),
    sort=("session_seq", "chosen_id", "rejected_id"),
)

GRPO_COHORTS = _relation(
    "grpo_cohorts",
    "Members of cohorts with their advantage, as TRL computes it.",
    key=("cohort_id", "node_id"),
    columns=[
        ("cohort_id", TEXT, "the cohort"),
        ("node_id", TEXT, "the member"),
        ("example_id", TEXT, "grpo_cohorts/cohort_id/node_id"),
        ("session_id", TEXT, "the session"),
        SESSION_SEQ,
        ("task_id", TEXT, "the task"),
        ("kind", TEXT, "parent, depth or generation"),
        ("same_prompt", pa.bool_(), "all members answered the same prompt: only these train as one group"),
        ("parent_id", TEXT, "the member's parent, an original"),
        ("prompt_digest", TEXT, "the member's prompt"),
        ("prompt", MESSAGES, "what it was asked; NULL where unknown"),
        ("completion", MESSAGES, "its answer, one assistant turn; NULL where unknown"),
        ("reward", FLOAT, "its reward"),
        ("reward_text", TEXT, "repr of reward"),
        ("advantage", FLOAT, "(reward - mean) / (sample std + 1e-4); 0 where all rewards are equal"),
        ("advantage_unscaled", FLOAT, "reward - mean; 0 where all rewards are equal"),
        ("num_members", COUNT, "members of the cohort"),
        ("fitness_basis", TEXT, "shared basis"),
        ("environment_digest", TEXT, "shared environment"),
        ("verifier", TEXT, "shared verifier"),
        ("token_ids", pa.list_(pa.int32()), "sampled tokens of the answer, where logged"),
        ("logprobs", pa.list_(pa.float32()), "their log-probabilities, natural log"),
        ("temperature", FLOAT, "sampling temperature"),
        ("top_p", FLOAT, "nucleus mass"),
        ("top_k", COUNT, "0 or NULL: no cut"),
        ("model_id", TEXT, "what sampled the answer"),
        ("tokenizer_digest", TEXT, "tokenizer of token_ids"),
        ("finish_reason", TEXT, "stop, length, …"),
        SOURCE_NODE_IDS,
        SCORE_REFS,
        TAGS,
        ROW_DIGEST,
    ],
    statistics=("session_seq", "cohort_id", "node_id", "session_id", "task_id", "reward"),
    sort=("session_seq", "cohort_id", "node_id"),
)

VALUE_EXAMPLES = _relation(
    "value_examples",
    "Scored attempts with what their search knew by then, and what came of them as the label.",
    key=("node_id",),
    columns=[
        ("node_id", TEXT, "the attempt: live, no copy, known to have failed or not"),
        ("example_id", TEXT, "value_examples/node_id"),
        ("session_id", TEXT, "the session"),
        SESSION_SEQ,
        ("task_id", TEXT, "the task"),
        ("parent_id", TEXT, "its parent, an original; NULL for a root"),
        ("step", COUNT, "its place in the session's order of evaluation: no feature knows more than this step did"),
        ("depth", COUNT, "edges to the root of its known ancestors"),
        ("operator", TEXT, "draft, improve, debug, … or the named edit"),
        ("num_ancestors", COUNT, "ancestors in its session, each evaluated before the one below it"),
        ("num_buggy_ancestors", COUNT, "of these, live ones that failed"),
        ("ancestor_failure_classes", TEXTS, "failure classes of live ancestors, sorted, each once"),
        ("parent_reward", FLOAT, "the parent's reward as known at step; NULL for roots and parents of other sessions"),
        ("best_ancestor_reward", FLOAT, "highest reward of an ancestor as known at step"),
        ("parent_visits", COUNT, "the parent's visits as known at step, this node's own evaluation included"),
        ("parent_total_reward", FLOAT, "the parent's sum of rewards as known at step, this node's own included"),
        ("num_siblings_before", COUNT, "live attempts from the same parent with a smaller step"),
        ("num_buggy_siblings", COUNT, "of these, failed ones"),
        ("num_distinct_sibling_artifacts", COUNT, "different artifacts among these"),
        ("artifact_length", COUNT, "characters of the artifact; NULL where there is none or its file is gone"),
        ("artifact_length_change", COUNT, "characters more than the parent's artifact, negative where fewer"),
        ("best_so_far", FLOAT, "the session's best fitness as known at step"),
        ("budget_left", FLOAT, "the session's budget as known at step"),
        ("is_buggy", pa.bool_(), "the attempt failed"),
        ("failure_class", TEXT, "why; harness.*: not by its own fault"),
        ("fitness", FLOAT, "its fitness as it is known now; NULL where it failed"),
        ("fitness_text", TEXT, "repr of fitness"),
        ("reward", FLOAT, "its reward as it is known now; NULL: unscored"),
        ("reward_text", TEXT, "repr of reward"),
        ("fitness_basis", TEXT, "what the fitness was measured by"),
        ("environment_digest", TEXT, "where; NULL where unknown"),
        ("verifier", TEXT, "identity@version of the judge"),
        ("gain", FLOAT, "label: best_descendant_fitness - fitness, negative where none was better; NULL where unknown"),
        (
            "best_descendant_id",
            TEXT,
            "label: live descendant with the best fitness now among those of equal basis, environment and verifier "
            "(two unknown ones are equal) that did not fail; ties by node_id",
        ),
        ("best_descendant_fitness", FLOAT, "label: its fitness"),
        ("best_descendant_fitness_text", TEXT, "label: its repr"),
        ("num_descendants", COUNT, "label: live descendants in the session; 0: nothing was tried from here"),
        SOURCE_NODE_IDS,
        ("score_refs", TEXTS, "nodes/best_descendant_id: whose score the label holds"),
        TAGS,
        ROW_DIGEST,
    ],
    statistics=("session_seq", "node_id", "session_id", "task_id", "step", "gain"),
    sort=("session_seq", "node_id"),
)

SCHEMAS: dict[str, TableSchema] = {
    schema.name: schema
    for schema in (
        CROSSING_EDGES,
        NODE_TAGS,
        NODE_REACH,
        TASK_SCORES,
        TASK_BARS,
        COHORTS,
        SFT_TRAJECTORIES,
        DPO_PAIRS,
        GRPO_COHORTS,
        VALUE_EXAMPLES,
    )
}
VIEW_ORDER: tuple[str, ...] = tuple(SCHEMAS)  # every relation stands after its inputs
TRAINING_VIEWS: tuple[str, ...] = ("sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples")


def view_schema(name: str) -> TableSchema:
    """Schema of a maintained relation or view.

    Raises:
        UnknownName: There is no such view.
    """
    if name not in SCHEMAS:
        raise UnknownName(f"no view {name!r}; there are {', '.join(VIEW_ORDER)}.")
    return SCHEMAS[name]


def declare_views(tables: Tables) -> None:
    """Make every maintained relation and view known to these tables; unbuilt ones read as empty."""
    for schema in SCHEMAS.values():
        tables.declare(schema)

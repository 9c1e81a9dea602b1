"""The tables: every column with its meaning. Unknown is NULL, never 0 or -1; JSON columns have sorted keys.

`session_seq` is the cluster key: the first column of every sort, merge predicate and prune. It is in no
digest and no law, since two ingests of the same logs may number sessions differently.
"""

from dataclasses import dataclass

import pyarrow as pa

TEXT = pa.string()
COUNT = pa.int64()
FLOAT = pa.float64()
TIME = pa.timestamp("us", tz="UTC")
CONTEXT = pa.list_(pa.struct([("node_id", TEXT), ("session_id", TEXT), ("step", COUNT), ("role", TEXT)]))


@dataclass(frozen=True)
class TableSchema:
    """One Delta table: its columns, its key, and the columns whose statistics the log keeps."""

    name: str
    columns: pa.Schema
    key: tuple[str, ...]
    statistics: tuple[str, ...]
    sort: tuple[str, ...]
    about: str


def _table(
    name: str,
    about: str,
    *,
    key: tuple[str, ...],
    columns: list[tuple[str, pa.DataType, str]],
    statistics: tuple[str, ...] = (),
    sort: tuple[str, ...] = (),
) -> TableSchema:
    fields = [pa.field(column, kind, metadata={"about": meaning}) for column, kind, meaning in columns]
    return TableSchema(name, pa.schema(fields), key, statistics or key, sort or key, about)


TASKS = _table(
    "tasks",
    "What a search tries to solve.",
    key=("task_id",),
    columns=[
        ("task_id", TEXT, "stable id"),
        ("domain", TEXT, "kernel, prompt, program, …"),
        ("specification", TEXT, "the task as the proposer was told it, or JSON"),
        ("metric", TEXT, "name of the number that fitness is made from"),
        ("direction", TEXT, "max or min: which way the raw metric is better (fitness is always max)"),
        ("baseline_fitness", FLOAT, "fitness of the known baseline"),
        ("baseline_basis", TEXT, "fitness_basis of the baseline"),
        ("baseline_environment_digest", TEXT, "environment the baseline binds; NULL binds every one"),
        ("failure_reward", FLOAT, "reward of a candidate that fails by its own fault; NULL: unscored"),
        ("source_id", TEXT, "the ingested file"),
    ],
)

SESSIONS = _table(
    "sessions",
    "One run of one search on one task.",
    key=("session_id",),
    statistics=("session_seq", "session_id", "task_id"),
    sort=("session_seq",),
    columns=[
        ("session_id", TEXT, "stable id"),
        ("session_seq", COUNT, "cluster key, given at first ingest"),
        ("task_id", TEXT, "the task"),
        ("next_step", COUNT, "steps committed so far; the step the next node gets"),
        ("user_id", TEXT, "whose session it was"),
        ("algorithm", TEXT, "search policy or foreign framework"),
        ("model", TEXT, "the proposer or model that ran"),
        ("run_id", TEXT, "our registry's run, when a model of ours proposed"),
        ("config", TEXT, "JSON: the search's settings"),
        ("skills", TEXT, "JSON: skills it was given"),
        ("budget", TEXT, "JSON: limits in attempts, tokens, seconds, money"),
        ("ucb_constant", FLOAT, "exploration constant c; NULL where the policy has none"),
        ("status", TEXT, "running, paused, done, failed; NULL where the log does not say"),
        ("source_id", TEXT, "the ingested file"),
    ],
)

NODES = _table(
    "nodes",
    "One attempt: what was proposed, from what, and what the judge said.",
    key=("node_id",),
    statistics=("session_seq", "node_id", "session_id", "task_id", "parent_id", "step", "depth", "fitness", "reward"),
    sort=("session_seq", "step", "node_id"),
    columns=[
        ("node_id", TEXT, "stable id"),
        ("session_id", TEXT, "the session"),
        ("session_seq", COUNT, "cluster key"),
        ("task_id", TEXT, "the task"),
        ("parent_id", TEXT, "the node it was made from; NULL for a root; may name a node not seen yet"),
        ("ancestors", pa.list_(TEXT), "node ids root to parent, as far as they are known"),
        ("context", CONTEXT, "other nodes whose content was shown, pinned at the step they were shown"),
        ("context_mode", TEXT, "inherited (the parent's conversation went on) or rebuilt"),
        ("selected_step", COUNT, "last committed step when the parent was chosen"),
        ("step", COUNT, "evaluation order in the session, from 0"),
        ("depth", COUNT, "edges to the root of its known ancestors"),
        ("generation", COUNT, "generation of the search, where it counts them"),
        ("island", TEXT, "island of an evolutionary search, as it was at the node's own step"),
        ("operator", TEXT, "draft, improve, debug, mutate, crossover, … or the named edit"),
        ("copy_of", TEXT, "node id of the original when this is no attempt of its own"),
        ("copy_kind", TEXT, "migrant, island_seed, seed_rerun, carried_over"),
        ("prompt_digest", TEXT, "digest of the prompt turns; NULL where no prompt is known"),
        ("artifact", TEXT, "the candidate's text; NULL where it is long (see artifact_digest) or absent"),
        ("artifact_digest", TEXT, "SHA-256 of the artifact"),
        ("content_digest", TEXT, "SHA-256 of artifact and messages"),
        ("fitness", FLOAT, "finite, higher is better; NULL where unknown or failed"),
        ("fitness_text", TEXT, "repr of fitness: what digests hold"),
        ("reward", FLOAT, "what learning uses; NULL: no visit, no cohort membership"),
        ("reward_text", TEXT, "repr of reward"),
        ("fitness_basis", TEXT, "measured, reported or estimated, with its version after colons (estimated:h100:v1)"),
        ("environment", TEXT, "JSON: hardware, precision, versions of this evaluation"),
        ("environment_digest", TEXT, "SHA-256 of environment; NULL where unknown"),
        ("metrics", TEXT, "JSON: raw numbers as the log had them"),
        ("is_buggy", pa.bool_(), "the attempt failed; NULL where the log does not say"),
        ("failure_class", TEXT, "why it failed: the candidate's fault, or harness.* for the infrastructure's"),
        ("evidence", TEXT, "JSON: error texts, checks"),
        ("verifier", TEXT, "identity@version of the judge"),
        ("tokens", COUNT, "model tokens used"),
        ("seconds", FLOAT, "wall seconds of proposing and judging"),
        ("cost", FLOAT, "money in US dollars"),
        ("outcome", TEXT, "succeeded, failed, unknown"),
        ("idempotency_key", TEXT, "what makes a repeated report the same attempt"),
        ("visits", COUNT, "latest visit count"),
        ("total_reward", FLOAT, "latest sum of rewards along its subtree"),
        ("model", TEXT, "the proposer or model of this attempt"),
        ("source_id", TEXT, "the ingested file"),
        ("source_place", TEXT, "line or path inside that file"),
    ],
)

PROMPT_HISTORY = _table(
    "prompt_history",
    "The chat turns of a node: its prompt, then its answer as the last assistant turn.",
    key=("node_id", "turn"),
    statistics=("session_seq", "node_id", "session_id", "turn"),
    sort=("session_seq", "node_id", "turn"),
    columns=[
        ("node_id", TEXT, "the node"),
        ("session_id", TEXT, "the session"),
        ("session_seq", COUNT, "cluster key"),
        ("turn", COUNT, "from 0"),
        ("role", TEXT, "system, user, assistant or tool"),
        ("content", TEXT, "text of the turn"),
        ("tool_calls", TEXT, "JSON list of calls"),
        ("tool_call_id", TEXT, "which call a tool turn answers"),
        ("token_ids", pa.list_(pa.int32()), "sampled token ids"),
        ("logprobs", pa.list_(pa.float32()), "log-probability of each sampled token, natural log"),
        ("temperature", FLOAT, "sampling temperature"),
        ("top_p", FLOAT, "nucleus mass"),
        ("top_k", COUNT, "0 or NULL: no cut"),
        ("model_id", TEXT, "what produced the turn"),
        ("tokenizer_digest", TEXT, "digest of the tokenizer that token_ids belong to"),
        ("finish_reason", TEXT, "stop, length, …"),
        ("fidelity", TEXT, "recorded, or reconstructed by a reader"),
        ("source_id", TEXT, "the ingested file"),
    ],
)

CHANGE_LOG = _table(
    "change_log",
    "Every assignment of a field by logical step; value(S, K) is read from here.",
    key=("session_id", "node_id", "field", "step", "recorded_step", "n"),
    statistics=("session_seq", "session_id", "node_id", "field", "step", "recorded_step"),
    sort=("session_seq", "node_id", "field", "step", "recorded_step", "n"),
    columns=[
        ("session_id", TEXT, "the session"),
        ("session_seq", COUNT, "cluster key"),
        ("node_id", TEXT, "the node; NULL for the session's own fields"),
        ("field", TEXT, "which field"),
        ("step", COUNT, "the step from which the value holds"),
        ("recorded_step", COUNT, "the step at which it was written down; step <= recorded_step"),
        ("n", COUNT, "order among equal clocks in the log"),
        ("old_value", TEXT, "JSON: the predecessor's value; NULL where there is none"),
        ("new_value", TEXT, "JSON; a cleared field is the text null"),
        ("origin", TEXT, "recorded, or replayed from the evaluation order"),
        ("source_id", TEXT, "the ingested file"),
    ],
)

NODE_EDGES = _table(
    "node_edges",
    "From content to what was made from it.",
    key=("src", "dst", "kind"),
    statistics=("session_seq", "src", "dst"),
    sort=("session_seq", "src", "dst", "kind"),
    columns=[
        ("src", TEXT, "node whose content was used; may not exist yet"),
        ("dst", TEXT, "node that used it"),
        ("kind", TEXT, "parent, context or copy"),
        ("session_seq", COUNT, "cluster key of dst's session"),
        ("source_id", TEXT, "the ingested file"),
    ],
)

SOURCES = _table(
    "sources",
    "One row per ingested file; the last thing an ingest writes.",
    key=("source_id",),
    columns=[
        ("source_id", TEXT, "stable id of the file as part of its run"),
        ("path", TEXT, "where it was read, relative to what the person named"),
        ("digest", TEXT, "SHA-256 of its bytes"),
        ("size_bytes", COUNT, "bytes read so far"),
        ("format", TEXT, "reader that took it"),
        ("reader_version", TEXT, "version of that reader"),
        ("read", COUNT, "records the reader yielded"),
        ("stored", COUNT, "of these, new rows"),
        ("already_there", COUNT, "of these, equal to what was stored"),
        ("conflicting", COUNT, "of these, same key but other content"),
        ("stripped", COUNT, "of these, left out by rule (demonstrations, duplicates of an answer)"),
        ("waiting", COUNT, "of these, held until what they belong to arrives"),
        ("quarantined", COUNT, "of these, unreadable"),
        ("ingested_at", TIME, "when"),
    ],
)

QUARANTINE = _table(
    "quarantine",
    "What could not be read: bytes, place, reason.",
    key=("quarantine_id",),
    columns=[
        ("quarantine_id", TEXT, "digest of path, place and bytes"),
        ("source_id", TEXT, "the file"),
        ("path", TEXT, "where it was read"),
        ("place", TEXT, "line, key or row"),
        ("reason", TEXT, "why, in one line"),
        ("bytes", pa.binary(), "what was there"),
        ("format", TEXT, "reader that refused it"),
        ("recorded_at", TIME, "when"),
    ],
)

RETRACTIONS = _table(
    "retractions",
    "Append-only: what was taken back or reinstated, by whom and why.",
    key=("retraction_id",),
    columns=[
        ("retraction_id", TEXT, "id of this row"),
        ("scope_kind", TEXT, "node, subtree, session, task, user, source, model, verifier, tag"),
        ("scope_id", TEXT, "what it names; a verifier is identity@version"),
        ("kind", TEXT, "invalidate (the score is wrong) or withdraw (the content must go)"),
        ("reason", TEXT, "why"),
        ("actor", TEXT, "who"),
        ("recorded_at", TIME, "when"),
        ("reinstates", TEXT, "retraction_id that this row takes back; NULL for a retraction"),
    ],
)

TAG_ASSIGNMENTS = _table(
    "tag_assignments",
    "Append-only: which governance tag was put on or taken off what.",
    key=("assignment_id",),
    columns=[
        ("assignment_id", TEXT, "id of this row"),
        ("target_kind", TEXT, "source, task, session, node or message"),
        ("target_id", TEXT, "what it names; a message is node_id#turn"),
        ("tag", TEXT, "such as internal, pii, licence:cc-by-nc"),
        ("action", TEXT, "add or remove"),
        ("reason", TEXT, "why"),
        ("actor", TEXT, "who"),
        ("recorded_at", TIME, "when"),
    ],
)

DATASETS = _table(
    "datasets",
    "Registry of snapshots: one row per folder that one was written to.",
    key=("dataset_id", "directory"),
    columns=[
        ("dataset_id", TEXT, "digest of the manifest"),
        ("view", TEXT, "the view it was taken from"),
        ("form", TEXT, "path, step, pairs, cohorts"),
        ("directory", TEXT, "where it was written"),
        ("view_version", COUNT, "Delta version of the view"),
        ("data_version", COUNT, "last Delta version of the view that changed a row"),
        ("num_rows", COUNT, "rows over all splits"),
        ("source_node_ids", pa.list_(TEXT), "every node whose content it holds, sorted"),
        ("tags", pa.list_(TEXT), "union over its rows, sorted"),
        ("principal", TEXT, "for whom"),
        ("purpose", TEXT, "for what"),
        ("manifest", TEXT, "JSON: the whole manifest"),
        ("created_at", TIME, "when"),
    ],
)

RUNS = _table(
    "runs",
    "Registry of training runs.",
    key=("run_id",),
    columns=[
        ("run_id", TEXT, "id"),
        ("kind", TEXT, "sft, dpo, grpo"),
        ("dataset_ids", pa.list_(TEXT), "snapshots it read"),
        ("base_model", TEXT, "model it started from; NULL: made from a config"),
        ("config", TEXT, "JSON: every trainer setting"),
        ("metrics", TEXT, "JSON: loss, tokens, rows seen, seconds"),
        ("num_rows", COUNT, "rows that reached the trainer"),
        ("status", TEXT, "running, done, failed, stopped"),
        ("started_at", TIME, "when"),
        ("ended_at", TIME, "when"),
    ],
)

MODELS = _table(
    "models",
    "Registry of models.",
    key=("model_id",),
    columns=[
        ("model_id", TEXT, "digest of weights and tokenizer"),
        ("run_id", TEXT, "the run that made it"),
        ("directory", TEXT, "where it lies"),
        ("base_model", TEXT, "model it started from"),
        ("turns", TEXT, "path or step: the form it was trained on and is asked in"),
        ("tokenizer_digest", TEXT, "SHA-256 of tokenizer.json"),
        ("num_parameters", COUNT, "trainable numbers"),
        ("tags", pa.list_(TEXT), "union over its datasets, sorted"),
        ("created_at", TIME, "when"),
    ],
)

ACCESS_LOG = _table(
    "access_log",
    "Append-only: who took what out, for what, under which policy.",
    key=("access_id",),
    columns=[
        ("access_id", TEXT, "id of this row"),
        ("principal", TEXT, "who asked"),
        ("purpose", TEXT, "train, export, retrieve, audit"),
        ("relation", TEXT, "table or view"),
        ("policy_digest", TEXT, "SHA-256 of the policy file"),
        ("num_allowed", COUNT, "rows handed out"),
        ("left_out", TEXT, "JSON: reason to count"),
        ("recorded_at", TIME, "when"),
    ],
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        TASKS,
        SESSIONS,
        NODES,
        PROMPT_HISTORY,
        CHANGE_LOG,
        NODE_EDGES,
        SOURCES,
        QUARANTINE,
        RETRACTIONS,
        TAG_ASSIGNMENTS,
        DATASETS,
        RUNS,
        MODELS,
        ACCESS_LOG,
    )
}

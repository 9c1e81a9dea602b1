"""The numbers of the loop's report, read from the tables: what each proposer tried, what held, what was new.

Every attempt counts: unparsable ones, no-ops and duplicates are attempts that came to nothing, not attempts left out.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_search.judge.estimate import METRIC
from store.home import Home
from store.verdicts import ESTIMATE_HEADING

if TYPE_CHECKING:
    from store.delta import Tables

NODE_COLUMNS = (
    "node_id",
    "session_id",
    "session_seq",
    "parent_id",
    "step",
    "operator",
    "artifact_digest",
    "fitness",
    "fitness_basis",
    "is_buggy",
    "failure_class",
    "metrics",
)


def make_report(home: Home, facts: Mapping[str, Any], *, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Everything that the report tells, in plain values: what the page shows and what report.json holds.

    Args:
        home: The home that was worked in.
        facts: What the stages said of themselves (see run_loop.Loop).
        seconds: Seconds per stage.
    """
    from store.delta import Tables

    tables = Tables(home)
    rounds = {name: facts[name]["sessions"] for name in ("first_search", "second_search")}
    nodes = nodes_of_sessions(tables, [search["session_id"] for searches in rounds.values() for search in searches])
    known = artifacts_of_dataset(tables, facts["datasets"]["sft_dataset"]["dataset_id"])
    return {
        "started_at": facts["started_at"],
        "estimates": ESTIMATE_HEADING,
        # The first round searched before there was a dataset: for it, new means other than the parent.
        "first_search": [n.as_dict() for n in proposer_numbers(nodes, rounds["first_search"], frozenset())],
        "second_search": [n.as_dict() for n in proposer_numbers(nodes, rounds["second_search"], known)],
        "artifacts_in_training_data": len(known),
        "views": facts["views"],
        "views_again": facts["views_again"],
        "checks": facts["checks"],
        "checks_again": facts["checks_again"],
        "datasets": {
            name: {key: said[key] for key in ("dataset_id", "directory", "dagster/row_count", "left_out")}
            for name, said in facts["datasets"].items()
        },
        "model": facts["model"],
        "places": {
            "tables": str(home.tables),
            "ledger": home.ledger_url,
            "datasets": str(home.datasets),
            "model": str(facts["model"]["directory"]),
            "dagster": str(home.dagster),
        },
        "seconds": {stage: round(value, 1) for stage, value in seconds.items()},
    }


@dataclass(frozen=True)
class Best:
    """The best accepted attempt on one task: its estimated microseconds, and the starting kernel's."""

    node_id: str
    estimate_us: float
    start_us: float | None


@dataclass(frozen=True)
class ProposerNumbers:
    """What one proposer did over the tasks of a round; every count is of attempts."""

    proposer: str
    attempts: int
    valid: int
    valid_new: int  # accepted, and neither the parent's artifact nor one the model could have seen
    distinct_new: int  # different artifacts among these
    duplicates: int  # artifact equal to an earlier one of the same search
    no_ops: int
    unparsable: int
    inapplicable: int
    failure_classes: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    best: dict[str, Best] = field(default_factory=dict)  # by task

    @property
    def valid_rate(self) -> float | None:
        """Accepted attempts per attempt; None where there was none."""
        return self.valid / self.attempts if self.attempts else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "valid_rate": self.valid_rate}


def proposer_numbers(
    nodes: Iterable[Mapping[str, Any]], searches: Sequence[Mapping[str, Any]], known_artifacts: frozenset[str]
) -> list[ProposerNumbers]:
    """Count what each proposer of a round did.

    Args:
        nodes: Rows of the nodes table; those of other sessions do not count.
        searches: One mapping per search with proposer, task and session_id, in the order to report.
        known_artifacts: Digests of artifacts in the training data.

    Returns:
        One entry per proposer, in the order of their first search.
    """
    by_session: dict[str, list[Mapping[str, Any]]] = {search["session_id"]: [] for search in searches}
    for node in nodes:
        if node["session_id"] in by_session:
            by_session[node["session_id"]].append(node)
    proposers = dict.fromkeys(search["proposer"] for search in searches)
    return [
        _numbers(
            proposer,
            {
                search["task"]: sorted(by_session[search["session_id"]], key=lambda node: node["step"])
                for search in searches
                if search["proposer"] == proposer
            },
            known_artifacts,
        )
        for proposer in proposers
    ]


def _numbers(proposer: str, nodes_of: Mapping[str, list[Mapping[str, Any]]], known: frozenset[str]) -> ProposerNumbers:
    counts: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    new_artifacts: set[str] = set()
    best: dict[str, Best] = {}
    for task, nodes in nodes_of.items():
        artifact_of = {node["node_id"]: node["artifact_digest"] for node in nodes}
        seen: set[str] = set()
        for node in nodes:
            digest = node["artifact_digest"]
            if node["parent_id"] is None:  # the starting kernel is nobody's attempt
                seen.add(digest)
                continue
            counts["attempts"] += 1
            valid = is_valid(node)
            counts["valid"] += valid
            counts["duplicates"] += digest is not None and digest in seen
            if valid and digest not in known and digest != artifact_of.get(node["parent_id"]):
                counts["valid_new"] += 1
                new_artifacts.add(digest)
            classes.update([node["failure_class"]] if node["failure_class"] else [])
            kinds.update([node["operator"]] if node["operator"] else [])
            seen |= {digest} - {None}
        best |= _best(task, nodes)
    return ProposerNumbers(
        proposer=proposer,
        attempts=counts["attempts"],
        valid=counts["valid"],
        valid_new=counts["valid_new"],
        distinct_new=len(new_artifacts),
        duplicates=counts["duplicates"],
        no_ops=classes["no_op"],
        unparsable=classes["unparsable"],
        inapplicable=classes["inapplicable"],
        failure_classes=dict(sorted(classes.items())),
        kinds=dict(sorted(kinds.items())),
        best=best,
    )


def is_valid(node: Mapping[str, Any]) -> bool:
    """Whether the judge accepted and scored this attempt."""
    return node["is_buggy"] is False and node["fitness"] is not None


def _best(task: str, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Best]:
    """The fastest accepted attempt by estimate; empty where none was accepted."""
    starts = [_estimate_us(node) for node in nodes if node["parent_id"] is None]
    estimates = [
        (estimate, node["node_id"])
        for node in nodes
        if node["parent_id"] is not None and is_valid(node) and (estimate := _estimate_us(node)) is not None
    ]
    if not estimates:
        return {}
    estimate, node_id = min(estimates)
    return {task: Best(node_id, estimate, starts[0] if starts else None)}


def _estimate_us(node: Mapping[str, Any]) -> float | None:
    value = json.loads(node["metrics"] or "{}").get(METRIC)
    return None if value is None else float(value)


def artifacts_of_dataset(tables: "Tables", dataset_id: str) -> frozenset[str]:
    """Digests of the artifacts of every node that a snapshot holds content of."""
    import pyarrow.compute as pc

    datasets = tables.read("datasets", columns=["dataset_id", "source_node_ids"])
    rows = datasets.filter(pc.equal(datasets["dataset_id"], dataset_id)).to_pylist()
    sources = {node_id for row in rows for node_id in row["source_node_ids"]}
    nodes = tables.read("nodes", columns=["node_id", "artifact_digest"]).to_pylist()
    return frozenset(
        node["artifact_digest"] for node in nodes if node["node_id"] in sources and node["artifact_digest"] is not None
    )


def nodes_of_sessions(tables: "Tables", session_ids: Iterable[str]) -> list[dict[str, Any]]:
    """The report's columns of every node of these sessions, read from the files that can hold them."""
    wanted = set(session_ids)
    sessions = tables.read("sessions", columns=["session_id", "session_seq"]).to_pylist()
    seqs = [row["session_seq"] for row in sessions if row["session_id"] in wanted]
    return tables.read("nodes", columns=list(NODE_COLUMNS), session_seqs=seqs).to_pylist()

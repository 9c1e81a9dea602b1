"""Reads AIDE journals (`journal.json`): one JSON object with `nodes`, and edges in `node2parent` only.

The metric's direction stands on good nodes alone. There are no prompts in a journal: what a node's prompt was is
rebuilt from its parent's code and output, and marked `reconstructed`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from store.ids import canonical_json, sha256_text, stable_id
from transforms.logs.json_values import parse_json
from transforms.logs.reading import Known, LogToRead, Yielded, unreadable_source
from transforms.records import (
    LogFile,
    MessageRecord,
    NodeRecord,
    Quarantined,
    Record,
    SessionRecord,
    Source,
    TaskRecord,
)
from transforms.scoring import HARNESS, Score, as_count, as_finite, json_safe, reward_of, score_metric, text_safe

FORMAT = "aide"
READER_VERSION = "1"
FILE_NAME = "journal.json"
HARNESS_FAULTS = {"LockFileError": "lock_file"}  # the build folder was locked by another run: not the code's fault
HARDWARE = re.compile(r"^Hardware: (.+?)(?:Runtime:|$)", re.MULTILINE)
HEX_ID = re.compile(r"[0-9a-f]{32}")
OUTPUT_TAIL = 4_000  # characters of a run's output that a rebuilt prompt shows; errors stand at its end


def takes(path: Path) -> bool:
    """Whether a file is an AIDE journal, from its name."""
    return path.name == FILE_NAME


def is_journal(content: dict[str, Any]) -> bool:
    """Whether a JSON object is a journal, whatever its file is called."""
    return isinstance(content.get("nodes"), list) and isinstance(content.get("node2parent"), dict)


def read(log: LogToRead, known: Known) -> Iterator[Yielded]:
    """Yield the records of journals, each with its file."""
    for file in log.files:
        yield from _read_journal(file, log.run)


def _read_journal(file: LogFile, run_name: str | None) -> Iterator[Yielded]:
    data = b""
    try:
        data = file.path.read_bytes()
        nodes, parents = _parse(data)
    except OSError as error:
        yield unreadable_source(file, FORMAT), Quarantined("file", f"cannot be read ({error.strerror})", data)
        return
    except ValueError as error:
        yield unreadable_source(file, FORMAT), Quarantined("file", str(error), data)
        return
    first = next(node for node in nodes if isinstance(node, dict))
    immutable = [first.get("id"), first.get("ctime"), sha256_text(str(first.get("code")))]
    run = run_name or sha256_text(canonical_json(json_safe(immutable)))
    has_own_run = run_name is not None or bool(HEX_ID.fullmatch(str(first.get("id"))))
    source = Source(stable_id("f", FORMAT, run), file, FORMAT, READER_VERSION, has_own_run=has_own_run)
    for record in _Journal(run, nodes, parents).records():
        yield source, record


def _parse(data: bytes) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The nodes by step, and the parent of each child.

    Raises:
        ValueError: It is no journal, with the reason.
    """
    content = parse_json(data)
    if not isinstance(content, dict) or not is_journal(content):
        raise ValueError("no AIDE journal: it has no `nodes` list with a `node2parent` object")
    if not content["nodes"]:
        raise ValueError("a journal without nodes: the run stopped before its first one")
    if not any(isinstance(node, dict) for node in content["nodes"]):
        raise ValueError("no AIDE journal: none of its `nodes` is an object")
    content = text_safe(content)
    metrics = [node.get("metric") for node in content["nodes"] if isinstance(node, dict)]
    if any(isinstance(metric, dict) and isinstance(metric.get("value"), dict) for metric in metrics):
        raise ValueError("an AI-Scientist-v2 stage journal (several metrics a node), which no reader takes yet")
    return content["nodes"], content["node2parent"]


class _Journal:
    def __init__(self, run: str, nodes: list[Any], parents: dict[str, str]) -> None:
        self.run = run
        self.nodes = nodes
        self.parents = parents
        self.session_id = stable_id("s", FORMAT, run)
        self.task_id = stable_id("t", FORMAT, run)
        self.by_id = {str(node["id"]): node for node in nodes if isinstance(node, dict) and "id" in node}
        self.direction = self._direction()

    def records(self) -> Iterator[Record]:
        yield TaskRecord(self.task_id, metric="metric.value", direction=self.direction, place="nodes")
        yield SessionRecord(
            self.session_id,
            self.task_id,
            algorithm=FORMAT,
            config={"format": FORMAT, "derived": ["selected_step", "prompts"]},
            place="nodes",
        )
        for position, node in enumerate(self.nodes):
            place = f"nodes[{position}]"
            step = node.get("step", position) if isinstance(node, dict) else None
            if not isinstance(node, dict) or not isinstance(node.get("id"), str):
                yield Quarantined(place, "a node without an id", _bytes_of(node))
            elif as_count(step) is None:
                yield Quarantined(place, f"step {step!r} is no count", _bytes_of(node))
            elif (fault := self._parent_fault(node["id"])) is not None:
                yield Quarantined(place, fault, _bytes_of(node))
            else:
                yield self._node(node, step, place)

    def _parent_fault(self, native_id: str) -> str | None:
        """Why a node cannot have the parent it states; None where it can, or states none."""
        parent = self.parents.get(native_id)
        if parent is not None and not isinstance(parent, str):
            return f"the parent of node {native_id} is {parent!r}, and must be a text"
        return f"node {native_id} names itself as its parent" if parent == native_id else None

    def _direction(self) -> str | None:
        """Max or min, from a good node; buggy ones leave it out, and a run may have nothing else."""
        for node in self.by_id.values():
            metric = node.get("metric")
            maximize = metric.get("maximize") if isinstance(metric, dict) else None
            if isinstance(maximize, bool) and not node.get("is_buggy"):
                return "max" if maximize else "min"
        return None

    def _node(self, node: dict[str, Any], step: int, place: str) -> NodeRecord:
        node_id = self._node_id(node["id"])
        native_parent = self.parents.get(node["id"])
        parent = self.by_id.get(native_parent or "")
        score = self._score(node)
        is_harness = (score.failure_class or "").startswith(HARNESS)
        operator = "draft" if native_parent is None else ("debug" if parent and parent.get("is_buggy") else "improve")
        return NodeRecord(
            node_id,
            self.session_id,
            self.task_id,
            parent_id=None if native_parent is None else self._node_id(native_parent),
            step=step,
            operator=operator,
            artifact=_text(node.get("code")),
            fitness=score.fitness,
            reward=reward_of(score, None),
            environment=_environment(node),
            metrics=node.get("metric"),
            is_buggy=score.is_buggy,
            failure_class=score.failure_class,
            evidence=_evidence(node),
            seconds=as_finite(node.get("exec_time")),
            outcome="unknown" if is_harness else ("failed" if score.is_buggy else "succeeded"),
            messages=self._messages(node, node_id, operator, parent, place),
            place=place,
        )

    def _node_id(self, native_id: str) -> str:
        return stable_id("n", FORMAT, self.run, native_id)

    def _score(self, node: dict[str, Any]) -> Score:
        exception = node.get("exc_type")
        if isinstance(exception, str) and exception in HARNESS_FAULTS:
            return Score(None, True, HARNESS + HARNESS_FAULTS[exception])
        metric = node.get("metric")
        score = score_metric(metric.get("value") if isinstance(metric, dict) else metric, self.direction)
        if not node.get("is_buggy"):
            return score
        failure_class = (
            _snake_case(exception) if isinstance(exception, str) else (score.failure_class or "judged_buggy")
        )
        return Score(None, True, failure_class)

    def _messages(
        self, node: dict[str, Any], node_id: str, operator: str, parent: dict[str, Any] | None, place: str
    ) -> tuple[MessageRecord, ...]:
        turns = [("user", _prompt(operator, parent)), ("assistant", _answer(node))]
        return tuple(
            MessageRecord(node_id, self.session_id, turn, role, content=content, fidelity="reconstructed", place=place)
            for turn, (role, content) in enumerate(turns)
        )


def _prompt(operator: str, parent: dict[str, Any] | None) -> str:
    if operator == "draft" or parent is None:
        return "Write a first solution to the task: a short plan, then the code."
    code = f"```python\n{_text(parent.get('code')) or ''}\n```"
    if operator == "improve":
        return f"Improve this solution: a short plan, then the code.\n\n{code}"
    output = _output(parent)[-OUTPUT_TAIL:]
    return f"Fix this solution: a short plan, then the code.\n\n{code}\n\nIts run ended with:\n{output}"


def _answer(node: dict[str, Any]) -> str:
    """Plan and code as the model wrote them; without a plan `code` is the whole answer, fences included."""
    plan, code = _text(node.get("plan")) or "", _text(node.get("code")) or ""
    return f"{plan}\n\n```python\n{code}\n```" if plan.strip() else code


def _output(node: dict[str, Any]) -> str:
    chunks = node.get("_term_out")
    return "".join(str(chunk) for chunk in chunks) if isinstance(chunks, list) else (_text(chunks) or "")


def _environment(node: dict[str, Any]) -> dict[str, str] | None:
    """The hardware, where the node's details or its printed report name it."""
    details = node.get("exc_info")
    metadata = details.get("metadata") if isinstance(details, dict) else None
    hardware = metadata.get("hardware") if isinstance(metadata, dict) else None
    if not isinstance(hardware, str):
        printed = HARDWARE.search(_output(node))
        hardware = printed.group(1).strip() if printed else None
    return {"hardware": hardware} if hardware else None


def _evidence(node: dict[str, Any]) -> dict[str, Any]:
    names = ("exc_type", "exc_info", "analysis")
    evidence = {name: node[name] for name in names if node.get(name) is not None}
    output = _output(node)
    return {**evidence, "output": output} if output else evidence


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _bytes_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()

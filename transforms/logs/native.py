"""Reads the native format: JSON lines, each with a `type`; docs/native_format.md describes it for those who write it.

Ids are hashes of (native, run, native id). `run` is what the first line names; a file without a run line is known by
its first session line, so a copy of it is the same run, and two runs that begin alike must be told apart by --run.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from store.ids import canonical_json, stable_id
from transforms.logs.native_head import HEAD_BYTES, OUR_TYPE, SUFFIXES, first_lines, has_our_line, takes
from transforms.logs.native_lines import (
    NUMBERS,
    ChangeLine,
    Line,
    MessageLine,
    NodeLine,
    NotALine,
    RunLine,
    SessionLine,
    Shown,
    TagLine,
    TaskLine,
    Turn,
    parse_line,
    split_objects,
)
from transforms.logs.native_nodes import TaskRules, node_score
from transforms.logs.reading import Known, LogToRead, Yielded, unreadable_source
from transforms.records import (
    ChangeRecord,
    ContextRef,
    LogFile,
    MessageRecord,
    NodeRecord,
    Quarantined,
    Record,
    SessionRecord,
    Source,
    TagRecord,
    TaskRecord,
    Waiting,
)
from transforms.scoring import as_count, as_number, json_safe, score_metric, text_safe

FORMAT = "native"
READER_VERSION = "1"
RECALLED = (b"run", b"task", b"change")  # lines of a grown file that are read again
__all__ = ["FORMAT", "HEAD_BYTES", "READER_VERSION", "SUFFIXES", "has_our_line", "read", "takes"]


def read(log: LogToRead, known: Known) -> Iterator[Yielded]:
    """Yield the records of native files, each with its file; a broken line goes to quarantine and reading goes on."""
    for file in log.files:
        try:
            yield from _FileReader(file, log, known).records()
        except OSError as error:  # gone since it was found
            yield unreadable_source(file, FORMAT), Quarantined("file", f"cannot be read ({error.strerror})", b"")


class _FileReader:
    def __init__(self, file: LogFile, log: LogToRead, known: Known) -> None:
        self.file = file
        self.known = known
        self.start = log.resume_at.get(file.digest)
        head = first_lines(file.path)
        self.named_run = log.run
        self.run = log.run or head.run
        # A file is known by its run and its first record, so that the parts of a run are files of their own.
        source_id = stable_id("f", FORMAT, self.run, head.first_record)
        self.source = Source(source_id, file, FORMAT, READER_VERSION, has_own_run=log.run is not None or head.is_named)
        self.tasks: dict[str, TaskRecord] = {}
        self.rules: dict[str, TaskRules] = {}
        self.equal_clocks: Counter[tuple[Any, ...]] = Counter()
        self.said: Counter[tuple[Any, ...]] = Counter()  # how often a change was said
        self.has_nodes = False

    def records(self) -> Iterator[Yielded]:
        number = 0
        is_empty = True
        with self.file.path.open("rb") as stream:
            if self.start:
                number = self._recall(stream, self.start)
            # What is appended from now on is in no digest yet: the next ingest reads it.
            while raw := stream.readline(max(self.file.size_bytes - stream.tell(), 0)):
                number += 1
                if raw.strip():
                    is_empty = False
                    yield from ((self.source, record) for record in self._line(raw, f"line {number}"))
        if is_empty and not self.start:
            yield self.source, Quarantined("file", f"empty file ({self.file.size_bytes} bytes)", b"")

    def _recall(self, stream: BinaryIO, size_bytes: int) -> int:
        """Pass what was ingested before, keeping what later lines rest on; returns the number of lines.

        That is the run, the tasks, whether there are nodes, and how many changes had the same clocks or said the same.
        """
        number = 0
        while stream.tell() < size_bytes:
            raw = stream.readline()
            number += 1
            found = OUR_TYPE.findall(raw)
            self.has_nodes |= b"node" in found
            if any(kind in RECALLED for kind in found):
                for _ in self._line(raw, f"line {number}"):
                    pass
        return number

    def _line(self, raw: bytes, place: str) -> Iterator[Record]:
        try:
            text = raw.decode("utf-8-sig" if place == "line 1" else "utf-8")
        except UnicodeDecodeError as error:
            yield Quarantined(place, f"no UTF-8 ({error.reason} at byte {error.start})", raw)
            return
        taken = 0
        try:
            for value, part in split_objects(text):
                taken += len(part)
                try:
                    line = parse_line(text_safe(value) if "\\ud" in part.lower() else value)
                except NotALine as error:
                    yield Quarantined(place, str(error), part.encode("utf-8", "backslashreplace"))
                    continue
                yield from self._records_of(line, place)
        except NotALine as error:
            rest = raw if taken == 0 else text[taken:].strip().encode("utf-8", "backslashreplace")
            cut = "" if raw.endswith(b"\n") else ", the file ends inside it"
            yield Quarantined(place, f"{error}{cut}", rest)

    def _records_of(self, line: Line, place: str) -> Iterator[Record]:
        if isinstance(line, RunLine):
            # A run line begins a run; two logs written one after the other stay two runs.
            self.run = self.named_run or line.run
        elif isinstance(line, TaskLine):
            yield self._task(line, place)
        elif isinstance(line, SessionLine):
            yield from self._session(line, place)
        elif isinstance(line, TagLine):
            yield self._tag(line, place)
        elif isinstance(line, NodeLine | MessageLine | ChangeLine):
            if self._rules(line.session) is None:
                yield Waiting(place, f"session {line.session!r} stands on no line before it and in no earlier file")
            elif isinstance(line, NodeLine):
                self.has_nodes = True
                yield self._node(line, place)
            else:
                yield self._message(line, place) if isinstance(line, MessageLine) else self._change(line, place)

    # ---- one method per type of line

    def _task(self, line: TaskLine, place: str) -> TaskRecord:
        definition = (str(line.task), line.domain, line.specification, line.metric, line.direction)
        # Equal definitions are one task, in whichever run; another definition of the same name is another task.
        record = TaskRecord(
            stable_id("t", FORMAT, *definition),
            domain=line.domain,
            specification=line.specification if line.specification is not None else str(line.task),
            metric=line.metric,
            direction=line.direction,
            baseline_fitness=None if line.baseline is None else score_metric(line.baseline, line.direction).fitness,
            baseline_basis=None if line.baseline is None else "reported",
            failure_reward=line.failure_reward,
            place=place,
        )
        self.tasks[str(line.task)] = record
        return record

    def _session(self, line: SessionLine, place: str) -> Iterator[Record]:
        session_id = self._session_id(line.session)
        before = self._rules(line.session)
        task = None if line.task is None else self.tasks.get(str(line.task))
        if line.task is not None and task is None and (before is None or before.task_id is None):
            # The task is named and nowhere defined: its name is all that is known of it.
            task = self._task(TaskLine(type="task", task=line.task), place)
            yield task
        if task is not None:
            self.rules[session_id] = TaskRules(task.task_id, task.direction, task.metric, task.failure_reward)
        elif before is None:
            self.rules[session_id] = TaskRules(None, "max", None, None)
        yield SessionRecord(
            session_id,
            self.rules[session_id].task_id,
            user_id=line.user,
            algorithm=line.algorithm,
            model=line.model,
            config=line.config,
            skills=line.skills,
            budget=line.budget,
            ucb_constant=line.ucb_constant,
            status=line.status,
            place=place,
        )

    def _node(self, line: NodeLine, place: str) -> Record:
        session_id = self._session_id(line.session)
        node_id = self._node_id(line.session, line.node)
        rules = self._rules(line.session)
        assert rules is not None
        if line.parent is not None and self._reference(line.session, line.parent) == node_id:
            raw = canonical_json(text_safe(line.model_dump(mode="json"))).encode("utf-8", "backslashreplace")
            return Quarantined(place, f"node {line.node!r} names itself as its parent", raw)
        score = node_score(line, rules)
        copy_of = None if line.copy_of is None else self._reference(line.session, line.copy_of)
        return NodeRecord(
            node_id,
            session_id,
            rules.task_id,
            parent_id=None if line.parent is None else self._reference(line.session, line.parent),
            step=line.step,
            selected_step=line.selected_step,
            context=tuple(self._shown(line.session, shown) for shown in line.context),
            context_mode=line.context_mode,
            generation=line.generation,
            island=None if line.island is None else str(line.island),
            operator=line.operator,
            copy_of=copy_of,
            copy_kind=line.copy_kind or (None if copy_of is None else "carried_over"),
            artifact=line.artifact,
            fitness=score.fitness,
            reward=score.reward,
            fitness_basis=line.fitness_basis or "reported",
            environment=line.environment,
            metrics=score.metrics,
            is_buggy=score.is_buggy,
            failure_class=score.failure_class,
            evidence=line.evidence,
            verifier=line.verifier,
            tokens=line.tokens,
            seconds=line.seconds,
            cost=line.cost,
            outcome=score.outcome,
            idempotency_key=line.idempotency_key,
            visits=line.visits,
            total_reward=line.total_reward,
            model=line.model,
            messages=tuple(self._turn(node_id, session_id, at, turn, place) for at, turn in enumerate(line.messages)),
            place=place,
        )

    def _message(self, line: MessageLine, place: str) -> MessageRecord:
        node_id = self._node_id(line.session, line.node)
        return self._turn(node_id, self._session_id(line.session), line.turn, line, place)

    def _change(self, line: ChangeLine, place: str) -> ChangeRecord:
        node_id = None if line.node is None else self._node_id(line.session, line.node)
        about = (self._session_id(line.session), node_id, line.field, line.step)
        clocks = (*about, line.step if line.recorded_step is None else line.recorded_step)
        value = str(line.value) if line.field == "island" and line.value is not None else line.value
        if line.field in NUMBERS and isinstance(value, int) and as_count(abs(value)) is None:
            value = as_number(value)  # a column of floats takes no integer of that size
        said = (*about, canonical_json(json_safe(value)))
        record = ChangeRecord(
            *about,
            line.recorded_step,
            value,
            n=self.equal_clocks[clocks],
            said_before=self.said[said],
            has_nodes=self.has_nodes,
            place=place,
        )
        self.equal_clocks[clocks] += 1
        self.said[said] += 1
        return record

    def _tag(self, line: TagLine, place: str) -> Record:
        if line.session is None and line.task is None:
            return TagRecord("source", self.source.source_id, line.tag, line.action, line.reason, line.actor, place)
        if line.session is None:
            task = self.tasks.get(str(line.task))
            if task is None:
                return Waiting(place, f"task {line.task!r} is tagged, and no line before it defines it")
            return TagRecord("task", task.task_id, line.tag, line.action, line.reason, line.actor, place)
        kind, target = "session", self._session_id(line.session)
        if line.node is not None:
            kind, target = "node", self._node_id(line.session, line.node)
            if line.turn is not None:
                kind, target = "message", f"{target}#{line.turn}"
        return TagRecord(kind, target, line.tag, line.action, line.reason, line.actor, place)

    # ---- ids and references

    def _session_id(self, session: str | int) -> str:
        return stable_id("s", FORMAT, self.run, str(session))

    def _node_id(self, session: str | int, node: str | int) -> str:
        return stable_id("n", FORMAT, self.run, str(session), str(node))

    def _reference(self, session: str | int, named: str | int | Shown) -> str:
        if isinstance(named, Shown):
            return self._node_id(session if named.session is None else named.session, named.node)
        return self._node_id(session, named)

    def _shown(self, session: str | int, named: str | int | Shown) -> ContextRef:
        node_id = self._reference(session, named)
        if not isinstance(named, Shown):
            return ContextRef(node_id, self._session_id(session))
        of = self._session_id(session if named.session is None else named.session)
        return ContextRef(node_id, of, named.step, named.role)

    def _turn(self, node_id: str, session_id: str, position: int, turn: Turn, place: str) -> MessageRecord:
        return MessageRecord(
            node_id,
            session_id,
            position,
            turn.role,
            content=turn.content,
            tool_calls=turn.tool_calls,
            tool_call_id=turn.tool_call_id,
            token_ids=None if turn.token_ids is None else tuple(turn.token_ids),
            logprobs=None if turn.logprobs is None else tuple(turn.logprobs),
            temperature=turn.temperature,
            top_p=turn.top_p,
            top_k=turn.top_k,
            model_id=turn.model,
            tokenizer_digest=turn.tokenizer_digest,
            finish_reason=turn.finish_reason,
            place=place,
        )

    def _rules(self, session: str | int) -> TaskRules | None:
        """How the session's task scores, from this file or an earlier one; None: nobody declared the session."""
        session_id = self._session_id(session)
        if session_id not in self.rules:
            task = self.known.task_of_session(session_id)
            if task is None:
                return None
            self.rules[session_id] = TaskRules(
                task["task_id"], task["direction"] or "max", task["metric"], task["failure_reward"]
            )
        return self.rules[session_id]

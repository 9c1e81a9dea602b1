"""Reads OpenEvolve checkpoints: `…/checkpoint_<N>/programs/<id>.json`, all checkpoints of a run folder together.

A checkpoint is a snapshot of a population, so one program stands in several and its parent may stand in another.
Two launches into one folder leave programs of both; each launch (one root program) is a session of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.ids import canonical_json, sha256_text, stable_id
from transforms.logs.json_values import parse_json
from transforms.logs.openevolve_launches import Launch, ProgramHead, sort_into_launches
from transforms.logs.openevolve_programs import chat_turns, program_record
from transforms.logs.reading import Known, LogToRead, Yielded, unreadable_source
from transforms.records import (
    Conflicting,
    LogFile,
    LogOrder,
    Quarantined,
    Repeated,
    SessionRecord,
    Source,
    TaskRecord,
)
from transforms.scoring import as_finite, json_safe, text_safe

FORMAT = "openevolve"
READER_VERSION = "1"
METRIC = "combined_score"


def takes(path: Path) -> bool:
    """Whether a file belongs to a checkpoint, from its place: a program, or the checkpoint's metadata."""
    if path.suffix != ".json":
        return False
    if path.parent.name == "programs":
        return True
    return path.name == "metadata.json" and (path.parent / "programs").is_dir()


def is_program(content: dict[str, Any]) -> bool:
    """Whether a JSON object is a program, wherever its file lies."""
    return {"id", "code", "metrics"} <= content.keys()


def run_folder(path: Path) -> Path:
    """The folder that holds the checkpoints of the run this file belongs to."""
    real = path.resolve()
    if real.parent.name == "programs":
        return real.parent.parent.parent
    return real.parent.parent if real.name == "metadata.json" else real.parent


@dataclass(frozen=True)
class _Population:
    """What the first pass keeps: heads of all programs, by id; features of the map; unreadable files."""

    heads: dict[str, ProgramHead]
    repeats: list[tuple[LogFile, ProgramHead, bytes | None]]
    unreadable: list[tuple[LogFile, str, bytes]]
    metadata_files: list[LogFile]
    features: frozenset[str]


def read(log: LogToRead, known: Known) -> Iterator[Yielded]:
    """Yield the records of one run folder. Programs are read twice, so that only their heads are held together."""
    population = _read_heads(log.files)
    launches = sort_into_launches(population.heads, known, FORMAT, log.run)
    launch_of = {native_id: launch for launch in launches for native_id in launch.native_ids}
    declared: set[str] = set()
    for head in sorted(population.heads.values(), key=lambda head: head.order.sort_key()):
        launch = launch_of[head.native_id]
        source = _source(head.file, launch)
        if launch.session_id not in declared:
            declared.add(launch.session_id)
            yield source, TaskRecord(launch.task_id, domain="program", metric=METRIC, direction="max", place="root")
            yield source, _session(launch)
        data = b""
        try:
            data = head.file.path.read_bytes()
            content = _parse(data)
            if _head(content, head.file) != head:
                raise ValueError("it holds another program now")
        except (OSError, ValueError) as error:
            yield source, Quarantined("file", f"changed while it was read ({_reason(error)})", data)
            continue
        parent = population.heads.get(head.parent_id or "")
        yield source, program_record(text_safe(content), head, parent, launch, population.features)
    for file, head, conflict in population.repeats:
        source = _source(file, launch_of[head.native_id])
        if conflict is None:
            yield source, Repeated(1 + head.num_turns)
        else:
            reason = f"program {head.native_id} stands in {head.file.name} with another content; the first stays"
            yield source, Conflicting("file", reason, conflict, 1 + head.num_turns)
    yield from _without_programs(population, launches)


def _without_programs(population: _Population, launches: list[Launch]) -> Iterator[Yielded]:
    for file, reason, data in population.unreadable:
        yield unreadable_source(file, FORMAT), Quarantined("file", reason, data)
    for file in population.metadata_files:
        run = launches[0].session_id if launches else file.digest
        source_id = stable_id("f", FORMAT, run, "metadata", file.digest)
        yield Source(source_id, file, FORMAT, READER_VERSION), Repeated(0)  # read, and no record of its own


def _source(file: LogFile, launch: Launch) -> Source:
    """A program's file: known by its launch, its checkpoint's name and its bytes, wherever the folder lies."""
    place = "/".join(file.path.parts[-3:])
    source_id = stable_id("f", FORMAT, launch.session_id, place, file.digest)
    return Source(source_id, file, FORMAT, READER_VERSION, has_own_run=launch.has_own_run)


def _session(launch: Launch) -> SessionRecord:
    return SessionRecord(
        launch.session_id,
        launch.task_id,
        algorithm=FORMAT,
        config={"format": FORMAT, "derived": ["step", "selected_step"]},
        place="programs",
    )


def _read_heads(files: tuple[LogFile, ...]) -> _Population:
    heads: dict[str, ProgramHead] = {}
    repeats: list[tuple[LogFile, ProgramHead, bytes | None]] = []
    unreadable: list[tuple[LogFile, str, bytes]] = []
    metadata_files: list[LogFile] = []
    features: set[str] = set()
    for file in sorted(files, key=_checkpoint_order):
        data = b""
        try:
            data = file.path.read_bytes()
            content = _parse(data)
            if file.path.name == "metadata.json" and not is_program(content):
                stated = content.get("feature_stats")
                features |= set(stated) if isinstance(stated, dict) else set()
                metadata_files.append(file)
                continue
            head = _head(content, file)
        except (OSError, ValueError) as error:
            unreadable.append((file, _reason(error), data))
            continue
        first = heads.setdefault(head.native_id, head)
        if first is not head:
            repeats.append((file, first, None if first.content_digest == head.content_digest else data))
    return _Population(heads, repeats, unreadable, metadata_files, frozenset(features))


def _parse(data: bytes) -> dict[str, Any]:
    content = parse_json(data)
    if not isinstance(content, dict):
        raise ValueError(f"a JSON {type(content).__name__}, and a checkpoint's files are objects")
    return content


def _reason(error: OSError | ValueError) -> str:
    return f"cannot be read ({error.strerror})" if isinstance(error, OSError) else str(error)


def _head(content: dict[str, Any], file: LogFile) -> ProgramHead:
    """What of a program the whole folder must know.

    Raises:
        ValueError: It is no program, with the reason.
    """
    missing = [name for name in ("id", "code", "metrics") if name not in content]
    if missing:
        raise ValueError(f"no OpenEvolve program: it has no {', '.join(missing)}")
    native_id, code, metrics, parent_id = content["id"], content["code"], content["metrics"], content.get("parent_id")
    if not isinstance(native_id, str) or not isinstance(code, str) or not isinstance(metrics, dict):
        raise ValueError("no OpenEvolve program: id and code must be texts, metrics an object")
    if not (parent_id is None or isinstance(parent_id, str)):
        raise ValueError(f"parent_id is {parent_id!r}, and must be a text or null")
    if parent_id == native_id:
        raise ValueError(f"program {native_id} names itself as its parent")
    iteration = content.get("iteration_found")
    same = [content.get(name) for name in ("id", "code", "parent_id", "metrics", "timestamp", "prompts")]
    return ProgramHead(
        native_id=native_id,
        parent_id=parent_id,
        order=LogOrder(
            as_finite(content.get("timestamp")), iteration if isinstance(iteration, int) else None, native_id
        ),
        code_digest=sha256_text(code),
        metric_names=tuple(sorted(metrics)),
        content_digest=sha256_text(canonical_json(json_safe(same))),
        num_turns=len(chat_turns(content)[0]),
        file=file,
    )


def _checkpoint_order(file: LogFile) -> tuple[int, str]:
    """Checkpoints by their number; a name without one comes first."""
    for part in reversed(file.path.parts[:-1]):
        digits = part.rpartition("_")[2]
        if part.startswith("checkpoint_") and digits.isdigit():
            return int(digits), file.name
    return -1, file.name

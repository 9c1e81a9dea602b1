"""Finds the logs under what a person named, and which reader takes each.

Files that belong together (all checkpoints of one OpenEvolve run) are one log; every other file is a log by itself.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from store.errors import BadInput, NoLogFound, UnknownName
from transforms.logs import aide, native, openevolve
from transforms.records import LogFile
from transforms.scoring import plain_text

FORMATS = (native.FORMAT, openevolve.FORMAT, aide.FORMAT)
UNKNOWN = "unknown"  # the format of a named file that no reader takes
BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class FoundFile:
    """A file on disk: its path, its path relative to what was named, and whether it was named itself."""

    path: Path
    name: str
    is_named: bool


@dataclass(frozen=True)
class Log:
    """Files that one reader reads together. `is_named`: the person named this very file."""

    format: str
    key: str
    files: tuple[FoundFile, ...]
    is_named: bool


@dataclass(frozen=True)
class Found:
    """The logs under the named paths, and the files that are no logs."""

    logs: tuple[Log, ...]
    skipped: tuple[FoundFile, ...]


def find_logs(paths: Sequence[Path], *, log_format: str = "auto", leave_out: Path | None = None) -> Found:
    """Walk the named files and folders and sort what is there into logs.

    Args:
        paths: What the person named.
        log_format: One of FORMATS, to read only that one, or `auto`.
        leave_out: A folder that holds no logs (the home itself).

    Raises:
        UnknownName: No reader has this format.
        BadInput: A path does not exist or cannot be opened.
        NoLogFound: A named folder holds no log.
    """
    if log_format not in ("auto", *FORMATS):
        raise UnknownName(f"no log format {log_format!r}; there are auto, {', '.join(FORMATS)}.")
    logs: dict[tuple[str, str], list[FoundFile]] = {}
    skipped: list[FoundFile] = []
    seen: set[Path] = set()
    for path in paths:
        before = len(logs)
        for file in _files_under(path, leave_out):
            real = file.path.resolve()
            if real in seen:
                continue
            seen.add(real)
            taken = _format_of(file, log_format)
            if taken is None:
                skipped.append(file)
                continue
            key = openevolve.run_folder(file.path) if taken == openevolve.FORMAT else real
            logs.setdefault((taken, str(key)), []).append(file)
        if path.is_dir() and len(logs) == before and not _holds_known(path, logs):
            wanted = "a log" if log_format == "auto" else f"a log of format {log_format}"
            raise NoLogFound(
                f"folder {path} holds no file that is {wanted}; readers take {', '.join(FORMATS)} "
                "(native logs are *.jsonl files, see docs/native_format.md)."
            )
    return Found(
        tuple(
            Log(taken, key, tuple(files), is_named=any(file.is_named for file in files))
            for (taken, key), files in logs.items()
        ),
        tuple(skipped),
    )


def hash_file(file: FoundFile, sizes: Iterable[int] = ()) -> tuple[LogFile, dict[int, str]]:
    """The file with the SHA-256 of its bytes, and the SHA-256 of its first n bytes for each of `sizes`.

    Raises:
        OSError: The file cannot be read.
    """
    whole = hashlib.sha256()
    marks = sorted(set(sizes))
    digests: dict[int, str] = {}
    at = 0
    with file.path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            while marks and marks[0] <= at + len(block):
                upto = marks.pop(0)
                part = whole.copy()
                part.update(block[: upto - at])
                digests[upto] = part.hexdigest()
            whole.update(block)
            at += len(block)
    return LogFile(file.path, file.name, whole.hexdigest(), at), digests


def _files_under(path: Path, leave_out: Path | None) -> Iterator[FoundFile]:
    """The file itself, or what is in the folder; hidden files and folders (half-copied, mostly) do not count."""
    if not path.exists():
        raise BadInput(f"path {path} does not exist; name a log file or a folder of logs.")
    if not path.is_dir():
        if not path.is_file():
            raise BadInput(f"path {path} is neither a file nor a folder; name a log file or a folder of logs.")
        yield FoundFile(path, plain_text(path.name), is_named=True)
        return
    if not os.access(path, os.R_OK | os.X_OK):
        raise BadInput(f"folder {path} cannot be opened (permission denied); name one that can.")
    hidden = leave_out.resolve() if leave_out is not None else None
    for folder, folders, names in os.walk(path):
        seen = (name for name in folders if not name.startswith("."))
        folders[:] = sorted(name for name in seen if (Path(folder) / name).resolve() != hidden)
        for name in sorted(names):
            file = Path(folder) / name
            if file.is_file() and not name.startswith("."):
                yield FoundFile(file, plain_text(file.relative_to(path).as_posix()), is_named=False)


def _holds_known(path: Path, logs: dict[tuple[str, str], list[FoundFile]]) -> bool:
    """Whether a log that was already found under another name lies in this folder."""
    root = path.resolve()
    return any(file.path.resolve().is_relative_to(root) for files in logs.values() for file in files)


def _format_of(file: FoundFile, log_format: str) -> str | None:
    """The reader of a file; None: it is skipped. A named file always has one, if only to be quarantined."""
    by_name = log_format if log_format != "auto" and file.is_named else _guess(file)
    if by_name is None:
        return UNKNOWN if file.is_named else None
    return by_name if log_format in ("auto", by_name) else None


def _guess(file: FoundFile) -> str | None:
    if openevolve.takes(file.path):
        return openevolve.FORMAT
    if aide.takes(file.path):
        return aide.FORMAT
    if file.path.suffix in native.SUFFIXES:
        return native.FORMAT if native.takes(_head(file.path)) else None
    if file.is_named:
        return _guess_by_content(file.path)
    return None


def _guess_by_content(path: Path) -> str | None:
    """The reader of a named file that lies outside its usual place or has another name."""
    if native.has_our_line(_head(path)):
        return native.FORMAT
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    if aide.is_journal(content):
        return aide.FORMAT
    return openevolve.FORMAT if openevolve.is_program(content) else None


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(native.HEAD_BYTES)
    except OSError:
        return b""

"""What the beginning of a native file tells: whether it is one, which run it belongs to, where it begins."""

import re
from pathlib import Path
from typing import Any

from store.ids import canonical_json, sha256_text
from transforms.logs.native_lines import NotALine, split_objects
from transforms.scoring import text_safe

SUFFIXES = (".jsonl", ".ndjson")
HEAD_BYTES = 64 * 1024  # what detection reads of a file
OUR_KEYS = {"run": "run", "task": "task", "session": "session", "node": "session", "message": "node", "change": "field"}
OUR_TYPE = re.compile(rb'"type"\s*:\s*"(run|task|session|node|message|change|tag)"')


def takes(head: bytes) -> bool:
    """Whether a JSON lines file is ours, from its first bytes.

    It is where a line of it is one of ours, and where no line is JSON at all (then it is broken, and ours to refuse).
    """
    values = _values_in(head)
    return has_our_line(head) or (not values and len(head) < HEAD_BYTES)


def has_our_line(head: bytes) -> bool:
    """Whether a line among the first bytes of a file is one of ours; one too long to end there counts by its type."""
    values = _values_in(head)
    if not values:
        return OUR_TYPE.search(head) is not None
    return any(isinstance(value, dict) and OUR_KEYS.get(str(value.get("type")), "?") in value for value in values)


def _values_in(head: bytes) -> list[Any]:
    values: list[Any] = []
    for line in head.decode("utf-8", "replace").splitlines():
        try:
            values += [value for value, _ in split_objects(line)]
        except NotALine:
            continue
    return values


class Head:
    """What the first lines of a file tell: its run, whether it names that run, and its first record."""

    def __init__(self) -> None:
        self.run = ""
        self.is_named = False
        self.first_record = ""


def first_lines(path: Path) -> Head:
    """The run of a file and its first record, from as few lines as possible."""
    head = Head()
    first_session = ""
    with path.open("rb") as stream:
        for raw in stream:
            try:
                values = [value for value, _ in split_objects(raw.decode("utf-8-sig"))]
            except (NotALine, UnicodeDecodeError):
                continue
            for value in values:
                if not isinstance(value, dict):
                    continue
                digest = sha256_text(canonical_json(text_safe({str(key): repr(item) for key, item in value.items()})))
                if value.get("type") == "run" and isinstance(value.get("run"), str) and not head.run:
                    head.run, head.is_named = value["run"], True
                    continue
                head.first_record = head.first_record or digest
                if value.get("type") == "session":
                    first_session = first_session or digest
            if head.first_record and (head.is_named or first_session):
                break
    head.run = head.run or first_session or head.first_record
    return head

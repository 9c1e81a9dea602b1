"""Reading the named places of a source, asking for edits, and applying the answer to the text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from kernel_search.grammar import FORM, OFFERS, PLACES, Place
from kernel_search.tasks import SEEDS
from store.errors import UnknownName

MOST_LINES = 2  # an answer changes one or two things, so that what it changed can be told apart
ANSWER_LINE = re.compile(r"([a-z][a-z0-9_]*) ([a-z0-9_]+)")
FORM_FILES = {
    "softmax": {"three": "softmax.py", "two": "forms/softmax_two.py", "one": "forms/softmax_one.py"},
    "rms_norm": {"two": "rms_norm.py", "one": "forms/rms_norm_one.py"},
}


class NamedTask(Protocol):
    """The part of a kernel task that prompts need."""

    @property
    def name(self) -> str:
        """Name of the task, such as `softmax`."""

    @property
    def head(self) -> str:
        """First line of its prompts."""


@dataclass(frozen=True)
class Edit:
    """Put `value` at the place called `name`."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} {self.value}"


@dataclass(frozen=True)
class Applied:
    """What an answer made of a source: the new text, or why there is none.

    `failure_class` is `unparsable` (no edits could be read), `inapplicable` (an edit matches no place, several, or
    has a value the place cannot spell) or `no_op` (the text came out as it was); `edits` are those that were read.
    """

    source: str | None
    failure_class: str | None
    edits: tuple[Edit, ...] = ()
    detail: str = ""


def names_of(task_name: str) -> tuple[str, ...]:
    """The places of one task, in the order in which prompts list them.

    Raises:
        UnknownName: The grammar has no such task.
    """
    if task_name not in OFFERS:
        raise UnknownName(f"no named edits for task {task_name!r}; there are some for {', '.join(OFFERS)}.")
    return tuple(OFFERS[task_name])


def edit_points(source: str, task: NamedTask) -> dict[str, str]:
    """Name to value of every place of the task that this text has exactly once, in prompt order."""
    readers = {
        name: _read_form(source) if name == FORM else _read(source, PLACES[name]) for name in names_of(task.name)
    }
    return {name: value for name, value in readers.items() if value is not None}


def render_prompt(task: NamedTask, source: str) -> list[dict[str, Any]]:
    """The turns a proposer sees: one user turn with the task's head and a line for every edit point."""
    lines = [task.head, *(f"{name} {value}" for name, value in edit_points(source, task).items())]
    return [{"role": "user", "content": "\n".join(lines)}]


def parse_answer(answer: str) -> tuple[Edit, ...] | None:
    """The edits of an answer: one or two lines `name value`, no name twice; None where it is anything else."""
    lines = answer.strip().split("\n")
    found = [ANSWER_LINE.fullmatch(line.rstrip()) for line in lines]
    edits = tuple(Edit(*match.groups()) for match in found if match)
    if len(edits) != len(lines) or len(edits) > MOST_LINES or len({edit.name for edit in edits}) != len(edits):
        return None
    return edits


def apply_edits(source: str, answer: str) -> Applied:
    """Apply an answer to a source, edit after edit."""
    edits = parse_answer(answer)
    if edits is None:
        return Applied(None, "unparsable", detail=f"not one or two lines `name value`: {answer[:200]!r}")
    text = source
    for edit in edits:
        changed = _rewrite_form(text, edit.value) if edit.name == FORM else _put(text, edit.name, edit.value)
        if changed is None:
            return Applied(None, "inapplicable", edits, f"`{edit}` does not fit exactly one place of this source")
        text = changed
    if text == source:
        return Applied(None, "no_op", edits, "the edits leave the source as it is")
    return Applied(text, None, edits)


def _read(source: str, place: Place) -> str | None:
    found = list(place.pattern.finditer(source))
    return place.value_of(found[0]["text"]) if len(found) == 1 else None


def _put(source: str, name: str, value: str) -> str | None:
    place = PLACES.get(name)
    text = place.text_of(value) if place is not None else None
    if place is None or text is None:
        return None
    found = list(place.pattern.finditer(source))
    if len(found) != 1:
        return None
    start, end = found[0].span("text")
    return source[:start] + text + source[end:]


@cache
def _form_texts() -> dict[str, dict[str, str]]:
    return {
        task_name: {form: (SEEDS / file).read_text(encoding="utf-8") for form, file in files.items()}
        for task_name, files in FORM_FILES.items()
    }


def _carried_over(source: str, template: str, names: Sequence[str]) -> str:
    """The template with every value that the source shows."""
    for name in names:
        value = None if name == FORM else _read(source, PLACES[name])
        if value is not None:
            template = _put(template, name, value) or template
    return template


def _find_form(source: str) -> tuple[str, str] | None:
    """Task and form of a source that is one of the known forms up to its named values, else None.

    Text that the grammar did not write would be lost in a rewrite, so a source with any of it has no form.
    """
    for task_name, texts in _form_texts().items():
        for form, template in texts.items():
            if _carried_over(source, template, names_of(task_name)) == source:
                return task_name, form
    return None


def _read_form(source: str) -> str | None:
    found = _find_form(source)
    return found[1] if found else None


def _rewrite_form(source: str, form: str) -> str | None:
    found = _find_form(source)
    if found is None or form not in _form_texts()[found[0]]:
        return None
    return _carried_over(source, _form_texts()[found[0]][form], names_of(found[0]))

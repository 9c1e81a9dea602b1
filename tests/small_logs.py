"""Small exploration logs, written by hand, for the tests of ingest: every number can be checked on paper."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store.delta import Tables
from store.home import Home
from store.schema import TABLES

Json = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def uuid_of(letter: str) -> str:
    """A program id as OpenEvolve makes them."""
    return f"{letter * 8}-{letter * 4}-4{letter * 3}-8{letter * 3}-{letter * 12}"


def program(name: str, *, parent: str | None = None, seconds: float, code: str | None = None, **more: Any) -> Json:
    """An OpenEvolve program: an attempt with a prompt, unless `more` says otherwise."""
    content: Json = {
        "id": name,
        "code": code if code is not None else f"print({name[0]!r})",
        "language": "python",
        "parent_id": parent,
        "generation": 0 if parent is None else 1,
        "timestamp": seconds,
        "iteration_found": int(seconds),
        "metrics": {"combined_score": seconds / 100},
        "complexity": 10.0,
        "diversity": 0.0,
        "metadata": {"island": 0},
        "prompts": None,
    }
    if parent is not None:
        content["metadata"] = {"island": 0, "changes": "a change", "parent_metrics": {}}
        content["prompts"] = {
            "diff_user": {
                "system": "You improve programs.",
                "user": f"Improve {parent[0]}.",
                "responses": [f"to {name[0]}"],
            }
        }
    return content | more


def write_checkpoint(folder: Path, number: int, programs: list[Json], metadata: Json | None = None) -> Path:
    """Write one checkpoint into a run folder."""
    checkpoint = folder / f"checkpoint_{number}"
    (checkpoint / "programs").mkdir(parents=True, exist_ok=True)
    islands = {"islands": [[content["id"] for content in programs]], "last_iteration": number}
    (checkpoint / "metadata.json").write_text(json.dumps(metadata or islands))
    for content in programs:
        (checkpoint / "programs" / f"{content['id']}.json").write_text(json.dumps(content))
    return checkpoint


def journal_node(
    letter: str, step: int, *, value: float | None = None, maximize: bool | None = None, **more: Any
) -> Json:
    """An AIDE node; without a value it is buggy."""
    return {
        "id": letter * 32,
        "step": step,
        "ctime": 1000.0 + step,
        "code": f"solution_{letter}()",
        "plan": f"Plan {letter}.",
        "parent": None,
        "children": [],
        "_term_out": ["ran ", letter],
        "exec_time": 1.5,
        "exc_type": None,
        "exc_info": None,
        "exc_stack": None,
        "analysis": "ok",
        "metric": {"value": value, "maximize": maximize},
        "is_buggy": value is None,
    } | more


def write_journal(folder: Path, nodes: list[Json], parents: dict[str, str] | None = None) -> Path:
    """Write a journal; `parents` maps a child's letter to its parent's."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = {child * 32: parent * 32 for child, parent in (parents or {}).items()}
    path = folder / "journal.json"
    path.write_text(json.dumps({"nodes": nodes, "node2parent": edges, "__version": "2"}))
    return path


def write_lines(path: Path, *lines: Json | str, mode: str = "w") -> Path:
    """Write a native log; a text goes in as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8", newline="") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")
    return path


def start_of_run(run: str = "run-1", *, direction: str = "max", **task: Any) -> list[Json]:
    """The first lines of a native log with one session `s`."""
    return [
        {"type": "run", "run": run},
        {"type": "task", "task": "t", "metric": "points", "direction": direction, **task},
        {"type": "session", "session": "s", "task": "t"},
    ]


def node(name: str, parent: str | None = None, metric: Any = 1.0, **more: Any) -> Json:
    """A node line of session `s`."""
    line = {"type": "node", "session": "s", "node": name, "artifact": f"artifact {name}", "metric": metric}
    return line | ({} if parent is None else {"parent": parent}) | more


def rows(home: Home, name: str) -> list[Json]:
    """All rows of a table."""
    return Tables(home).read(name).to_pylist()


def versions(home: Home) -> dict[str, int | None]:
    """The Delta version of every table: what must not move when nothing changed."""
    return {name: Tables(home).version(name) for name in TABLES}


def contents(home: Home) -> dict[str, list[str]]:
    """Every row of every table as sorted text, to compare two homes."""
    return {name: sorted(repr(sorted(row.items())) for row in rows(home, name)) for name in TABLES}


def by_artifact(home: Home) -> dict[str, Json]:
    """Nodes by the last word of their artifact, which the small logs use as a name."""
    return {row["artifact"].split()[-1]: row for row in rows(home, "nodes")}

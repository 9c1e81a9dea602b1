"""What a view is: its SQL file, the header that says how it is maintained, and its digest.

A file starts with comment lines: `-- name: what it holds`, then `-- key: values` for kind, grain,
maintained by, inputs and parameters. Three kinds: `staging` is computed within each refresh and kept
nowhere; `relation` and `view` are Delta tables. Inputs name base tables, other definitions, or the two
relations that the engine makes: `long_artifacts` (texts kept as files) and `pair_margins` (from conf/).
"""

import re
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from store.errors import UnknownName, WrongUse
from store.ids import canonical_json, sha256_text
from store.schema import TABLES
from views.macros import MACROS
from views.registry import SCHEMAS, view_schema
from views.settings import ViewSettings

SQL_FOLDER = Path(__file__).parent / "sql"
MADE_BY_ENGINE = ("long_artifacts", "pair_margins")
# Maintained over the edges, not by SQL; with what each reads.
WALKED: dict[str, tuple[str, ...]] = {
    "crossing_edges": ("node_edges", "nodes", "sessions"),
    "node_tags": ("crossing_edges", "node_edges", "nodes", "sessions", "tag_assignments"),
    "node_reach": ("crossing_edges", "node_edges", "node_tags", "nodes", "retractions", "sessions"),
}
WALK_REVISION = 1  # part of their digest: raise it when the walk's meaning changes
NEEDED_BY_LONG_ARTIFACTS = {"nodes": ("artifact", "artifact_digest")}


@dataclass(frozen=True)
class Definition:
    """One parsed SQL file; `text` is the select without its comment lines."""

    name: str
    about: str
    kind: str
    grain: tuple[str, ...]
    maintained_by: str | None
    inputs: tuple[str, ...]
    parameters: tuple[str, ...]
    text: str


@cache
def load_definition(name: str) -> Definition:
    """Parse the SQL file of a view, maintained relation or staging relation.

    Raises:
        UnknownName: There is no such file.
        WrongUse: Its header lacks something, or names another view.
    """
    path = SQL_FOLDER / f"{name}.sql"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in SQL_FOLDER.glob("*.sql")))
        raise UnknownName(f"no SQL file for {name!r}; there are {known}.")
    lines = [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()]
    header = dict(_header_entry(line, path) for line in takewhile(lambda line: line.startswith("--"), lines))
    statements = [line for line in lines if not line.startswith("--")]
    if name not in header or "kind" not in header or "grain" not in header:
        raise WrongUse(f"{path.name} must begin with `-- {name}: …`, `-- kind: …` and `-- grain: …`.")
    return Definition(
        name=name,
        about=header[name],
        kind=header["kind"],
        grain=_names(header["grain"]),
        maintained_by=header.get("maintained by"),
        inputs=_names(header.get("inputs", "")),
        parameters=_names(header.get("parameters", "")),
        text="\n".join(statements).strip(),
    )


def _header_entry(comment: str, path: Path) -> tuple[str, str]:
    key, _, value = comment.removeprefix("--").partition(":")
    if not value.strip():
        raise WrongUse(f"{path.name} has the header line {comment!r} without a value.")
    return key.strip(), value.strip()


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def is_staging(name: str) -> bool:
    """Whether a relation is computed within each refresh and kept nowhere."""
    return (SQL_FOLDER / f"{name}.sql").is_file() and load_definition(name).kind == "staging"


@cache
def staging_order(name: str) -> tuple[str, ...]:
    """Staging relations that a view needs, each after its own inputs."""
    ordered: list[str] = []
    for source in load_definition(name).inputs:
        if is_staging(source):
            ordered += [*staging_order(source), source]
    return tuple(dict.fromkeys(ordered))


@cache
def table_inputs(name: str) -> tuple[str, ...]:
    """Delta tables that a maintained relation or view reads, through its staging relations too; sorted.

    What is kept per session reads `crossing_edges` besides, which says what of other sessions belongs to one.
    """
    if name in WALKED:
        return WALKED[name]
    sources = {source for part in (name, *staging_order(name)) for source in load_definition(part).inputs}
    if load_definition(name).maintained_by == "session_seq":
        sources.add("crossing_edges")
    return tuple(sorted(source for source in sources if not is_staging(source) and source not in MADE_BY_ENGINE))


@cache
def reads_artifacts(name: str) -> bool:
    """Whether a view reads texts that are kept as files."""
    parts = () if name in WALKED else (name, *staging_order(name))
    return any("long_artifacts" in load_definition(part).inputs for part in parts)


@cache
def columns_read(name: str, table: str) -> frozenset[str]:
    """Columns of an input that a view's SQL can mean: those whose name stands in it, and not only as a new one."""
    parts = [load_definition(part) for part in (name, *staging_order(name))]
    words = set(re.findall(r"\w+", re.sub(r"\bas\s+\w+", "", " ".join(part.text for part in parts))))
    schema = view_schema(table) if table in SCHEMAS else TABLES[table]
    found = set(schema.columns.names) & words
    if reads_artifacts(name):
        found |= set(NEEDED_BY_LONG_ARTIFACTS.get(table, ()))
    return frozenset(found)


def used_parameters(name: str, settings: ViewSettings) -> dict[str, object]:
    """Settings that shape a view's rows, by name; `pair_margins` where the view reads that relation."""
    if name in WALKED:
        return {"tags_that_stay": sorted(settings.tags_that_stay)} if name == "node_tags" else {}
    parts = [load_definition(part) for part in (name, *staging_order(name))]
    names = {parameter for part in parts for parameter in part.parameters} - {"view_digest"}
    if any("pair_margins" in part.inputs for part in parts):
        names.add("pair_margins")
    return {parameter: settings.parameter(parameter) for parameter in sorted(names)}


def view_digest(name: str, settings: ViewSettings) -> str:
    """SHA-256 of all that defines a view: its and its stages' SQL, the macros, its columns, its parameters."""
    columns = [[field.name, str(field.type)] for field in view_schema(name).columns]
    body: object = WALK_REVISION
    if name not in WALKED:
        body = [MACROS, {part: load_definition(part).text for part in (name, *staging_order(name))}]
    return sha256_text(canonical_json([name, columns, body, used_parameters(name, settings)]))

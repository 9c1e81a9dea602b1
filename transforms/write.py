"""Commits of an ingest: each one optimistic, equal rows never rewritten, the ledger's watermarks never dropped."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from store.commits import OF_ONE_COMMIT
from store.delta import CHANGE, Commit, LostRace, Tables, plan_again_until_committed
from store.duckdb_connection import short_connection
from transforms.rows import to_arrow
from transforms.structure import Row

WRITE_ORDER = (
    "tag_assignments",
    "prompt_history",
    "change_log",
    "node_edges",
    "tasks",
    "sessions",
    "nodes",
    "quarantine",
    "sources",
)
Progress = Callable[[str], None]
WATERMARKS = "ledger"  # key of userMetadata: ledger_id to the last feed_seq that the table holds


def kept_metadata(tables: Tables, name: str) -> dict[str, Any]:
    """What the next commit must repeat of the latest one's userMetadata."""
    return {key: value for key, value in tables.metadata(name).items() if key not in OF_ONE_COMMIT}


def commit_difference(
    tables: Tables,
    name: str,
    rows: list[Row],
    *,
    planned_at: int | None = None,
    metadata: dict[str, Any] | None = None,
    insert_only: bool = False,
    empty_too: bool = False,
) -> Commit | None:
    """Bring a table to hold these rows, in one commit; None where it held them already.

    Rows of other keys stay.

    Args:
        tables: All tables.
        name: The table.
        rows: Rows with its columns; no key twice.
        planned_at: The version that the rows were computed from. Without it the difference is planned again until
            it lands; with it a lost race is the caller's.
        metadata: Added to the userMetadata that the table carries on.
        insert_only: A key that is there keeps its row, whatever it holds; only keys are read.
        empty_too: Commit the metadata even where no row changes.

    Raises:
        LostRace: The table moved since `planned_at`.
    """
    if not rows and not empty_too:
        return None
    tables.create(name)
    arrow = to_arrow(name, rows)

    def attempt(version: int | None = planned_at) -> Commit | None:
        at = tables.version(name) if version is None else version
        assert at is not None
        plan = _missing if insert_only else _difference
        changes = plan(tables, name, arrow, at)
        if changes.num_rows == 0 and not empty_too:
            return None
        kept = kept_metadata(tables, name)
        return tables.commit_rows(name, changes, planned_at=at, metadata=_merged(kept, metadata))

    return attempt() if planned_at is not None else plan_again_until_committed(attempt)


def replace_changes(tables: Tables, rows: list[Row], session_seqs: set[int]) -> Commit | None:
    """Bring the change log of whole sessions to exactly these rows; recorded rows are never deleted."""
    if not rows:
        return None
    tables.create("change_log")
    arrow = to_arrow("change_log", rows)

    def attempt() -> Commit | None:
        version = tables.version("change_log")
        assert version is not None
        changes = pa.concat_tables(
            [tables.difference("change_log", arrow, version=version), _outdated(tables, arrow, session_seqs, version)]
        )
        if changes.num_rows == 0:
            return None
        metadata = kept_metadata(tables, "change_log")
        return tables.commit_rows("change_log", changes, planned_at=version, metadata=metadata)

    return plan_again_until_committed(attempt)


def add_commit(added: Counter[str], name: str, commit: Commit | None) -> None:
    """Count the rows a commit inserted."""
    if commit is not None:
        added[name] += commit.inserted


def register_sessions(
    tables: Tables, rows: list[Row], *, metadata: dict[str, Any] | None = None
) -> tuple[dict[str, Row], Commit | None]:
    """Give each session its cluster key, once and for all, under the optimistic commit of `sessions`.

    Args:
        tables: All tables.
        rows: Session rows less session_seq.
        metadata: Added to the userMetadata where all of them are new, so that this commit holds every one of them.

    Returns:
        (session_id to its stored row, the commit that added new ones). A known session keeps its row.
    """
    tables.create("sessions")
    wanted = {row["session_id"]: row for row in rows}

    def attempt() -> tuple[dict[str, Row], Commit | None]:
        version = tables.version("sessions")
        assert version is not None
        everything = tables.read("sessions", version=version)
        stored = everything.filter(pc.is_in(everything["session_id"], value_set=pa.array(list(wanted), pa.string())))
        known = {row["session_id"]: row for row in stored.to_pylist()}
        last = pc.max(everything["session_seq"]).as_py() or 0
        new = [wanted[session_id] for session_id in wanted if session_id not in known]
        numbered = [row | {"session_seq": last + 1 + place} for place, row in enumerate(new)]
        commit = None
        if numbered:
            inserts = to_arrow("sessions", numbered).append_column(CHANGE, pa.array(["insert"] * len(numbered)))
            kept = kept_metadata(tables, "sessions")
            stated = _merged(kept, metadata if len(new) == len(wanted) else None)
            commit = tables.commit_rows("sessions", inserts, planned_at=version, metadata=stated)
        return known | {row["session_id"]: row for row in numbered}, commit

    return plan_again_until_committed(attempt)


def _difference(tables: Tables, name: str, rows: pa.Table, version: int) -> pa.Table:
    return tables.difference(name, rows, version=version)


def _missing(tables: Tables, name: str, rows: pa.Table, version: int) -> pa.Table:
    """The rows whose key the table does not have; reads nothing but keys."""
    schema = tables.schema(name)
    seqs = set(rows["session_seq"].to_pylist()) if "session_seq" in schema.columns.names else None
    there = tables.read(name, version=version, columns=schema.key, session_seqs=seqs)
    same_key = " and ".join(f'there."{column}" is not distinct from rows."{column}"' for column in schema.key)
    with short_connection() as connection:
        connection.register("rows", rows)
        connection.register("there", there)
        missing = connection.sql(
            f"select rows.*, 'insert' as {CHANGE} from rows where not exists (select 1 from there where {same_key})"
        ).to_arrow_table()
    return missing.cast(pa.schema([*schema.columns, pa.field(CHANGE, pa.string())]))


def _outdated(tables: Tables, rows: pa.Table, session_seqs: set[int], version: int) -> pa.Table:
    """Replayed rows of these sessions that are no longer what a replay gives, as deletes."""
    schema = tables.schema("change_log")
    there = tables.read("change_log", version=version, session_seqs=session_seqs)
    same_key = " and ".join(f'there."{column}" is not distinct from rows."{column}"' for column in schema.key)
    with short_connection() as connection:
        connection.register("rows", rows)
        connection.register("there", there)
        gone = connection.sql(
            f"select there.*, 'delete' as {CHANGE} from there where origin = 'replayed' "
            f"and not exists (select 1 from rows where {same_key})"
        ).to_arrow_table()
    return gone.cast(pa.schema([*schema.columns, pa.field(CHANGE, pa.string())]))


def _merged(kept: dict[str, Any], metadata: dict[str, Any] | None) -> dict[str, Any]:
    """The carried metadata with new watermarks; another ledger's watermark stays."""
    added = metadata or {}
    watermarks = {**kept.get(WATERMARKS, {}), **added.get(WATERMARKS, {})}
    return {**kept, **added, **({WATERMARKS: watermarks} if watermarks else {})}


__all__ = [
    "WATERMARKS",
    "WRITE_ORDER",
    "LostRace",
    "add_commit",
    "commit_difference",
    "kept_metadata",
    "register_sessions",
    "replace_changes",
]

"""Maintained = recomputed: brings maintained relations and views up to one vector of input versions.

Each view is one commit: inserts, updates and deletes together, with the watermark, the view's digest, the
mode and its reason in `userMetadata`, and the transaction ('espalier.refresh', n). A refresh that loses a
race plans everything again from newly pinned versions; what is committed already is then found unchanged.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from store.delta import Commit, Tables, plan_again_until_committed
from store.errors import RefusedInFull, UnknownName
from store.home import Home
from views.crossing import CrossingWalk, linked_sessions
from views.definition import WALKED, reads_artifacts, table_inputs
from views.difference import difference, joined, lost_rows, old_columns
from views.engine import Engine, Scope
from views.moved_bars import paths_to
from views.planner import Plan, Planner
from views.portions import portions, portions_of
from views.reach_walk import ReachWalk
from views.registry import VIEW_ORDER, declare_views, view_schema
from views.settings import read_view_settings
from views.tag_walk import TagWalk

if TYPE_CHECKING:
    from views.spark_engine import SparkEngine

APPLICATION = "espalier.refresh"
EngineName = Literal["duckdb", "spark"]
PINNED_FIRST = ("nodes",)
LISTED_ARTIFACTS = 100  # of the missing ones that a commit lists: who puts one file back puts them all back
Progress = Callable[[str], None]


class Walk(Protocol):
    """What computes a relation over the edges: all rows, or those that changes concern with a select of the old."""

    def all_rows(self) -> pa.Table: ...  # noqa: D102
    def changed_rows(self, changes: Any, /) -> tuple[pa.Table, str]: ...  # noqa: D102


@dataclass(frozen=True)
class RefreshResult:
    """What a refresh did to one view; `version` and `rows` are the view's afterwards."""

    mode: str  # full | incremental | none
    reason: str
    inserted: int
    updated: int
    deleted: int
    rows: int
    version: int
    seconds: float


def with_inputs(names: Iterable[str] | None) -> list[str]:
    """The views named and every maintained relation they stand on, each after its inputs; None names all.

    Raises:
        UnknownName: There is no such view.
    """
    if names is None:
        return list(VIEW_ORDER)
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in VIEW_ORDER:
            raise UnknownName(f"no view {name!r} to refresh; there are {', '.join(VIEW_ORDER)}.")
        wanted.add(name)
        pending += [source for source in table_inputs(name) if source in VIEW_ORDER and source not in wanted]
    return [name for name in VIEW_ORDER if name in wanted]


def pin_versions(tables: Tables, names: Iterable[str]) -> dict[str, int | None]:
    """The latest version of every table that these views read, and of the views; None where not created.

    Nodes are pinned first, since an ingest writes them last: what belongs to a pinned node is then pinned too.
    """
    wanted = sorted({source for name in names for source in (name, *table_inputs(name))})
    return {name: tables.version(name) for name in sorted(wanted, key=PINNED_FIRST.__contains__, reverse=True)}


def refresh(
    home: Home,
    names: Iterable[str] | None = None,
    *,
    full: bool = False,
    strict: bool = False,
    by_feeds: bool = False,
    engine: EngineName = "duckdb",
    progress: Progress | None = None,
) -> dict[str, RefreshResult]:
    """Bring views, and all they stand on, up to the tables as they are now.

    Args:
        home: Whose tables.
        names: Views to refresh; None is all. What they read is always refreshed first, so that a retraction
            takes effect before any view is read.
        full: Compute the named views from all rows; equal rows are still not rewritten.
        strict: Refuse to compute a view in full that was built before, unless `full` asks for it.
        by_feeds: Follow the feeds wherever they can be read, even if everything were cheaper; for measurements.
        engine: Who computes and commits what is SQL; both give equal rows.
        progress: Called with one line before each view.

    Returns:
        View name to what was done, in order of dependency.

    Raises:
        UnknownName: There is no such view.
        BadSetting: conf/views.yaml cannot be used.
        SparkNotReady: Spark was asked for, and Java or its jars are missing.
        RefusedInFull: `strict` met a view that had to be computed in full; the views before it are refreshed.
        CommitConflict: Other refreshes kept winning.
    """
    named = None if names is None else list(names)
    order = with_inputs(named)
    results: dict[str, RefreshResult] = {}

    def attempt() -> dict[str, RefreshResult]:
        chain = Chain(Tables(home), order, engine)
        try:
            for name in order:
                if progress is not None:
                    progress(f"refresh {name}")
                is_full = full and (named is None or name in named) and not _was_full(results.get(name))
                result = chain.refresh(name, full=is_full, strict=strict, by_feeds=by_feeds)
                if name not in results or result.mode != "none":
                    results[name] = result
        finally:
            chain.close()
        return {name: results[name] for name in order}

    return plan_again_until_committed(attempt)


def _was_full(result: RefreshResult | None) -> bool:
    return result is not None and result.mode == "full"


class Chain:
    """One pass over views in order of dependency, on one vector of pinned input versions."""

    def __init__(self, tables: Tables, order: Iterable[str], engine: EngineName = "duckdb") -> None:
        self.tables = tables
        self.engine_name = engine
        self._spark: SparkEngine | None = None
        declare_views(self.tables)
        self.settings = read_view_settings()
        self.pins = pin_versions(self.tables, order)
        self.engine = Engine(self.tables, self.pins, self.settings)
        self.planner = Planner(self.tables, self.pins, self.settings, self.engine)

    def close(self) -> None:
        """Free the engines; the process's Spark stays."""
        self.engine.close()
        if self._spark is not None:
            self._spark.close()

    def refresh(self, name: str, *, full: bool = False, strict: bool = False, by_feeds: bool = False) -> RefreshResult:
        """Refresh one view whose inputs have been refreshed already.

        Raises:
            LostRace: Another refresh was first.
            RefusedInFull: `strict`, and it would be computed in full though it was built before.
        """
        started = time.perf_counter()
        self.engine.count_anew()
        plan = self.planner.plan(name, full=full, by_feeds=by_feeds)
        version = plan.state.version
        if strict and plan.mode == "full" and not full and plan.state.was_built:
            raise RefusedInFull(
                f"{name} would be computed in full: {plan.reason}; run `espalier refresh {name} --full`, or leave out "
                "--strict."
            )
        if plan.mode == "none":
            assert version is not None
            self.pins[name] = version
            commit = Commit(version)
        else:
            commit = self._commit(plan)
            self.pins[name] = commit.version
        return RefreshResult(
            mode=plan.mode,
            reason=plan.reason,
            inserted=commit.inserted,
            updated=commit.updated,
            deleted=commit.deleted,
            rows=self.tables.num_rows(name, version=commit.version),
            version=commit.version,
            seconds=round(time.perf_counter() - started, 3),
        )

    def _commit(self, plan: Plan) -> Commit:
        name, planned_at = plan.name, plan.state.version
        is_new = planned_at is None
        if planned_at is None:
            self.tables.create(name)
            planned_at = 0
        # A commit of somebody else's in between says nothing of ours, and Delta lets no transaction come twice.
        last = self.tables.last_transaction(name, APPLICATION) or 0
        number = max(int(plan.state.metadata.get("refresh", 0)), last) + 1
        metadata: dict[str, Any] = {
            "watermarks": plan.input_versions,
            "input_tables": self.planner.input_tables(plan.input_versions),
            "input_commits": self.planner.input_commits(plan.input_versions),
            "view_digest": plan.digest,
            "mode": plan.mode,
            "reason": plan.reason,
            "refresh": number,
            "engine": "duckdb" if name in WALKED else self.engine_name,
            "input_bytes": self._input_bytes(plan),
        }
        said: dict[str, Any] = {"metadata": metadata, "transaction": (APPLICATION, number)}
        if name in WALKED:
            changes = self._walked_changes(plan, planned_at)
        elif self.engine_name == "spark":
            return self._by_spark(plan, planned_at, **said)
        elif plan.mode == "incremental":
            changes = self._changes(plan, portions_of(self.engine, plan.scope), planned_at)
        else:
            scopes = list(portions(self.engine, name, None if is_new or plan.replaces_all else planned_at))
            if plan.replaces_all or (is_new and len(scopes) > 1):
                rows = self._computed(plan, scopes, metadata)
                return self.tables.replace_all(name, rows, planned_at=planned_at, **said)
            changes = self._changes(plan, scopes, planned_at)
        metadata |= self._said_of_reading(plan)
        return self.tables.commit_rows(name, changes, planned_at=planned_at, **said)

    def _by_spark(
        self, plan: Plan, planned_at: int, *, metadata: dict[str, Any], transaction: tuple[str, int]
    ) -> Commit:
        """Let Spark compute and commit; a session with a leaf that a moved bar concerns is as good as touched there."""
        from views.spark_engine import SparkEngine, Work, handed_over

        if self._spark is None:
            self._spark = SparkEngine(self.tables, self.pins, self.settings)
        scope = plan.scope
        if scope.session_seqs is not None:
            bars = plan.moved_bars
            linked = linked_sessions(self.engine, [*bars.lost.values(), *bars.gained.values()])
            scope = Scope(session_seqs=scope.session_seqs | linked)
        given = handed_over(self.engine, plan.name, scope)
        metadata |= self._said_of_reading(plan)
        work = Work(plan.name, plan.digest, planned_at, metadata, transaction, scope, plan.replaces_all, given)
        return self._spark.refresh(work)

    def _input_bytes(self, plan: Plan) -> int:
        """Bytes of all inputs, beside which a commit says how many were read."""
        pinned = {table: pin for table, pin in plan.input_versions.items() if pin is not None}
        return sum(self.tables.size_bytes(table, version=pin) for table, pin in pinned.items())

    def _said_of_reading(self, plan: Plan) -> dict[str, Any]:
        """What a commit says of what was read for it, once it was."""
        said: dict[str, Any] = {"files_read": len(self.engine.opened), "bytes_read": self.engine.bytes_read}
        before = plan.state.missing_artifacts if plan.mode == "incremental" else ()
        missing = self.engine.missing_artifacts.union(before) if reads_artifacts(plan.name) else ()
        if missing:
            said["missing_artifacts"] = sorted(missing)[:LISTED_ARTIFACTS]
        return said

    def _old_rows(self, name: str, scope: Scope, version: int) -> str:
        return self.engine.select_from(name, scope, version=version, columns=old_columns(name))

    def _computed(self, plan: Plan, scopes: Iterable[Scope], metadata: dict[str, Any]) -> Iterator[pa.Table]:
        """All rows, portion by portion; in the end `metadata` says what was read for them."""
        for scope in scopes:
            self.engine.compute(plan.name, scope, plan.digest)
            yield self.engine.arrow("select * from computed")
        metadata |= self._said_of_reading(plan)

    def _changes(self, plan: Plan, scopes: Iterable[Scope], planned_at: int) -> pa.Table:
        """Compute the scopes' rows, and single leaves that a bar's move concerns, and subtract what is there."""
        name = plan.name
        parts = [
            lost_rows(self.engine, name, version=planned_at, leaves=plan.moved_bars.lost),
            *self._gained(plan, planned_at),
        ]
        for scope in scopes:  # after the leaves, so that the next view finds these bound
            self.engine.compute(name, scope, plan.digest)
            parts.append(
                difference(self.engine, name, self._old_rows(name, self._placed(plan, scope, planned_at), planned_at))
            )
        return joined(self.engine, name, parts)

    def _placed(self, plan: Plan, scope: Scope, planned_at: int) -> Scope:
        """The scope that finds a view's old rows: for one that is sorted by tasks, with the tasks of its sessions.

        Those are what their nodes have or had at the watermark. Sessions that came later have no old rows.
        """
        watermarks, seqs = plan.state.watermarks, scope.session_seqs
        if view_schema(plan.name).sort[0] != "task_id" or plan.mode != "incremental" or not watermarks or not seqs:
            return scope
        ends = [
            file.bounds.get("session_seq")
            for file in self.tables.data_files(plan.name, version=planned_at, must_exist=False)
        ]
        if None in ends:
            return scope
        last = max((end[1] for end in ends if end), default=0)
        older = Scope(session_seqs=frozenset(seq for seq in seqs if seq <= last))
        moved = self.planner.feeds.rows("nodes", watermarks["nodes"])
        had = moved.filter(pc.less_equal(moved["session_seq"], last))["task_id"].to_pylist()
        have = self.engine.run(f"select distinct task_id from nodes where {older.condition()}")
        tasks = {*had, *(task_id for (task_id,) in have)}
        return older if None in tasks else replace(older, task_ids=frozenset(tasks))

    def _gained(self, plan: Plan, planned_at: int) -> Iterator[pa.Table]:
        """The rows of leaves that reach their bar now, from what their paths are made of."""
        gained = plan.moved_bars.gained
        sessions = Scope(session_seqs=frozenset(gained.values()))
        for scope in portions_of(self.engine, sessions) if gained else ():
            leaves = {leaf_id: seq for leaf_id, seq in gained.items() if seq in (scope.session_seqs or ())}
            paths = paths_to(self.engine, leaves)
            self.engine.compute(plan.name, paths, plan.digest)
            these = f"leaf_id in (select item from {self.engine.keep_texts('gained_leaves', leaves)})"
            self.engine.run(f"delete from computed where not ({these})")
            old_rows = self._old_rows(plan.name, Scope(session_seqs=paths.session_seqs), planned_at)
            yield difference(self.engine, plan.name, f"select * from ({old_rows}) where {these}")

    def _walked_changes(self, plan: Plan, planned_at: int) -> pa.Table:
        name, moved = plan.name, plan.moved
        walk = open_walk(self.engine, name)
        if moved is None:
            rows, old_rows = walk.all_rows(), self.engine.select_from(name, version=planned_at)
        else:
            rows, old_rows = walk.changed_rows(moved)
        self.engine.keep("computed", rows)
        return difference(self.engine, name, old_rows)


def open_walk(engine: Engine, name: str) -> Walk:
    """The walk that computes a relation over the edges."""
    walks: dict[str, Callable[[Engine], Walk]] = {
        "crossing_edges": CrossingWalk,
        "node_tags": TagWalk,
        "node_reach": ReachWalk,
    }
    return walks[name](engine)

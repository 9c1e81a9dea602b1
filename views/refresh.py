"""Maintained = recomputed: brings maintained relations and views up to one vector of input versions.

Each view is one commit: inserts, updates and deletes together, with the watermark, the view's digest, the
mode and its reason in `userMetadata`, and the transaction ('espalier.refresh', n). A refresh that loses a
race plans everything again from newly pinned versions; what is committed already is then found unchanged.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from store.delta import CHANGE, Commit, Tables, plan_again_until_committed
from store.errors import UnknownName
from store.home import Home
from views.definition import WALKED, table_inputs
from views.engine import Engine
from views.planner import Plan, Planner
from views.reach_walk import ReachChanges, ReachWalk
from views.registry import VIEW_ORDER, declare_views, view_schema
from views.settings import read_view_settings
from views.tag_walk import TagChanges, TagWalk

APPLICATION = "espalier.refresh"
PINNED_FIRST = ("nodes",)
Progress = Callable[[str], None]


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
    home: Home, names: Iterable[str] | None = None, *, full: bool = False, progress: Progress | None = None
) -> dict[str, RefreshResult]:
    """Bring views, and all they stand on, up to the tables as they are now.

    Args:
        home: Whose tables.
        names: Views to refresh; None is all. What they read is always refreshed first, so that a retraction
            takes effect before any view is read.
        full: Compute the named views from all rows; equal rows are still not rewritten.
        progress: Called with one line before each view.

    Returns:
        View name to what was done, in order of dependency.

    Raises:
        UnknownName: There is no such view.
        BadSetting: conf/views.yaml cannot be used.
        CommitConflict: Other refreshes kept winning.
    """
    named = None if names is None else list(names)
    order = with_inputs(named)
    results: dict[str, RefreshResult] = {}

    def attempt() -> dict[str, RefreshResult]:
        chain = Chain(Tables(home), order)
        try:
            for name in order:
                if progress is not None:
                    progress(f"refresh {name}")
                is_full = full and (named is None or name in named) and not _was_full(results.get(name))
                result = chain.refresh(name, full=is_full)
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

    def __init__(self, tables: Tables, order: Iterable[str]) -> None:
        self.tables = tables
        declare_views(self.tables)
        self.settings = read_view_settings()
        self.pins = pin_versions(self.tables, order)
        self.engine = Engine(self.tables, self.pins, self.settings)
        self.planner = Planner(self.tables, self.pins, self.settings, self.engine)

    def close(self) -> None:
        """Free the engine."""
        self.engine.close()

    def refresh(self, name: str, *, full: bool) -> RefreshResult:
        """Refresh one view whose inputs have been refreshed already.

        Raises:
            LostRace: Another refresh was first.
        """
        started = time.perf_counter()
        plan = self.planner.plan(name, full=full)
        version = plan.state.version
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
            rows=self.engine.run(f"select count(*) from {self.engine.scan(name)}")[0][0],
            version=commit.version,
            seconds=round(time.perf_counter() - started, 3),
        )

    def _commit(self, plan: Plan) -> Commit:
        name, planned_at = plan.name, plan.state.version
        if planned_at is None:
            self.tables.create(name)
            planned_at = 0
        number = int(plan.state.metadata.get("refresh", 0)) + 1
        metadata = {
            "watermarks": plan.input_versions,
            "view_digest": plan.digest,
            "mode": plan.mode,
            "reason": plan.reason,
            "refresh": number,
        }
        transaction = (APPLICATION, number)
        if plan.has_other_columns:
            rows = self._all_rows(plan)
            return self.tables.replace_all(
                name, rows, planned_at=planned_at, metadata=metadata, transaction=transaction
            )
        changes = self._changes(plan, planned_at)
        return self.tables.commit_rows(name, changes, planned_at=planned_at, metadata=metadata, transaction=transaction)

    def _all_rows(self, plan: Plan) -> pa.Table:
        if plan.name in WALKED:
            return self._walked(plan)[0]
        self.engine.compute(plan.name, plan.scope, plan.digest)
        return self.engine.arrow("select * from computed")

    def _changes(self, plan: Plan, planned_at: int) -> pa.Table:
        """Compute the plan's rows and subtract what is there."""
        name = plan.name
        if name in WALKED:
            rows, condition = self._walked(plan)
            self.engine.keep("computed", rows)
            old = self.engine.select_from(name, version=planned_at)
            return difference(self.engine, name, f"select * from ({old}) where {condition}")
        self.engine.compute(name, plan.scope, plan.digest)
        return difference(self.engine, name, self.engine.select_from(name, plan.scope, version=planned_at))

    def _walked(self, plan: Plan) -> tuple[pa.Table, str]:
        if plan.name == "node_tags":
            tags = TagWalk(self.engine)
            return tags.changed_rows(plan.moved) if isinstance(plan.moved, TagChanges) else (tags.all_rows(), "true")
        reach = ReachWalk(self.engine)
        return reach.changed_rows(plan.moved) if isinstance(plan.moved, ReachChanges) else (reach.all_rows(), "true")


def difference(engine: Engine, name: str, old_rows: str) -> pa.Table:
    """What turns the old rows into those of `computed`: the view's columns plus `_change`; equal rows are left out."""
    schema = view_schema(name)
    columns = schema.columns.names
    same_key = " and ".join(f"old.{column} is not distinct from computed.{column}" for column in schema.key)
    compared = ["row_digest"] if "row_digest" in columns else [name for name in columns if name not in schema.key]
    kept = list(dict.fromkeys([*schema.key, *(["session_seq"] if "session_seq" in columns else []), *compared]))
    engine.run(f"create or replace temp table old as select {', '.join(kept)} from ({old_rows})")
    differs = " or ".join(f"old.{column} is distinct from computed.{column}" for column in compared)
    new_rows = ", ".join(f"computed.{column}" for column in columns)
    moved = f"""
        select {new_rows}, 'insert' as {CHANGE} from computed where not exists (select 1 from old where {same_key})
        union all
        select {new_rows}, 'update' as {CHANGE} from computed inner join old on {same_key} where {differs}
    """
    gone = f"""
        select {", ".join(f"old.{column}" for column in kept)} from old
        where not exists (select 1 from computed where {same_key})
    """
    shape = pa.schema([*schema.columns, pa.field(CHANGE, pa.string())])
    removed = engine.arrow(gone)
    absent = {field.name: pa.nulls(removed.num_rows, field.type) for field in schema.columns}
    absent |= {column: removed[column].cast(schema.columns.field(column).type) for column in kept}
    absent[CHANGE] = pa.array(["delete"] * removed.num_rows, pa.string())
    return pa.concat_tables([engine.arrow(moved).cast(shape), pa.table(absent, schema=shape)])

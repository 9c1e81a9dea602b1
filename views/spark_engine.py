"""The second engine: Spark computes a view's rows from the same tables and commits them as one Delta commit.

The driver plans as it does for DuckDB and walks tags and retractions itself; Spark reads the inputs at the pinned
versions, computes the SQL relations, subtracts what is there by key and digest, and writes. What it writes DuckDB
and delta-rs read and maintain further, and the other way round.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from store.commits import LostRace
from store.delta import CHANGE, Commit, Tables
from store.ids import canonical_json
from store.spark_session import spark_session
from store.spark_settings import SparkSettings, read_spark_settings
from views.definition import MADE_BY_ENGINE, load_definition, staging_order, table_inputs
from views.engine import EVERYTHING, SHOWN_WITH, Engine, Scope
from views.registry import view_schema
from views.settings import ViewSettings
from views.spark_recursion import computed_once
from views.spark_sql import spark_select, spark_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PRUNED_BY_SESSIONS = 2_000  # a longer list of sessions costs the planner more than it saves the reader
ROWS_OF_A_FILE = 20_000


@dataclass(frozen=True)
class Work:
    """One view to refresh, as the planner decided it.

    `handed_over` are rows that the driver gives: those of `nodes` and `node_tags` that lie outside the scope and are
    shown inside it, and the relations that no table holds (`long_artifacts`, `pair_margins`). Of `metadata`,
    `files_read` and `bytes_read` are what the driver read for it; what Spark is given is added.
    """

    name: str
    digest: str
    planned_at: int
    metadata: dict[str, Any]
    transaction: tuple[str, int]
    scope: Scope = EVERYTHING
    replaces_all: bool = False  # the stored rows have other columns and cannot be compared
    handed_over: Mapping[str, pa.Table] = field(default_factory=dict)


class SparkEngine:
    """Computes and commits views over one vector of pinned versions; use it as a context."""

    def __init__(
        self,
        tables: Tables,
        pins: Mapping[str, int | None],
        settings: ViewSettings,
        *,
        spark_settings: SparkSettings | None = None,
    ) -> None:
        """Start or reuse the process's Spark.

        Raises:
            SparkNotReady: Java, the jars or the cluster are not there.
            BadSetting: conf/spark.yaml cannot be used.
        """
        self.tables = tables
        self.pins = pins
        self.settings = settings
        self.spark_settings = spark_settings or read_spark_settings()
        # Temporary views and commit settings of its own, on the one Spark that the process has.
        self.session: SparkSession = spark_session(self.spark_settings).newSession()
        self.opened: dict[str, int] = {}  # files that the log names for what the work in hand reads, to their bytes
        self._views: set[str] = set()
        self._bound: dict[str, tuple[Scope, tuple[int | None, ...]]] = {}

    def __enter__(self) -> "SparkEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget every relation, whose rows Spark then frees; the process's Spark stays."""
        for view in self._views:
            self.session.catalog.dropTempView(view)
        self._views.clear()
        self._bound.clear()

    # ---- reading --------------------------------------------------------------------------------

    def path(self, name: str) -> str:
        """Where driver and executors find a table."""
        if self.spark_settings.tables_uri is not None:
            return f"{self.spark_settings.tables_uri.rstrip('/')}/{name}"
        return self.tables.path(name).as_uri()

    def read(self, name: str, *, version: int | None, scope: Scope = EVERYTHING) -> "DataFrame":
        """A table's rows in the scope at a version, with the declared columns; none where it was not created."""
        schema = self.tables.schema(name).columns
        if version is None:
            return self.session.createDataFrame(_plain(schema.empty_table()))
        files = self.tables.data_files(
            name, version=version, session_seqs=scope.session_seqs, task_ids=scope.prunable_tasks, must_exist=False
        )
        self.opened.update((file.path, file.size_bytes) for file in files)
        stored = self.session.read.format("delta").option("versionAsOf", version).load(self.path(name))
        if ("session_seq" if scope.session_seqs is not None else "task_id") in schema.names:
            stored = stored.where(scope.condition(text=spark_text))
        return stored.select(*schema.names)

    def bind(self, work: Work) -> None:
        """Make every input of a view known, its staging relations computed once, for the work's scope."""
        name, scope = work.name, work.scope
        for table in table_inputs(name):
            if self._bound.get(table) != (scope, (self.pins[table],)):
                rows = self._rows_in_scope(table, work)
                # Several relations read a table; a scope's rows are few, and reading them again means its log again.
                few = scope.session_seqs is not None and "session_seq" in rows.columns
                rows = rows.localCheckpoint(eager=False) if few else rows
                self._name(table, rows)
                self._bound[table] = (scope, (self.pins[table],))
        stages = staging_order(name)
        for made in MADE_BY_ENGINE:
            if any(made in load_definition(part).inputs for part in (name, *stages)):
                self._name(made, self.session.createDataFrame(_plain(work.handed_over[made])))
        for stage in stages:
            pins = tuple(self.pins[table] for table in table_inputs(stage))
            if self._bound.get(stage) != (scope, pins):
                self._name(stage, computed_once(self.session, stage, self._parameters(stage, "")))
                self._bound[stage] = (scope, pins)

    def _rows_in_scope(self, table: str, work: Work) -> "DataFrame":
        columns, scope = self.tables.schema(table).columns.names, work.scope
        version = self.pins[table]
        if scope.session_seqs is not None and "session_seq" in columns:
            rows = self.read(table, version=version, scope=scope)
            outside = work.handed_over.get(table)
            if outside is not None and outside.num_rows:
                rows = rows.unionByName(self.session.createDataFrame(_plain(outside.select(columns))))
            return rows
        if scope.task_ids is not None and "task_id" in columns:
            return self.read(table, version=version, scope=scope)
        return self.read(table, version=version)

    def _name(self, view: str, rows: "DataFrame") -> None:
        rows.createOrReplaceTempView(view)
        self._views.add(view)

    def _parameters(self, name: str, digest: str) -> dict[str, Any]:
        return {
            parameter: digest if parameter == "view_digest" else self.settings.parameter(parameter)
            for parameter in load_definition(name).parameters
        }

    # ---- computing ------------------------------------------------------------------------------

    def compute(self, work: Work) -> "DataFrame":
        """A view's rows in the scope, in the declared columns and types (Spark counts characters in 32 bits)."""
        from pyspark.sql.pandas.types import from_arrow_schema

        self.bind(work)
        select = spark_select(work.name, self._parameters(work.name, work.digest))
        rows = self.session.sql(f"select * from ({select}) where {work.scope.condition(text=spark_text)}")
        return rows.to(from_arrow_schema(_plain(view_schema(work.name).columns.empty_table()).schema))

    def changes(self, work: Work) -> "DataFrame":
        """What turns the stored rows into the computed ones: the columns plus `_change`; equal rows are left out."""
        schema = view_schema(work.name)
        self._name("computed", self.compute(work))
        self._name("old", self.read(work.name, version=work.planned_at, scope=work.scope))
        same_key = " and ".join(f"old.{column} <=> computed.{column}" for column in schema.key)
        known = {*schema.key, "session_seq"} & set(schema.columns.names)
        compared = [column for column in ("row_digest", "session_seq") if column in schema.columns.names]
        equal = " and ".join(f"computed.{column} <=> old.{column}" for column in compared)
        columns = ", ".join(
            f"coalesce(computed.{column}, old.{column}) as {column}" if column in known else f"computed.{column}"
            for column in schema.columns.names
        )
        return self.session.sql(f"""
            select {columns}, case
                when old.row_digest is null then 'insert' when computed.row_digest is null then 'delete' else 'update'
            end as {CHANGE}
            from computed full outer join (select {", ".join(sorted(known))}, row_digest from old) as old on {same_key}
            where not ({equal})
        """)

    # ---- committing -----------------------------------------------------------------------------

    def refresh(self, work: Work) -> Commit:
        """Compute a view and commit what changed; without a change, an empty commit that moves the metadata.

        Raises:
            LostRace: The view moved since `planned_at`; plan again.
        """
        if self.tables.version(work.name) != work.planned_at:
            raise LostRace(f"{work.name} moved since version {work.planned_at}")
        self.opened = {}
        if work.replaces_all:
            return self._replace_all(work)
        changes = self.changes(work).localCheckpoint(eager=False)
        work = self._counted(work)
        counts: dict[str, int] = {row[CHANGE]: row["count"] for row in changes.groupBy(CHANGE).count().collect()}
        changed = sum(counts.values())
        self._say(work, work.planned_at + 1 if changed else (self.tables.data_version(work.name) or 0))
        with _lost_races():
            if set(counts) <= {"insert"}:
                self._append(work.name, changes.drop(CHANGE), counts.get("insert", 0))
            else:
                self._merge(work.name, changes, work.scope)
        version = self._our_version(work)
        return Commit(version, counts.get("insert", 0), counts.get("update", 0), counts.get("delete", 0))

    def _replace_all(self, work: Work) -> Commit:
        deleted = self.tables.open(work.name, version=work.planned_at).count()
        rows = self.compute(work).localCheckpoint(eager=False)
        work = self._counted(work)
        inserted = rows.count()
        self._say(work, work.planned_at + 1)
        with _lost_races():
            self._append(work.name, rows, inserted, mode="overwrite", overwriteSchema="true")
        return Commit(self._our_version(work), inserted=inserted, deleted=deleted)

    def _counted(self, work: Work) -> Work:
        """The work whose metadata counts the files that Spark was given, with all their bytes."""
        given = {"files_read": len(self.opened), "bytes_read": sum(self.opened.values())}
        said = {counted: work.metadata.get(counted, 0) + count for counted, count in given.items()}
        return replace(work, metadata={**work.metadata, **said})

    def _say(self, work: Work, data_version: int) -> None:
        """What the next commit of this session carries."""
        text = canonical_json({**work.metadata, "data_version": data_version})
        application, number = work.transaction
        self.session.conf.set("spark.databricks.delta.commitInfo.userMetadata", text)
        self.session.conf.set("spark.databricks.delta.write.txnAppId", application)
        self.session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
        # The source is a checkpoint, which Delta would copy once more. (It refuses a source that is cached.)
        self.session.conf.set("spark.databricks.delta.merge.materializeSource", "none")

    def _append(self, name: str, rows: "DataFrame", num_rows: int, *, mode: str = "append", **options: str) -> None:
        sort = list(view_schema(name).sort)
        files = max(1, num_rows // ROWS_OF_A_FILE)
        placed = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, *sort)
        placed.sortWithinPartitions(*sort).write.format("delta").mode(mode).options(**options).save(self.path(name))

    def _merge(self, name: str, changes: "DataFrame", scope: Scope) -> None:
        schema = view_schema(name)
        self._name("changes", changes)
        on = " and ".join(f"t.{column} <=> s.{column}" for column in schema.key)
        seqs = scope.session_seqs
        if seqs is not None and "session_seq" in schema.columns.names and 0 < len(seqs) <= PRUNED_BY_SESSIONS:
            on = f"{scope.condition('t.session_seq')} and {on}"
        assigned = ", ".join(f"{column} = s.{column}" for column in schema.columns.names)
        names = ", ".join(schema.columns.names)
        values = ", ".join(f"s.{column}" for column in schema.columns.names)
        self.session.sql(f"""
            merge into delta.`{self.path(name)}` as t using changes as s on {on}
            when matched and s.{CHANGE} = 'delete' then delete
            when matched and s.{CHANGE} = 'update' then update set {assigned}
            when not matched and s.{CHANGE} <> 'delete' then insert ({names}) values ({values})
        """)

    def _our_version(self, work: Work) -> int:
        """The version that our commit became; Spark skips a repeated transaction without a word."""
        version, metadata = self.tables.latest(work.name)
        said = {key: metadata.get(key) for key in work.metadata}
        if version != work.planned_at + 1 or canonical_json(said) != canonical_json(work.metadata):
            raise LostRace(f"{work.name} is at {version}, planned at {work.planned_at}")
        return version


@contextlib.contextmanager
def _lost_races() -> Iterator[None]:
    """Turns Delta's conflicts into LostRace."""
    from delta import exceptions

    conflicts = (
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    )
    try:
        yield
    except conflicts as error:
        raise LostRace(str(error).splitlines()[0]) from error


def handed_over(driver: Engine, name: str, scope: Scope) -> dict[str, pa.Table]:
    """What the driver gives to Spark for one view: rows outside the scope that count inside it, and long texts."""
    given: dict[str, pa.Table] = {}
    made = {source for part in (name, *staging_order(name)) for source in load_definition(part).inputs}
    if scope.session_seqs is not None:
        for table in sorted(set(table_inputs(name)) & set(SHOWN_WITH)):
            outside = driver.outside_rows(table, scope)
            if outside is not None:
                given[table] = driver.arrow(outside)
    if "long_artifacts" in made:
        given["long_artifacts"] = driver.long_artifacts(scope)
    if "pair_margins" in made:
        given["pair_margins"] = driver.arrow("select * from pair_margins")
    return given


def _plain(rows: pa.Table) -> pa.Table:
    """Rows without what their columns mean, which Spark would keep."""
    return rows.cast(pa.schema([pa.field(column.name, column.type) for column in rows.schema]))

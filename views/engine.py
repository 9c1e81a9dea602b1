"""The embedded engine: DuckDB over pinned versions of Delta tables.

Relations are bound by name to one version each, restricted to the sessions or tasks in question; files that
cannot hold them are never opened, and what is opened is counted.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from store.artifacts import load_artifact
from store.delta import Tables, quiet_connection
from store.duckdb_connection import quoted
from store.errors import UnknownName
from views.definition import columns_read, load_definition, reads_artifacts, staging_order, table_inputs
from views.macros import MACROS
from views.settings import ViewSettings

LONG_ARTIFACTS = pa.schema([("artifact_digest", pa.string()), ("artifact", pa.string())])
SHOWN_WITH = ("nodes", "node_tags")  # context of other sessions counts by its existence, its original and its tags


@dataclass(frozen=True)
class Scope:
    """Which rows a computation is about; None is no restriction.

    Sessions or tasks are given. Tasks beside sessions choose no rows: they say where those of the sessions lie.
    With `node_ids`, of the sessions' nodes and what is kept for them only these.
    """

    session_seqs: frozenset[int] | None = None
    task_ids: frozenset[str | None] | None = None
    node_ids: frozenset[str] | None = None

    def covers(self, other: "Scope") -> bool:
        """Whether all that `other` needs is bound already."""
        if self == EVERYTHING:
            return True
        is_plain = self.task_ids is None and self.node_ids is None
        if self.session_seqs is None or other.session_seqs is None or not is_plain:
            return self == other
        return other.session_seqs <= self.session_seqs

    @property
    def prunable_tasks(self) -> frozenset[str] | None:
        """The tasks that the log's statistics can tell files by; None where rows without a task are asked for too."""
        named = frozenset(task_id for task_id in self.task_ids or () if task_id is not None)
        return named if self.task_ids is not None and len(named) == len(self.task_ids) else None

    def condition(self, column: str = "session_seq", *, text: Callable[[str], str] = quoted) -> str:
        """The scope as a SQL condition on session_seq (or another column that holds one) or task_id.

        `text` writes a text as a literal of the engine that reads the condition.
        """
        if self.session_seqs is not None:
            if not self.session_seqs:
                return "false"
            # The bounds let a reader skip row groups, which it does not do for a list.
            bounds = f"{column} between {min(self.session_seqs)} and {max(self.session_seqs)}"
            if max(self.session_seqs) - min(self.session_seqs) + 1 == len(self.session_seqs):
                return bounds
            return f"{bounds} and {column} in ({', '.join(map(str, sorted(self.session_seqs)))})"
        if self.task_ids is not None:
            named = (
                ", ".join(text(task_id) for task_id in sorted(task for task in self.task_ids if task is not None))
                or "null"
            )
            return f"(task_id in ({named}) or task_id is null)" if None in self.task_ids else f"task_id in ({named})"
        return "true"


EVERYTHING = Scope()


@dataclass(frozen=True)
class Bound:
    """What a relation of the connection holds now."""

    scope: Scope
    pin: int | None
    columns: frozenset[str]


class Engine:
    """One DuckDB connection over one vector of versions (`pins`: table to version, None where not created)."""

    def __init__(self, tables: Tables, pins: dict[str, int | None], settings: ViewSettings) -> None:
        self.tables = tables
        self.pins = pins
        self.settings = settings
        self.connection: duckdb.DuckDBPyConnection = quiet_connection()
        self.opened: set[str] = set()  # files named to a reader since the counters began
        self.bytes_read = 0  # of these files, by DuckDB's own count: footers and the columns asked for
        self.missing_artifacts: set[str] = set()  # digests of texts whose file was not there
        self._empty: set[str] = set()
        self._scanned: dict[str, int | None] = {}
        self._bound: dict[str, Bound] = {}
        self.connection.execute("pragma enable_profiling = 'no_output'")
        self.connection.execute("set profiling_coverage = 'ALL'")
        self.connection.execute("set parquet_metadata_cache = true")  # several views read a file, each other columns
        for macro in MACROS:
            self.run(macro)
        self.run(f"set memory_limit = '{settings.memory_gib} GiB'")
        margins = settings.pair_margins
        shape = pa.schema([("domain", pa.string()), ("margin", pa.float64())])
        self.keep("pair_margins", pa.table([list(margins), list(margins.values())], schema=shape))

    def close(self) -> None:
        """Free the connection and every temporary relation."""
        self.connection.close()

    # ---- statements -----------------------------------------------------------------------------

    def run(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and fetch its rows."""
        rows = self.connection.execute(sql, parameters or {}).fetchall()
        self._count()
        return rows

    def column(self, sql: str) -> set[Any]:
        """The distinct non-NULL values of a query's first column."""
        return {row[0] for row in self.run(sql) if row[0] is not None}

    def arrow(self, sql: str) -> pa.Table:
        """The rows of a query."""
        rows = self.connection.sql(sql).to_arrow_table()
        self._count()
        return rows

    def _count(self) -> None:
        self.bytes_read += json.loads(self.connection.get_profiling_information())["io"]["total_bytes_read"]

    def count_anew(self) -> None:
        """Begin to count what is read."""
        self.opened, self.bytes_read = set(), 0

    def keep(self, name: str, rows: pa.Table) -> None:
        """Make an arrow table known as a temporary table."""
        self.connection.register("handed_over", rows)
        self.run(f"create or replace temp table {name} as select * from handed_over")
        self.connection.unregister("handed_over")

    def keep_texts(self, name: str, texts: Iterable[str]) -> str:
        """Make a set of texts known as a temporary table with one column, `item`; returns its name."""
        self.keep(name, pa.table({"item": pa.array(sorted(texts), pa.string())}))
        return name

    # ---- relations ------------------------------------------------------------------------------

    def scan(self, name: str) -> str:
        """Name of a relation with all rows of a table at its pinned version; nothing is read yet."""
        alias = f"every_{name}"
        if alias not in self._scanned or self._scanned[alias] != self.pins[name]:
            self.run(f"create or replace temp view {alias} as {self.select_from(name)}")
            self._scanned[alias] = self.pins[name]
        return alias

    def replace(self, name: str, rows: pa.Table) -> None:
        """Let `scan` answer with these rows instead of those of the pinned version."""
        self.keep(f"replaced_{name}", rows)
        self.run(f"create or replace temp view every_{name} as select * from replaced_{name}")
        self._scanned[f"every_{name}"] = self.pins[name]

    def select_from(
        self,
        name: str,
        scope: Scope = EVERYTHING,
        *,
        version: int | None = None,
        columns: Iterable[str] | None = None,
    ) -> str:
        """A select over a table's rows in the scope at its pinned version, or another one.

        Args:
            name: The table.
            scope: Which rows; of a table without the scope's column, all.
            version: Delta version; None is the pinned one.
            columns: What to select, in the declared order; None is every column.
        """
        fields = self.tables.schema(name).columns
        pin = self.pins[name] if version is None else version
        files = (
            []
            if pin is None
            else self.tables.data_files(
                name, version=pin, session_seqs=scope.session_seqs, task_ids=scope.prunable_tasks
            )
        )
        names = fields.names if columns is None else [column for column in fields.names if column in set(columns)]
        selected = ", ".join(f'"{column}"' for column in names)
        if not files:
            if name not in self._empty:
                self.keep(f"empty_{name}", fields.empty_table())
                self._empty.add(name)
            return f"select {selected} from empty_{name}"
        self.opened.update(file.path for file in files)
        listed = ", ".join(quoted(file.path) for file in files)
        scoped_by = "session_seq" if scope.session_seqs is not None else "task_id"
        where = scope.condition() if scoped_by in fields.names else "true"
        if scope.node_ids is not None and "node_id" in fields.names:
            wanted = self.keep_texts("wanted_nodes", scope.node_ids)
            where = f"{where} and (node_id is null or node_id in (select item from {wanted}))"
        return f"select {selected} from read_parquet([{listed}], union_by_name = true) where {where}"

    def sessions_with(self, condition: str) -> set[int]:
        """Cluster keys of the sessions for which a condition on `sessions` holds."""
        return self.column(f"select session_seq from {self.scan('sessions')} where {condition}")

    def sessions_of_tasks(self, task_ids: Iterable[str]) -> set[int]:
        """Cluster keys of the sessions with a node of these tasks, whatever task the session itself has."""
        scope = Scope(task_ids=frozenset(task_ids))
        return self.column(f"select session_seq from ({self.select_from('nodes', scope, columns=('session_seq',))})")

    # ---- binding --------------------------------------------------------------------------------

    def bind(self, name: str, scope: Scope) -> None:
        """Bind every input of a view, its staging relations computed, so that its SQL answers for the scope."""
        for table in table_inputs(name):
            columns = columns_read(name, table)
            if not self._is_bound(table, scope, columns):
                self.run(f"create or replace temp table {table} as {self._rows_in_scope(table, scope, columns)}")
                self._bound[table] = Bound(scope, self.pins[table], columns)
        stages = staging_order(name)
        if reads_artifacts(name) and not self._is_bound("long_artifacts", scope):
            self.keep("long_artifacts", self._long_artifacts("nodes"))
            self._bound["long_artifacts"] = Bound(scope, None, frozenset())
        for stage in stages:
            if not self._is_bound(stage, scope):
                definition = load_definition(stage)
                values = {parameter: self.settings.parameter(parameter) for parameter in definition.parameters}
                self.run(f"create or replace temp table {stage} as {definition.text}", values)
                self._bound[stage] = Bound(scope, None, frozenset())

    def _is_bound(self, name: str, scope: Scope, columns: frozenset[str] = frozenset()) -> bool:
        bound = self._bound.get(name)
        return (
            bound is not None
            and bound.scope.covers(scope)
            and bound.pin == self.pins.get(name)
            and columns <= bound.columns
        )

    def _rows_in_scope(self, table: str, scope: Scope, columns: frozenset[str]) -> str:
        rows = self.select_from(table, scope, columns=columns)
        if scope.session_seqs is None or table not in SHOWN_WITH:
            return rows
        outside = self.outside_rows(table, scope, columns)
        return rows if outside is None else f"{rows} union all by name {outside}"

    def outside_rows(self, table: str, scope: Scope, columns: Iterable[str] | None = None) -> str | None:
        """A select over the rows of nodes that were shown to the scope's sessions from elsewhere; None: there are none.

        `table` is `nodes` or `node_tags`. Originals of shown copies are among them.
        """
        places = self._shown_from_elsewhere(scope)
        if not places:
            return None
        shown = Scope(session_seqs=frozenset(places.values()))
        rows = self.select_from(table, shown, columns=columns)
        return f"select * from ({rows}) where node_id in (select item from {self.keep_texts('shown_nodes', places)})"

    def _shown_from_elsewhere(self, scope: Scope) -> dict[str, int]:
        """Nodes outside the scope that its sessions were shown, with their originals: node_id to session_seq."""
        assert scope.session_seqs is not None
        crossing = self.scan("crossing_edges")
        found: dict[str, int] = {}
        new = dict(
            self.run(
                f"select src, src_session_seq from {crossing} where kind = 'context' and {scope.condition()} "
                f"and src_session_seq is not null and not ({scope.condition('src_session_seq')})"
            )
        )
        while new:
            found |= new
            self.keep_texts("new_nodes", new)
            near = Scope(session_seqs=frozenset(new.values()))
            nodes = self.select_from("nodes", near, columns=("node_id", "copy_of", "session_seq"))
            originals = self.run(f"""
                with placed as ({nodes}),
                copies as (select node_id, copy_of from placed where node_id in (select item from new_nodes))
                select copies.copy_of, placed.session_seq
                from copies inner join placed on copies.copy_of = placed.node_id
                union
                select src, src_session_seq from {crossing}
                where kind = 'copy' and src_session_seq is not null and dst in (select node_id from copies)
            """)
            new = {
                node_id: session_seq
                for node_id, session_seq in originals
                if node_id not in found and session_seq not in scope.session_seqs
            }
        return found

    def long_artifacts(self, scope: Scope) -> pa.Table:
        """Texts kept as files, of nodes in the scope or shown to it; one whose file is gone is left out, so unknown."""
        columns = frozenset({"node_id", "session_seq", "artifact", "artifact_digest"})
        return self._long_artifacts(f"({self._rows_in_scope('nodes', scope, columns)})")

    def _long_artifacts(self, nodes: str) -> pa.Table:
        digests = self.column(
            f"select artifact_digest from {nodes} where artifact is null and artifact_digest is not null"
        )
        texts = []
        for digest in sorted(digests):
            try:
                texts.append({"artifact_digest": digest, "artifact": load_artifact(self.tables.home, None, digest)})
            except UnknownName:
                self.missing_artifacts.add(digest)
        return pa.Table.from_pylist(texts, schema=LONG_ARTIFACTS)

    # ---- computing ------------------------------------------------------------------------------

    def compute(self, name: str, scope: Scope, view_digest: str) -> None:
        """Compute a view's rows in the scope into the temporary table `computed`."""
        self.bind(name, scope)
        definition = load_definition(name)
        values = {
            parameter: view_digest if parameter == "view_digest" else self.settings.parameter(parameter)
            for parameter in definition.parameters
        }
        self.run(
            f"create or replace temp table computed as select * from ({definition.text}) where {scope.condition()}",
            values,
        )

"""The embedded engine: DuckDB over pinned versions of Delta tables.

Relations are bound by name to one version each, restricted to the sessions or tasks in question; files that
cannot hold them are never opened. The macros are the only functions of our own that a view may use; an
engine that renders them its own way gives the same rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from store.artifacts import load_artifact
from store.delta import Tables, quiet_connection
from store.duckdb_connection import quoted
from store.errors import UnknownName
from views.definition import load_definition, staging_order, table_inputs
from views.settings import ViewSettings

MACROS = (
    "create macro ordered_list(item, place) as list(item order by place)",
    "create macro digest_part(item) as coalesce('=' || cast(item as varchar), '-')",
    # Engines print floats differently, so a digest holds the whole part and 104 bits of the fraction, each exact.
    """
    create macro number_part(item) as case
        when item is null then '-'
        when abs(item) < 9007199254740992.0 then concat(
            case when item < 0 then '=-' else '=' end,
            cast(cast(floor(abs(item)) as bigint) as varchar),
            '.',
            cast(cast(floor((abs(item) - floor(abs(item))) * 4503599627370496.0) as bigint) as varchar),
            '.',
            cast(
                cast(
                    floor(
                        (
                            (abs(item) - floor(abs(item))) * 4503599627370496.0
                            - floor((abs(item) - floor(abs(item))) * 4503599627370496.0)
                        ) * 4503599627370496.0
                    ) as bigint
                ) as varchar
            )
        )
        else concat('=', cast(item as varchar))
    end
    """,
)
LONG_ARTIFACTS = pa.schema([("artifact_digest", pa.string()), ("artifact", pa.string())])


@dataclass(frozen=True)
class Scope:
    """Which rows a computation is about; None is no restriction. At most one of the two is given."""

    session_seqs: frozenset[int] | None = None
    task_ids: frozenset[str] | None = None

    def covers(self, other: "Scope") -> bool:
        """Whether all that `other` needs is bound already."""
        if self == EVERYTHING:
            return True
        if self.session_seqs is None or other.session_seqs is None:
            return self == other
        return other.session_seqs <= self.session_seqs

    def condition(self) -> str:
        """The scope as a SQL condition on session_seq or task_id."""
        if self.session_seqs is not None:
            return f"session_seq in ({', '.join(map(str, sorted(self.session_seqs))) or 'null'})"
        if self.task_ids is not None:
            return f"task_id in ({', '.join(map(quoted, sorted(self.task_ids))) or 'null'})"
        return "true"


EVERYTHING = Scope()


class Engine:
    """One DuckDB connection over one vector of versions (`pins`: table to version, None where not created)."""

    def __init__(self, tables: Tables, pins: dict[str, int | None], settings: ViewSettings) -> None:
        self.tables = tables
        self.pins = pins
        self.settings = settings
        self.connection: duckdb.DuckDBPyConnection = quiet_connection()
        self._empty: set[str] = set()
        self._scanned: dict[str, int | None] = {}
        self._bound: dict[str, tuple[Scope, int | None]] = {}
        self._links: dict[int, set[int]] | None = None
        for macro in MACROS:
            self.run(macro)
        margins = settings.pair_margins
        shape = pa.schema([("domain", pa.string()), ("margin", pa.float64())])
        self.keep("pair_margins", pa.table([list(margins), list(margins.values())], schema=shape))

    def close(self) -> None:
        """Free the connection and every temporary relation."""
        self.connection.close()

    # ---- statements -----------------------------------------------------------------------------

    def run(self, sql: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and fetch its rows."""
        return self.connection.execute(sql, parameters or {}).fetchall()

    def column(self, sql: str) -> set[Any]:
        """The distinct non-NULL values of a query's first column."""
        return {row[0] for row in self.run(sql) if row[0] is not None}

    def arrow(self, sql: str) -> pa.Table:
        """The rows of a query."""
        return self.connection.sql(sql).to_arrow_table()

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

    def select_from(self, name: str, scope: Scope = EVERYTHING, *, version: int | None = None) -> str:
        """A select over a table's rows in the scope at its pinned version, or another one."""
        fields = self.tables.schema(name).columns
        pin = self.pins[name] if version is None else version
        files = [] if pin is None else self.tables.files(name, version=pin, session_seqs=scope.session_seqs)
        selected = ", ".join(f'"{field.name}"' for field in fields)
        if not files:
            if name not in self._empty:
                self.keep(f"empty_{name}", fields.empty_table())
                self._empty.add(name)
            return f"select {selected} from empty_{name}"
        listed = ", ".join(map(quoted, files))
        return (
            f"select {selected} from read_parquet([{listed}], union_by_name = true) "
            f"where {scope.condition() if set(fields.names) & {'session_seq', 'task_id'} else 'true'}"
        )

    def session_links(self) -> dict[int, set[int]]:
        """Sessions (by session_seq) that a parent or a copy of another session links, both ways; computed once."""
        if self._links is None:
            nodes, self._links = self.scan("nodes"), {}
            joined = f"from {nodes} as lower inner join {nodes} as upper on lower.{{}} = upper.node_id"
            pairs = " union ".join(
                f"select lower.session_seq, upper.session_seq {joined.format(column)} "
                "where lower.session_seq <> upper.session_seq"
                for column in ("parent_id", "copy_of")
            )
            for first, second in self.run(pairs):
                self._links.setdefault(first, set()).add(second)
                self._links.setdefault(second, set()).add(first)
        return self._links

    # ---- binding --------------------------------------------------------------------------------

    def bind(self, name: str, scope: Scope) -> None:
        """Bind every input of a view, its staging relations computed, so that its SQL answers for the scope."""
        for table in table_inputs(name):
            if not self._is_bound(table, scope):
                self.run(f"create or replace temp view {table} as {self._rows_in_scope(table, scope)}")
                self._bound[table] = (scope, self.pins[table])
        stages = staging_order(name)
        inputs = {source for part in (name, *stages) for source in load_definition(part).inputs}
        if "long_artifacts" in inputs and not self._is_bound("long_artifacts", scope):
            self.keep("long_artifacts", self._long_artifacts())
            self._bound["long_artifacts"] = (scope, None)
        for stage in stages:
            if not self._is_bound(stage, scope):
                definition = load_definition(stage)
                values = {parameter: self.settings.parameter(parameter) for parameter in definition.parameters}
                self.run(f"create or replace temp table {stage} as {definition.text}", values)
                self._bound[stage] = (scope, None)

    def _is_bound(self, name: str, scope: Scope) -> bool:
        bound = self._bound.get(name)
        return bound is not None and bound[0].covers(scope) and bound[1] == self.pins.get(name)

    def _rows_in_scope(self, table: str, scope: Scope) -> str:
        columns = self.tables.schema(table).columns.names
        if scope.session_seqs is not None and "session_seq" in columns and table != "sessions":
            rows = self.select_from(table, scope)
            if table in ("nodes", "node_tags"):  # context of other sessions counts by its existence and tags
                outside = f"not ({scope.condition()}) and node_id in (select item from {self._shown_nodes(scope)})"
                rows = f"{rows} union all by name select * from {self.scan(table)} where {outside}"
            return rows
        if scope.task_ids is not None and table == "nodes":
            return self.select_from(table, scope)
        return f"select * from {self.scan(table)}"

    def _shown_nodes(self, scope: Scope) -> str:
        """A relation (`item`) of the nodes shown as context to the scope's sessions, with their originals."""
        if self._bound.get("shown_nodes") == (scope, None):
            return "shown_nodes"
        found = self.column(f"select unnest(context).node_id from ({self.select_from('nodes', scope)})")
        new = found
        while new:
            self.keep_texts("new_nodes", new)
            new = (
                self.column(f"select copy_of from {self.scan('nodes')} where node_id in (select item from new_nodes)")
                - found
            )
            found = found | new
        self.keep_texts("shown_nodes", found)
        self._bound["shown_nodes"] = (scope, None)
        return "shown_nodes"

    def _long_artifacts(self) -> pa.Table:
        """Texts kept as files, of bound nodes; a text whose file is gone is left out, so the answer is unknown."""
        digests = self.column(
            "select artifact_digest from nodes where artifact is null and artifact_digest is not null"
            + (
                ""
                if self.settings.pair_across_prompts
                else " and node_id not in (select node_id from prompt_history where role = 'assistant')"
            )
        )
        texts = []
        for digest in sorted(digests):
            try:
                texts.append({"artifact_digest": digest, "artifact": load_artifact(self.tables.home, None, digest)})
            except UnknownName:
                continue
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

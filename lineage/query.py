"""`query`: read-only SQL over pinned, policy-filtered relations, in a DuckDB that cannot touch anything else.

Three walls, each enough by itself: the syntax tree is checked (query_guard), DuckDB must agree that it is one
SELECT, and the connection has external access off, its configuration locked, and leave to read the pinned
Parquet files only.
"""

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from lineage.policy import Policy, read_policy
from lineage.query_guard import ONLY_SELECT, referenced_names
from store.delta import Tables, quiet_connection
from store.duckdb_connection import quoted
from store.errors import UnknownName, VersionGone, WrongUse
from store.home import Home
from views.refresh import EngineName

NODE_TAGS = "node_tags"


def registered_tables(home: Home) -> Tables:
    """All tables and views that may be queried, unbuilt ones as empty."""
    from views.registry import declare_views

    tables = Tables(home)
    declare_views(tables)
    return tables


def run_query(
    home: Home,
    sql: str,
    *,
    as_of_versions: Mapping[str, int] | None = None,
    principal: str = "local",
    engine: EngineName = "duckdb",
) -> pa.Table:
    """Run one SELECT and return its rows.

    Args:
        home: Whose tables and views.
        sql: One SELECT over registered names.
        as_of_versions: Delta version by table; the others are read at their latest version.
        principal: Who asks; rows under a tag that this principal may not audit are not there.
        engine: Who computes it.

    Raises:
        SparkNotReady: Spark was asked for, and Java or its jars are missing.
        WrongUse: The SQL is not one plain SELECT, or does not compute.
        UnknownName: A table, view or column that does not exist.
        VersionGone: A version that cannot be read.
        RefusedByPolicy: The principal is unknown or may not audit.
    """
    policy = read_policy()
    policy.demand(principal, "audit")
    tables = registered_tables(home)
    names = referenced_names(sql, tables.names())
    versions = dict(as_of_versions or {})
    for name in versions:
        if name not in names:
            tables.schema(name)  # raises for a name that does not exist at all
            raise WrongUse(f"{name}={versions[name]} pins a table that the query does not read; it reads {names}.")
    _demand_one_select(sql)
    if engine == "spark":
        from lineage.spark_query import run_on_spark

        refused = _refused_tags(tables, policy, principal)
        filters = {name: _policy_filter(tables, tables.schema(name).columns.names, refused) for name in names}
        return run_on_spark(tables, sql, names, versions, filters)
    with _pinned_connection(tables, names, versions, policy, principal) as connection:
        try:
            return connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise _explained(error, tables, names) from error


def _pinned_connection(
    tables: Tables, names: Iterable[str], versions: Mapping[str, int], policy: Policy, principal: str
) -> duckdb.DuckDBPyConnection:
    connection = quiet_connection()
    refused_tags = _refused_tags(tables, policy, principal)
    readable: list[str] = []
    for name in names:
        readable += _bind(connection, tables, name, versions.get(name), refused_tags)
    for setting in (
        f"set allowed_paths = [{', '.join(map(quoted, readable))}]",
        "set python_enable_replacements = false",
        "set enable_external_access = false",
        "set lock_configuration = true",
    ):
        connection.execute(setting).fetchall()
    return connection


def _bind(
    connection: duckdb.DuckDBPyConnection, tables: Tables, name: str, version: int | None, refused_tags: list[str]
) -> list[str]:
    """Create the relation and return the files that it reads."""
    schema = tables.schema(name).columns
    if version is not None and not tables.exists(name):
        raise VersionGone(f"{name}@{version} cannot be read; {name} has no version yet.")
    pinned = version if version is not None else tables.version(name)
    files = [] if pinned is None else tables.files(name, version=pinned)
    columns = ", ".join(f'"{column}"' for column in schema.names)
    if files:
        source = f"select {columns} from read_parquet([{', '.join(map(quoted, files))}], union_by_name = true)"
    else:
        connection.register(f"empty_{name}", schema.empty_table())
        source = f"select {columns} from empty_{name}"
    kept, hidden = _policy_filter(tables, schema.names, refused_tags)
    if hidden is not None:
        connection.register(f"hidden_from_{name}", hidden)
        kept = kept.replace("$hidden", f"hidden_from_{name}")
    connection.execute(f'create view "{name}" as {source}{kept}').fetchall()
    return files


def _refused_tags(tables: Tables, policy: Policy, principal: str) -> list[str]:
    """Tags in use that the principal may not audit."""
    in_use = set(tables.read("tag_assignments", columns=["tag"])["tag"].to_pylist())
    in_use |= set(tables.read(NODE_TAGS, columns=["tag"])["tag"].to_pylist())
    return sorted(tag for tag in in_use if not policy.check(principal, "audit", [tag]).allowed)


def _policy_filter(tables: Tables, columns: list[str], refused_tags: list[str]) -> tuple[str, pa.Table | None]:
    """The where clause that keeps allowed rows, and the node ids that it hides (registered as `$hidden`)."""
    if not refused_tags:
        return "", None
    if "tags" in columns:
        return f" where not coalesce(list_has_any(tags, [{', '.join(map(quoted, refused_tags))}]), false)", None
    if "node_id" in columns:
        rows = tables.read(NODE_TAGS, columns=["node_id", "tag"]).to_pylist()
        hidden = sorted({row["node_id"] for row in rows if row["tag"] in refused_tags})
        ids = pa.table({"node_id": pa.array(hidden, pa.string())})
        return " where node_id is null or node_id not in (select node_id from $hidden)", ids
    return "", None


def _demand_one_select(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise WrongUse(f"DuckDB cannot parse this: {_first_line(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise WrongUse(f"this is no single SELECT to DuckDB: {ONLY_SELECT}.")


def _explained(error: duckdb.Error, tables: Tables, names: list[str]) -> WrongUse:
    line = _first_line(error)
    if isinstance(error, duckdb.BinderException) and "column" in line.lower():
        columns = "; ".join(f"{name}: {', '.join(tables.schema(name).columns.names)}" for name in names)
        return UnknownName(f"{line} The columns are {columns or 'none: the query reads no table'}.")
    if isinstance(error, duckdb.CatalogException):
        return UnknownName(line)
    return WrongUse(f"the query does not compute: {line}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].strip()

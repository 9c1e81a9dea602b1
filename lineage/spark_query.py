"""`query --engine spark`: the same SELECT, over the same pinned and filtered relations, where one machine ends."""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from store.delta import Tables
from store.errors import WrongUse
from views.engine import EVERYTHING
from views.settings import read_view_settings


def run_on_spark(
    tables: Tables,
    sql: str,
    names: Iterable[str],
    versions: Mapping[str, int],
    filters: Mapping[str, tuple[str, pa.Table | None]],
) -> pa.Table:
    """Run one SELECT, already found to be one over registered names, on Spark.

    Args:
        tables: All tables and views.
        sql: The SELECT, in DuckDB's words.
        names: What it reads.
        versions: Delta version by table; the others are read at their latest version.
        filters: By table, the where clause that keeps what the principal may see, and the node ids it hides.

    Raises:
        WrongUse: It does not compute, or calls a function that both engines do not have.
        VersionGone: A version that cannot be read.
        SparkNotReady: Java or the jars are missing.
    """
    text = _rendered(sql)
    from views.spark_engine import SparkEngine

    pins = {name: versions.get(name, tables.version(name)) for name in names}
    with SparkEngine(tables, pins, read_view_settings()) as engine:
        for name, version in pins.items():
            if version is not None:
                tables.data_files(name, version=version)  # a version that is gone is named before Spark stumbles
            where, hidden = filters[name]
            rows = engine.read(name, version=version, scope=EVERYTHING)
            rows.createOrReplaceTempView(f"every_{name}")
            if hidden is not None:
                engine.session.createDataFrame(hidden).createOrReplaceTempView(f"hidden_from_{name}")
            kept = _rendered(f"select * from every_{name}{where.replace('$hidden', f'hidden_from_{name}')}")
            engine.session.sql(kept).createOrReplaceTempView(name)
        try:
            answer: pa.Table = engine.session.sql(text).toArrow()
        except Exception as error:  # pyspark raises several kinds
            raise WrongUse(f"the query does not compute on Spark: {str(error).strip().splitlines()[0]}") from error
        return answer


def _rendered(sql: str) -> str:
    try:
        statement = sqlglot.parse_one(sql, read="duckdb")
        unknown = sorted({function.name for function in statement.find_all(exp.Anonymous)})
        if unknown:
            raise WrongUse(f"Spark cannot be asked for {', '.join(unknown)}; leave out --engine spark.")
        return statement.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise WrongUse(f"this cannot be said to Spark: {str(error).strip().splitlines()[0]}") from error

"""The DuckDB that reads the tables' Parquet files."""

import duckdb


def quiet_connection() -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB that answers in UTC and prints no progress of its own."""
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'").fetchall()
    connection.execute("set enable_progress_bar = false").fetchall()
    return connection

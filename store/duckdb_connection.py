"""The DuckDB that reads the tables' Parquet files."""

import functools
import os
import tempfile
import threading
from pathlib import Path

import duckdb

_opening = threading.Lock()


def quiet_connection() -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB of its own that answers in UTC and prints no progress."""
    return _quiet(_opened())


def short_connection() -> duckdb.DuckDBPyConnection:
    """A connection for a statement or two, to the one in-memory DuckDB that this process shares.

    Opening a DuckDB costs 30 ms, this a fraction of one. What is registered on it, or created as temporary, is its
    own; nothing else may be created here.
    """
    with _opening:
        connection = _shared().cursor()
    return _quiet(connection)


@functools.cache
def _shared() -> duckdb.DuckDBPyConnection:
    return _opened()


def _opened() -> duckdb.DuckDBPyConnection:
    # What does not fit into memory goes there, and not into a `.tmp` where the program happens to run.
    spilled = Path(tempfile.gettempdir()) / f"espalier-duckdb-{os.getuid()}"
    return duckdb.connect(config={"temp_directory": str(spilled)})


def quoted(text: str) -> str:
    """A text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _quiet(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    connection.execute("set timezone = 'UTC'").fetchall()
    connection.execute("set enable_progress_bar = false").fetchall()
    return connection

"""How the ledger talks to its database: real transactions, bounded waits, the database's own clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, Engine, create_engine, event, literal_column
from sqlalchemy.exc import DBAPIError, OperationalError

from store.errors import BadInput, HomeNotUsable, LedgerBusy

WRITES = "ledger_writes"  # execution option: take the write lock at the start of the transaction


def connect(url: str, *, busy_seconds: float) -> Engine:
    """An engine on the ledger's database; a locked one is waited for at most `busy_seconds`."""
    if not url.startswith("sqlite"):
        return create_engine(url)
    engine = create_engine(url, connect_args={"timeout": busy_seconds})

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transaction of its own; `begin` below does
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        # FULL: the lakehouse may already have drained a commit, so a power cut must not take it back
        # and hand its feed_seq to another one.
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that writes after it read fails at once when another writer came between.
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def transaction(engine: Engine, *, writes: bool, busy_seconds: float) -> Iterator[Connection]:
    """One transaction: committed at the end, rolled back on an error.

    Raises:
        LedgerBusy: Another process held the write lock for longer than `busy_seconds`.
        HomeNotUsable: The database file cannot be opened or written.
        BadInput: The file is no database.
    """
    try:
        with engine.connect().execution_options(**{WRITES: writes}) as connection, connection.begin():
            yield connection
    except DBAPIError as error:
        raise explained(error, engine, busy_seconds) from error


def explained(error: DBAPIError, engine: Engine, busy_seconds: float) -> Exception:
    """The error a person can act on, or the error itself where there is none."""
    cause = str(error.orig)
    place = engine.url.render_as_string(hide_password=True)
    if isinstance(error, OperationalError) and ("locked" in cause or "busy" in cause):
        return LedgerBusy(
            f"ledger {place} stayed locked by another process for {busy_seconds:g} s; "
            "nothing was written. Try again when that process is done."
        )
    if any(text in cause for text in ("unable to open", "readonly", "disk I/O", "full")):
        return HomeNotUsable(f"ledger {place} cannot be used ({cause}); name another home with --home DIR.")
    if "not a database" in cause or "malformed" in cause:
        return BadInput(f"ledger {place} is no SQLite database ({cause}); move the file away or name another home.")
    return error


def database_clock(connection: Connection) -> ColumnElement[float]:
    """Seconds since 1970 by the database's clock, which all workers share."""
    if connection.dialect.name == "sqlite":
        return literal_column("(julianday('now') - 2440587.5) * 86400.0", Double)
    return literal_column("extract(epoch from clock_timestamp())", Double)

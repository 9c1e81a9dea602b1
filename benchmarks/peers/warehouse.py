"""The base rows as a peer sees them: two tables of a DuckDB file, to which a loader applies each change in place.

Runs in the peers' environment and imports nothing of ours. Every row carries `updated_at`, a day per step, since that
is what both tools find new rows by.
"""

from datetime import datetime, timedelta
from pathlib import Path

import duckdb

FIRST_DAY = datetime(2026, 1, 1)
COMPARED = "chosen_id, rejected_id, chosen_fitness, rejected_fitness"


def day_of(step: int) -> datetime:
    """The day on which a step's rows are loaded; step 0 is the first load."""
    return FIRST_DAY + timedelta(days=step)


def load_first(database: Path, data: Path) -> None:
    """Create the tables from the first step's files."""
    with duckdb.connect(str(database)) as connection:
        connection.execute("create schema raw")
        for name in ("nodes", "turns"):
            flags = ", false as is_deleted" if name == "nodes" else ""
            connection.execute(
                f"create table raw.{name} as select *{flags}, ?::timestamp as updated_at from read_parquet(?)",
                [day_of(0) + timedelta(hours=12), str(data / "0" / f"{name}.parquet")],
            )


def apply_step(database: Path, data: Path, step: int, *, flag_deletes: bool) -> None:
    """Upsert the step's rows and take its deleted ones out, or flag them where the loader keeps such rows."""
    folder = data / str(step)
    at = day_of(step) + timedelta(hours=12)
    with duckdb.connect(str(database)) as connection:
        for name in ("nodes", "turns"):
            file = str(folder / f"{name}.parquet")
            flags = ", false" if name == "nodes" else ""
            connection.execute(f"delete from raw.{name} where node_id in (select node_id from read_parquet(?))", [file])
            connection.execute(f"insert into raw.{name} select *{flags}, ?::timestamp from read_parquet(?)", [at, file])
        gone = str(folder / "deleted.parquet")
        if flag_deletes:
            connection.execute(
                "update raw.nodes set is_deleted = true, updated_at = ? "
                "where node_id in (select node_id from read_parquet(?))",
                [at, gone],
            )
        else:
            for name in ("nodes", "turns"):
                connection.execute(
                    f"delete from raw.{name} where node_id in (select node_id from read_parquet(?))", [gone]
                )


def rows_that_differ(database: Path, table: str, expected: Path) -> dict[str, int]:
    """Rows that the table should not have, and rows that it lacks, by key and fitness."""
    with duckdb.connect(str(database)) as connection:
        have = f"select {COMPARED} from {table}"
        want = f"select {COMPARED} from read_parquet('{expected}')"
        stale, missing = (
            connection.execute(f"select count(*) from ({one} except all {other})").fetchall()[0][0]
            for one, other in ((have, want), (want, have))
        )
    return {"stale": int(stale), "missing": int(missing)}

"""The registry: one row per training run in `runs`, one per model in `models`, one per snapshot in `datasets`.

A run holds a lock on a file in its work folder for as long as it lives. A run that was killed lets go of
the lock and leaves its row at `running`; the next one that starts marks such rows `stopped`.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from store.delta import Tables
from store.home import Home
from store.ids import canonical_json, stable_id

LOCK_FILE = "alive.lock"


@dataclass(frozen=True)
class RunRow:
    """A training run as it starts."""

    run_id: str
    kind: str  # sft, dpo, grpo
    dataset_ids: tuple[str, ...]
    base_model: str | None
    config: dict[str, Any]
    num_rows: int
    started_at: datetime


def new_run_id(home: Home, kind: str, dataset_ids: tuple[str, ...], config: dict[str, Any], now: datetime) -> str:
    """An id for a run; a repetition with everything equal, the clock too, gets the next ordinal."""
    taken = set(Tables(home).read("runs", columns=["run_id"])["run_id"].to_pylist())
    ordinal = 0
    while True:
        run_id = stable_id("run", kind, *dataset_ids, canonical_json(config), now.isoformat(), ordinal)
        if run_id not in taken and not (home.runs / run_id).exists():
            return run_id
        ordinal += 1


@contextmanager
def alive(home: Home, run_id: str) -> Iterator[Path]:
    """Hold the run's lock and give its work folder."""
    folder = home.runs / run_id
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def start_run(home: Home, run: RunRow) -> None:
    """Register a run as running."""
    _write_run(home, run, status="running", metrics=None, ended_at=None)


def end_run(home: Home, run: RunRow, *, status: str, metrics: dict[str, Any] | None, ended_at: datetime | None) -> None:
    """Register how a run ended: done, failed or stopped."""
    _write_run(home, run, status=status, metrics=metrics, ended_at=ended_at)


def mark_dead_runs_stopped(home: Home) -> list[str]:
    """Mark every running row whose process is gone as stopped; its end is unknown and stays NULL.

    Returns:
        The run ids that were marked.
    """
    tables = Tables(home)
    rows = tables.read("runs").to_pylist()
    dead = [row for row in rows if row["status"] == "running" and not _is_alive(home, row["run_id"])]
    for row in dead:
        row["status"] = "stopped"
    if dead:
        tables.upsert("runs", pa.Table.from_pylist(dead, schema=tables.schema("runs").columns))
    return [row["run_id"] for row in dead]


def register_model(home: Home, row: dict[str, Any]) -> None:
    """Add or renew a model's row; the keys are the columns of `models`."""
    _write_row(home, "models", row)


def register_dataset(home: Home, row: dict[str, Any]) -> None:
    """Add or renew a snapshot's row; the keys are the columns of `datasets`."""
    _write_row(home, "datasets", row)


def _write_run(
    home: Home, run: RunRow, *, status: str, metrics: dict[str, Any] | None, ended_at: datetime | None
) -> None:
    _write_row(
        home,
        "runs",
        {
            "run_id": run.run_id,
            "kind": run.kind,
            "dataset_ids": sorted(run.dataset_ids),
            "base_model": run.base_model,
            "config": canonical_json(run.config),
            "metrics": None if metrics is None else canonical_json(metrics),
            "num_rows": run.num_rows,
            "status": status,
            "started_at": run.started_at,
            "ended_at": ended_at,
        },
    )


def _write_row(home: Home, table: str, row: dict[str, Any]) -> None:
    tables = Tables(home)
    tables.upsert(table, pa.Table.from_pylist([row], schema=tables.schema(table).columns))


def _is_alive(home: Home, run_id: str) -> bool:
    path = home.runs / run_id / LOCK_FILE
    if not path.is_file():
        return False
    with path.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

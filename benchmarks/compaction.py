"""What a compaction does to a table that grew by small appends, beside the two that delta-rs has.

    .venv/bin/python benchmarks/compaction.py [--appends 200]

Every tenth append brings late nodes of ten old sessions with its own. `opens` is how many files a lookup of one
session opens, by the log's statistics: in the worst case, and on average over all sessions.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from store.compaction import compact_table
from store.delta import CHANGE, Tables
from store.home import open_home
from store.layout import read_layout
from store.schema import NODES, TABLES
from store.storage_settings import read_storage_settings

SETTINGS = read_storage_settings()
NODES_PER_SESSION, TEXT_BYTES, LATE = 100, 2048, 10


def grow(tables: Tables, appends: int) -> None:
    """One append per session."""
    picked = random.Random(1)
    tables.create("nodes")
    for seq in range(appends):
        places = [(seq, f"n{seq}-{number}") for number in range(NODES_PER_SESSION)]
        if seq % 10 == 9:
            places += [(picked.randrange(seq), f"late{seq}-{number}") for number in range(LATE)]
        rows = [
            {"node_id": name, "session_seq": at, "step": step, "artifact": picked.randbytes(TEXT_BYTES // 2).hex()}
            for step, (at, name) in enumerate(places)
        ]
        changes = pa.Table.from_pylist(rows, schema=NODES.columns).append_column(
            CHANGE, pa.array(["insert"] * len(rows))
        )
        tables.commit_rows("nodes", changes, planned_at=seq)


def milliseconds(function: Callable[[], object]) -> float:
    """The fastest of five runs."""
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        function()
        spent.append(time.perf_counter() - started)
    return min(spent) * 1000


def say(what: str, tables: Tables, seconds: float | None) -> None:
    """One line about the table as it lies now."""
    layout = read_layout(tables.open("nodes"), TABLES["nodes"].sort, SETTINGS.files)
    lookup = milliseconds(lambda: tables.read("nodes", session_seqs=[len(layout.files) // 2]))
    opened = milliseconds(lambda: tables.open("nodes"))
    took = "" if seconds is None else f"{seconds:.2f} s"
    print(
        f"{what:50} {took:>7}  {len(layout.files):4} files, {layout.size_bytes / 2**20:5.1f} MiB; a lookup opens "
        f"{layout.files_per_lookup:2} at worst, {layout.mean_files_per_lookup:5.2f} on average; "
        f"{lookup:5.0f} ms for one session, {opened:4.0f} ms to open"
    )


def main() -> None:
    """Grow one table, and compact a copy of it in each way, twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--appends", type=int, default=200, help="appends, of 100 nodes each")
    appends = parser.parse_args().appends
    target = SETTINGS.files.clustered_bytes
    ways: dict[str, Callable[[Tables], object]] = {
        "espalier compact": lambda tables: compact_table(tables, "nodes", SETTINGS),
        "delta-rs optimize.compact": lambda tables: tables.open("nodes").optimize.compact(target_size=target),
        "delta-rs optimize.z_order": lambda tables: tables.open("nodes").optimize.z_order(
            ["session_seq"], target_size=target
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        grown = Tables(open_home(Path(folder) / "grown"))
        grow(grown, appends)
        say(f"{appends} appends", grown, None)
        for name, compact in ways.items():
            home = Path(folder) / "compacted"
            shutil.copytree(grown.home.path, home)
            tables = Tables(open_home(home))
            for turn in ("", ", a second time"):
                before = tables.version("nodes")
                started = time.perf_counter()
                compact(tables)
                seconds = time.perf_counter() - started
                made = "no commit" if tables.version("nodes") == before else ""
                say(f"{name}{turn} {made}".strip(), tables, seconds)
            shutil.rmtree(home)


if __name__ == "__main__":
    main()

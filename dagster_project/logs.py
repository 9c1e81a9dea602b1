"""Group *logs*: what comes from outside the graph. Searches write the ledger, anyone may drop files in the inbox.

The loop closes here and not through an edge: a search appends to the ledger, a sensor sees the new rows, and the
tables are read from it again. So the asset graph stays acyclic.
"""

import os
from pathlib import Path

import dagster as dg

from store.home import Home
from store.ids import sha256_text

LEDGER = dg.AssetKey("search_ledger")
INBOX = dg.AssetKey("agent_logs")

external_logs = [
    dg.AssetSpec(
        LEDGER,
        group_name="logs",
        kinds={"sqlite"},
        description="Live state of our own searches: every attempt with its prompt, verdict and change-log rows. "
        "Searches append to it; the graph only reads it.",
    ),
    dg.AssetSpec(
        INBOX,
        group_name="logs",
        kinds={"json"},
        description="Exploration logs that were put into <home>/inbox: native JSONL, OpenEvolve checkpoints, AIDE "
        "journals.",
    ),
]


def inbox_files(home: Home) -> list[Path]:
    """Every file of the inbox in a fixed order; hidden files (half-copied ones, mostly) do not count."""
    found = []
    for folder, folders, files in os.walk(home.inbox):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder) / name for name in sorted(files) if not name.startswith(".")]
    return found


def inbox_state(home: Home) -> str | None:
    """A digest that moves when a file of the inbox comes, grows or is touched; None for an empty inbox."""
    lines = []
    for file in inbox_files(home):
        try:
            status = file.stat()
        except FileNotFoundError:  # taken away since the listing
            continue
        lines.append(f"{file.relative_to(home.inbox)}\t{status.st_size}\t{status.st_mtime_ns}")
    return sha256_text("\n".join(lines))[:24] if lines else None


def ledger_state(home: Home) -> str | None:
    """How far the ledger has rows that the tables lack; None where there is nothing new, or no ledger yet.

    Raises:
        LedgerBusy: The ledger is locked.
    """
    if home.ledger_url == f"sqlite:///{home.ledger_path}" and not home.ledger_path.exists():
        return None  # looking must not create it
    from store.delta import Tables
    from store.ledger import open_ledger
    from transforms.drain import CLOSING_TABLE
    from transforms.write import WATERMARKS, kept_metadata

    with open_ledger(home) as ledger:
        last, ledger_id = ledger.last_feed_seq(), ledger.ledger_id
    ingested = kept_metadata(Tables(home), CLOSING_TABLE).get(WATERMARKS, {}).get(ledger_id, 0)
    return f"{ledger_id}-{last}" if last > ingested else None

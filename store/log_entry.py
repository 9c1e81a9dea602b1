"""One commit of changed rows written to a Delta log: data files, the change data beside them, and who did it.

delta-rs commits appends and layouts for us, but has no way to commit change data with files of our choosing, and its
own merge mixes all touched sessions in every file it writes. The entry here is the one that a merge makes by the
Delta protocol (https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Actions"): tables have a change feed,
and no deletion vectors, column mapping or partitions.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from store.commits import LostRace
from store.known_logs import DataFile

CHECKPOINT_EVERY = 100  # commits, as delta-rs does by itself
CHANGE_TYPE = "_change_type"


def write_change_data(root: Path, images: pa.Table) -> dict[str, Any]:
    """Write images (the table's columns and `_change_type`) as the change data of a commit; returns its action."""
    folder = root / "_change_data"
    folder.mkdir(exist_ok=True)
    path = folder / f"cdc-00000-{uuid.uuid4()}.c000.zstd.parquet"
    pq.write_table(images, path, compression="zstd", write_statistics=False)
    size = path.stat().st_size
    return {"cdc": {"path": f"_change_data/{path.name}", "partitionValues": {}, "size": size, "dataChange": False}}


def commit_changes(
    root: Path,
    version: int,
    *,
    added: Sequence[AddAction],
    removed: Sequence[DataFile],
    change_data: dict[str, Any],
    metrics: dict[str, int],
    user_metadata: str,
    transaction: tuple[str, int] | None,
) -> None:
    """Commit files that come and go as exactly this version.

    Raises:
        LostRace: The version is there already.
    """
    now = int(time.time() * 1000)
    info = {
        "timestamp": now,
        "operation": "MERGE",
        "operationParameters": {},
        "readVersion": version - 1,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "engineInfo": "espalier",
        "operationMetrics": metrics,
        "userMetadata": user_metadata,
    }
    actions: list[dict[str, Any]] = [{"commitInfo": info}]
    if transaction is not None:
        actions.append({"txn": {"appId": transaction[0], "version": transaction[1], "lastUpdated": now}})
    for file in removed:
        actions.append(
            {
                "remove": {
                    "path": Path(file.path).relative_to(root).as_posix(),
                    "deletionTimestamp": now,
                    "dataChange": True,
                    "extendedFileMetadata": True,
                    "partitionValues": {},
                    "size": file.size_bytes,
                }
            }
        )
    for action in added:
        actions.append(
            {
                "add": {
                    "path": action.path,
                    "partitionValues": {},
                    "size": action.size,
                    "modificationTime": action.modification_time,
                    "dataChange": True,
                    "stats": action.stats,
                }
            }
        )
    actions.append(change_data)
    _put(root / "_delta_log" / f"{version:020}.json", "\n".join(json.dumps(action) for action in actions) + "\n")
    if (version + 1) % CHECKPOINT_EVERY == 0:
        with contextlib.suppress(Exception):  # a checkpoint only saves time
            DeltaTable(root, version=version).create_checkpoint()


def _put(path: Path, text: str) -> None:
    """Create a file with all its content at once, or not at all if it is there."""
    written = path.with_name(f"_commit_{uuid.uuid4()}.json.tmp")
    try:
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(written, path)
    except FileExistsError as error:
        raise LostRace(f"{path.name} was committed by somebody else") from error
    finally:
        written.unlink(missing_ok=True)

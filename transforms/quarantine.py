"""What could not be read is kept: its bytes, its place, and why."""

from datetime import datetime

from store.ids import sha256_bytes, stable_id
from transforms.structure import Row

KEPT_BYTES = 4 * 2**20


def quarantine_row(
    place: str, reason: str, data: bytes, *, source_id: str, path: str, log_format: str, now: datetime
) -> Row:
    """A row of `quarantine`; the same bytes at the same place of the same file are the same row.

    Beyond 4 MiB the bytes are cut, and the reason says so.
    """
    cut = len(data) > KEPT_BYTES
    return {
        "quarantine_id": stable_id("q", source_id, place, sha256_bytes(data)),
        "source_id": source_id,
        "path": path,
        "place": place,
        "reason": f"{reason} (first {KEPT_BYTES} of {len(data)} bytes kept)" if cut else reason,
        "bytes": data[:KEPT_BYTES],
        "format": log_format,
        "recorded_at": now,
    }

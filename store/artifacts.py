"""Artifact texts by digest: short ones ride in the nodes table, long ones are files under their SHA-256."""

import os
from pathlib import Path

import zstandard

from store.errors import UnknownName
from store.home import Home
from store.ids import sha256_text

INLINE_LIMIT_BYTES = 16 * 1024  # beyond this a text would bloat every scan of nodes


def artifact_path(home: Home, digest: str) -> Path:
    """Where the artifact of this digest lies as a file; shorter artifacts have none."""
    return home.artifacts / digest[:2] / f"{digest}.zst"


def store_artifact(home: Home, text: str | None) -> tuple[str | None, str | None]:
    """Keep an artifact; write a file when it is long.

    Returns:
        (text to store inline or None, digest or None). Writing the same text twice changes nothing.
    """
    if text is None:
        return None, None
    digest = sha256_text(text)
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= INLINE_LIMIT_BYTES:
        return text, digest
    path = artifact_path(home, digest)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_bytes(zstandard.ZstdCompressor(level=6).compress(data))
        unfinished.replace(path)
    return None, digest


def load_artifact(home: Home, inline: str | None, digest: str | None) -> str | None:
    """The artifact's text from its row's two columns; None where the node has none.

    Raises:
        UnknownName: The row names a digest whose file is gone (erased, or not copied along).
    """
    if inline is not None or digest is None:
        return inline
    path = artifact_path(home, digest)
    if not path.exists():
        raise UnknownName(
            f"artifact {digest} is not at {path}; it was erased, or its file was not copied with the tables."
        )
    return zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode("utf-8")

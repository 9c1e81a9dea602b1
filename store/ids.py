"""Digests and ids that are the same on every machine and in every run."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no spaces: equal values give equal text.

    Raises:
        ValueError: The value holds NaN or an infinity, which JSON cannot say.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_text(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes, 64 hex digits; lone surrogates count as their escapes."""
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 of bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def stable_id(prefix: str, *parts: str | int | None) -> str:
    """An id derived from its parts alone, such as `n_1f0c…` from (format, run, native id).

    None and "" are different parts. 24 hex digits (96 bits) follow the prefix.
    """
    return f"{prefix}_{sha256_text(canonical_json(list(parts)))[:24]}"


def message_digest(messages: list[dict[str, Any]]) -> str:
    """Digest of chat turns by role, content and tool calls; what else a turn carries does not count."""
    turns = [[turn["role"], turn.get("content"), turn.get("tool_calls"), turn.get("tool_call_id")] for turn in messages]
    return sha256_text(canonical_json(turns))


def content_digest(artifact: str | None, messages: list[dict[str, Any]]) -> str:
    """Digest of a node's content: its artifact and all its chat turns, prompt and answer."""
    artifact_digest = None if artifact is None else sha256_text(artifact)
    return sha256_text(canonical_json([artifact_digest, message_digest(messages)]))


def number_text(value: float | None) -> str | None:
    """The shortest text that reads back as the same float; what digests hold instead of the float."""
    return None if value is None else repr(float(value))

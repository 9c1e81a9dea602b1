"""Parses the JSON of a log and refuses what could be parsed and yet not be stored."""

import json
from typing import Any

MAX_NESTING = 200  # deeper values exhaust Python's stack where they are compared and written


def parse_json(data: bytes | str) -> Any:
    """The JSON value that a whole file or text is.

    Raises:
        ValueError: It is none, or is nested too deeply, with the reason.
    """
    if not data.strip():
        raise ValueError(f"empty file ({len(data)} bytes)")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON ({str(error).splitlines()[0]})") from error
    demand_flat(value)
    return value


def demand_flat(value: Any) -> None:
    """Refuse a JSON value that is nested too deeply.

    Raises:
        ValueError: It is.
    """
    level = [value]
    for _ in range(MAX_NESTING + 1):
        parts = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        if not parts:
            return
        level = [item for part in parts for item in part]
    raise ValueError(f"JSON that is nested deeper than {MAX_NESTING} levels")

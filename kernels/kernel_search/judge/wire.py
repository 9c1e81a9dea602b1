"""Messages between the judge and its servers: JSON with arrays beside it, never pickles, since one end is hostile.

A message is: 4 bytes header length, header (JSON), then the arrays' bytes in order. In the header an array is
{"__array__": [dtype, shape, offset, bytes]}.
"""

import json
import math
import struct
from typing import Any

import numpy as np

ALLOWED_TYPES = frozenset({"float16", "float32", "float64", "int32", "int64", "uint8", "bool"})
LENGTH = struct.Struct("<Q")
HEADER = struct.Struct("<I")


def encode(value: Any) -> bytes:
    """Bytes of a value made of dicts, lists, numbers, text, None and numpy arrays."""
    blobs: list[bytes] = []
    position = 0

    def plain(item: Any) -> Any:
        nonlocal position
        if isinstance(item, np.ndarray):
            data = np.ascontiguousarray(item).tobytes()
            described = {"__array__": [item.dtype.name, list(item.shape), position, len(data)]}
            blobs.append(data)
            position += len(data)
            return described
        if isinstance(item, dict):
            return {str(key): plain(part) for key, part in item.items()}
        if isinstance(item, list | tuple):
            return [plain(part) for part in item]
        if isinstance(item, np.generic):
            return item.item()
        return item

    header = json.dumps(plain(value)).encode()
    return b"".join([HEADER.pack(len(header)), header, *blobs])


def decode(data: bytes) -> Any:
    """The value of `encode`'s bytes; arrays are read-only.

    Raises:
        ValueError: The bytes are no such message.
    """
    try:
        (size,) = HEADER.unpack_from(data)
        body = memoryview(data)[HEADER.size + size :]
        header = json.loads(bytes(data[HEADER.size : HEADER.size + size]))
        return _with_arrays(header, body)
    except (struct.error, KeyError, TypeError, IndexError, RecursionError) as error:
        raise ValueError(f"malformed message: {error}") from error


def _with_arrays(item: Any, body: memoryview) -> Any:
    if isinstance(item, list):
        return [_with_arrays(part, body) for part in item]
    if not isinstance(item, dict):
        return item
    if set(item) != {"__array__"}:
        return {key: _with_arrays(part, body) for key, part in item.items()}
    name, shape, start, size = item["__array__"]
    if name not in ALLOWED_TYPES:
        raise ValueError(f"malformed message: array of type {name!r}")
    dtype = np.dtype(name)
    if not all(isinstance(n, int) and n >= 0 for n in shape) or math.prod(shape) * dtype.itemsize != size or start < 0:
        raise ValueError("malformed message: array sizes disagree")
    return np.frombuffer(body[start : start + size], dtype=dtype).reshape(shape)

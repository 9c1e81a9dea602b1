"""One reader per log format. A reader yields records and knows no table."""

from types import ModuleType

from transforms.logs import aide, native, openevolve

READERS: dict[str, ModuleType] = {module.FORMAT: module for module in (native, openevolve, aide)}

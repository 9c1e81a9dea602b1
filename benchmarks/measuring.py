"""What the measurements of views share: the machine, homes beside a home, and whether two homes hold equal views."""

import os
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from store.delta import Tables
from store.duckdb_connection import quoted, short_connection
from store.home import Home, open_home
from store.schema import TABLES
from views.registry import VIEW_ORDER, declare_views

LIBRARIES = ("duckdb", "deltalake", "pyarrow", "numpy")


def machine() -> dict[str, Any]:
    """What was measured on, and when; nothing that names the machine."""
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": [round(load, 2) for load in os.getloadavg()],  # over cores: others slowed what was measured
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _first_line(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), platform.processor())


def home_with_the_same_tables(home: Home, path: Path) -> Home:
    """A home at `path` that reads the base tables of another one and has views of its own, none built."""
    shutil.rmtree(path, ignore_errors=True)
    other = open_home(path)
    for name in TABLES:
        if (home.tables / name).is_dir():
            (other.tables / name).symlink_to((home.tables / name).resolve(), target_is_directory=True)
    return other


def copy_home(home: Home, path: Path) -> Home:
    """A copy of a home, views and all, at `path`; what was there goes. Files are linked: none is ever rewritten."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(home.path, path, copy_function=_link)
    return Home(path)


def _link(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def rows_that_differ(first: Home, second: Home) -> dict[str, int]:
    """Per view the rows, by key and digest, that only one of two homes has; 0 where they are equal."""
    return {name: _differing(first, second, name) for name in VIEW_ORDER}


def _differing(first: Home, second: Home, name: str) -> int:
    selects = []
    for home in (first, second):
        tables = Tables(home)
        declare_views(tables)
        schema = tables.schema(name)
        names = schema.columns.names
        compared = [*schema.key, "row_digest"] if "row_digest" in names else names
        columns = ", ".join(f'"{column}"' for column in compared)
        files = ", ".join(map(quoted, tables.files(name)))
        empty = f"select {', '.join(f'null as {column}' for column in compared)} where false"
        selects.append(f"select {columns} from read_parquet([{files}], union_by_name = true)" if files else empty)
    one, other = selects
    with short_connection() as connection:
        only_one, only_other = (
            connection.execute(f"select count(*) from ({left} except all {right})").fetchall()[0][0]
            for left, right in ((one, other), (other, one))
        )
    return int(only_one + only_other)

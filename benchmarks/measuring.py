"""What the measurements of views share: the machine, and homes beside a home."""

import os
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from store.home import Home, open_home
from store.schema import TABLES

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

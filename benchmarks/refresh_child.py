"""A process that refreshes a home when it is told to, and measures itself: what a long-running service would see.

    python -m benchmarks.refresh_child HOME [--engine spark]

Each line on stdin is a JSON object, the arguments of a refresh; each answer is one on stdout: the seconds of the whole
refresh and of every view, and processor seconds (which a busy machine hardly changes), rows written, files and bytes
read as the commits say, the bytes of all tables that the refreshed views stand on (each counted once), and
the most memory that this process and its children held meanwhile. Imports are done before the first line is read.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from store.delta import Tables
from store.home import Home
from store.settings import CONF
from store.spark_settings import read_spark_settings
from views.refresh import refresh
from views.registry import declare_views

LARGE_TABLES = {"driver_memory": "8g", "small_tables": False, "java_options": "", "shuffle_partitions": 32}
READ_KEYS = ("files_read", "bytes_read", "input_bytes")


class RefreshChild:
    """The process, seen from the one that measures."""

    def __init__(self, home: Home, *, engine: str = "duckdb") -> None:
        command = [sys.executable, "-m", "benchmarks.refresh_child", str(home.path), "--engine", engine]
        environment = dict(os.environ)
        if engine == "spark" and "ESPALIER_CONF" not in os.environ:
            environment["ESPALIER_CONF"] = str(_conf_for_large_tables(home.path / "conf"))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def refresh(self, **arguments: Any) -> dict[str, Any]:
        """Let it refresh and return what it measured.

        Raises:
            RuntimeError: The process ended without an answer; what it said stands on stderr.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"the refreshing process ended with status {self.process.wait()} before it answered")

    def __enter__(self) -> "RefreshChild":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _conf_for_large_tables(folder: Path) -> Path:
    """The settings as they are, but with Spark as conf/spark.yaml says it should be for large tables."""
    shutil.copytree(CONF, folder, dirs_exist_ok=True)
    settings = read_spark_settings().model_dump() | LARGE_TABLES
    (folder / "spark.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


def measured_refresh(home: Home, engine: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Refresh in this process and measure."""
    forget_peak()
    if engine != "duckdb":
        arguments = {**arguments, "engine": engine}
    begun: dict[str, float] = {}  # processor seconds at which each view began

    def note(said: str) -> None:
        begun[said.removeprefix("refresh ")] = time.process_time()

    begin, begin_cpu = time.perf_counter(), time.process_time()
    results = refresh(home, progress=note, **arguments)
    seconds, end_cpu = time.perf_counter() - begin, time.process_time()
    peak = peak_bytes()
    tables = Tables(home)
    declare_views(tables)
    views, inputs = {}, dict[str, int]()
    for name, result in results.items():
        said = tables.metadata(name) if result.mode != "none" else {}
        views[name] = {**vars(result), **{key: said.get(key) for key in READ_KEYS}}
        views[name]["cpu_seconds"] = (
            min((at for at in begun.values() if at > begun[name]), default=end_cpu) - begun[name]
        )
        inputs |= said.get("watermarks") or {}
    input_bytes = sum(
        file.size_bytes
        for table, version in inputs.items()
        if version is not None
        for file in tables.data_files(table, version=version)
    )
    return {
        "seconds": seconds,
        "cpu_seconds": end_cpu - begin_cpu,
        "peak_bytes": peak,
        "input_bytes": input_bytes,
        "views": views,
    }


def forget_peak() -> None:
    """Let the kernel count this process's most memory from now on, where it can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak_bytes() -> int:
    """The most memory that this process and its children held: summed over them, at whatever time each was largest.

    Not `ru_maxrss`, which begins with what the process that started this one held.
    """
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return sum(_high_water(process) for process in _with_children(os.getpid()))


def _with_children(process: int) -> list[int]:
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            found += _with_children(int(child))
    return found


def _high_water(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    """Answer requests until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--engine", default="duckdb")
    arguments = parser.parse_args()
    home = Home(arguments.home)
    for line in sys.stdin:
        print(json.dumps(measured_refresh(home, arguments.engine, json.loads(line))), flush=True)
    sys.stderr.flush()
    os._exit(0)  # delta-rs and pyarrow together sometimes abort at exit


if __name__ == "__main__":
    main()

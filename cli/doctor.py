"""What `espalier doctor` looks at; each look says what it saw and what to do about it."""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from store.errors import PipelineError
from store.home import Home
from store.settings import conf_folder

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements.txt"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;]+)(?: ; (.+))?$")
LITTLE_DISK_BYTES = 5 * 2**30
JAVA_VERSIONS = (17, 21)
SANDBOX_PROBE = """
import json, os, sys
from pathlib import Path
from kernel_search.judge.sandbox import Limits, enter
layers = enter(Limits(cpu_seconds=10, memory_mib=512, file_mib=8), Path(sys.argv[1]), ())
print(json.dumps(layers), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Finding:
    """One thing looked at; what is not required only narrows what can be done here."""

    name: str
    ok: bool
    is_required: bool
    detail: str


def examine(home: Home) -> list[Finding]:
    """Look at everything, in the order in which a person would fix it."""
    return [
        _python(),
        _versions(),
        _bytecode(),
        _threads(),
        _home(home),
        _ledger(home),
        _settings(),
        *_sandbox(),
        _java(),
        _gpu(),
    ]


def _python() -> Finding:
    ok = sys.version_info >= (3, 11)
    return Finding(
        "Python",
        ok,
        True,
        f"{platform.python_version()} at {sys.executable}" + ("" if ok else "; 3.11 or newer is needed"),
    )


def _versions() -> Finding:
    if not REQUIREMENTS.is_file():
        return Finding("pinned versions", True, False, "no requirements.txt beside the code: not a checkout")
    others = list(_versions_unlike_the_pins())
    if not others:
        return Finding("pinned versions", True, True, "every package is at its pinned version")
    return Finding(
        "pinned versions", False, False, f"{len(others)} differ: {'; '.join(others[:5])}; `make setup` installs them"
    )


def _versions_unlike_the_pins() -> Iterator[str]:
    from packaging.markers import Marker

    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        pin = PIN.match(line)
        if pin is None or (pin[3] and not Marker(pin[3]).evaluate()):
            continue
        try:
            installed = importlib.metadata.version(pin[1])
        except importlib.metadata.PackageNotFoundError:
            yield f"{pin[1]} is missing"
            continue
        if installed != pin[2]:
            yield f"{pin[1]} {installed}, not {pin[2]}"


def _bytecode() -> Finding:
    if sys.dont_write_bytecode:
        detail = "off: unset PYTHONDONTWRITEBYTECODE, or each start that imports torch and TRL costs 25 seconds"
        return Finding("bytecode cache", False, False, detail)
    return Finding("bytecode cache", True, False, "on")


def _threads() -> Finding:
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is None:
        detail = f"OMP_NUM_THREADS is unset, {os.cpu_count()} cores; 1 is faster where several processes share them"
        return Finding("threads", False, False, detail)
    return Finding("threads", True, False, f"OMP_NUM_THREADS={threads}, {os.cpu_count()} cores")


def _home(home: Home) -> Finding:
    free = shutil.disk_usage(home.path).free
    detail = f"{home.path}, writable, {free / 2**30:.0f} GiB free"
    return Finding("home", free > LITTLE_DISK_BYTES, False, detail)


def _ledger(home: Home) -> Finding:
    from store.ledger_overview import read_ledger_overview

    try:
        overview = read_ledger_overview(home)
    except PipelineError as error:
        return Finding("ledger", False, True, str(error))
    stuck = sum(session.stuck_claims for session in overview.sessions)
    more = f", {stuck} stuck claims (`espalier search --resume SESSION` takes them up)" if stuck else ""
    return Finding("ledger", True, True, f"{len(overview.sessions)} sessions{more}")


def _settings() -> Finding:
    from lineage.policy import read_policy

    try:
        policy = read_policy()
    except PipelineError as error:
        return Finding("settings", False, True, str(error))
    return Finding(
        "settings", True, True, f"{conf_folder()}, principals {', '.join(sorted(policy.settings.principals))}"
    )


def _sandbox() -> list[Finding]:
    """The walls that the judge puts around a candidate, tried in a child process."""
    with tempfile.TemporaryDirectory(prefix="espalier-doctor-") as scratch:
        command = [sys.executable, "-c", SANDBOX_PROBE, scratch]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=scratch)
    try:
        layers: dict[str, bool] = json.loads(answer.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = answer.stderr.strip().splitlines()[-1:] or ["no answer"]
        return [Finding("sandbox", False, True, f"the trial child failed: {last[0]}")]
    off = [name for name, is_on in layers.items() if not is_on]
    detail = f"on: {', '.join(name for name in layers if name not in off) or 'none'}"
    if off:
        detail += f"; off: {', '.join(off)}. Judge only candidates you trust as much as the layers that are on."
    return [Finding("sandbox", not off, "rlimits" in off, detail)]


def _java() -> Finding:
    java = shutil.which("java")
    if java is None:
        return Finding("Java", False, False, "none found; only the Spark engine needs it (17 or 21)")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    version = re.search(r'version "(\d+)[^"]*"', answer.stderr)
    seen = version[0] if version else answer.stderr.strip().splitlines()[0]
    ok = version is not None and int(version[1]) in JAVA_VERSIONS
    return Finding("Java", ok, False, f"{seen} at {java}" + ("" if ok else "; the Spark engine needs 17 or 21"))


def _gpu() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("GPU", False, False, "none found; kernels are compiled and estimated for one, never run on it")
    answer = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20, check=False)
    seen = " ".join(answer.stdout.split()) or " ".join(answer.stderr.split())
    return Finding("GPU", answer.returncode == 0, False, seen)

"""Looking at processes that a test started: what lives, and waiting for what must happen."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Starts a process of its own, as a trainer's data loader would, and tells both process ids.
SLEEPER = """
import os, subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), inner.pid, flush=True)
time.sleep(60)
"""


def is_alive(process_id: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of a condition; fails when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen within {seconds} s")


def sleeping_processes(log: Path) -> list[int]:
    """The process ids that a SLEEPER wrote to its log, once they are there."""

    def written() -> list[str] | None:
        text = log.read_text() if log.is_file() else ""
        return text.split() if text.endswith("\n") else None

    return [int(word) for word in wait_for(written)]

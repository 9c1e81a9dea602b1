"""Runs one command and ends it, with all it started, when whoever asked for it ends.

Dagster forwards an interrupt to a Pipes child, but a run that is killed outright cannot. So the child runs on a
leash: this process watches its parent, and the command lives in a process group of its own that is ended as one.

    python -m dagster_project.leash --parent PID [--log FILE] -- COMMAND [ARGUMENT …]
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

POLL_SECONDS = 0.25
GRACE_SECONDS = 8.0  # shorter than the 20 s that Dagster waits before it gives up on the child


class _Ended(Exception):
    """A signal asked this process to end."""


def leashed(command: Sequence[str], *, log: Path | None = None) -> list[str]:
    """The command line that runs `command` for as long as this process lives; output goes to `log` if named."""
    written = [] if log is None else ["--log", str(log)]
    return [sys.executable, "-m", "dagster_project.leash", "--parent", str(os.getpid()), *written, "--", *command]


def hold(command: Sequence[str], *, parent: int, log: Path | None = None) -> int:
    """Run the command until it ends, a signal comes, or the parent is gone.

    Returns:
        The command's exit status; 128 + n where signal n ended it.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise_ended)
    child: subprocess.Popen[bytes] | None = None
    try:
        if log is None:
            child = subprocess.Popen(command, start_new_session=True)
        else:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                child = subprocess.Popen(command, start_new_session=True, stdout=output, stderr=subprocess.STDOUT)
        while os.getppid() == parent:
            try:
                status = child.wait(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return status if status >= 0 else 128 - status
        return 128 + signal.SIGTERM
    except _Ended as ended:
        return 128 + int(ended.args[0])
    finally:
        if child is not None:
            _end_group(child)


def _raise_ended(number: int, frame: FrameType | None) -> None:
    raise _Ended(number)


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """End whatever is left of the child's process group: politely first, then for good."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for number, patience_seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 1.0)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(timeout=patience_seconds)
        except subprocess.TimeoutExpired:
            continue


def main() -> int:
    """Parse the command line and hold the command."""
    parser = argparse.ArgumentParser(description="Run a command for as long as the process that asked for it lives.")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    return hold(command, parent=arguments.parent, log=arguments.log)


if __name__ == "__main__":
    sys.exit(main())

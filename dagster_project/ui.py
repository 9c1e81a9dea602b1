"""`make ui`: the asset graph of one home in the browser, with the daemon that runs schedules and sensors.

Started as `python -m dagster_project.ui [--home DIR] [--port N]`.
"""

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType

from dagster_project.instance import prepare_dagster_home
from dagster_project.leash import leashed
from store.errors import PipelineError, WrongUse
from store.home import Home, open_home

FIRST_PORT = 3000
PORTS_TRIED = 50
START_SECONDS = 120.0
END_SECONDS = 15.0
LINE_EVERY_SECONDS = 5.0


class _Ended(Exception):
    """Ctrl-C, or a signal to end."""


def free_port(wanted: int | None) -> int:
    """The wanted port, else the first free one from 3000 upward.

    Raises:
        WrongUse: The wanted port, or every port that was tried, is taken.
    """
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    tried = f"port {wanted} is" if wanted is not None else f"ports {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} are"
    raise WrongUse(f"{tried} taken; name another with --port N.")


def start(home: Home, port: int) -> list[subprocess.Popen[bytes]]:
    """Start webserver and daemon on leashes, their output in <home>/dagster/*.log."""
    environment = {**os.environ, "ESPALIER_HOME": str(home.path), "DAGSTER_HOME": str(prepare_dagster_home(home))}
    module = ["-m", "dagster_project.definitions"]
    commands = {
        "webserver": [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *module],
        "daemon": [sys.executable, "-m", "dagster._daemon", "run", *module],
    }
    return [
        subprocess.Popen(
            leashed(command, log=home.dagster / f"{name}.log"),
            env=environment,
            cwd=Path(__file__).resolve().parent.parent,
            start_new_session=True,
        )
        for name, command in commands.items()
    ]


def wait_until_up(port: int, children: list[subprocess.Popen[bytes]], home: Home) -> None:
    """Return when the page answers; until then, say every few seconds how long it has taken.

    Raises:
        PipelineError: A child ended, or nothing answered in time.
    """
    started = told_at = time.monotonic()
    while (now := time.monotonic()) < started + START_SECONDS:
        if now - told_at >= LINE_EVERY_SECONDS:
            told_at = now
            print(f"  still starting, {now - started:.0f} s", flush=True)
        if any(child.poll() is not None for child in children):
            raise PipelineError(f"Dagster ended while it started; its output is in {home.dagster}/*.log.")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise PipelineError(f"Dagster did not answer within {START_SECONDS:.0f} s; its output is in {home.dagster}/*.log.")


def end(children: list[subprocess.Popen[bytes]]) -> None:
    """End every child and what it started."""
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()


def serve(home: Home, port: int) -> int:
    """Run the page until Ctrl-C, a signal, or the end of one of its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_ended)
    children: list[subprocess.Popen[bytes]] = []
    try:
        print(f"starting Dagster for {home.path} …", flush=True)
        children = start(home, port)
        wait_until_up(port, children, home)
        print(f"asset graph:  http://127.0.0.1:{port}/asset-groups", flush=True)
        print(f"runs:         http://127.0.0.1:{port}/runs", flush=True)
        print("Ctrl-C ends it.", flush=True)
        while all(child.poll() is None for child in children):
            time.sleep(0.5)
        raise PipelineError(f"a Dagster process ended by itself; its output is in {home.dagster}/*.log.")
    except _Ended:
        _say_stopping()
        return 0
    finally:
        _ignore_signals()
        end(children)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _say_stopping() -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        print("stopping …", flush=True)


def _raise_ended(number: int, frame: FrameType | None) -> None:
    _ignore_signals()  # one is enough: a second would cut the end short
    raise _Ended(number)


def main() -> int:
    """Parse the command line; errors are one line and exit code 2."""
    parser = argparse.ArgumentParser(description="Open the asset graph of a home in the browser.")
    parser.add_argument("--home", help="data folder (default: ESPALIER_HOME, else ./data)")
    parser.add_argument("--port", type=int, help=f"port (default: the first free one from {FIRST_PORT})")
    arguments = parser.parse_args()
    try:
        return serve(open_home(arguments.home), free_port(arguments.port))
    except PipelineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""A command on a leash ends when whoever asked for it ends, however that happens."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dagster_project.leash import leashed

# Starts a process of its own, as a trainer's data loader would, and tells both process ids.
SLEEPER = """
import os, subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), inner.pid, flush=True)
time.sleep(60)
"""
ASKER = """
import subprocess, sys, time
from pathlib import Path
from dagster_project.leash import leashed
process = subprocess.Popen(leashed([sys.executable, "-c", sys.argv[2]], log=Path(sys.argv[1])))
print(process.pid, flush=True)
time.sleep(60)
"""


def is_alive(process_id: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for(condition, seconds: float = 20.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen within {seconds} s")


def sleeping_processes(log: Path) -> list[int]:
    words = wait_for(lambda: log.read_text().split() if log.is_file() and log.read_text().endswith("\n") else None)
    return [int(word) for word in words]


def test_the_exit_status_of_the_command_is_passed_on():
    assert subprocess.run(leashed([sys.executable, "-c", "raise SystemExit(7)"])).returncode == 7


def test_the_output_of_the_command_goes_to_the_log(tmp_path):
    command = [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr)"]
    subprocess.run(leashed(command, log=tmp_path / "deep" / "job.log"), check=True)
    assert sorted((tmp_path / "deep" / "job.log").read_text().split()) == ["err", "out"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_leash_ends_the_command_and_what_it_started(tmp_path, number):
    log = tmp_path / "job.log"
    leash = subprocess.Popen(leashed([sys.executable, "-c", SLEEPER], log=log))
    sleeping = sleeping_processes(log)
    assert all(is_alive(process_id) for process_id in sleeping)

    leash.send_signal(number)

    assert leash.wait(timeout=20) == 128 + number
    wait_for(lambda: not any(is_alive(process_id) for process_id in sleeping))


def test_a_killed_asker_takes_the_command_along(tmp_path):
    log = tmp_path / "job.log"
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(log), SLEEPER], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    leash = int(asker.stdout.readline())
    sleeping = sleeping_processes(log)

    asker.kill()  # no handler can run
    asker.wait(timeout=10)
    asker.stdout.close()

    wait_for(lambda: not any(is_alive(process_id) for process_id in [leash, *sleeping]))

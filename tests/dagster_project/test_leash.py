"""A command on a leash ends when whoever asked for it ends, however that happens."""

import os
import signal
import subprocess
import sys

import pytest

from dagster_project.leash import leashed
from process_watch import SLEEPER, is_alive, sleeping_processes, wait_for

ASKER = """
import subprocess, sys, time
from pathlib import Path
from dagster_project.leash import leashed
process = subprocess.Popen(leashed([sys.executable, "-c", sys.argv[2]], log=Path(sys.argv[1])))
print(process.pid, flush=True)
time.sleep(60)
"""


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

"""The process that trains: its last line, its exit status, and that it ends when it must."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from training import sft_job
from training.registry import mark_dead_runs_stopped
from training.snapshots import export_view
from training_world import NOW, TrainingWorld

pytestmark = pytest.mark.slow
ROOT = Path(sft_job.__file__).parent.parent


@pytest.fixture
def world(tmp_path: Path) -> TrainingWorld:
    world = TrainingWorld(tmp_path)
    world.random_paths(24)
    export_view(world.home, "sft_trajectories", tmp_path / "dataset", now=NOW)
    return world


def command(world: TrainingWorld, config: Path) -> list[str]:
    dataset = world.folder / "dataset"
    options = ["--home", str(world.home.path), "--dataset", str(dataset), "--config", str(config)]
    return [sys.executable, "-m", "training.sft_job", *options]


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def status_of(world: TrainingWorld) -> list[str]:
    return world.tables.read("runs")["status"].to_pylist()


def test_the_job_ends_with_one_json_line_and_tells_its_progress_on_stderr(world, write_config) -> None:
    config = write_config(world.folder / "c.yaml", max_steps=2, logging_steps=1)
    done = subprocess.run(command(world, config), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert Path(result["directory"], "model.safetensors").is_file()
    assert (result["rows"], result["metrics"]["steps"]) == (24, 2)
    assert "step 2 of 2, loss" in done.stderr
    assert status_of(world) == ["done"]


def test_what_a_person_can_act_on_is_one_line_and_exit_2(world) -> None:
    missing = world.folder / "none.yaml"
    done = subprocess.run(command(world, missing), cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"BadSetting: trainer settings {missing} cannot be read (No such file or directory); name a file with --config."
    ]


def test_a_terminated_job_ends_at_once_and_its_run_is_registered_as_stopped(world, write_config) -> None:
    config = write_config(world.folder / "c.yaml", max_steps=1_000_000)
    with subprocess.Popen(command(world, config), cwd=ROOT, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        assert any(line.startswith("step ") for line in job.stderr)
        job.terminate()
        assert job.wait(timeout=60) == 128 + signal.SIGTERM
    assert status_of(world) == ["stopped"]
    assert not any(world.home.models.iterdir())


def test_a_killed_run_is_never_done_and_the_next_start_marks_it_stopped(world) -> None:
    program = (
        "import sys, time; from datetime import UTC, datetime; from store.home import open_home; "
        "from training.registry import RunRow, alive, start_run\n"
        "home = open_home(sys.argv[1])\n"
        "with alive(home, 'r1'):\n"
        "    start_run(home, RunRow('r1', 'sft', (), None, {}, 24, datetime.now(UTC)))\n"
        "    print('running', flush=True)\n"
        "    time.sleep(600)\n"
    )
    start = [sys.executable, "-c", program, str(world.home.path)]
    with subprocess.Popen(start, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "running\n"
        assert mark_dead_runs_stopped(world.home) == []
        run.kill()
    assert status_of(world) == ["running"]
    assert mark_dead_runs_stopped(world.home) == ["r1"]
    assert status_of(world) == ["stopped"]


def test_a_job_whose_parent_is_killed_ends_too(world, write_config) -> None:
    config = write_config(world.folder / "c.yaml", max_steps=1_000_000)
    program = (
        "import subprocess, sys; job = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True); "
        "print(job.pid, job.stderr.readline(), flush=True); job.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, *command(world, config)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        assert is_running(pid)
        parent.kill()
    wait_until(lambda: not is_running(pid), seconds=20, what=f"process {pid} to end")
    assert "done" not in status_of(world)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X") and os.path.exists(f"/proc/{pid}")


def test_the_loss_curve_is_a_table_that_the_ui_can_draw() -> None:
    assert sft_job.loss_table([[1, 2.5], [2, 1.25]]) == "| step | loss |\n| --- | --- |\n| 1 | 2.5000 |\n| 2 | 1.2500 |"

"""A training is a Pipes child that ends with its run, and whose own words say why it failed."""

import os
import signal
import subprocess
import sys
import time

import dagster as dg
import pytest

from dagster_project.models import followed, run_leashed
from process_watch import SLEEPER, is_alive, sleeping_processes, wait_for
from store.errors import PipelineError

# A run of its own, as Dagster's run worker is: one asset whose child sleeps.
RUN = """
import sys
from pathlib import Path
import dagster as dg
from dagster_project.models import run_leashed

@dg.asset
def asleep(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient):
    return run_leashed(context, client, [sys.executable, "-c", sys.argv[2]], log=Path(sys.argv[1]))

dg.materialize([asleep], resources={"client": dg.PipesSubprocessClient()})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_child_ends_when_its_run_is_ended(tmp_path, number):
    log = tmp_path / "child.log"
    with open(tmp_path / "run.log", "w") as output:
        run = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RUN, str(log), SLEEPER],
            cwd=os.getcwd(),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    sleeping = sleeping_processes(log)
    assert all(is_alive(process_id) for process_id in sleeping)

    run.send_signal(number)

    run.wait(timeout=30)
    wait_for(lambda: not any(is_alive(process_id) for process_id in sleeping))


def materialize(tmp_path, program):
    log = tmp_path / "child.log"

    @dg.asset
    def trained(context: dg.AssetExecutionContext, client: dg.PipesSubprocessClient):
        return run_leashed(context, client, [sys.executable, "-c", program], log=log)

    return dg.materialize([trained], resources={"client": dg.PipesSubprocessClient()})


REPORTS = """
from dagster_pipes import open_dagster_pipes
with open_dagster_pipes() as pipes:
    pipes.report_asset_materialization(metadata={"rows": 25}, data_version="m1")
"""


def test_what_the_child_reports_is_the_assets_own(tmp_path):
    result = materialize(tmp_path, REPORTS)
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 25
    assert event.materialization.tags["dagster/data_version"] == "m1"


def test_a_failed_child_is_told_by_its_last_line(tmp_path):
    with pytest.raises(PipelineError, match=r"^12 rows would reach the trainer .*child\.log"):
        materialize(tmp_path, "raise SystemExit('12 rows would reach the trainer')")


def test_steps_are_told_as_they_appear_in_the_log(tmp_path):
    log, told = tmp_path / "child.log", []
    with followed(log, lambda done, total: told.append((done, total))):
        log.write_text("loading\nstep 5 of 20, loss 1.0\n")
        wait_for(lambda: told == [(5, 20)])
        with log.open("a") as growing:
            growing.write("step 10 of 20, loss 0.5\n")
        wait_for(lambda: told == [(5, 20), (10, 20)])
    time.sleep(0.1)
    assert told == [(5, 20), (10, 20)]

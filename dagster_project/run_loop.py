"""`make run`: the whole loop once, through Dagster, in one process (training in a child of its own).

Started as `python -m dagster_project.run_loop [--home DIR]`. A second run goes on from what is there: new sessions,
an incremental refresh, a model trained on the new snapshot.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console

from dagster_project.loop_display import LoopDisplay
from dagster_project.loop_settings import LoopSettings, read_loop_settings
from store.errors import NotEnoughData, PipelineError
from store.home import Home, open_home

if TYPE_CHECKING:
    import dagster as dg

    from kernel_search.judge import Judge

STAGES = (
    "search with the rules",
    "tables, views, checks, snapshots",
    "train on the snapshot",
    "search again with the model",
    "new attempts into the views",
)
VIEW_FACTS = ("dagster/row_count", "mode", "reason", "inserted", "updated", "deleted", "seconds")


class Loop:
    """One walk around the loop; each method is a stage, and `facts` gathers what the report tells."""

    def __init__(self, home: Home, settings: LoopSettings, display: LoopDisplay, judge: "Judge") -> None:
        from dagster_project.definitions import defs
        from dagster_project.instance import open_instance
        from dagster_project.resources import HomeResource, JudgeDesk, Listener

        self.home = home
        self.settings = settings
        self.display = display
        self.defs = defs
        self.instance = open_instance(home)
        self.resources: dict[str, Any] = {
            "home": HomeResource(path=str(home.path)),
            "judges": JudgeDesk(judge),
            "listener": Listener(display.tell),
        }
        self.facts: dict[str, Any] = {"started_at": datetime.now(UTC).isoformat(timespec="seconds")}

    def walk(self) -> dict[str, Any]:
        """Run every stage.

        Returns:
            What happened, in plain values.

        Raises:
            PipelineError: A stage failed; the ones before it stay done.
        """
        stages = (self.search, self.materialize, self.train, self.search_again, self.refresh)
        for title, stage in zip(STAGES, stages, strict=True):
            with self.display.stage(title):
                stage()
        return self.facts

    def search(self) -> None:
        """The rules search every task."""
        self.facts["first_search"] = self._run("first_search", "rule_search", {"rule_search": self._round("first")})

    def materialize(self) -> None:
        """Ledger, tables, views, their checks, and a snapshot of each view."""
        from dagster_project.datasets import SNAPSHOTS
        from dagster_project.loop_runs import metadata_of

        result = self._job("snapshots")
        self.facts["views"] = self._views(result)
        self.facts["checks"] = _checks(result)
        self.facts["datasets"] = {name: metadata_of(result, name) for name in SNAPSHOTS}

    def train(self) -> None:
        """Train in a child process, while this one loads the libraries that the next stage samples with."""
        warm_up = threading.Thread(target=_load_sampling_libraries, daemon=True)
        warm_up.start()
        self.facts["model"] = self._run("train", "sft_model")
        warm_up.join()
        from training.trainable_rows import LEAST_ROWS

        rows = int(self.facts["model"]["dagster/row_count"])
        if rows < LEAST_ROWS:
            raise NotEnoughData(f"{rows} rows reached the trainer, at least {LEAST_ROWS} must; search longer.")

    def search_again(self) -> None:
        """The trained model and its controls, each with the same number of proposals."""
        self.facts["second_search"] = self._run(
            "second_search", "model_search", {"model_search": self._round("second")}
        )

    def refresh(self) -> None:
        """The new nodes come back."""
        result = self._job("refresh")
        self.facts["views_again"] = self._views(result)
        self.facts["checks_again"] = _checks(result)

    def _round(self, which: str) -> dict[str, Any]:
        searches = self.settings.first_search if which == "first" else self.settings.second_search
        return {
            "config": {"proposers": list(searches.proposers), "attempts_per_task": searches.attempts_per_task},
        }

    def _job(self, job: str, ops: dict[str, Any] | None = None) -> "dg.ExecuteInProcessResult":
        from dagster_project.loop_runs import run_job

        return run_job(self.defs, job, instance=self.instance, resources=self.resources, ops=ops)

    def _run(self, job: str, asset: str, ops: dict[str, Any] | None = None) -> dict[str, Any]:
        from dagster_project.loop_runs import metadata_of

        return metadata_of(self._job(job, ops), asset)

    def _views(self, result: "dg.ExecuteInProcessResult") -> dict[str, Any]:
        from dagster_project.loop_runs import metadata_of
        from views.registry import VIEW_ORDER

        said = {name: metadata_of(result, name) for name in VIEW_ORDER}
        return {name: {fact: values[fact] for fact in VIEW_FACTS} for name, values in said.items()}


def _checks(result: "dg.ExecuteInProcessResult") -> dict[str, int]:
    evaluations = result.get_asset_check_evaluations()
    return {"passed": sum(check.passed for check in evaluations), "of": len(evaluations)}


def _load_sampling_libraries() -> None:
    from training.quiet import quiet_libraries

    quiet_libraries()
    import transformers

    assert transformers.AutoModelForCausalLM  # resolved lazily: naming it is what loads it


def _judge(settings: LoopSettings) -> "AbstractContextManager[Judge]":
    from kernel_search.judge import Judge

    return Judge(workers=settings.judges)


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk the loop; a stage that fails is one line on stderr and exit code 2."""
    parser = argparse.ArgumentParser(description="Search, materialize, train, search again, report.")
    parser.add_argument("--home", help="data folder (default: ESPALIER_HOME, else ./data)")
    parsed = parser.parse_args(arguments)
    console = Console()
    began = time.monotonic()
    try:
        home, settings = open_home(parsed.home), read_loop_settings()
        console.print(f"The loop, once, in {home.path}", highlight=False)
        display = LoopDisplay(console, num_stages=len(STAGES))
        with display, _judge(settings) as judge:
            facts = Loop(home, settings, display, judge).walk()
        from dagster_project.loop_pages import print_report, write_report
        from dagster_project.loop_report import make_report

        report = make_report(home, facts, seconds={**display.seconds, "in all": time.monotonic() - began})
        print_report(report, console)
        write_report(report, home)
    except PipelineError as error:
        Console(stderr=True).print(f"error: {error}", highlight=False, markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; what was committed stays, run it again to go on.", highlight=False)
        return 130
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # deltalake and pyarrow sometimes abort in their own exit handlers

"""Group *models*: training in a subprocess that ends when its run is ended."""

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError

from dagster_project.automation import when_data_changed
from dagster_project.latest import latest_metadata
from dagster_project.leash import leashed
from dagster_project.resources import HomeResource, Listener
from store.errors import PipelineError

FOLLOW_SECONDS = 0.5
STEP_LINE = re.compile(r"step (\d+) of (\d+)")


class SftConfig(dg.Config):
    """What to train from; by default the small model of conf/training."""

    model: str | None = None
    config: str | None = None


@dg.asset(
    deps=["sft_dataset"],
    group_name="models",
    kinds={"pytorch", "huggingface"},
    pool="trainer",
    automation_condition=when_data_changed(),
    description="Small causal language model, fine-tuned by TRL on the newest snapshot in its per-step form.",
)
def sft_model(
    context: dg.AssetExecutionContext,
    config: SftConfig,
    home: HomeResource,
    trainer: dg.PipesSubprocessClient,
    listener: dg.ResourceParam[Listener],
) -> dg.MaterializeResult:
    """Train on the snapshot that `sft_dataset` wrote last; its registry row names run, data and base model."""
    opened = home.open()
    dataset = str(latest_metadata(context.instance, "sft_dataset")["directory"])
    command = [sys.executable, "-m", "training.sft_job", "--home", str(opened.path), "--dataset", dataset]
    for option, value in (("--model", config.model), ("--config", config.config)):
        command += [option, value] if value else []
    log = opened.runs / f"dagster-{context.run.run_id}.log"
    with followed(log, lambda done, total: listener.tell("training steps", done, total)):
        return run_leashed(context, trainer, command, log=log)


def run_leashed(
    context: dg.AssetExecutionContext,
    client: dg.PipesSubprocessClient,
    command: Sequence[str],
    *,
    log: Path,
    extras: dict[str, Any] | None = None,
) -> dg.MaterializeResult:
    """Run a Pipes child that does not outlive its run, however that ends; what it prints goes to `log`.

    Raises:
        PipelineError: The child failed; its last line says why.
    """
    context.log.info(f"output of the child: {log}")
    try:
        with warnings.catch_warnings():
            for category in (dg.PreviewWarning, DeprecationWarning):  # Pipes warns of its own parts
                warnings.simplefilter("ignore", category)
            return client.run(
                context=context, command=leashed(command, log=log), extras=extras or {}
            ).get_materialize_result()
    except DagsterPipesExecutionError as error:
        said = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
        last = next((line.strip() for line in reversed(said) if line.strip()), "it printed nothing")
        raise PipelineError(f"{last} (its whole output: {log})") from error


@contextmanager
def followed(log: Path, tell: Callable[[int, int], None]) -> Iterator[None]:
    """While the block runs, tell of each `step N of M` that appears in a growing log."""
    is_over = threading.Event()

    def follow() -> None:
        told = (0, 0)
        while not is_over.wait(FOLLOW_SECONDS):
            steps = STEP_LINE.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
            done, total = map(int, steps[-1]) if steps else told
            if (done, total) != told:
                told = (done, total)
                tell(done, total)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        is_over.set()
        follower.join()

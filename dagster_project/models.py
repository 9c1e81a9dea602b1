"""Group *models*: training in a subprocess that ends when its run is ended."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_project.automation import when_data_changed
from dagster_project.latest import latest_metadata
from dagster_project.leash import leashed
from dagster_project.resources import HomeResource, Listener


class SftConfig(dg.Config):
    """What to train from; by default the small model of conf/training."""

    model: str | None = None
    config: str | None = None


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
        DagsterPipesExecutionError: The child failed.
    """
    return client.run(
        context=context, command=leashed(command, log=log), extras=extras or {}
    ).get_materialize_result()


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
    return run_leashed(context, trainer, command, log=opened.runs / f"dagster-{context.run.run_id}.log")

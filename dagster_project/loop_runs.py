"""Runs one job of the asset graph in this process, on the persistent instance, and says plainly why it failed."""

import re
from collections.abc import Mapping
from typing import Any

import dagster as dg

from store.errors import PipelineError

OUR_ERRORS = re.compile(r"^store\.errors\.\w+: ")  # what follows is written for a person and needs no class name
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class StageFailed(PipelineError):
    """A run of the loop did not succeed; the message is the reason, in one line."""


def run_job(
    defs: dg.Definitions,
    job: str,
    *,
    instance: dg.DagsterInstance,
    resources: Mapping[str, Any],
    ops: Mapping[str, Any] | None = None,
) -> dg.ExecuteInProcessResult:
    """Run a job and return its result.

    Args:
        defs: The asset graph.
        job: Name of the job.
        instance: Where its history is kept.
        resources: What replaces the graph's own resources.
        ops: Configuration by the name of the step.

    Raises:
        StageFailed: A check did not pass, or a step failed.
        KeyboardInterrupt: Somebody ended it.
    """
    result = defs.resolve_job_def(job).execute_in_process(
        run_config={**QUIET, **({"ops": dict(ops)} if ops else {})},
        instance=instance,
        resources=dict(resources),
        raise_on_error=False,
        tags={"espalier/started_by": "make run"},
    )
    if any(_was_interrupted(event) for event in result.all_events):
        raise KeyboardInterrupt
    if not result.success:
        raise StageFailed(reason(result))
    return result


def reason(result: dg.ExecuteInProcessResult) -> str:
    """Why a run failed, in one line: the checks that did not pass, else the first step's error."""
    failed = [check for check in result.get_asset_check_evaluations() if not check.passed and check.blocking]
    if failed:
        return "; ".join(_check_text(check) for check in failed[:3]) + "; nothing that stands on it was built."
    for event in result.all_events:
        if event.is_step_failure:
            error = event.step_failure_data.error
            if error is not None and error.cause is not None:  # the outermost is Dagster's own wrapper
                error = error.cause
            message = "unknown error" if error is None else OUR_ERRORS.sub("", " ".join(error.message.split()))
            return f"{event.step_key}: {message}"
    return "the run ended without a step that failed; its log is in the page that `make ui` opens."


def _was_interrupted(event: dg.DagsterEvent) -> bool:
    """Whether a step failed because of Ctrl-C or a signal; Dagster catches both, at any depth of the chain."""
    error = event.step_failure_data.error if event.is_step_failure else None
    while error is not None:
        if error.cls_name in ("DagsterExecutionInterruptedError", "KeyboardInterrupt"):
            return True
        error = error.cause
    return False


def metadata_of(result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
    """Plain values of the metadata that a run gave an asset; empty where it did not build it."""
    key = dg.AssetKey(asset)
    for event in reversed(result.get_asset_materialization_events()):
        if event.asset_key == key:
            return {name: value.value for name, value in event.materialization.metadata.items()}
    return {}


def _check_text(check: dg.AssetCheckEvaluation) -> str:
    said = {name: value.value for name, value in check.metadata.items()}
    broken = said.get("unexpected_count")
    count = f" ({broken} of {said.get('rows')} rows)" if broken else ""
    return f"check {check.asset_key.to_user_string()}.{check.check_name} failed{count}"

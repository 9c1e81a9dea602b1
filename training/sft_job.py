"""The process that trains: a Dagster Pipes child, or a command of its own.

    python -m training.sft_job --home DIR --dataset DIR [--model M] [--config F] [--out DIR]

Progress goes to stderr; the last line on stdout is one JSON object. Exit 0 done, 2 with one line of error. It
ends within a second on SIGTERM, and when the process that started it is gone.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from training.quiet import quiet_environment

PR_SET_PDEATHSIG = 1  # of prctl(2)
WATCH_SECONDS = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    options = _parse(arguments)
    quiet_environment()
    end_with_parent()
    signal.signal(signal.SIGTERM, _end)
    with _pipes() as pipes:
        from store.errors import PipelineError
        from store.home import open_home
        from training.sft import train_sft

        try:
            trained = train_sft(
                open_home(options.home),
                options.dataset,
                model=options.model,
                config=options.config,
                out_dir=options.out,
                progress=_tell,
                now=datetime.now(UTC),
            )
        except PipelineError as error:
            _tell(f"{type(error).__name__}: {error}")
            if pipes is not None:
                raise
            return 2
        result = {
            "run_id": trained.run_id,
            "model_id": trained.model_id,
            "directory": str(trained.model_dir),
            "rows": trained.rows,
            "metrics": trained.metrics,
        }
        if pipes is not None:
            _report(pipes, result, options)
    print(json.dumps(result), flush=True)
    return 0


def end_with_parent() -> None:
    """Let the kernel send SIGTERM when the parent ends; where it cannot, a thread watches the parent's id.

    The parent may have ended before this call, so its id is compared once more afterwards.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _pipes() -> AbstractContextManager[Any]:
    """Dagster's Pipes session where Dagster started this process, else nothing."""
    if "DAGSTER_PIPES_BOOTSTRAP_PARAMS" not in os.environ and "DAGSTER_PIPES_CONTEXT" not in os.environ:
        return nullcontext(None)
    from dagster_pipes import open_dagster_pipes

    return open_dagster_pipes()


def _report(pipes: Any, result: dict[str, Any], options: argparse.Namespace) -> None:
    metrics = result["metrics"]
    pipes.report_asset_materialization(
        metadata={
            "directory": {"raw_value": result["directory"], "type": "path"},
            "run_id": {"raw_value": result["run_id"], "type": "text"},
            "model_id": {"raw_value": result["model_id"], "type": "text"},
            "base_model": {"raw_value": options.model or "made from a config", "type": "text"},
            "dataset": {"raw_value": str(options.dataset), "type": "path"},
            "dagster/row_count": {"raw_value": result["rows"], "type": "int"},
            "steps": {"raw_value": metrics["steps"], "type": "int"},
            "loss": {"raw_value": metrics["loss"], "type": "float"},
            "num_parameters": {"raw_value": metrics["num_parameters"], "type": "int"},
            "seconds": {"raw_value": metrics["seconds"], "type": "float"},
            "loss_curve": {"raw_value": loss_table(metrics["losses"]), "type": "md"},
            "metrics": {"raw_value": metrics, "type": "json"},
        },
        data_version=result["model_id"],
    )


def loss_table(losses: list[list[float]]) -> str:
    """The loss by step as a Markdown table."""
    return "\n".join(["| step | loss |", "| --- | --- |", *(f"| {step:.0f} | {loss:.4f} |" for step, loss in losses)])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.sft_job", description="Fine-tune a model on a snapshot.")
    parser.add_argument("--home", required=True, type=Path, help="folder of tables, models and runs")
    parser.add_argument("--dataset", required=True, type=Path, help="a folder that `espalier export` wrote")
    parser.add_argument("--model", help="a model folder or cached hub name; none: a small model made from a config")
    parser.add_argument("--config", type=Path, help="YAML of SFTConfig arguments")
    parser.add_argument("--out", type=Path, help="a new folder for the model")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # deltalake with pyarrow sometimes aborts while Python ends, and the status must hold

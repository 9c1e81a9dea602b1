"""Supervised fine-tuning on a snapshot, through TRL's own SFTTrainer."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage.policy import read_policy
from store.errors import HomeNotUsable, RefusedByPolicy, WrongUse
from store.home import Home
from training.model_card import read_model_card
from training.quiet import expected_warnings_hidden, quiet_environment, quiet_libraries
from training.registry import RunRow, alive, end_run, mark_dead_runs_stopped, new_run_id, start_run
from training.save import save_model
from training.small_model import make_small_model, weights_digest
from training.snapshot_folder import SnapshotFolder, demand_not_flagged, open_snapshot
from training.trainable_rows import demand_enough_rows, trainable_rows, turn_texts
from training.trainer_config import build_trainer_config, read_trainer_settings

if TYPE_CHECKING:
    from trl import SFTTrainer

FORMS = ("step", "path")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class TrainedModel:
    """What a run gave: ids in the registry, where the model lies, and the run's numbers."""

    run_id: str
    model_id: str
    model_dir: Path
    metrics: dict[str, Any]
    rows: int  # rows that reached the trainer


def train_sft(
    home: Home,
    dataset_dir: Path | str,
    *,
    model: str | None = None,
    config: Path | str | None = None,
    out_dir: Path | str | None = None,
    progress: Progress | None = None,
    now: datetime,
) -> TrainedModel:
    """Train a causal language model on the train split of an sft_trajectories snapshot.

    Equal snapshot, model, config and seed give equal weights on one kind of machine.

    Args:
        home: Where runs and models are registered.
        dataset_dir: A folder that `export_view` wrote.
        model: A model folder or a cached hub name; None makes the small model, its tokenizer trained on the rows.
        config: YAML of SFTConfig arguments; None reads conf/training/sft.yaml, or sft_pretrained.yaml with a model.
        out_dir: Where the model goes; None is the home's models folder, under the run's id.
        progress: Called with a line of text about every two seconds.
        now: When the run starts.

    Raises:
        BadInput: The folder is no intact snapshot, or the model cannot be loaded.
        WrongUse: The snapshot is not of a form that SFT takes, or out_dir is taken.
        RefusedByPolicy: conf/governance.yaml does not let the snapshot's principal train on its tags.
        FlaggedByRetraction: An example rests on a node that was retracted since the export.
        NotEnoughData: Fewer than 20 rows would reach the trainer; no run is registered.
    """
    say = progress or (lambda text: None)
    quiet_environment()
    mark_dead_runs_stopped(home)
    snapshot = open_snapshot(dataset_dir)
    _demand_usable(home, snapshot)
    default = "training/sft.yaml" if model is None else "training/sft_pretrained.yaml"
    settings = read_trainer_settings(config, default=default)
    run_id = new_run_id(home, "sft", (snapshot.dataset_id,), {"model": model, **settings}, now)
    target = Path(out_dir).absolute() if out_dir is not None else home.models / run_id
    if target.exists() and any(target.iterdir()):
        raise WrongUse(f"{target} is not empty; name a new folder with --out.")
    with alive(home, run_id) as work, expected_warnings_hidden():
        try:
            return _Run(home, snapshot, model, settings, run_id, target, work, say, now).train()
        except OSError as error:
            raise HomeNotUsable(f"{error.filename or target} cannot be written ({error.strerror or error}).") from error
        finally:
            shutil.rmtree(work / "scratch", ignore_errors=True)


def _demand_usable(home: Home, snapshot: SnapshotFolder) -> None:
    if snapshot.form not in FORMS:
        raise WrongUse(
            f"{snapshot.directory} holds {snapshot.form} of {snapshot.manifest['view']}; SFT takes the forms "
            f"{' and '.join(FORMS)} of sft_trajectories."
        )
    principal = snapshot.manifest["policy"]["principal"]
    decision = read_policy().check(principal, "train", snapshot.manifest["tags"])
    if not decision.allowed:
        raise RefusedByPolicy(
            f"{principal} may not train on {snapshot.directory}: {decision.reason}; export it with --purpose train."
        )
    demand_not_flagged(home, snapshot)
    in_train = snapshot.manifest["splits"].get("train", {"rows": 0})["rows"]
    demand_enough_rows(in_train, snapshot.manifest["left_out"], source=str(snapshot.directory))


@dataclass
class _Run:
    """One run between its checks and its model."""

    home: Home
    snapshot: SnapshotFolder
    base: str | None
    settings: dict[str, Any]
    run_id: str
    target: Path
    work: Path
    say: Progress
    now: datetime

    def train(self) -> TrainedModel:
        """Prepare, register the run, train, save, register the model; whatever ends it early is registered too."""
        started = time.monotonic()
        self.say("loading the training libraries")
        quiet_libraries()
        trainer, initial, left_out = self._prepare()
        num_rows = len(trainer.train_dataset)
        demand_enough_rows(num_rows, left_out, source=str(self.snapshot.directory))
        row = RunRow(
            self.run_id, "sft", (self.snapshot.dataset_id,), self.base, self.settings, num_rows, started_at=self.now
        )
        start_run(self.home, row)
        try:
            trainer.train()
            metrics = self._metrics(trainer, initial, left_out, seconds=time.monotonic() - started)
            self.say("saving the model")
            model_id, digest = save_model(
                self.home,
                trainer.model,
                initial,
                self.target,
                run_id=self.run_id,
                base_model=self.base,
                turns=self.snapshot.form,
                tags=self._tags(),
                dataset_ids=(self.snapshot.dataset_id,),
                seed=trainer.args.seed,
                now=self._clock(started),
            )
            metrics["weights_digest"] = digest
            end_run(self.home, row, status="done", metrics=metrics, ended_at=self._clock(started))
        except BaseException as error:
            stopped = isinstance(error, (KeyboardInterrupt, SystemExit))
            reason = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
            end_run(
                self.home, row, status="stopped" if stopped else "failed", metrics=reason, ended_at=self._clock(started)
            )
            raise
        return TrainedModel(self.run_id, model_id, self.target, metrics, num_rows)

    def _prepare(self) -> tuple["SFTTrainer", Path | str, dict[str, int]]:
        """The trainer on the rows that fit, the model it starts from, and why other rows are left out."""
        from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
        from trl import SFTConfig, SFTTrainer

        from training.generate import load_pair

        args = build_trainer_config(SFTConfig, self.settings, output_dir=self.work / "scratch")
        rows = self.snapshot.dataset("train")
        own = self.work / "scratch" / "initial"
        initial: Path | str = self.base or make_small_model(turn_texts(rows), own, seed=args.seed)
        model, tokenizer = load_pair(str(initial), AutoModelForCausalLM, AutoTokenizer)
        self.say(f"preparing {len(rows)} rows")
        fitting = trainable_rows(rows, tokenizer, max_length=args.max_length)
        demand_enough_rows(len(fitting.rows), fitting.left_out, source=str(self.snapshot.directory))
        trainer = SFTTrainer(
            model,
            args=args,
            train_dataset=fitting.rows,
            processing_class=tokenizer,
            callbacks=[_progress_callback(self.say)],
        )
        trainer.remove_callback(PrinterCallback)  # it prints to stdout, which is the caller's
        masked = len(fitting.rows) - len(trainer.train_dataset)
        left_out = {**fitting.left_out, **({"masked_to_nothing": masked} if masked and not args.packing else {})}
        return trainer, initial, left_out

    def _metrics(
        self, trainer: "SFTTrainer", initial: Path | str, left_out: dict[str, int], *, seconds: float
    ) -> dict[str, Any]:
        logged = [entry for entry in trainer.state.log_history if "loss" in entry]
        first, last = (logged[0], logged[-1]) if logged else ({}, {})
        return {
            "steps": trainer.state.global_step,
            "first_loss": first.get("loss"),
            "loss": last.get("loss"),
            "mean_token_accuracy": last.get("mean_token_accuracy"),
            "tokens": last.get("num_tokens"),
            "rows": len(trainer.train_dataset),
            "left_out": left_out,
            "num_parameters": trainer.model.num_parameters(),
            "seconds": round(seconds, 3),
            "losses": [[entry["step"], entry["loss"]] for entry in logged],
            "initial_weights_digest": weights_digest(initial) if Path(initial).is_dir() else None,
        }

    def _tags(self) -> tuple[str, ...]:
        """Tags of the snapshot and of the model that the run started from."""
        card = read_model_card(self.base) if self.base else None
        return tuple(sorted({*self.snapshot.manifest["tags"], *(card.tags if card else ())}))

    def _clock(self, started: float) -> datetime:
        return self.now + timedelta(seconds=time.monotonic() - started)


def _progress_callback(say: Progress) -> Any:
    from transformers import TrainerCallback

    class Tell(TrainerCallback):
        """Tells step and loss about every two seconds."""

        def __init__(self) -> None:
            self.told = 0.0
            self.loss: float | None = None

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **rest: Any) -> None:
            self.loss = (logs or {}).get("loss", self.loss)

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if time.monotonic() - self.told >= 2.0 or state.global_step == state.max_steps:
                self.told = time.monotonic()
                loss = "" if self.loss is None else f", loss {float(self.loss):.3f}"
                say(f"step {state.global_step} of {state.max_steps}{loss}")

    return Tell()

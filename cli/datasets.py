"""Views into datasets and models: `export` and `train sft`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import Answer, Call, command, shared_options
from store.errors import BadInput


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "export")(export)
    train = typer.Typer(help="Train a model on an exported dataset.")
    train.callback()(shared_options)
    command(train, "sft")(train_sft)
    app.add_typer(train, name="train")


def export(
    call: Call,
    view: Annotated[
        str, typer.Argument(metavar="VIEW", help="sft_trajectories, dpo_pairs, grpo_cohorts or value_examples.")
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    turns: Annotated[
        str | None,
        typer.Option(
            "--turns",
            help="Form of sft_trajectories: step, one prompt and answer a row, or path, root to leaf.",
            show_default="step",
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="Delta version of the view.", show_default="latest")
    ] = None,
    principal: Annotated[str, typer.Option("--principal", help="For whom, in conf/governance.yaml.")] = "local",
    purpose: Annotated[str, typer.Option("--purpose", help="For what: train, export, retrieve or audit.")] = "train",
) -> Answer:
    """Write a view as a dataset that `datasets.load_dataset(DIR)` reads, and a manifest of what it was made from."""
    from training.snapshots import export_view

    home = call.existing_home()
    with call.progress(f"export {view}") as progress:
        snapshot = export_view(
            home,
            view,
            directory,
            turns=turns,
            principal=principal,
            purpose=purpose,
            version=version,
            now=call.now,
            progress=progress,
        )
    keys = ("dir", "rows", "splits", "left_out", "manifest", "dataset_id", "form")
    content = {key: getattr(snapshot, key) for key in keys}
    return Answer(content, lambda console: _draw(console, content, f"Exported {view}"))


def train_sft(
    call: Call,
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="A folder that `export` wrote.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Model folder or cached hub name; a small one is made without.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="YAML of trl.SFTConfig arguments.", show_default="conf/training/sft.yaml"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the model.", show_default="under the home's models")
    ] = None,
) -> Answer:
    """Fine-tune a language model with TRL's SFTTrainer and register run and model."""
    if not dataset.is_dir():
        raise BadInput(f"no dataset folder at {dataset}; `espalier export sft_trajectories DIR` writes one.")
    from training.sft import train_sft as train

    home = call.existing_home()
    with call.progress("train") as progress:
        trained = train(home, dataset, model=model, config=config, out_dir=out, progress=progress, now=call.now)
    content = {key: getattr(trained, key) for key in ("run_id", "model_id", "model_dir", "rows", "metrics")}
    return Answer(content, lambda console: _draw(console, content, "Trained"))


def _draw(console: Console, content: dict[str, Any], title: str) -> None:
    from cli.output import draw_fields, plain

    fields = plain(content)
    nested = {key: fields.pop(key) for key in ("splits", "left_out", "metrics") if key in fields}
    draw_fields(console, fields, title=title)
    for name, values in nested.items():
        if values:
            shown = {
                key: f"{len(value)} points, in --json" if isinstance(value, list) else value
                for key, value in values.items()
            }
            draw_fields(console, shown, title=f"\n{name.replace('_', ' ')}")

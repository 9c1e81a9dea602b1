"""Saves a model folder whole or not at all, and enters it in the registry."""

import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import BadInput
from store.home import Home
from store.ids import stable_id
from training.model_card import ModelCard, read_model_card, write_model_card
from training.registry import register_model
from training.small_model import reset_weights, tokenizer_digest, tokenizer_files, weights_digest

if TYPE_CHECKING:
    from training.sft import TrainedModel


def save_model(
    home: Home,
    model: Any,
    initial: Path | str,
    target: Path,
    *,
    run_id: str | None,
    base_model: str | None,
    turns: str,
    tags: tuple[str, ...],
    dataset_ids: tuple[str, ...],
    seed: int,
    now: datetime,
) -> tuple[str, str]:
    """Write weights, the tokenizer it started with and the model card, then register the model.

    Everything goes into a folder beside `target` that is renamed at the end, so a kill leaves no half model.

    Returns:
        (model_id, SHA-256 of the weights)
    """
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        model.save_pretrained(partial)
        _save_tokenizer(initial, partial)
        card, digest = _card(
            partial,
            run_id=run_id,
            base_model=base_model,
            turns=turns,
            tags=tags,
            dataset_ids=dataset_ids,
            seed=seed,
            num_parameters=model.num_parameters(),
        )
        write_model_card(partial, card)
        if target.exists():
            target.rmdir()  # an empty folder that the caller made
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    register(home, card, target, now=now)
    return card.model_id, digest


def untrained_model(home: Home, trained: "TrainedModel | Path | str", out_dir: Path | str, *, now: datetime) -> Path:
    """The untrained control of a model: the same tokenizer and the weights that its training began with.

    Made into `out_dir` and registered without a run, so that a search can name it; made again, it is the same.
    For a model that started from another one, that other one is the control, and nothing is made.

    Args:
        home: Where it is registered.
        trained: A run's result, or the folder of a model that was trained here.
        out_dir: Where the control goes.
        now: When.

    Returns:
        The control's folder (or its hub name, where the model started from one).

    Raises:
        BadInput: The folder is no model that was trained here.
        WrongUse: `out_dir` is the model's own folder.
    """
    source = Path(trained) if isinstance(trained, (Path, str)) else trained.model_dir
    target = Path(out_dir)
    card = read_model_card(source)
    if card is None:
        raise BadInput(f"{source} has no espalier_model.json; name the folder of a model that `espalier train` wrote.")
    if card.base_model is not None:
        return Path(card.base_model)
    reset_weights(source, target, seed=card.seed)
    control, _ = _card(
        target,
        run_id=None,
        base_model=None,
        turns=card.turns,
        tags=card.tags,
        dataset_ids=card.dataset_ids,
        seed=card.seed,
        num_parameters=card.num_parameters,
    )
    write_model_card(target, control)
    register(home, control, target, now=now)
    return target


def register(home: Home, card: ModelCard, directory: Path, *, now: datetime) -> None:
    """Enter a model in the registry."""
    register_model(
        home,
        {
            "model_id": card.model_id,
            "run_id": card.run_id,
            "directory": str(directory.absolute()),
            "base_model": card.base_model,
            "turns": card.turns,
            "tokenizer_digest": card.tokenizer_digest,
            "num_parameters": card.num_parameters,
            "tags": sorted(card.tags),
            "created_at": now,
        },
    )


def _card(directory: Path, **facts: Any) -> tuple[ModelCard, str]:
    weights, tokenizer = weights_digest(directory), tokenizer_digest(directory)
    return ModelCard(model_id=stable_id("model", weights, tokenizer), tokenizer_digest=tokenizer, **facts), weights


def _save_tokenizer(initial: Path | str, directory: Path) -> None:
    files = tokenizer_files(initial)
    if any(file.name == "tokenizer.json" for file in files):
        for file in files:
            shutil.copyfile(file, directory / file.name)
        return
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(initial)).save_pretrained(directory)

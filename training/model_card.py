"""The small JSON file in a model folder that says what the model is: espalier_model.json."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from store.errors import BadInput
from store.ids import canonical_json

CARD_FILE = "espalier_model.json"


@dataclass(frozen=True)
class ModelCard:
    """What a model folder says of itself, so that it can be used without its registry."""

    model_id: str
    run_id: str | None  # NULL: never trained
    base_model: str | None  # NULL: made from a config
    turns: str  # path or step
    tokenizer_digest: str | None
    num_parameters: int
    tags: tuple[str, ...]
    dataset_ids: tuple[str, ...]
    seed: int  # of the initial weights, where they were random


def write_model_card(model_dir: Path, card: ModelCard) -> None:
    """Write espalier_model.json into a model folder."""
    (model_dir / CARD_FILE).write_text(canonical_json(asdict(card)) + "\n", encoding="utf-8")


def read_model_card(model_dir: Path | str) -> ModelCard | None:
    """Read espalier_model.json; None for a model that was not made here.

    Raises:
        BadInput: The file is there but is not what `write_model_card` wrote.
    """
    path = Path(model_dir) / CARD_FILE
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["tags"], content["dataset_ids"] = tuple(content["tags"]), tuple(content["dataset_ids"])
        return ModelCard(**content)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is no model card of espalier ({error}); take the model from its run again.") from error

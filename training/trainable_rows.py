"""Which rows of a snapshot really reach a trainer: within the token budget, accepted by the chat template."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from store.errors import NotEnoughData

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

LEAST_ROWS = 20  # fewer examples than this teach a format at best, and a run on them would pass for a result


@dataclass
class TrainableRows:
    """Rows that a trainer will see whole, and why the others are left out (reason → count)."""

    rows: "datasets.Dataset"
    left_out: dict[str, int] = field(default_factory=dict)


def trainable_rows(
    rows: "datasets.Dataset", tokenizer: "PreTrainedTokenizerBase", *, max_length: int | None
) -> TrainableRows:
    """Keep the rows that fit into `max_length` tokens after the template.

    A longer row is left out and counted and never cut, since a cut row can lose its whole answer without a word.
    """
    import jinja2

    kept: list[int] = []
    left_out: dict[str, int] = {}
    for index, row in enumerate(rows):
        try:
            length = len(tokenizer.apply_chat_template(_turns(row), tokenize=True, return_dict=False))
        except jinja2.TemplateError:
            left_out["refused_by_template"] = left_out.get("refused_by_template", 0) + 1
            continue
        if max_length is not None and length > max_length:
            left_out["over_token_budget"] = left_out.get("over_token_budget", 0) + 1
            continue
        kept.append(index)
    return TrainableRows(rows.select(kept), left_out)


def turn_texts(rows: "datasets.Dataset") -> list[str]:
    """The texts of all turns, in the order of the rows: what a tokenizer is trained on."""
    return [turn["content"] for row in rows for turn in _turns(row) if turn["content"]]


def demand_enough_rows(num_rows: int, left_out: dict[str, int], *, source: str) -> None:
    """Refuse to train on fewer than `LEAST_ROWS` rows.

    Raises:
        NotEnoughData: With the number of rows that would have reached the trainer.
    """
    if num_rows < LEAST_ROWS:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items())) or "nothing left out"
        raise NotEnoughData(
            f"{source}: {num_rows} rows would reach the trainer ({reasons}), at least {LEAST_ROWS} must; search or "
            "ingest more, refresh and export again."
        )


def _turns(row: dict[str, Any]) -> list[dict[str, Any]]:
    return row["messages"] if "messages" in row else [*row["prompt"], *row["completion"]]

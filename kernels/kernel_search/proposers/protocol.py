"""What a proposer is: prompts in, one answer each out."""

from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One answer that is wanted: the turns to answer, and the seed that decides every random choice in it."""

    prompt: tuple[Message, ...]
    seed: int


@dataclass(frozen=True)
class Answer:
    """One answer: the assistant turn exactly as it was said, and what it cost.

    The turn has `role` and `content`, and where they are known the sampled `token_ids` with their `logprobs`, the
    sampling settings, `model_id`, `tokenizer_digest` and `finish_reason`.
    """

    turn: Message
    tokens: int | None = None
    cost: float | None = None


class Proposer(Protocol):
    """Answers prompts; equal requests get equal answers, whatever else is in the batch."""

    name: str  # rules, uniform, or the id of a model
    run_id: str | None  # the training run of a model of ours

    def propose(self, requests: list[Request]) -> list[Answer]:
        """One answer per request, in order.

        Raises:
            ProposerDown: It cannot answer now.
        """


@dataclass(frozen=True)
class PromptView:
    """What a prompt says, read from its text alone: the task, and each edit point with its value."""

    task_name: str
    values: dict[str, str]


def read_prompt(prompt: tuple[Message, ...]) -> PromptView:
    """Read the last user turn: `task NAME shape …`, then lines `name value`."""
    text = next(turn["content"] for turn in reversed(prompt) if turn["role"] == "user")
    head, *lines = text.split("\n")
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    return PromptView(head.split(" ")[1], values)

"""A causal language model as proposer: what it was shown and what it sampled is kept token by token."""

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_search.proposers.protocol import Answer, Request
from kernel_search.search_settings import ModelSettings
from store.errors import PipelineError, ProposerDown

if TYPE_CHECKING:
    from training.generate import Completion, TextGenerator


class ModelProposer:
    """Asks a text generator; each row is drawn from its own seed, whatever its batch-mates."""

    def __init__(
        self, generator: "TextGenerator", settings: ModelSettings, *, name: str | None = None, run_id: str | None = None
    ) -> None:
        self._generator = generator
        self._settings = settings
        self.name = name or generator.model_id
        self.run_id = run_id

    def propose(self, requests: list[Request]) -> list[Answer]:
        """One answer per request, in order.

        Raises:
            ProposerDown: The model failed to answer.
        """
        try:
            completions = self._generator.generate(
                [list(request.prompt) for request in requests],
                seeds=[request.seed for request in requests],
                temperature=self._settings.temperature,
                max_new_tokens=self._settings.max_new_tokens,
            )
        except PipelineError:
            raise
        except Exception as error:
            raise ProposerDown(
                f"model {self.name} gave no answer ({type(error).__name__}: {' '.join(str(error).split())[:200]}); "
                "nothing was written. Resume the session when the model works."
            ) from error
        return [self._answer(completion) for completion in completions]

    def _answer(self, completion: "Completion") -> Answer:
        turn = {
            "role": "assistant",
            "content": completion.text,
            "token_ids": list(completion.token_ids),
            "logprobs": list(completion.logprobs),
            "temperature": self._settings.temperature,
            "model_id": self.name,
            "tokenizer_digest": self._generator.tokenizer_digest,
            "finish_reason": completion.finish_reason,
        }
        return Answer(turn, tokens=len(completion.token_ids))


def load_model_proposer(model: str, settings: ModelSettings) -> ModelProposer:
    """Load a model folder, or a hub name that is in the local cache, as proposer.

    Raises:
        BadInput: It holds no causal language model with a chat template.
    """
    from training.generate import load_generator
    from training.model_card import read_model_card
    from training.small_model import weights_digest

    generator, card = load_generator(model), read_model_card(model)
    if card is not None:
        return ModelProposer(generator, settings, name=card.model_id, run_id=card.run_id)
    if not Path(model).is_dir():
        return ModelProposer(generator, settings)
    # A folder that was not made here has no id but its place on this machine, which means nothing elsewhere.
    return ModelProposer(generator, settings, name=f"{Path(model).name}@{weights_digest(model)[:12]}")

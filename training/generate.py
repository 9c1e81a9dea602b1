"""Batched sampling in which a row's text depends on its prompt and its seed, never on its batch-mates."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import BadInput, WrongUse
from store.ids import sha256_text
from training.model_card import ModelCard, read_model_card
from training.quiet import quiet_libraries
from training.small_model import tokenizer_digest

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BATCH_ROWS = 32
# Below this size a model samples in float64. Batching changes the order of float sums; in float64 that moves
# a probability by about 1e-9 at most (some layers round to float32 on the way), where float32 moves it by 1e-6.
DOUBLE_PRECISION_PARAMETERS = 20_000_000


@dataclass(frozen=True)
class Completion:
    """One sampled answer.

    `token_ids` holds every sampled token, the end mark included when it was sampled; `logprobs` the natural
    logarithm of each one's probability at the sampling temperature, to float32 precision. `text` leaves out
    the closing end mark and nothing else: another mark inside the answer stays visible.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: str  # stop (it sampled the end mark) or length


class TextGenerator:
    """A causal language model that answers chat prompts."""

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", *, name: str, card: ModelCard | None
    ) -> None:
        import torch

        self._model = model.eval()
        if model.num_parameters() <= DOUBLE_PRECISION_PARAMETERS:
            self._model = model.to(torch.float64)
        self._tokenizer = tokenizer
        self._card = card
        self._name = name
        self._digest = tokenizer_digest(name) or sha256_text(_tokenizer_text(tokenizer))
        self._ends = _end_tokens(model, tokenizer)

    @property
    def model_id(self) -> str:
        """Id in the models registry; for a model from elsewhere, the name it was loaded by."""
        return self._card.model_id if self._card else self._name

    @property
    def tokenizer_digest(self) -> str:
        """SHA-256 of tokenizer.json."""
        return self._digest

    @property
    def turns(self) -> str | None:
        """`step` or `path`: the form it was trained on and is to be asked in; None for models from elsewhere."""
        return self._card.turns if self._card else None

    def generate(
        self,
        prompts: list[list[dict[str, Any]]],
        *,
        seeds: Sequence[int],
        temperature: float = 0.8,
        max_new_tokens: int = 64,
    ) -> list[Completion]:
        """Sample one answer per prompt, in order.

        Args:
            prompts: Chat turns of each row; the chat template opens the assistant's turn after them.
            seeds: One per prompt. Equal prompt, seed and settings give the equal answer in any batch.
            temperature: Divides the logits; 0 takes the likeliest token (its log-probability is then at 1).
            max_new_tokens: Most tokens of an answer, end mark included.

        Raises:
            WrongUse: Seeds and prompts differ in number, or a setting is out of range.
            BadInput: A prompt with its answer is longer than the model can read.
        """
        if len(seeds) != len(prompts):
            raise WrongUse(f"{len(prompts)} prompts but {len(seeds)} seeds; give one seed per prompt.")
        if temperature < 0 or max_new_tokens < 1:
            raise WrongUse(
                f"temperature {temperature} and max_new_tokens {max_new_tokens}; they must be at least 0 and 1."
            )
        rows = [self._encode(prompt, max_new_tokens) for prompt in prompts]
        by_length = sorted(range(len(rows)), key=lambda index: len(rows[index]))  # little padding per batch
        answers: list[Completion | None] = [None] * len(rows)
        for start in range(0, len(rows), BATCH_ROWS):
            batch = by_length[start : start + BATCH_ROWS]
            sampled = self._sample(
                [rows[index] for index in batch],
                [random.Random(seeds[index]) for index in batch],
                temperature=temperature,
                max_new_tokens=max_new_tokens,
            )
            for index, completion in zip(batch, sampled, strict=True):
                answers[index] = completion
        return [answer for answer in answers if answer is not None]

    def _encode(self, prompt: list[dict[str, Any]], max_new_tokens: int) -> list[int]:
        ids = list(
            self._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=False)
        )
        room = getattr(self._model.config, "max_position_embeddings", None)
        if room is not None and len(ids) + max_new_tokens > room:
            raise BadInput(
                f"a prompt of {len(ids)} tokens and {max_new_tokens} new ones do not fit into the {room} tokens that "
                f"{self.model_id} can read; shorten the prompt or lower max_new_tokens."
            )
        return ids

    def _sample(
        self, rows: list[list[int]], streams: list[random.Random], *, temperature: float, max_new_tokens: int
    ) -> list[Completion]:
        """Sample a batch of B rows, left-padded to L tokens, with one cache of keys and values."""
        import torch
        from transformers import DynamicCache

        longest = max(len(row) for row in rows)
        pad = self._tokenizer.pad_token_id or 0
        ids_BL = torch.tensor([[pad] * (longest - len(row)) + row for row in rows])
        mask_BL = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        positions_BL = (mask_BL.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config)
        tokens: list[list[int]] = [[] for _ in rows]
        logprobs: list[list[float]] = [[] for _ in rows]
        open_rows = set(range(len(rows)))
        with torch.inference_mode():
            for _ in range(max_new_tokens):
                output = self._model(
                    input_ids=ids_BL,
                    attention_mask=mask_BL,
                    position_ids=positions_BL,
                    cache=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                logprob_BV = torch.log_softmax(output.logits[:, -1].double() / (temperature or 1.0), dim=-1)
                drawn = _draw(logprob_BV, streams, open_rows, greedy=temperature == 0)
                for row, token in drawn.items():
                    tokens[row].append(token)
                    logprobs[row].append(float(logprob_BV[row, token].float()))
                open_rows -= {row for row, token in drawn.items() if token in self._ends}
                if not open_rows:
                    break
                ids_BL = torch.tensor([[drawn.get(row, pad)] for row in range(len(rows))])
                mask_BL = torch.cat([mask_BL, torch.ones(len(rows), 1, dtype=mask_BL.dtype)], dim=1)
                positions_BL = positions_BL[:, -1:] + 1
        return [self._completion(*sampled) for sampled in zip(tokens, logprobs, strict=True)]

    def _completion(self, tokens: list[int], logprobs: list[float]) -> Completion:
        stopped = bool(tokens) and tokens[-1] in self._ends
        said = tokens[:-1] if stopped else tokens
        text = self._tokenizer.decode(said, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return Completion(text, tuple(tokens), tuple(logprobs), "stop" if stopped else "length")


def load_generator(model_dir: Path | str) -> TextGenerator:
    """Load a model folder (or a hub name that is already in the local cache) for sampling.

    Raises:
        BadInput: It is no causal language model, or its tokenizer has no chat template.
    """
    quiet_libraries()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name = str(model_dir)
    model, tokenizer = load_pair(name, AutoModelForCausalLM, AutoTokenizer)
    return TextGenerator(model, tokenizer, name=name, card=read_model_card(name))


def load_pair(name: str, model_class: Any, tokenizer_class: Any) -> tuple[Any, Any]:
    """Load model (float32) and tokenizer with one clear error for all that can be wrong with a name.

    Raises:
        BadInput: It is no causal language model, or its tokenizer has no chat template.
    """
    import torch

    try:
        tokenizer = tokenizer_class.from_pretrained(name)
        model = model_class.from_pretrained(name, dtype=torch.float32)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BadInput(
            f"{name} cannot be loaded as a causal language model ({reason}); give a model folder, or a hub name "
            "that is in the local cache (HF_HUB_OFFLINE=0 lets it be fetched)."
        ) from error
    if not tokenizer.chat_template:
        raise BadInput(f"the tokenizer of {name} has no chat template; give a chat model, or add one to its folder.")
    return model, tokenizer


def _draw(
    logprob_BV: "torch.Tensor", streams: list[random.Random], open_rows: set[int], *, greedy: bool
) -> dict[int, int]:
    """One token for every open row: where that row's own uniform number falls in its cumulative probability."""
    import torch

    if greedy:
        best = logprob_BV.argmax(dim=-1).tolist()
        return {row: best[row] for row in sorted(open_rows)}
    cumulative_BV = logprob_BV.exp().cumsum(dim=-1)
    drawn = {}
    for row in sorted(open_rows):
        point = streams[row].random() * cumulative_BV[row, -1]
        index = int(torch.searchsorted(cumulative_BV[row], point, right=True))
        drawn[row] = min(index, logprob_BV.shape[1] - 1)
    return drawn


def _end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> set[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ends = set(configured if isinstance(configured, list) else [configured])
    return {int(token) for token in {*ends, tokenizer.eos_token_id} if token is not None}


def _tokenizer_text(tokenizer: "PreTrainedTokenizerBase") -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend.to_str() if backend is not None else json.dumps(tokenizer.get_vocab(), sort_keys=True)

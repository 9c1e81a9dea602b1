"""A small causal language model from a config alone, with a tokenizer trained on the data: no hub, no download.

Its tokenizer splits text on line ends and runs of digits only, so a line such as `warps 8` becomes two
tokens; with a word-wise split prompts were ten times longer and nothing was learned in the same time.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import WrongUse
from store.ids import sha256_bytes
from store.settings import Settings, read_settings
from training.quiet import quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
ROLES = ("system", "user", "assistant", "tool")
TOKENIZER_FILE = "tokenizer.json"

# One mark per turn, then its text; the end mark closes assistant turns only. The generation block tells
# trainers which tokens the model itself says, end mark included.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<|assistant|>"
    "{% generation %}{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}\n{{ call | tojson }}{% endfor %}<|end|>{% endgeneration %}"
    "{% else %}<|{{ message.role }}|>{{ message.content or '' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


class SmallModelSettings(Settings):
    """Size of the small model, from conf/training/small_model.yaml."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    vocab_size: int


def make_small_model(
    texts: Iterable[str], out_dir: Path | str, *, seed: int, settings: SmallModelSettings | None = None
) -> Path:
    """Make a Llama with random weights and a byte-level BPE tokenizer trained on `texts`.

    Equal texts in equal order, settings and seed give the same files, byte for byte.

    Args:
        texts: Turns as the model will see them, without chat marks.
        out_dir: Folder to write; created.
        seed: Seed of the weights.
        settings: Sizes; None reads conf/training/small_model.yaml.

    Returns:
        The folder, which `AutoModelForCausalLM` and `AutoTokenizer` load.
    """
    settings = settings or read_settings(SmallModelSettings, "training/small_model.yaml")
    quiet_libraries()
    directory = Path(out_dir)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts, vocab_size=settings.vocab_size, max_length=settings.max_position_embeddings)
    tokenizer.save_pretrained(directory)
    _save_random_weights(_llama_config(settings, tokenizer), directory, seed=seed)
    return directory


def train_tokenizer(texts: Iterable[str], *, vocab_size: int, max_length: int) -> "PreTrainedTokenizerFast":
    """Byte-level BPE whose merges never cross a line end or the edge of a run of digits."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    marks = [PAD, END, *(f"<|{role}|>" for role in ROLES)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n|\d+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=marks,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=marks[2:],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def reset_weights(model_dir: Path | str, out_dir: Path | str, *, seed: int) -> Path:
    """Copy a model's config and tokenizer with weights drawn anew from `seed`: the same model, untrained.

    Raises:
        WrongUse: `out_dir` is the model's own folder.
    """
    quiet_libraries()
    from transformers import AutoConfig

    source, target = Path(model_dir), Path(out_dir)
    if target.resolve() == source.resolve():
        raise WrongUse(f"{target} is the trained model itself; name another folder for its untrained control.")
    target.mkdir(parents=True, exist_ok=True)
    for file in tokenizer_files(source):
        shutil.copyfile(file, target / file.name)
    _save_random_weights(AutoConfig.from_pretrained(source), target, seed=seed)
    return target


def tokenizer_files(model_dir: Path | str) -> list[Path]:
    """The files of a model folder that make up its tokenizer, chat template included."""
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
    return [path for path in (Path(model_dir) / name for name in names) if path.is_file()]


def tokenizer_digest(model_dir: Path | str) -> str | None:
    """SHA-256 of tokenizer.json; None for a folder or hub name without that file."""
    path = Path(model_dir) / TOKENIZER_FILE
    return sha256_bytes(path.read_bytes()) if path.is_file() else None


def weights_digest(model_dir: Path | str) -> str:
    """SHA-256 over the folder's safetensors files, in order of their names."""
    digests = [[path.name, sha256_bytes(path.read_bytes())] for path in sorted(Path(model_dir).glob("*.safetensors"))]
    return sha256_bytes(json.dumps(digests).encode())


def _llama_config(settings: SmallModelSettings, tokenizer: "PreTrainedTokenizerFast") -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        num_hidden_layers=settings.num_hidden_layers,
        num_attention_heads=settings.num_attention_heads,
        num_key_value_heads=settings.num_attention_heads,
        intermediate_size=settings.intermediate_size,
        max_position_embeddings=settings.max_position_embeddings,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )


def _save_random_weights(config: Any, directory: Path, *, seed: int) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(directory)

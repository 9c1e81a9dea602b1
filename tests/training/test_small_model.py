"""The small model that is made from a config: its tokenizer, its chat template, and that it is always the same."""

import random

import pytest

from training.small_model import make_small_model, train_tokenizer, weights_digest
from training_world import edit_prompt, random_edit

PROMPT = edit_prompt("softmax", {"block": "next_pow2", "warps": "4", "form": "loop", "stages": "2", "mask": "tail"})


@pytest.fixture(scope="module")
def tokenizer():
    rng = random.Random(0)
    texts = [text for _ in range(60) for text in random_edit(rng)[1:]]
    return train_tokenizer([*texts, PROMPT], vocab_size=1024, max_length=2048)


def test_a_short_prompt_is_about_thirty_tokens_and_an_answer_two(tokenizer) -> None:
    turns = [{"role": "user", "content": PROMPT}]
    assert len(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)) <= 36
    assert len(tokenizer.encode("warps 8")) == 2


@pytest.mark.parametrize("text", ["warps 8\nform loop", "  é 中 \u200b\ttabs\r\n", "8192x4096", ""])
def test_decoding_gives_back_every_text(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_no_token_crosses_a_line_end_or_the_edge_of_a_number(tokenizer) -> None:
    for token in tokenizer.get_vocab():
        text = tokenizer.convert_tokens_to_string([token])
        assert text == "\n" or "\n" not in text
        assert text.isdigit() or not any(character.isdigit() for character in text)


def test_the_template_marks_what_the_assistant_says_with_its_end_mark(tokenizer) -> None:
    turns = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "warps 4"},
        {"role": "assistant", "content": "warps 8"},
        {"role": "tool", "content": "ok"},
    ]
    encoded = tokenizer.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
    assert tokenizer.decode(encoded["input_ids"]) == ("<|system|>s<|user|>warps 4<|assistant|>warps 8<|end|><|tool|>ok")
    said = [token for token, mask in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if mask]
    assert tokenizer.decode(said) == "warps 8<|end|>"


def test_equal_texts_and_seed_give_equal_files_and_another_seed_other_weights(tmp_path) -> None:
    texts = [PROMPT, "warps 8"]
    first, second = (make_small_model(texts, tmp_path / name, seed=3) for name in ("first", "second"))
    files = sorted(path.name for path in first.iterdir())
    assert files == sorted(path.name for path in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in files)
    assert weights_digest(make_small_model(texts, tmp_path / "third", seed=4)) != weights_digest(first)

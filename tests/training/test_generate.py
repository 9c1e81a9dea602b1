"""Sampling: a row's answer follows from its prompt and seed alone, and its log-probabilities are the model's."""

import math
import random

import pytest

from store.errors import BadInput, WrongUse
from training.generate import TextGenerator, load_generator
from training.model_card import read_model_card
from training_world import POINTS, applies, random_edit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def generator(trained) -> TextGenerator:
    return load_generator(trained.model.model_dir)


def held_out(count: int) -> tuple[list[str], list[list[dict[str, str]]]]:
    rng = random.Random(99)
    edits = [random_edit(rng) for _ in range(count)]
    return [task for task, _, _ in edits], [[{"role": "user", "content": prompt}] for _, prompt, _ in edits]


def test_a_model_trained_on_sixty_edits_answers_with_edits_that_apply(generator: TextGenerator) -> None:
    tasks, prompts = held_out(60)
    answers = generator.generate(prompts, seeds=range(60), temperature=0.8, max_new_tokens=32)
    assert sum(applies(task, answer.text) for task, answer in zip(tasks, answers, strict=True)) >= 48
    assert len({answer.text for answer in answers}) >= 8


def test_a_row_is_equal_alone_and_in_any_batch(generator: TextGenerator) -> None:
    _, prompts = held_out(12)
    prompts[3] = [{"role": "user", "content": "x"}]  # a short one: the others' padding must not matter to it
    together = generator.generate(prompts, seeds=range(12), temperature=1.2, max_new_tokens=24)
    alone = [generator.generate([prompts[i]], seeds=[i], temperature=1.2, max_new_tokens=24)[0] for i in range(12)]
    fours = [
        answer
        for start in range(0, 12, 4)
        for answer in generator.generate(
            prompts[start : start + 4], seeds=range(start, start + 4), temperature=1.2, max_new_tokens=24
        )
    ]
    assert together == alone == fours


def test_another_seed_gives_another_draw_and_equal_seeds_the_same(generator: TextGenerator) -> None:
    _, (prompt,) = held_out(1)
    answers = generator.generate([prompt] * 40, seeds=[*range(20), *range(20)], temperature=1.0, max_new_tokens=24)
    assert answers[:20] == answers[20:]
    assert len({answer.text for answer in answers}) > 1


def test_log_probabilities_are_the_models_at_the_sampling_temperature(generator: TextGenerator) -> None:
    import torch

    _, (prompt,) = held_out(1)
    (answer,) = generator.generate([prompt], seeds=[5], temperature=0.7, max_new_tokens=24)
    ids = generator._tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    with torch.inference_mode():
        logits = generator._model(torch.tensor([[*ids, *answer.token_ids]])).logits[0, len(ids) - 1 : -1]
    expected = torch.log_softmax(logits.double() / 0.7, -1).gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    assert answer.logprobs == pytest.approx(expected.tolist(), abs=1e-5)


def test_draws_follow_the_probabilities(generator: TextGenerator) -> None:
    _, (prompt,) = held_out(1)
    answers = generator.generate([prompt] * 600, seeds=range(600), temperature=1.0, max_new_tokens=1)
    drawn: dict[int, list[float]] = {}
    for answer in answers:
        drawn.setdefault(answer.token_ids[0], []).append(math.exp(answer.logprobs[0]))
    _, probabilities = max(drawn.items(), key=lambda item: len(item[1]))
    assert len(probabilities) / 600 == pytest.approx(probabilities[0], abs=0.08)


def test_temperature_zero_takes_the_likeliest_token_whatever_the_seed(generator: TextGenerator) -> None:
    _, (prompt,) = held_out(1)
    first, second = generator.generate([prompt, prompt], seeds=[1, 2], temperature=0, max_new_tokens=24)
    assert first == second
    assert first.finish_reason == "stop"


def test_the_end_mark_is_a_token_but_no_text(generator: TextGenerator) -> None:
    _, (prompt,) = held_out(1)
    (answer,) = generator.generate([prompt], seeds=[1], temperature=0, max_new_tokens=24)
    (cut,) = generator.generate([prompt], seeds=[1], temperature=0, max_new_tokens=1)
    assert "<|end|>" not in answer.text
    assert generator._tokenizer.decode(answer.token_ids) == answer.text + "<|end|>"
    assert (cut.finish_reason, cut.token_ids) == ("length", answer.token_ids[:1])
    assert answer.text.split(" ")[0] in {name for points in POINTS.values() for name in points}


def test_the_generator_says_what_it_is(generator: TextGenerator, trained) -> None:
    card = read_model_card(trained.model.model_dir)
    assert card is not None
    assert (generator.model_id, generator.turns) == (trained.model.model_id, "step")
    assert generator.tokenizer_digest == card.tokenizer_digest


def test_what_cannot_be_generated_is_refused_in_one_line(generator: TextGenerator, tmp_path) -> None:
    _, (prompt,) = held_out(1)
    with pytest.raises(WrongUse, match="1 prompts but 2 seeds"):
        generator.generate([prompt], seeds=[1, 2])
    with pytest.raises(BadInput, match="do not fit into the 2048 tokens"):
        generator.generate([[{"role": "user", "content": "warps 8\n" * 2000}]], seeds=[1])
    with pytest.raises(BadInput, match="cannot be loaded as a causal language model"):
        load_generator(tmp_path)

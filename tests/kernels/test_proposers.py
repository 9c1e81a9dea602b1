"""Rules and uniform: what they say follows from the prompt and the seed alone."""

from collections import Counter
from dataclasses import dataclass

import pytest

from kernel_search.edits import apply_edits, parse_answer, render_prompt
from kernel_search.grammar import OFFERS
from kernel_search.proposers import Request, make_proposer
from kernel_search.proposers.model import ModelProposer
from kernel_search.search_settings import read_search_settings
from kernel_search.tasks import TASKS
from store.errors import ProposerDown, UnknownName, WrongUse

SETTINGS = read_search_settings()
TASK_NAMES = sorted(TASKS)


def requests_for(task_name, count, source=None):
    task = TASKS[task_name]
    prompt = tuple(render_prompt(task, source or task.seed_source))
    return [Request(prompt, seed) for seed in range(count)]


def said(name, task_name, count=300, source=None):
    proposer = make_proposer(name, SETTINGS)
    return [answer.turn["content"] for answer in proposer.propose(requests_for(task_name, count, source))]


@pytest.mark.parametrize("name", ["rules", "uniform"])
@pytest.mark.parametrize("task_name", TASK_NAMES)
def test_answers_are_one_or_two_offered_edits_and_siblings_differ(name, task_name):
    answers = said(name, task_name)
    for answer in answers:
        edits = parse_answer(answer)
        assert edits is not None
        assert all(edit.value in OFFERS[task_name][edit.name].values for edit in edits)
    assert len(set(answers)) > 40


@pytest.mark.parametrize("name", ["rules", "uniform"])
def test_an_answer_does_not_depend_on_its_batch_mates(name):
    proposer = make_proposer(name, SETTINGS)
    requests = requests_for("matmul", 6)
    whole = proposer.propose(requests)
    assert [proposer.propose([request])[0] for request in reversed(requests)] == whole[::-1]


@pytest.mark.parametrize("task_name", TASK_NAMES)
def test_the_rules_never_say_what_is_there_already_and_use_most_places(task_name):
    source = TASKS[task_name].seed_source
    applied = [apply_edits(source, answer) for answer in said("rules", task_name)]
    assert {each.failure_class for each in applied} == {None}
    used = {edit.name for each in applied for edit in each.edits}
    assert len(used) >= 0.8 * len(OFFERS[task_name])


@pytest.mark.parametrize("task_name", TASK_NAMES)
def test_the_rules_take_risks_at_about_the_rate_that_conf_says(task_name):
    first_edits = [parse_answer(answer)[0] for answer in said("rules", task_name, 600)]
    risky = sum(edit.value in OFFERS[task_name][edit.name].risky for edit in first_edits)
    assert risky / 600 == pytest.approx(SETTINGS.rules.risky, abs=0.05)


def test_the_rules_mostly_bring_the_full_block_with_the_one_pass_form():
    answers = [answer for answer in said("rules", "softmax", 600) if answer.startswith("form one")]
    with_block = sum(answer == "form one\nblock full" for answer in answers)
    assert len(answers) > 20
    assert with_block / len(answers) > 0.7


def test_uniform_tries_every_pair_and_also_what_is_there_already():
    counts = Counter(line for answer in said("uniform", "rms_norm", 3000) for line in answer.split("\n"))
    pairs = [f"{name} {value}" for name, offer in OFFERS["rms_norm"].items() for value in offer.values]
    assert set(counts) == set(pairs)
    assert counts["warps 1"] > 0
    assert max(counts.values()) < 4 * min(counts.values())


def test_a_source_without_edit_points_still_gets_an_answer():
    proposer = make_proposer("rules", SETTINGS)
    answers = proposer.propose(requests_for("softmax", 50, "def run(x):\n    return x\n"))
    assert all(parse_answer(answer.turn["content"]) for answer in answers)


def test_an_unknown_proposer_and_a_model_without_a_folder_are_refused(tmp_path):
    with pytest.raises(UnknownName, match="'genius'; there are rules, uniform, model"):
        make_proposer("genius", SETTINGS)
    with pytest.raises(WrongUse, match="--model DIR"):
        make_proposer("model", SETTINGS)
    with pytest.raises(WrongUse, match="'rules' with model folder"):
        make_proposer("rules", SETTINGS, model_dir=tmp_path)


@dataclass
class OneCompletion:
    text: str = "warps 8"
    token_ids: tuple[int, ...] = (5, 7, 2)
    logprobs: tuple[float, ...] = (-0.5, -0.25, -0.125)
    finish_reason: str = "stop"


class Generator:
    model_id = "model_1"
    tokenizer_digest = "abc"

    def __init__(self, failure=None):
        self.failure = failure
        self.asked = []

    def generate(self, prompts, *, seeds, temperature, max_new_tokens):
        if self.failure:
            raise self.failure
        self.asked.append((prompts, seeds, temperature, max_new_tokens))
        return [OneCompletion() for _ in prompts]


def test_a_models_turn_keeps_what_was_sampled_token_by_token():
    generator = Generator()
    request = requests_for("softmax", 1)[0]
    answer = ModelProposer(generator, SETTINGS.model, run_id="run_1").propose([request])[0]
    assert generator.asked == [([list(request.prompt)], [0], 0.8, SETTINGS.model.max_new_tokens)]
    assert answer.tokens == 3
    assert answer.turn == {
        "role": "assistant",
        "content": "warps 8",
        "token_ids": [5, 7, 2],
        "logprobs": [-0.5, -0.25, -0.125],
        "temperature": 0.8,
        "model_id": "model_1",
        "tokenizer_digest": "abc",
        "finish_reason": "stop",
    }


def test_a_model_that_breaks_is_a_proposer_that_is_down():
    proposer = ModelProposer(Generator(RuntimeError("out of\nmemory")), SETTINGS.model)
    with pytest.raises(ProposerDown, match="RuntimeError: out of memory"):
        proposer.propose(requests_for("softmax", 1))

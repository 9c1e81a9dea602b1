"""A whole search in this process: what its nodes, messages and counts say."""

import json

import pytest

from kernel_search.edits import apply_edits, render_prompt
from kernel_search.grammar import KINDS
from kernel_search.judge import estimate
from kernel_search.search import resume_session, run_search
from kernel_search.tasks import TASKS
from search_child import DigestJudge
from store.errors import ProposerDown, UnknownName, WrongUse
from store.ids import message_digest
from store.ledger import open_ledger


def search(home, **options):
    return run_search(home, **({"task": "softmax", "steps": 24, "judge": DigestJudge()} | options))


def nodes_of(home, session_id):
    with open_ledger(home) as ledger:
        return ledger.nodes(session_id)


def turns_of(home):
    with open_ledger(home) as ledger:
        turns = [entry.row for entry in ledger.feed(0, 100_000) if entry.table == "prompt_history"]
    by_node = {}
    for turn in sorted(turns, key=lambda turn: turn["turn"]):
        by_node.setdefault(turn["node_id"], []).append(turn)
    return by_node


def test_every_attempt_is_a_node_and_the_seed_is_one_more_that_costs_nothing(home):
    summary = search(home)
    nodes = nodes_of(home, summary.session_id)
    assert (summary.attempts, summary.nodes, len(nodes), summary.state) == (24, 25, 25, "done")
    assert nodes[0]["operator"] == "seed"
    assert nodes[0]["artifact"] == TASKS["softmax"].seed_source
    assert summary.valid + sum(summary.failure_classes.values()) == 24
    assert set(summary.kinds_used) <= set(KINDS)


def test_a_nodes_messages_are_the_prompt_of_its_parent_and_an_answer_that_makes_its_artifact(home):
    summary = search(home)
    nodes = {node["node_id"]: node for node in nodes_of(home, summary.session_id)}
    turns = turns_of(home)
    assert set(turns) == set(nodes) - {node_id for node_id, node in nodes.items() if node["parent_id"] is None}
    for node_id, said in turns.items():
        node, parent = nodes[node_id], nodes[nodes[node_id]["parent_id"]]
        prompt = render_prompt(TASKS["softmax"], parent["artifact"])
        assert [(turn["role"], turn["content"]) for turn in said[:-1]] == [("user", prompt[0]["content"])]
        assert node["prompt_digest"] == message_digest(prompt)
        assert said[-1]["role"] == "assistant"
        applied = apply_edits(parent["artifact"], said[-1]["content"])
        assert applied.source == node["artifact"]
        if applied.failure_class:
            assert node["failure_class"] == applied.failure_class


def test_groups_of_four_siblings_share_parent_prompt_and_selected_step(home):
    nodes = nodes_of(home, search(home).session_id)[1:]
    for start in range(0, 24, 4):
        group = nodes[start : start + 4]
        shared = {(node["parent_id"], node["prompt_digest"], node["selected_step"]) for node in group}
        assert len(shared) == 1
        assert group[0]["selected_step"] == start


def test_parents_are_never_buggy(home):
    nodes = {node["node_id"]: node for node in nodes_of(home, search(home, steps=40).session_id)}
    assert any(node["is_buggy"] for node in nodes.values())
    assert not any(nodes[node["parent_id"]]["is_buggy"] for node in nodes.values() if node["parent_id"])


def test_answers_that_give_no_candidate_are_failed_nodes_with_a_reward_and_the_seeds_judge(home):
    summary = search(home, proposer="uniform", steps=60)
    nodes = nodes_of(home, summary.session_id)
    empty = [node for node in nodes if node["artifact"] is None]
    assert {node["failure_class"] for node in empty} == {"no_op"}
    assert summary.no_ops == len(empty) > 0
    for node in empty:
        assert (node["is_buggy"], node["fitness"], node["reward"], node["outcome"]) == (True, None, 0.0, "failed")
        assert (node["fitness_basis"], node["verifier"], node["environment_digest"]) == (
            nodes[0]["fitness_basis"],
            nodes[0]["verifier"],
            nodes[0]["environment_digest"],
        )


class Parrot:
    """A proposer that says what it was given, in turn."""

    run_id = None

    def __init__(self, *answers):
        self.name, self.answers = "parrot", list(answers)

    def propose(self, requests):
        from kernel_search.proposers import Answer

        if len(self.answers) < len(requests):
            raise ProposerDown("parrot has no more answers.")
        said = [self.answers.pop(0) for _ in requests]
        return [Answer({"role": "assistant", "content": content}) for content in said]


@pytest.fixture
def parrot(monkeypatch):
    def speak(*answers):
        bird = Parrot(*answers)
        monkeypatch.setattr("kernel_search.search.make_proposer", lambda *_arguments, **_options: bird)
        return bird

    return speak


def test_unparsable_inapplicable_no_ops_and_duplicates_are_counted_as_attempts(home, parrot):
    parrot("warps 8", "hello there, model", "root rsqrt", "warps 1", "warps 8", "block 512", "warps 2", "warps 2")
    summary = search(home, steps=8)
    assert (summary.attempts, summary.unparsable, summary.inapplicable, summary.no_ops) == (8, 1, 1, 1)
    assert summary.duplicates == 2
    digests = [node["artifact_digest"] for node in nodes_of(home, summary.session_id)]
    assert digests[1] == digests[5] and digests[7] == digests[8]
    assert summary.kinds_used == {"block": 1, "warps": 4}


def test_a_proposer_that_is_down_stops_the_search_with_a_clear_state_and_no_empty_node(home, parrot):
    bird = parrot("warps 8", "warps 2", "stages 3", "stages 1")
    with pytest.raises(ProposerDown, match="no more answers"):
        search(home, steps=12)
    with open_ledger(home) as ledger:
        (state,) = ledger.sessions()
        assert (state.status, state.status_reason, state.attempts_settled) == (
            "failed",
            "parrot has no more answers.",
            4,
        )
        assert len(ledger.nodes(state.session_id)) == 5
    bird.answers = ["warps 16", "block 512", "block 1024", "exp base2"] * 2
    summary = resume_session(home, state.session_id, judge=DigestJudge())
    assert (summary.attempts, summary.state) == (12, "done")


def test_a_search_that_is_interrupted_is_paused_and_can_go_on(home):
    def interrupt(done, _total):
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(home, progress=interrupt)
    with open_ledger(home) as ledger:
        (state,) = ledger.sessions()
    assert (state.status, state.attempts_settled) == ("paused", 6)
    seen = []
    summary = resume_session(home, state.session_id, judge=DigestJudge(), progress=lambda *now: seen.append(now))
    assert (summary.attempts, summary.state) == (24, "done")
    assert seen[0] == (7, 24) and seen[-1] == (24, 24)


def test_a_finished_session_is_only_summed_up(home):
    summary = search(home, steps=4)
    assert resume_session(home, summary.session_id) == summary


def test_the_task_gets_the_seeds_verdict_as_its_baseline(home):
    search(home, steps=4)
    with open_ledger(home) as ledger:
        (task,) = [entry.row for entry in ledger.feed(0, 1000) if entry.table == "tasks"]
    assert task["task_id"] == TASKS["softmax"].task_id
    assert (task["baseline_basis"], task["failure_reward"], task["direction"]) == (estimate.BASIS, 0.0, "min")
    assert isinstance(task["baseline_fitness"], float)


def test_the_claims_keep_what_the_policy_weighed(home):
    summary = search(home, steps=12)
    with open_ledger(home) as ledger:
        visits = {
            (entry.row["node_id"], entry.row["step"]): json.loads(entry.row["new_value"])
            for entry in ledger.feed(0, 100_000)
            if entry.table == "change_log" and entry.row["field"] == "visits"
        }
        claims = ledger.claims(summary.session_id)
    assert len(claims) == 4
    for claim in claims[1:]:
        for weighed in claim["policy_numbers"]:
            as_of = max(step for node, step in visits if node == weighed["node_id"] and step <= claim["selected_step"])
            assert weighed["visits"] == visits[weighed["node_id"], as_of]
            assert weighed["in_flight"] == 0


def test_the_same_seed_again_is_another_session_and_other_attempts(home):
    first, second = search(home, steps=4), search(home, steps=4)
    assert first.session_id != second.session_id
    texts = [[node["artifact_digest"] for node in nodes_of(home, each.session_id)] for each in (first, second)]
    assert texts[0] != texts[1]


@pytest.mark.parametrize("options", [{"steps": 0}, {"group_size": 0}, {"workers": 0}])
def test_numbers_that_cannot_be_right_are_refused_before_anything_is_written(home, options):
    with pytest.raises(WrongUse, match="at least 1"):
        search(home, **options)
    assert not home.ledger_path.exists()


@pytest.mark.parametrize("options", [{"task": "sort"}, {"policy": "oracle"}, {"proposer": "genius"}])
def test_unknown_names_are_answered_with_the_known_ones(home, options):
    with pytest.raises(UnknownName, match="there are"):
        search(home, **options)
    assert not home.ledger_path.exists()


@pytest.mark.slow
def test_two_worker_processes_judge_for_real_and_share_one_session(home):
    seen = []
    summary = run_search(
        home, task="vector_add", steps=6, group_size=2, workers=2, progress=lambda *now: seen.append(now)
    )
    nodes = nodes_of(home, summary.session_id)
    assert (summary.state, summary.attempts, len(nodes)) == ("done", 6, 7)
    assert [node["step"] for node in nodes] == list(range(7))
    assert summary.valid >= 1
    assert json.loads(nodes[0]["metrics"])[estimate.METRIC] > 0
    assert seen[-1] == (6, 6)


@pytest.mark.slow
def test_a_language_model_proposes_and_its_tokens_are_kept(home, tmp_path):
    from training.small_model import make_small_model

    prompts = [render_prompt(task, task.seed_source)[0]["content"] for task in TASKS.values()]
    model_dir = make_small_model([*prompts, "warps 8", "form one\nblock full"] * 8, tmp_path / "model", seed=0)
    summary = search(home, steps=6, group_size=3, proposer="model", model_dir=model_dir)
    assert (summary.attempts, summary.state) == (6, "done")
    answers = [said[-1] for said in turns_of(home).values()]
    assert len(answers) == 6
    for answer in answers:
        assert len(answer["token_ids"]) == len(answer["logprobs"]) > 0
        assert all(logprob <= 0 for logprob in answer["logprobs"])
        assert (answer["temperature"], len(answer["tokenizer_digest"])) == (0.8, 64)
        assert answer["model_id"] == nodes_of(home, summary.session_id)[1]["model"]
    with open_ledger(home) as ledger:
        assert str(tmp_path) not in json.dumps([entry.row for entry in ledger.feed(0, 10_000)])

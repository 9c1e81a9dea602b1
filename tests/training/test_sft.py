"""A training run: what it gives, what it refuses, and what the registry says when it ends early."""

import json
import random
import shutil

import pytest

from store.errors import (
    BadInput,
    BadSetting,
    FlaggedByRetraction,
    NotEnoughData,
    RefusedByPolicy,
    WrongUse,
)
from training import sft as sft_module
from training.generate import load_generator
from training.model_card import read_model_card
from training.registry import LOCK_FILE, RunRow, alive, mark_dead_runs_stopped, start_run
from training.save import untrained_model
from training.sft import train_sft
from training.small_model import weights_digest
from training.snapshots import export_view
from training_world import NOW, TrainingWorld, applies, edit_prompt, pair_row, path_row, random_edit, step

pytestmark = pytest.mark.slow
PROMPT = edit_prompt("softmax", {"block": "1024", "warps": "4"})


@pytest.fixture
def world(tmp_path) -> TrainingWorld:
    return TrainingWorld(tmp_path)


@pytest.fixture
def quick(tmp_path, write_config):
    """Settings of a run of three steps."""
    return write_config(tmp_path / "quick.yaml", max_steps=3, logging_steps=1)


def export(world: TrainingWorld, view: str = "sft_trajectories", **options):
    return export_view(world.home, view, world.folder / "dataset", now=NOW, **options).dir


def runs(world: TrainingWorld) -> list[dict]:
    return world.tables.read("runs").to_pylist()


def model_row(world: TrainingWorld, model_id: str) -> dict:
    (row,) = (row for row in world.tables.read("models").to_pylist() if row["model_id"] == model_id)
    return row


# ---- what a run gives --------------------------------------------------------------------------------


def test_the_loss_falls_and_the_weights_move(trained) -> None:
    metrics = trained.model.metrics
    assert metrics["loss"] < 0.4 * metrics["first_loss"]
    assert metrics["weights_digest"] == weights_digest(trained.model.model_dir) != metrics["initial_weights_digest"]
    assert (trained.model.rows, metrics["rows"], metrics["steps"]) == (60, 60, 220)


def test_the_registry_names_data_settings_and_model(trained) -> None:
    (run,) = runs(trained.world)
    assert (run["run_id"], run["kind"], run["status"], run["num_rows"]) == (trained.model.run_id, "sft", "done", 60)
    (dataset,) = trained.world.tables.read("datasets").to_pylist()
    assert run["dataset_ids"] == [dataset["dataset_id"]]
    assert json.loads(run["config"])["learning_rate"] == 0.002
    assert run["base_model"] is None and run["ended_at"] > run["started_at"] == NOW
    model = model_row(trained.world, trained.model.model_id)
    assert (model["run_id"], model["turns"], model["directory"]) == (
        run["run_id"],
        "step",
        str(trained.model.model_dir),
    )
    assert 800_000 < model["num_parameters"] < 1_000_000


def test_progress_tells_steps_and_loss(trained) -> None:
    assert trained.told[-2].startswith("step 220 of 220, loss 0.")
    assert trained.told[-1] == "saving the model"


def test_the_untrained_control_has_the_first_weights_the_same_tokenizer_and_no_idea(trained, tmp_path) -> None:
    directory = untrained_model(trained.world.home, trained.model, tmp_path / "untrained", now=NOW)
    assert weights_digest(directory) == trained.model.metrics["initial_weights_digest"]
    card = read_model_card(directory)
    assert model_row(trained.world, card.model_id)["run_id"] is None
    generator = load_generator(directory)
    assert generator.tokenizer_digest == load_generator(trained.model.model_dir).tokenizer_digest
    edits = [random_edit(random.Random(seed)) for seed in range(30)]
    answers = generator.generate(
        [[{"role": "user", "content": prompt}] for _, prompt, _ in edits], seeds=range(30), max_new_tokens=16
    )
    assert sum(applies(task, answer.text) for (task, _, _), answer in zip(edits, answers, strict=True)) <= 3


def test_equal_data_settings_and_seed_give_equal_weights_and_another_seed_does_not(world, quick, write_config) -> None:
    world.random_paths(24)
    dataset = export(world)
    first, second = (train_sft(world.home, dataset, config=quick, now=NOW) for _ in range(2))
    other_seed = write_config(world.folder / "other.yaml", max_steps=3, seed=1)
    third = train_sft(world.home, dataset, config=other_seed, now=NOW)
    assert first.model_id == second.model_id != third.model_id
    assert len({first.run_id, second.run_id, third.run_id}) == 3


def test_a_run_can_start_from_a_model_folder_and_inherits_its_tags(trained, world, quick) -> None:
    base = world.folder / "base"
    shutil.copytree(trained.model.model_dir, base)
    card = json.loads((base / "espalier_model.json").read_text())
    (base / "espalier_model.json").write_text(json.dumps({**card, "tags": ["internal"]}))
    world.paths([random_edit(random.Random(number)) for number in range(24)], tags=("licence:mit",))
    model = train_sft(world.home, export(world, turns="path"), model=str(base), config=quick, now=NOW)
    row = model_row(world, model.model_id)
    assert (row["base_model"], row["turns"], row["tags"]) == (str(base), "path", ["internal", "licence:mit"])
    assert row["tokenizer_digest"] == card["tokenizer_digest"]
    assert untrained_model(world.home, model, world.folder / "untrained", now=NOW) == base


# ---- rows that reach the trainer -------------------------------------------------------------------------


def test_fewer_than_twenty_rows_are_a_failure_and_no_run(world) -> None:
    world.random_paths(19)
    with pytest.raises(NotEnoughData, match="19 rows would reach the trainer"):
        train_sft(world.home, export(world), now=NOW)
    assert runs(world) == [] and world.tables.read("models").num_rows == 0


def test_rows_over_the_token_budget_are_counted_out_and_not_cut(world, quick, write_config) -> None:
    long = "\n".join(f"line {number}" for number in range(200))
    world.paths([random_edit(random.Random(number)) for number in range(25)] + [("t", long, "warps 8")] * 3)
    dataset = export(world)
    model = train_sft(world.home, dataset, config=quick, now=NOW)
    assert (model.rows, model.metrics["left_out"]) == (28, {})
    short = write_config(world.folder / "short.yaml", max_steps=3, max_length=64)
    model = train_sft(world.home, dataset, config=short, now=NOW)
    assert (model.rows, model.metrics["left_out"]) == (25, {"over_token_budget": 3})
    tiny = write_config(world.folder / "tiny.yaml", max_steps=3, max_length=8)
    with pytest.raises(NotEnoughData, match=r"0 rows would reach the trainer \(28 over_token_budget\)"):
        train_sft(world.home, dataset, config=tiny, now=NOW)
    assert [run["status"] for run in runs(world)] == ["done", "done"]


# ---- refusals ---------------------------------------------------------------------------------------------


def test_a_snapshot_that_a_retraction_reached_since_is_refused(world, quick) -> None:
    world.random_paths(24)
    dataset = export(world)
    row = {"retraction_id": "r1", "node_id": "n7", "session_seq": 1, "effect": "self", "kind": "withdraw"}
    world.write("node_reach", [row])
    with pytest.raises(FlaggedByRetraction, match="1 of 24 examples"):
        train_sft(world.home, dataset, config=quick, now=NOW)
    assert runs(world) == []


def test_a_snapshot_made_for_an_audit_is_no_training_data(world, quick) -> None:
    world.paths([random_edit(random.Random(number)) for number in range(24)], tags=("pii",))
    with pytest.raises(RefusedByPolicy, match=r"may not train on .*: tag pii"):
        train_sft(world.home, export(world, purpose="audit"), config=quick, now=NOW)


def test_what_cannot_be_trained_on_is_refused_in_one_line(world, quick, write_config) -> None:
    world.write("dpo_pairs", [pair_row("a", "b")])
    with pytest.raises(WrongUse, match="holds pairs of dpo_pairs; SFT takes the forms step and path"):
        train_sft(world.home, export(world, "dpo_pairs"), config=quick, now=NOW)
    with pytest.raises(BadInput, match="is no exported snapshot"):
        train_sft(world.home, world.folder, config=quick, now=NOW)
    shutil.rmtree(world.folder / "dataset")
    world.random_paths(24)
    dataset = export(world)
    with pytest.raises(BadInput, match="cannot be loaded as a causal language model"):
        train_sft(world.home, dataset, model=str(world.folder), config=quick, now=NOW)
    unknown = write_config(world.folder / "unknown.yaml", learning_rte=1)
    with pytest.raises(BadSetting, match=r"'learning_rte' is unknown to SFTConfig; it has .*learning_rate,"):
        train_sft(world.home, dataset, config=unknown, now=NOW)
    with pytest.raises(WrongUse, match="is not empty"):
        train_sft(world.home, dataset, config=quick, out_dir=dataset, now=NOW)
    assert runs(world) == []


# ---- runs that end early ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "status"), [(RuntimeError("no space"), "failed"), (SystemExit(143), "stopped")])
def test_a_run_that_ends_early_is_registered_as_such_and_leaves_no_model(
    world, quick, monkeypatch, ending: BaseException, status: str
) -> None:
    def end(*args, **named):
        raise ending

    world.random_paths(24)
    monkeypatch.setattr(sft_module, "save_model", end)
    with pytest.raises(type(ending)):
        train_sft(world.home, export(world), config=quick, now=NOW)
    (run,) = runs(world)
    assert (run["status"], "error" in json.loads(run["metrics"])) == (status, True)
    assert not any(world.home.models.iterdir()) and world.tables.read("models").num_rows == 0


def test_a_run_whose_process_is_gone_is_marked_stopped_and_a_living_one_is_not(world) -> None:
    for run_id in ("dead", "living", "lost"):
        start_run(world.home, RunRow(run_id, "sft", (), None, {}, 24, NOW))
    (world.home.runs / "dead").mkdir()
    (world.home.runs / "dead" / LOCK_FILE).touch()
    with alive(world.home, "living"):
        assert sorted(mark_dead_runs_stopped(world.home)) == ["dead", "lost"]
    status = {run["run_id"]: run["status"] for run in runs(world)}
    assert status == {"dead": "stopped", "lost": "stopped", "living": "running"}


def test_a_path_without_an_answer_never_reaches_a_trainer(world) -> None:
    silent = path_row("n1", "t", [step("n1", PROMPT, " ")])
    world.write("sft_trajectories", [silent, path_row("n2", "t", [step("n2", PROMPT, "warps 8")])])
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "dataset", turns="path", now=NOW)
    assert (snapshot.rows, snapshot.left_out) == (1, {"empty_answer": 1})

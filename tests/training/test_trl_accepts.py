"""TRL's own trainers take each snapshot as `load_dataset` gives it, without a change of column."""

from pathlib import Path

import datasets
import pytest

from training.quiet import expected_warnings_hidden
from training.small_model import make_small_model
from training.snapshots import export_view
from training_world import NOW, TrainingWorld, member_row, pair_row

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")]

ON_CPU = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "max_steps": 2,
    "save_strategy": "no",
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small_model(["warps 8\nform loop"], tmp_path_factory.mktemp("model"), seed=0)


@pytest.fixture
def parts(model_dir: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        TrainingWorld(tmp_path),
        AutoModelForCausalLM.from_pretrained(model_dir),
        AutoTokenizer.from_pretrained(model_dir),
    )


def rows_of(world: TrainingWorld, view: str, **options: str) -> datasets.Dataset:
    directory = export_view(world.home, view, world.folder / "dataset", now=NOW, **options).dir
    return datasets.load_dataset(str(directory), split="train")


@pytest.mark.parametrize("turns", ["step", "path"])
def test_sft_trainer_takes_both_forms(parts, turns: str, tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    world, model, tokenizer = parts
    world.random_paths(8)
    rows = rows_of(world, "sft_trajectories", turns=turns)
    with expected_warnings_hidden():
        args = SFTConfig(output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, **ON_CPU)
        trainer = SFTTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer)
        result = trainer.train()
    assert (result.global_step, len(trainer.train_dataset)) == (2, 8)
    (first,) = trainer.train_dataset.select([0])
    text = tokenizer.decode(first["input_ids"])
    turns_of_row = rows[0]["messages"] if turns == "path" else [*rows[0]["prompt"], *rows[0]["completion"]]
    assert text == f"<|user|>{turns_of_row[0]['content']}<|assistant|>{turns_of_row[1]['content']}<|end|>"


def test_dpo_trainer_takes_pairs(parts, tmp_path: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    world, model, tokenizer = parts
    world.write("dpo_pairs", [pair_row(f"a{i}", f"b{i}", chosen=f"warps {i}", rejected="block 1") for i in range(8)])
    rows = rows_of(world, "dpo_pairs")
    with expected_warnings_hidden():
        args = DPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            logging_steps=1,
            **ON_CPU,
        )
        trainer = DPOTrainer(model, args=args, train_dataset=rows, processing_class=tokenizer)
        result = trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert (result.global_step, len(trainer.train_dataset)) == (2, 8)
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)  # ln 2: nothing learned yet
    assert losses[1] < losses[0]


def test_grpo_trainer_takes_cohorts_and_hands_our_columns_to_the_reward(parts, tmp_path: Path) -> None:
    from trl import GRPOConfig, GRPOTrainer

    world, model, tokenizer = parts
    members = [
        member_row(f"c{i}", f"n{i}{j}", reward=float(j), advantage=j - 0.5, answer=f"warps {j}")
        for i in range(4)
        for j in range(2)
    ]
    world.write("grpo_cohorts", members)
    rows = rows_of(world, "grpo_cohorts")
    seen: list[tuple[str, float]] = []

    def stored_reward(completions, reward, cohort_id, advantage, **columns) -> list[float]:
        seen.extend(zip(cohort_id, advantage, strict=True))
        return [value + 0.1 * number for number, value in enumerate(reward)]

    with expected_warnings_hidden():
        args = GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=4,
            **ON_CPU,
        )
        trainer = GRPOTrainer(
            model, reward_funcs=stored_reward, args=args, train_dataset=rows, processing_class=tokenizer
        )
        result = trainer.train()
    assert result.global_step == 2
    assert {cohort for cohort, _ in seen} <= {"c0", "c1", "c2", "c3"}
    assert {advantage for _, advantage in seen} <= {-0.5, 0.5}

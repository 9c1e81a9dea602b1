"""One small model, trained once for all tests that need one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from store.settings import CONF
from training.sft import TrainedModel, train_sft
from training.snapshots import export_view
from training_world import NOW, TrainingWorld

STEPS = 220  # less than half of the default: enough for the small grammar of the test world


@pytest.fixture(scope="session")
def write_config() -> Callable[..., Path]:
    """Writes the shipped settings with changes to a file: `write_config(path, max_steps=3)`."""
    return _write_config


def _write_config(path: Path, **changes: object) -> Path:
    settings = yaml.safe_load((CONF / "training" / "sft.yaml").read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**settings, **changes}), encoding="utf-8")
    return path


@dataclass(frozen=True)
class TrainedWorld:
    """A home with one snapshot of 60 named edits and the model trained on it."""

    world: TrainingWorld
    dataset: Path
    model: TrainedModel
    told: list[str]
    now: datetime = NOW


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedWorld]:
    folder = tmp_path_factory.mktemp("trained")
    world = TrainingWorld(folder)
    world.random_paths(60)
    dataset = export_view(world.home, "sft_trajectories", folder / "dataset", turns="step", now=NOW).dir
    told: list[str] = []
    config = _write_config(folder / "sft.yaml", max_steps=STEPS)
    model = train_sft(world.home, dataset, config=config, progress=told.append, now=NOW)
    yield TrainedWorld(world, dataset, model, told)

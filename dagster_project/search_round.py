"""One round of searches: each proposer gets the same number of attempts on every task, from the same seeds."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_project.loop_settings import LoopSettings, SearchRound
from store.errors import UnknownName
from store.home import Home

if TYPE_CHECKING:
    from kernel_search.judge import Judge

PROPOSERS = ("trained", "untrained", "rules", "uniform")
MODEL_PROPOSERS = ("trained", "untrained")  # both are the proposer `model`, with one folder of weights each
Tell = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class RoundModels:
    """Folders of weights by the name of their proposer; None where this round has no model."""

    trained: Path | None = None
    untrained: Path | None = None


@dataclass(frozen=True)
class SearchDone:
    """One search of a round."""

    proposer: str
    task: str
    session_id: str
    attempts: int
    valid: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for an asset's metadata."""
        return {
            "proposer": self.proposer,
            "task": self.task,
            "session_id": self.session_id,
            "attempts": self.attempts,
            "valid": self.valid,
        }


def run_round(
    home: Home,
    searches: SearchRound,
    settings: LoopSettings,
    *,
    judge: "Judge",
    seed: int,
    models: RoundModels | None = None,
    tell: Tell | None = None,
) -> list[SearchDone]:
    """Search every task with every proposer, one session each; every session of the round has the same seed.

    Raises:
        UnknownName: A proposer that does not exist, or one that needs a model this round does not have.
    """
    from kernel_search.search import run_search

    folders = {name: _model_folder(name, models or RoundModels()) for name in searches.proposers}
    total = len(searches.proposers) * len(settings.tasks) * searches.attempts_per_task
    done: list[SearchDone] = []
    before = 0
    for proposer in searches.proposers:
        for task in settings.tasks:
            summary = run_search(
                home,
                task=task,
                policy=settings.policy,
                proposer="model" if proposer in MODEL_PROPOSERS else proposer,
                steps=searches.attempts_per_task,
                group_size=settings.group_size,
                seed=seed,
                model_dir=folders[proposer],
                judge=judge,
                progress=_told(tell, f"{proposer} on {task}", before, total),
            )
            before += searches.attempts_per_task
            done.append(SearchDone(proposer, task, summary.session_id, summary.attempts, summary.valid))
            if tell is not None:
                tell(f"{proposer} on {task}", before, total)
    return done


def _model_folder(proposer: str, models: RoundModels) -> Path | None:
    if proposer not in PROPOSERS:
        raise UnknownName(f"no proposer {proposer!r}; a round can have {', '.join(PROPOSERS)}.")
    if proposer not in MODEL_PROPOSERS:
        return None
    folder = models.trained if proposer == "trained" else models.untrained
    if folder is None:
        raise UnknownName(f"proposer {proposer!r} needs a model, and this round has none; materialize sft_model first.")
    return folder


def _told(tell: Tell | None, what: str, before: int, total: int) -> Callable[[int, int | None], None] | None:
    if tell is None:
        return None
    return lambda done, of: tell(what, before + done, total)

"""Shared by the judge's tests: one warm judge for the whole test run, and the fixtures' files."""

import atexit
import functools
from pathlib import Path
from typing import Any

from kernel_search.judge import Judge
from kernel_search.judge.client import Reply, Server
from kernel_search.judge.pipeline import Pipeline
from kernel_search.tasks import TASKS, KernelTask

HERE = Path(__file__).parent / "kernels"


@functools.cache
def warm_judge() -> Judge:
    """A started judge, closed when Python ends."""
    judge = Judge(workers=2)
    judge.start()
    atexit.register(judge.close)
    return judge


def impatient_judge(**settings: int) -> Judge:
    """A judge on the same warm servers with other settings, such as a short CPU limit."""
    warm = warm_judge()
    changed = warm.settings.model_copy(update=settings)
    judge = Judge(workers=1, settings=changed)
    judge.layers = warm.layers
    judge._pipeline = Pipeline(changed, warm._pipeline.compiler, warm._pipeline.interpreter, {})
    return judge


def fixtures(folder: str) -> list[Path]:
    """Candidates of a folder, sorted; a file is named TASK__WHAT.py."""
    return sorted((HERE / folder).glob("*__*.py"))


def task_of(path: Path) -> KernelTask:
    """The task that a fixture is written for."""
    return TASKS[path.stem.split("__")[0]]


def expected_class(path: Path) -> str:
    """The failure class in a cheat's `# expected:` line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# expected:").strip() for line in lines if line.startswith("# expected:"))


def honest(name: str) -> str:
    """Text of an honest kernel, to be spoilt by a test."""
    return (HERE / "honest" / f"{name}.py").read_text(encoding="utf-8")


def spoilt(name: str, old: str, new: str) -> str:
    """An honest kernel with one place changed; the place must exist."""
    source = honest(name)
    assert old in source, f"{old!r} is not in {name}"
    return source.replace(old, new)


def ask_unscreened(server: Server, operation: str, source: str, *, body: Any = None, **changes: Any) -> Reply:
    """Send text straight to a server, past the screen; `body` where the operation takes another request."""
    body = body or {
        "source": source, "target": "sm90", "dtype": "float32", "seed": 1, "scored": None,
        "cases": [{"inputs": [{"shape": [8], "dtype": "float32", "regime": "normal", "seed": 1}], "output_shape": [8]}],
        "input_shapes": [[8]], "output_shape": [8], "reduced_always": False,
    }  # fmt: skip
    limits = {
        "cpu_seconds": 5, "wall_seconds": 10, "memory_mib": 1024, "file_mib": 16, "result_mib": 1, "may_execute": [],
        "drop_user": True,
    }  # fmt: skip
    return server.ask(operation, body, **limits | changes)

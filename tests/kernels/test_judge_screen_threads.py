"""The screen runs in several threads at once, one per judge worker."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kernel_search.judge.screen import screen
from kernel_search.tasks import TASKS


@pytest.fixture
def collections_that_let_other_threads_run() -> Iterator[None]:
    """Garbage is collected all the time, and each collection gives up the interpreter, as finalizers may."""

    def give_way(phase: str, info: dict[str, Any]) -> None:
        time.sleep(0)

    thresholds = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(5)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(give_way)


def test_screens_in_several_threads_do_not_disturb_each_other(collections_that_let_other_threads_run):
    sources = [task.seed_source for task in TASKS.values()] * 5
    with ThreadPoolExecutor(4) as pool:
        screened = list(pool.map(screen, sources))
    assert screened == [screen(source) for source in sources]

"""What assets are given: the home folder, the engine, the judge, and somebody to tell how far they are."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

import dagster as dg

from dagster_project.loop_settings import LoopSettings, read_loop_settings
from store.errors import BadSetting
from store.home import Home, open_home
from views.refresh import EngineName

if TYPE_CHECKING:
    from kernel_search.judge import Judge


class HomeResource(dg.ConfigurableResource):
    """The home folder; an empty path means ESPALIER_HOME, else ./data, looked up when a run starts."""

    path: str = ""

    def open(self) -> Home:
        """Open the folder.

        Raises:
            HomeNotUsable: It cannot be created or written.
        """
        return open_home(self.path or None)


class EngineResource(dg.ConfigurableResource):
    """Who computes the views, `duckdb` or `spark`; an empty name means ESPALIER_ENGINE, else duckdb."""

    name: str = ""

    def chosen(self) -> EngineName:
        """The engine.

        Raises:
            BadSetting: There is no such engine.
        """
        wanted = self.name or os.environ.get("ESPALIER_ENGINE") or "duckdb"
        for engine in get_args(EngineName):
            if wanted.lower() == engine:
                return engine
        raise BadSetting(f"the engine is {wanted!r} and must be duckdb or spark (docs/dagster.md).")


class JudgeDesk:
    """Hands out a judge: one per run, or one that somebody keeps warm over several runs."""

    def __init__(self, warm: "Judge | None" = None) -> None:
        self._warm = warm

    @contextmanager
    def judge(self, settings: LoopSettings | None = None) -> Iterator["Judge"]:
        """A judge whose sandboxes run until the block ends; a warm one goes on running."""
        if self._warm is not None:
            yield self._warm
            return
        from kernel_search.judge import Judge

        with Judge(workers=(settings or read_loop_settings()).judges) as judge:
            yield judge


class Listener:
    """Told how far a step is; by itself it keeps quiet."""

    def __init__(self, tell: Callable[[str, int, int | None], None] | None = None) -> None:
        self._tell = tell

    def tell(self, what: str, done: int, total: int | None = None) -> None:
        """`done` of `total` units of `what` are finished; `total` is None where nobody knows it."""
        if self._tell is not None:
            self._tell(what, done, total)

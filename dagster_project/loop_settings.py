"""conf/loop.yaml as frozen models: what `make run` does, and what automation may do alone."""

from store.settings import Settings, read_settings


class SearchRound(Settings):
    """One round of searches: every proposer gets the same number of attempts on every task."""

    proposers: tuple[str, ...]
    attempts_per_task: int


class Automation(Settings):
    """What Dagster starts by itself, and where it stops."""

    generation_limit: int
    refresh_cron: str
    sensor_seconds: int
    tries: int


class LoopSettings(Settings):
    """Everything in conf/loop.yaml."""

    tasks: tuple[str, ...]
    policy: str
    group_size: int
    first_search: SearchRound
    second_search: SearchRound
    judges: int
    automation: Automation


def read_loop_settings() -> LoopSettings:
    """Read conf/loop.yaml.

    Raises:
        BadSetting: A key is missing, unknown or of the wrong kind.
    """
    return read_settings(LoopSettings, "loop.yaml")

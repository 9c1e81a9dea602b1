"""conf/storage.yaml as frozen models: file sizes, when a table is compacted, how long its past stays readable."""

from typing import Annotated

from pydantic import Field

from store.settings import Settings, read_settings

Days = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class FileSettings(Settings):
    """Sizes of data files; reasons stand beside the values in conf/storage.yaml."""

    clustered_bytes: Annotated[int, Field(ge=1024)]
    unclustered_bytes: Annotated[int, Field(ge=1024)]
    most_files: Annotated[int, Field(ge=1)]
    small_share: Annotated[float, Field(gt=0.0, le=0.5)]
    rows_per_group: Annotated[int, Field(ge=1)]

    def target_bytes(self, *, is_clustered: bool, table_bytes: int) -> int:
        """The size that files of a table of this size should have."""
        smallest = self.clustered_bytes if is_clustered else self.unclustered_bytes
        return max(smallest, -(-table_bytes // self.most_files))


class CompactWhen(Settings):
    """A table is compacted when it exceeds one of these."""

    small_files: Annotated[int, Field(ge=1)]
    large_files: Annotated[int, Field(ge=0)]
    files_per_lookup: Annotated[int, Field(ge=1)]


class RetentionSettings(Settings):
    """How much of a table's past a vacuum leaves, apart from what views and datasets still need."""

    time_travel_days: Days
    change_feed_days: Days
    history_days: Days
    unfinished_hours: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]

    def with_days(self, days: float) -> "RetentionSettings":
        """The same with so many days of time travel and of change feed."""
        return self.model_copy(update={"time_travel_days": days, "change_feed_days": days})


class Nightly(Settings):
    """What Dagster does by itself; cron is in UTC."""

    is_on: bool
    cron: str
    vacuum: bool


class StorageSettings(Settings):
    """Everything in conf/storage.yaml."""

    files: FileSettings
    compact_when: CompactWhen
    retention: RetentionSettings
    checkpoint_commits: Annotated[int, Field(ge=1)]
    nightly: Nightly


def read_storage_settings() -> StorageSettings:
    """Read conf/storage.yaml.

    Raises:
        BadSetting: A key is missing, unknown or of the wrong kind.
    """
    return read_settings(StorageSettings, "storage.yaml")

"""Which split a row is in: by its task alone, so that siblings never straddle and a new task moves no old one."""

from collections.abc import Iterable

from store.ids import sha256_text
from store.settings import Settings

TRAIN, TEST = "train", "test"
RULE = (
    "test if int(sha256(salt + ':' + task_id), 16) mod 100 < test_percent, else train; "
    "if that left train without a row, every row is train; a test split without rows is absent"
)


class DatasetSettings(Settings):
    """conf/datasets.yaml."""

    split_salt: str
    test_percent: int
    rows_per_shard: int
    rows_per_group: int


def split_of(task_id: str, settings: DatasetSettings) -> str:
    """The split of a task."""
    bucket = int(sha256_text(f"{settings.split_salt}:{task_id}"), 16) % 100
    return TEST if bucket < settings.test_percent else TRAIN


def splits_of(task_ids: Iterable[str], settings: DatasetSettings) -> list[str]:
    """The split of every row, given its task: `RULE`."""
    splits = [split_of(task_id, settings) for task_id in task_ids]
    return splits if TRAIN in splits else [TRAIN] * len(splits)

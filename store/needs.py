"""Who still needs which version of a table: time travel, what follows its feed, datasets that name it."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from store.delta import Tables
from store.storage_settings import RetentionSettings

WATERMARKS = "watermarks"  # in a view's userMetadata: the input versions that its rows stand for


@dataclass(frozen=True, order=True)
class Need:
    """From `version` on, a table must stay readable; `reason` says for whom, `broken` what is lost otherwise."""

    version: int
    reason: str
    broken: str


def version_days_ago(tables: Tables, name: str, days: float, now: datetime) -> int:
    """The version that was the latest so many days ago: the first one listed where all are younger, now's for 0."""
    table = tables.open(name)
    if days == 0:
        return int(table.version())
    moment = (now - timedelta(days=days)).timestamp() * 1000
    commits = sorted((entry["version"], entry.get("timestamp") or 0) for entry in table.history())
    return int(max([commits[0][0], *(version for version, timestamp in commits if timestamp <= moment)]))


def time_travel(tables: Tables, name: str, settings: RetentionSettings, now: datetime) -> Need:
    """What the settings promise about versions."""
    days = settings.time_travel_days
    version = version_days_ago(tables, name, days, now)
    return Need(version, f"time travel of {days:g} days", f"versions of the last {days:g} days")


def change_feed(tables: Tables, name: str, settings: RetentionSettings, now: datetime) -> Need:
    """What the settings promise about changes."""
    days = settings.change_feed_days
    version = version_days_ago(tables, name, days, now)
    return Need(version, f"change feed of {days:g} days", f"changes of the last {days:g} days")


def consumers(tables: Tables, name: str) -> list[Need]:
    """Every maintained relation and view that follows the table, with the version it has read."""
    needs = []
    for folder in sorted(tables.home.tables.iterdir()):
        seen: dict[str, Any] = tables.metadata(folder.name).get(WATERMARKS) or {}
        if name in seen:
            version = int(seen[name] or 0)
            needs.append(
                Need(
                    version,
                    f"{folder.name} has read it up to version {version}",
                    f"{folder.name} has read {name} up to version {version} and will be computed in full",
                )
            )
    return needs


def datasets(tables: Tables, name: str) -> list[Need]:
    """Every dataset that names a version of the table and is not erased."""
    needs = set()
    for row in tables.read("datasets", columns=["dataset_id", "view", "view_version", "manifest"]).to_pylist():
        version = _named_version(row, name)
        if version is not None:
            dataset = row["dataset_id"]
            needs.add(
                Need(
                    version,
                    f"dataset {dataset} names version {version}",
                    f"dataset {dataset} cannot be made again: it names {name}@{version}",
                )
            )
    return sorted(needs)


def _named_version(row: dict[str, Any], name: str) -> int | None:
    try:
        manifest = json.loads(row["manifest"] or "null")
    except ValueError:
        manifest = {}
    if not isinstance(manifest, dict) or manifest.get("erased"):  # a tombstone names what cannot come back
        return None
    version = row["view_version"] if row["view"] == name else (manifest.get("input_versions") or {}).get(name)
    return None if version is None else int(version)

"""Group *maintenance*: the nightly compaction, which keeps files few and clustered and moves no row.

It stands below the tables and views whose files it looks after, and nothing stands on it: the data version of a table
is the last one that changed a row, so a compaction makes nothing downstream stale.
"""

import dataclasses
from datetime import UTC, datetime

import dagster as dg

from dagster_project.resources import HomeResource
from dagster_project.tables import LAKEHOUSE_TABLES
from store.storage_settings import read_storage_settings
from views.registry import VIEW_ORDER, declare_views


@dg.asset(
    name="compaction",
    deps=[*LAKEHOUSE_TABLES, *VIEW_ORDER],
    group_name="maintenance",
    kinds={"deltalake"},
    description="Files of every table and view as conf/storage.yaml wants them; docs/storage.md explains it.",
)
def compaction(context: dg.AssetExecutionContext, home: HomeResource) -> dg.MaterializeResult:
    """Compact every table and view that there is, and vacuum them where conf/storage.yaml says so."""
    from store.compaction import compact_table
    from store.delta import Tables
    from store.retention import vacuum_table

    settings = read_storage_settings()
    tables = Tables(home.open())
    declare_views(tables)
    names = [name for name in tables.names() if tables.exists(name)]
    results = {}
    for name in names:
        results[name] = compact_table(tables, name, settings)
        context.log.info(f"compact {name}: {results[name]}")
    removed = 0
    if settings.nightly.vacuum:
        for name in names:
            vacuumed = vacuum_table(tables, name, settings.retention, now=datetime.now(UTC))
            context.log.info(f"vacuum {name}: {vacuumed}")
            removed += vacuumed.removed_files
    records = [
        dg.TableRecord({"table": name, **{key: str(value) for key, value in dataclasses.asdict(result).items()}})
        for name, result in results.items()
    ]
    said: dict[str, dg.MetadataValue] = {"tables": dg.MetadataValue.table(records)} if records else {}
    return dg.MaterializeResult(
        metadata={
            **said,
            "files_before": sum(result.files_before for result in results.values()),
            "files_after": sum(result.files_after for result in results.values()),
            "bytes_before": sum(result.bytes_before for result in results.values()),
            "bytes_after": sum(result.bytes_after for result in results.values()),
            "compacted": sum(result.version is not None for result in results.values()),
            "removed_files": removed,
        }
    )


compact_job = dg.define_asset_job(
    "compact", selection=["compaction"], description="Join small files and keep them clustered; moves no row."
)

_nightly = read_storage_settings().nightly

compaction_schedule = dg.ScheduleDefinition(
    name="compaction_schedule",
    job=compact_job,
    cron_schedule=_nightly.cron,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING if _nightly.is_on else dg.DefaultScheduleStatus.STOPPED,
    description="Keeps the physical design; conf/storage.yaml switches it off, or lets it vacuum too.",
)

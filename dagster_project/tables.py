"""Group *tables*: the ledger and the inbox become Delta tables in one step, as one ingest writes them together."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_project.logs import INBOX, LEDGER, inbox_files
from dagster_project.metadata import table_result
from dagster_project.resources import HomeResource, Listener
from store.schema import TABLES

# The registries (datasets, runs, models, access_log) are written by exports and trainings, not by an ingest.
LAKEHOUSE_TABLES = (
    "tasks",
    "sessions",
    "nodes",
    "prompt_history",
    "change_log",
    "node_edges",
    "sources",
    "quarantine",
    "tag_assignments",
    "retractions",
)


@dg.multi_asset(
    name="ingest",
    specs=[
        dg.AssetSpec(
            name,
            deps=[LEDGER, INBOX],
            group_name="tables",
            kinds={"deltalake"},
            description=TABLES[name].about,
        )
        for name in LAKEHOUSE_TABLES
    ],
    can_subset=False,
)
def lakehouse_tables(
    context: dg.AssetExecutionContext, home: HomeResource, listener: dg.ResourceParam[Listener]
) -> Iterator[dg.MaterializeResult]:
    """Drain the ledger, then read the inbox; both are idempotent, so an unchanged log moves no data version."""
    from store.delta import Tables
    from store.errors import NoLogFound
    from transforms.ingest import ingest_ledger, ingest_paths

    opened = home.open()
    reports = {"search_ledger": ingest_ledger(opened, now=datetime.now(UTC))}
    if files := inbox_files(opened):
        try:
            reports["agent_logs"] = ingest_paths(opened, [opened.inbox], now=datetime.now(UTC))
        except NoLogFound as error:  # a note beside the logs must not hold up the rest
            context.log.warning(str(error))
        context.log_event(dg.AssetObservation(INBOX, metadata={"files": len(files), "dagster/uri": str(opened.inbox)}))
    said: dict[str, Any] = {}
    for source, report in reports.items():
        said |= {f"{source}/nodes_new": report.nodes, f"{source}/quarantined": report.quarantined}
        context.log.info(f"{source}: {report}")
    tables = Tables(opened)
    for name in LAKEHOUSE_TABLES:
        yield table_result(tables, name, **(said if name == "nodes" else {}))

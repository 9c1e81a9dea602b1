"""Group *views*: node_reach and its companions first, then the training views, refreshed as one chain.

One step refreshes them all, since a refresh pins one vector of input versions for the whole chain. Their checks are
steps of their own, so that a failed one stops what stands on that view and not the views beside it.
"""

from collections.abc import Iterator

import dagster as dg

from dagster_project.metadata import table_result
from dagster_project.resources import EngineResource, HomeResource
from views.definition import table_inputs
from views.registry import VIEW_ORDER, declare_views, view_schema


@dg.multi_asset(
    name="refresh_views",
    specs=[
        dg.AssetSpec(
            name,
            deps=list(table_inputs(name)),
            group_name="views",
            kinds={"deltalake", "duckdb"},
            description=view_schema(name).about,
        )
        for name in VIEW_ORDER
    ],
    can_subset=True,
)
def training_views(
    context: dg.AssetExecutionContext, home: HomeResource, engine: EngineResource
) -> Iterator[dg.MaterializeResult]:
    """Bring the views up to date from the change feeds of their inputs; says which way it went and why."""
    from store.delta import Tables
    from views.refresh import refresh

    opened = home.open()
    wanted = {key.to_user_string() for key in context.selected_asset_keys}
    selected = [name for name in VIEW_ORDER if name in wanted]
    results = refresh(opened, selected, engine=engine.chosen(), progress=context.log.info)
    tables = Tables(opened)
    declare_views(tables)
    for name in selected:
        result = results[name]
        yield table_result(
            tables,
            name,
            mode=result.mode,
            reason=result.reason,
            inserted=result.inserted,
            updated=result.updated,
            deleted=result.deleted,
            seconds=result.seconds,
        )

"""What an asset said of itself when it was last built: how one step finds the folder that another one wrote."""

from typing import Any

import dagster as dg

from store.errors import BadInput


def latest_metadata(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """Plain values of the newest materialization's metadata.

    Raises:
        BadInput: The asset was never built in this home.
    """
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    if event is None or event.asset_materialization is None:
        raise BadInput(f"asset {asset} was never built in this home; materialize it first.")
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}

"""conf/views.yaml as one frozen model; a view's parameters are part of its digest."""

from typing import Annotated, Any, Literal

from pydantic import Field

from store.settings import Settings, read_settings

Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class CostSettings(Settings):
    """The constants of views/cost.py; only their ratios matter."""

    from_nodes: Annotated[int, Field(ge=0)]
    read: Seconds
    key: Seconds
    compute: dict[str, Seconds]


class ViewSettings(Settings):
    """What the views are asked to do; reasons stand beside the values in conf/views.yaml."""

    buggy_ancestors: Literal["cut", "drop"]
    pair_margin: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    pair_margins: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]
    max_pairs_per_parent: Annotated[int, Field(ge=1)]
    buggy_rejected: bool
    pair_across_prompts: bool
    cohort_kinds: list[Literal["parent", "depth", "generation"]]
    tags_that_stay: list[str]
    nodes_at_once: Annotated[int, Field(ge=1)]
    memory_gib: Annotated[float, Field(gt=0.0)]
    cost: CostSettings

    def parameter(self, name: str) -> Any:
        """A parameter's value by the name it has in a view's header."""
        return getattr(self, name)


def read_view_settings() -> ViewSettings:
    """Read conf/views.yaml.

    Raises:
        BadSetting: The file is missing, or has a key or value that is not known.
    """
    return read_settings(ViewSettings, "views.yaml")

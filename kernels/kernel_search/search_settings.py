"""conf/search.yaml as values."""

from pydantic import Field

from store.settings import Settings, read_settings


class RulesSettings(Settings):
    """The hand-written proposer's chances, each between 0 and 1."""

    two_edits: float = Field(ge=0, le=1)
    risky: float = Field(ge=0, le=1)
    upward: float = Field(ge=0, le=1)


class UniformSettings(Settings):
    """The uniform control."""

    two_edits: float = Field(ge=0, le=1)


class ModelSettings(Settings):
    """How a model is sampled."""

    temperature: float = Field(ge=0)
    max_new_tokens: int = Field(ge=1)


class GreedySettings(Settings):
    """The greedy policy's breadth."""

    drafts: int = Field(ge=0)
    good_parents: int = Field(ge=1)
    groups_per_parent: int = Field(ge=1)


class SearchSettings(Settings):
    """Everything in conf/search.yaml."""

    lease_seconds: float = Field(gt=0)
    ledger_busy_seconds: float = Field(gt=0)
    rules: RulesSettings
    uniform: UniformSettings
    model: ModelSettings
    greedy: GreedySettings


def read_search_settings() -> SearchSettings:
    """Read conf/search.yaml.

    Raises:
        BadSetting: It does not say what it must.
    """
    return read_settings(SearchSettings, "search.yaml")

"""conf/spark.yaml as one frozen model."""

from typing import Annotated

from pydantic import Field, StringConstraints

from store.settings import Settings, read_settings

Coordinates = Annotated[str, StringConstraints(pattern=r"^[\w.\-]+:[\w.\-]+:[\w.\-]+$")]


class SparkSettings(Settings):
    """How Spark is started; reasons stand beside the values in conf/spark.yaml."""

    master: Annotated[str, Field(min_length=1)]
    driver_memory: Annotated[str, StringConstraints(pattern=r"^[1-9]\d*[kmgt]$")]
    shuffle_partitions: Annotated[int, Field(ge=1)]
    snapshot_partitions: Annotated[int, Field(ge=1)]
    small_tables: bool
    java_options: str
    tables_uri: str | None
    packages: list[Coordinates]
    conf: dict[str, str | int | float | bool]


def read_spark_settings() -> SparkSettings:
    """Read conf/spark.yaml.

    Raises:
        BadSetting: The file is missing, or has a key or value that is not known.
    """
    return read_settings(SparkSettings, "spark.yaml")

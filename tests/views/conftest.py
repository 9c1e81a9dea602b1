"""The Spark session of the tests that compare engines: one per process, or skipped with the reason."""

from typing import TYPE_CHECKING

import pytest

from store.errors import SparkNotReady
from store.spark_jars import find_jars, find_java
from store.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "SparkSession":
    """A local session as conf/spark.yaml starts it."""
    try:
        find_java()
        find_jars()
    except SparkNotReady as error:
        pytest.skip(str(error))
    return spark_session()

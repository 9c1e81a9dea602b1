"""One Spark session per process, local or on a cluster, as conf/spark.yaml says; pyspark is imported only here.

The JVM's own messages go to a file without a name, which is read only where something failed, so that a command
prints what it always prints. Settings that the meaning of our SQL rests on are set last and win over conf/.
"""

import logging
import os
import tempfile
import threading
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from store.errors import SparkNotReady
from store.spark_jars import find_jars, find_java
from store.spark_settings import SparkSettings, read_spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_LINES = 400
# A statement means the same whatever conf/spark.yaml says.
MEANING = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",  # as in DuckDB, x / 0 and a list's missing item are NULL, not an error
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",  # views.spark_sql doubles backslashes
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.cteRecursionLevelLimit": "-1",  # a path may be longer than Spark's 100 nodes
    "spark.sql.cteRecursionRowLimit": "-1",
    # A checkpointed relation keeps constraints on columns that it has no more; a union of such fails to plan.
    "spark.sql.constraintPropagation.enabled": "false",
    # What both engines write and read; nothing here may upgrade a table's protocol.
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "none",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
}
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Plans and stages of the past, kept for a page that nobody opens: after some refreshes they filled 2 GiB.
    "spark.sql.maxPlanStringLength": "1000",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
}
# A recompute keeps its checkpoints and shuffles on disk: packed, and gone once nobody names them, which only a
# collection finds out.
LITTLE_DISK = {
    "spark.rdd.compress": "true",
    "spark.io.compression.codec": "zstd",
    "spark.cleaner.periodicGC.interval": "2min",
}
SMALL_TABLES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
_opening = threading.Lock()
_log: list[IO[bytes]] = []


def spark_session(settings: SparkSettings | None = None) -> "SparkSession":
    """The process's Spark session, started at the first call; later calls get the same one.

    Args:
        settings: How to start it; None reads conf/spark.yaml.

    Raises:
        SparkNotReady: Java or the jars are missing, or the master gave no answer.
        BadSetting: conf/spark.yaml cannot be used.
    """
    with _opening:
        settings = settings or read_spark_settings()
        find_java()
        jars = ",".join(str(jar) for jar in find_jars())
        # PySpark prints every refused statement as JSON, beside the exception that says the same.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        if running is not None:
            return running
        conf = SparkConf(loadDefaults=False)
        for key, value in session_conf(settings, jars).items():
            conf.set(key, value)
        try:
            if SparkContext._gateway is None:
                SparkContext._ensure_initialized(gateway=_start_jvm(conf), conf=conf)
            session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:  # py4j and pyspark raise several kinds
            raise SparkNotReady(f"Spark at {settings.master} did not start: {_reason(error)}") from error
        session.sparkContext.setLogLevel("ERROR")
        return session


def session_conf(settings: SparkSettings, jars: str = "") -> dict[str, str]:
    """Every setting that the session is started with."""
    own = {
        "spark.app.name": "espalier",
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"{settings.java_options} -Djava.net.preferIPv4Stack=true".strip(),
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        "spark.default.parallelism": str(settings.shuffle_partitions),
        "spark.databricks.delta.snapshotPartitions": str(settings.snapshot_partitions),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.jars": jars,
        # Nothing is kept there; without it every start leaves a folder where the program was called.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "espalier-spark-warehouse"),
        **QUIET,
        **LITTLE_DISK,
    }
    if settings.master.startswith("local"):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.small_tables:
        own |= SMALL_TABLES
    chosen = {key: _text(value) for key, value in settings.conf.items()}
    return {key: value for key, value in (own | chosen | MEANING).items() if value}


def _start_jvm(conf: Any) -> Any:
    from pyspark.java_gateway import launch_gateway

    log = tempfile.TemporaryFile()  # noqa: SIM115 - the JVM writes to it until it ends
    _log[:] = [log]
    # A variable of somebody's shell must not add packages or print at the start.
    unset = {name: os.environ.pop(name) for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_TESTING") if name in os.environ}
    try:
        return launch_gateway(conf, {"stderr": log, "stdout": log})  # type: ignore[no-untyped-call]
    finally:
        os.environ.update(unset)


def jvm_log() -> str:
    """The last lines that the JVM wrote, for an error message or a curious person; empty before it started."""
    if not _log:
        return ""
    log = _log[0]
    log.seek(0)
    return b"".join(deque(log, LOG_LINES)).decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    """What failed, in one line: the JVM's own error where it wrote one, else Python's."""
    causes = [line.strip() for line in jvm_log().splitlines() if "Exception" in line or "Error" in line]
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return causes[-1] if causes else lines[0]


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""The jars that Spark needs for Delta tables: fetched once by Ivy with our own settings, then used offline.

`python -m store.spark_jars` is what `make setup-spark` runs. They lie in the Python environment, beside pyspark,
so that whatever uses that environment uses them, and a stamp among them says which ones they are. Jars that
pyspark brings itself are left out.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from store.errors import PipelineError, SparkNotReady
from store.settings import conf_folder
from store.spark_settings import read_spark_settings

OLDEST_JAVA = 17
SCALA = "2.13"
STAMP = "fetched.txt"
FETCH_SECONDS = 900


def jars_folder() -> Path:
    """Where the jars lie, in this Python's environment."""
    return Path(sys.prefix) / "share" / "espalier" / "spark-jars"


def wanted_packages() -> list[str]:
    """What is fetched, as group:artifact:version: Delta for the installed Spark, and `packages` of conf/spark.yaml."""
    spark = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
    delta = importlib.metadata.version("delta-spark")
    return [f"io.delta:delta-spark_{spark}_{SCALA}:{delta}", *read_spark_settings().packages]


def find_java() -> str:
    """The `java` that Spark will start.

    Raises:
        SparkNotReady: There is none, or it is older than Spark needs.
    """
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java")
    try:
        answer = subprocess.run([java or "java", "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        place = f"JAVA_HOME names {java_home}, which has no working bin/java" if java_home else "no java is on the PATH"
        raise SparkNotReady(
            f"Spark needs Java {OLDEST_JAVA} or 21, and {place}; install one, or use --engine duckdb."
        ) from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version and int(version[1]) < OLDEST_JAVA:
        raise SparkNotReady(
            f"Spark needs Java {OLDEST_JAVA} or 21, and {java} is Java {version[1]}; set JAVA_HOME to a newer one, or "
            "use --engine duckdb."
        )
    return str(java)


def find_jars() -> list[Path]:
    """The fetched jars, sorted.

    Raises:
        SparkNotReady: They were not fetched, or other ones were.
    """
    folder = jars_folder()
    stamp = folder / STAMP
    wanted = wanted_packages()
    fetched = stamp.read_text(encoding="utf-8").split() if stamp.is_file() else []
    if fetched != wanted:
        missing = " ".join(sorted(set(wanted) - set(fetched)) or wanted)
        raise SparkNotReady(f"Spark's jars for {missing} are not in {folder}: run `make setup-spark` once, online.")
    return sorted(folder.glob("*.jar"))


def fetch_jars() -> list[Path]:
    """Fetch the jars with Ivy unless they are there; the folder is replaced as a whole.

    Raises:
        SparkNotReady: Java is missing, or Ivy could not fetch them.
    """
    try:
        return find_jars()
    except SparkNotReady:
        pass
    java, folder = find_java(), jars_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spark-jars-", dir=folder.parent) as work:
        fetched = Path(work) / "jars"
        fetched.mkdir()
        for package in wanted_packages():
            _retrieve(java, package, fetched)
        there = {_artifact(file) for file in _pyspark_jars().glob("*.jar")}
        for file in fetched.glob("*.jar"):
            if _artifact(file) in there:
                file.unlink()
        (fetched / STAMP).write_text("\n".join(wanted_packages()) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)
    return find_jars()


def _retrieve(java: str, package: str, folder: Path) -> None:
    (ivy,) = _pyspark_jars().glob("ivy-*.jar")
    command = [java, "-jar", str(ivy), "-warn", "-settings", str(conf_folder() / "ivysettings.xml")]
    command += ["-cache", str(jars_folder().parent / "ivy-cache"), "-dependency", *package.split(":")]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", str(folder / "[artifact]-[revision].jar")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    if answer.returncode != 0 or not list(folder.glob(f"{package.split(':')[1]}-*.jar")):
        said = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip(" .:\t")]
        reasons = [line for line in said if "not found" in line or "error" in line.lower()] or said or ["no word"]
        raise SparkNotReady(f"Ivy could not fetch {package} ({reasons[0]}); Maven Central must be reachable once.")


def _pyspark_jars() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "jars"


def _artifact(jar: Path) -> str:
    """A jar's name without its version."""
    return re.sub(r"-\d[\w.\-]*\.jar$", "", jar.name)


def main() -> int:
    """Fetch, say in one line what is there, and answer 2 where that failed."""
    try:
        jars = fetch_jars()
    except PipelineError as error:
        sys.stderr.write(f"setup-spark: {error}\n")
        return 2
    sys.stdout.write(f"setup-spark: {len(jars)} jars in {jars_folder()} ({' '.join(wanted_packages())})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

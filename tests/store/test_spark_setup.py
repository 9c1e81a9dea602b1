"""What a person is told where Spark cannot start, and what a session is started with."""

from pathlib import Path

import pytest

from store import spark_jars
from store.errors import BadSetting, SparkNotReady
from store.settings import CONF
from store.spark_session import MEANING, session_conf
from store.spark_settings import read_spark_settings


def a_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkNotReady, match=r"^Spark needs Java 17 or 21, and no java is on the PATH; .*duckdb\.$"):
        spark_jars.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SparkNotReady, match=r"JAVA_HOME names .*gone, which has no working bin/java"):
        spark_jars.find_java()


@pytest.mark.parametrize(("version", "is_enough"), [("1.8.0_392", False), ("11.0.2", False), ("17.0.15", True)])
def test_an_old_java_is_named(version: str, is_enough: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "java", version)))
    if is_enough:
        assert spark_jars.find_java() == str(tmp_path / "java" / "bin" / "java")
        return
    with pytest.raises(SparkNotReady, match=f"is Java {version.removeprefix('1.').split('.')[0]}; set JAVA_HOME"):
        spark_jars.find_java()


def test_jars_that_were_not_fetched_or_are_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(spark_jars, "jars_folder", lambda: tmp_path)
    with pytest.raises(SparkNotReady, match=r"jars for io\.delta:delta-spark_4\.2_2\.13:4\.4\.0 .*`make setup-spark`"):
        spark_jars.find_jars()
    (tmp_path / "b.jar").touch()
    (tmp_path / "a.jar").touch()
    (tmp_path / spark_jars.STAMP).write_text("\n".join(spark_jars.wanted_packages()), encoding="utf-8")
    assert [jar.name for jar in spark_jars.find_jars()] == ["a.jar", "b.jar"]
    (tmp_path / spark_jars.STAMP).write_text("io.delta:delta-spark_4.1_2.13:4.3.0", encoding="utf-8")
    with pytest.raises(SparkNotReady, match="run `make setup-spark` once"):
        spark_jars.find_jars()


def test_a_persons_settings_win_over_ours_but_not_over_what_sql_means() -> None:
    settings = read_spark_settings().model_copy(
        update={"conf": {"spark.sql.adaptive.enabled": True, "spark.sql.ansi.enabled": True}, "driver_memory": "3g"}
    )
    conf = session_conf(settings, "a.jar")
    assert conf["spark.sql.adaptive.enabled"] == "true"
    assert conf["spark.sql.ansi.enabled"] == MEANING["spark.sql.ansi.enabled"] == "false"
    assert (conf["spark.driver.memory"], conf["spark.jars"]) == ("3g", "a.jar")


def test_an_unknown_key_of_the_settings_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (CONF / "spark.yaml").read_text(encoding="utf-8")
    (tmp_path / "spark.yaml").write_text(f"{text}\nmastr: local\n", encoding="utf-8")
    monkeypatch.setenv("ESPALIER_CONF", str(tmp_path))
    with pytest.raises(BadSetting, match=r"mastr: .*driver_memory"):
        read_spark_settings()

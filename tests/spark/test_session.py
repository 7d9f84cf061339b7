"""A session is made right, or its maker is told what is missing; nothing is fetched that is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog.spark import SparkUnavailable, delta_session
from lakelog.spark.session import java_version, require_java, session_settings

S3_OPTIONS = {
    "endpoint": "http://127.0.0.1:7070",
    "access_key_id": "name",
    "secret_access_key": "word",
    "region": "eu-north-1",
}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    # spark-submit sets it, and then has the say over master and jars.
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up _JAVA_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
        ("Segmentation fault", None),
    ],
)
def test_every_way_in_which_java_tells_its_version(told: str, version: int | None):
    assert java_version(told) == version


def test_a_java_home_without_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        SparkUnavailable, match=r"needs Java 17 or later: JAVA_HOME is .* no bin/java in it\. Install one"
    ):
        require_java()


def test_an_old_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailable, match=r"bin/java is Java 11"):
        require_java()


def test_without_pyspark_the_package_imports_and_says_what_to_install():
    source = Path(lakelog.__file__).parent.parent
    script = (
        f"import sys; sys.path.insert(0, {str(source)!r})\n"
        "from lakelog.spark import SparkUnavailable, delta_session\n"
        "try: delta_session()\n"
        "except SparkUnavailable as missing: print(missing)\n"
    )
    told = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == (
        "pyspark and delta-spark not installed; Spark is an optional extra: pip install 'lakelog[spark]'"
    )


def test_a_local_warehouse_fetches_delta_and_nothing_else():
    settings = session_settings(warehouse="/data")
    (package,) = settings["spark.jars.packages"].split(",")
    assert package == "io.delta:delta-spark_4.2_2.13:4.4.0"
    assert not [name for name in settings if "s3" in name]
    assert settings["spark.master"] == "local[2]"


def test_a_warehouse_on_s3_gets_the_file_system_of_sparks_own_hadoop():
    settings = session_settings(warehouse="s3://bucket/topics", s3_options=S3_OPTIONS)
    delta, hadoop = settings["spark.jars.packages"].split(",")
    assert delta.startswith("io.delta:delta-spark_")
    assert hadoop == "org.apache.hadoop:hadoop-aws:3.5.0"
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:7070"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert settings["spark.hadoop.fs.s3a.access.key"] == "name"
    assert settings["spark.hadoop.fs.s3a.endpoint.region"] == "eu-north-1"


def test_options_for_s3_may_come_from_the_environment_as_the_brokers_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store.example")
    settings = session_settings(warehouse="s3a://bucket")
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "https://store.example"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "true"
    assert "spark.hadoop.fs.s3a.access.key" not in settings


def test_jars_that_are_installed_are_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert "spark.jars.packages" not in session_settings()


def test_the_callers_settings_win():
    assert session_settings(settings={"spark.master": "local[7]"})["spark.master"] == "local[7]"


def test_a_driver_of_a_cluster_is_not_hidden_from_its_executors():
    settings = session_settings(settings={"spark.master": "spark://head:7077"})
    assert settings["spark.master"] == "spark://head:7077"
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"} & set(settings)
    assert session_settings(settings={"spark.master": "local[*]"})["spark.driver.host"] == "127.0.0.1"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("warehouse", "told"),
    [
        ("/data", "has no io.delta.sql.DeltaSparkSessionExtension: start it with spark-submit --packages {delta}"),
        ("s3://data", "and no org.apache.hadoop.fs.s3a.S3AFileSystem: start it with spark-submit --packages {both}"),
    ],
)
def test_without_the_jars_spark_submit_is_told_which_to_name(tmp_path: Path, warehouse: str, told: str):
    script = tmp_path / "job.py"
    script.write_text(
        "from lakelog.spark import SparkUnavailable, delta_session\n"
        f"try: delta_session(warehouse={warehouse!r})\n"
        "except SparkUnavailable as missing: print(missing)\n"
    )
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([*submit, str(script)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    delta = "io.delta:delta-spark_4.2_2.13:4.4.0"
    expected = told.format(delta=delta, both=f"{delta},org.apache.hadoop:hadoop-aws:3.5.0")
    assert done.stdout.strip().endswith(expected)


@pytest.mark.spark
def test_the_session_keeps_utc_and_leaves_nothing_in_the_working_folder(spark: SparkSession):
    assert delta_session() is spark
    with pytest.raises(SparkUnavailable, match="S3AFileSystem, and runs in this process already: stop the session"):
        delta_session(warehouse="s3://data")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not Path("spark-warehouse").exists()
    assert not Path("metastore_db").exists()

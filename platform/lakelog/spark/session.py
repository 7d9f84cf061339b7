"""A Spark session that knows Delta, made with one call.

Owns which settings, jars and versions go together, and says what is missing in words that tell what to do. On a machine
of its own the session is small, quiet and local; under spark-submit what the command line says stays as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakelog.delta.endpoints import s3_endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
SCALA = "2.13"

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Records are instants. A session in local time would show the same topic differently on every machine.
    "spark.sql.session.timeZone": "UTC",
}

LOCAL_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's defaults are for clusters: hundreds of tasks for tables of a few files.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}

# Delta's jars ask for copies of what Spark brings along in other versions. Only Delta's own are taken.
EXCLUDED_JARS = (
    "com.fasterxml.jackson.*:*",
    "com.github.luben:*",
    "com.google.*:*",
    "commons-*:*",
    "io.airlift:*",
    "io.unitycatalog:*",
    "javax.*:*",
    "org.apache.hadoop:hadoop-client-*",
    "org.apache.logging.*:*",
    "org.apache.parquet:*",
    "org.locationtech.*:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.*:*",
)

S3_SCHEMES = ("s3", "s3a")
S3_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"


class SparkUnavailable(Exception):
    """There can be no Spark session here; the message says what to install or set."""


def delta_session(
    app_name: str = "lakelog",
    *,
    warehouse: str | None = None,
    s3_options: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process, which reads and writes Delta tables; it is made if there is none yet.

    Under spark-submit the jars are its user's to name, and what is missing is said in the words of its command line.

    `warehouse` is where topics lie: for s3:// and s3a:// the session gets the S3 file system too. `s3_options` are
    those that a broker takes (`endpoint`, `access_key_id`, `secret_access_key`, `session_token`, `region`); without
    them the AWS variables of the environment hold. `settings` are Spark's own and win over all others.
    """
    require_spark()
    require_java()
    from pyspark.sql import SparkSession

    if not is_submitted():
        # Tasks need this package too, and Spark would take whichever python3 comes first on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    wanted = session_settings(warehouse=warehouse, s3_options=s3_options, settings=settings)
    builder = SparkSession.builder.appName(app_name)
    for name, value in wanted.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if DELTA_SETTINGS["spark.sql.extensions"] not in extensions:
        raise SparkUnavailable(
            "a Spark session without Delta runs in this process already, and Delta can't be added to it; "
            "stop it first, or make it with lakelog.spark.delta_session"
        )
    _require_jars(spark, on_s3=_is_on_s3(warehouse))
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("lakelog")` known to a session."""
    from lakelog.spark.source import LakelogDataSource

    # Off by default, and Spark refuses a source that could take filters while it is.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(LakelogDataSource)


def session_settings(
    *,
    warehouse: str | None = None,
    s3_options: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """All settings that a session is made with, the caller's last."""
    on_s3, settings = _is_on_s3(warehouse), settings or {}
    wanted = {**DELTA_SETTINGS, **(_s3_settings(s3_options or {}) if on_s3 else {})}
    if is_submitted():
        return {**_not_yet_set(wanted), **settings}
    if settings.get("spark.master", "local").startswith("local"):
        wanted |= LOCAL_SETTINGS  # executors on other machines have to find the driver, and have work for many tasks
    return {**wanted, "spark.sql.warehouse.dir": _scratch_folder(), **_jars(on_s3), **settings}


def require_spark() -> None:
    missing = [package for package, module in (("pyspark", "pyspark"), ("delta-spark", "delta")) if not _has(module)]
    if missing:
        raise SparkUnavailable(
            f"{' and '.join(missing)} not installed; Spark is an optional extra: pip install 'lakelog[spark]'"
        )


def require_java() -> None:
    """Spark's own search: JAVA_HOME when it is set, else the PATH. Under spark-submit a JVM is there already."""
    if is_submitted():
        return
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        raise _no_java(where)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = java_version(told.stderr + told.stdout)
    if version is None:
        raise _no_java(f"{java} did not tell its version")
    if version < JAVA_MIN:
        raise _no_java(f"{java} is Java {version}")


def java_version(told: str) -> int | None:
    """The major version in what `java -version` prints: 8 for "1.8.0_392", 17 for "17.0.15", 25 for "25-ea"."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found.group(1)) if found else None


def is_submitted() -> bool:
    """Whether spark-submit started this process: master, jars and sizes are then its user's to say."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _no_java(reason: str) -> SparkUnavailable:
    return SparkUnavailable(
        f"Spark needs Java {JAVA_MIN} or later: {reason}. "
        f"Install one (Debian and Ubuntu: openjdk-17-jre-headless; macOS: openjdk@17), or set JAVA_HOME to it"
    )


def _has(module: str) -> bool:
    return find_spec(module) is not None


def _not_yet_set(wanted: Mapping[str, str]) -> dict[str, str]:
    from pyspark import SparkConf

    given = SparkConf()
    return {name: value for name, value in wanted.items() if not given.contains(name)}


def _scratch_folder() -> str:
    """Where tables without a path go, which topics never are. Spark's own choice would be the working folder."""
    return str(Path(tempfile.gettempdir()) / f"lakelog-spark-{os.getuid()}")


def _is_on_s3(warehouse: str | None) -> bool:
    return warehouse is not None and urlsplit(warehouse).scheme in S3_SCHEMES


def _require_jars(spark: SparkSession, *, on_s3: bool) -> None:
    """Spark begins without classes that its settings name, and fails at the first table."""
    wanted = [DELTA_SETTINGS["spark.sql.extensions"], *([S3_FILE_SYSTEM] if on_s3 else [])]
    missing = [name for name in wanted if not _has_class(spark, name)]
    if missing:
        what = f"this Spark has no {' and no '.join(missing)}"
        if is_submitted():
            raise SparkUnavailable(f"{what}: start it with spark-submit --packages {','.join(_packages(on_s3))}")
        raise SparkUnavailable(f"{what}, and runs in this process already: stop the session first")


def _has_class(spark: SparkSession, name: str) -> bool:
    jars = spark._jsparkSession.sharedState().jarClassLoader()
    return jars.getResource(f"{name.replace('.', '/')}.class") is not None


def _jars(on_s3: bool) -> dict[str, str]:
    """The packages are fetched on first use."""
    packages = _packages(on_s3)
    if not packages:
        return {}
    return {"spark.jars.packages": ",".join(packages), "spark.jars.excludes": ",".join(EXCLUDED_JARS)}


def _packages(on_s3: bool) -> list[str]:
    """Those that are needed, less what the installation has in its own folder of jars."""
    folder = _spark_jars()
    packages = []
    if not any(folder.glob("delta-spark_*.jar")):
        packages.append(f"io.delta:delta-spark_{_spark_line()}_{SCALA}:{metadata.version('delta-spark')}")
    if on_s3 and not any(folder.glob("hadoop-aws-*.jar")):
        packages.append(f"org.apache.hadoop:hadoop-aws:{_hadoop_version(folder)}")
    return packages


def _spark_jars() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    home = os.environ.get("SPARK_HOME")
    return (Path(home) if home else Path(found.origin).parent) / "jars"


def _spark_line() -> str:
    """Delta's jars are named by the Spark that they are for, to the second number: 4.2."""
    return ".".join(metadata.version("pyspark").split(".")[:2])


def _hadoop_version(folder: Path) -> str:
    """The S3 file system has to be of the same Hadoop that Spark came with."""
    for jar in folder.glob("hadoop-client-api-*.jar"):
        return jar.stem.removeprefix("hadoop-client-api-")
    raise SparkUnavailable(f"{folder} has no hadoop-client-api jar, so it can't be told which hadoop-aws goes with it")


def _s3_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The broker's options as s3a has them. Without keys s3a looks for credentials as the AWS tools do."""
    prefix = "spark.hadoop.fs.s3a"
    endpoint = s3_endpoint(options)
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    given = {
        f"{prefix}.endpoint": endpoint,
        f"{prefix}.endpoint.region": region,
        f"{prefix}.access.key": options.get("access_key_id"),
        f"{prefix}.secret.key": options.get("secret_access_key"),
        f"{prefix}.session.token": options.get("session_token"),
    }
    wanted = {name: value for name, value in given.items() if value}
    # Brokers write s3://, Hadoop knows the same place as s3a://: one file system serves both.
    wanted["spark.hadoop.fs.s3.impl"] = S3_FILE_SYSTEM
    if endpoint:
        wanted[f"{prefix}.path.style.access"] = "true"
        wanted[f"{prefix}.connection.ssl.enabled"] = str(endpoint.startswith("https://")).lower()
    if options.get("session_token"):
        wanted[f"{prefix}.aws.credentials.provider"] = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    return wanted

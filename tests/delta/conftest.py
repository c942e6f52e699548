"""A Spark session with Delta, whose extension comes first, and one beside it that uses indexes."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession

import lakemark.spark

if TYPE_CHECKING:
    from collections.abc import Iterator

# A session of a minute is not worth optimised byte code or a parallel collector.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark warns of its own dependencies; those warnings are not ours to fix."""
    for item in items:
        if "tests/delta" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Delta alone: indexes are switched off, and what it makes of tables and commits is its own."""
    wanted = os.environ.get("LAKEMARK_SPARK_VERSION")
    assert wanted in (None, pyspark.__version__), f"this environment has PySpark {pyspark.__version__}"
    folder = os.environ.get("LAKEMARK_DELTA_JARS")
    assert folder, "run `make test-delta`, which sets LAKEMARK_DELTA_JARS to a folder with the jars of Delta"
    jars = sorted(str(jar) for jar in Path(folder).glob("*.jar"))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    place = tmp_path_factory.mktemp("session")
    builder = SparkSession.builder.master("local[2]").appName("lakemark-delta-tests")
    builder = builder.config("spark.jars", ",".join(jars))
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = lakemark.spark.configure(builder, accelerate=True)
    for key, value in {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.lakemark.use_index": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sql("CREATE DATABASE own")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def fast(spark: SparkSession) -> SparkSession:
    """Delta with indexes."""
    session = spark.newSession()
    session.conf.set("spark.lakemark.use_index", "true")
    return session

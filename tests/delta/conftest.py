"""One Spark session with Delta's own jars, and without anything of ours."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator

JARS = Path(os.environ["LAKEMARK_DELTA_JARS"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark warns of its own dependencies; those warnings are not ours to fix."""
    for item in items:
        if "tests/delta" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    jars = [str(path) for path in sorted(JARS.glob("*.jar")) if not path.name.startswith("iceberg")]
    assert any("delta-spark" in jar for jar in jars), f"{JARS} lacks Delta: run the tests by make test-delta"
    builder = SparkSession.builder.master("local[2]").appName("lakemark-delta")
    for key, value in {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A session of minutes is not worth optimised byte code or a parallel collector.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # Delta reads its log by 50 tasks if nothing is said.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    session.stop()

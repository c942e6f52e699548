"""One Spark session for all tests, with the connector's jar and settings that start fast."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.sql import SparkSession

import lakemark
import lakemark.spark
from spark_tables import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A session of a minute is not worth optimised byte code or a parallel collector.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


# What takes minutes begins first, where several sessions share the tests.
LONGEST = ["test_corpus.py", "test_cluster.py", "test_leaks.py"]


# Before the plugin that shares tests looks at their groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a file go to one session, but for those of the corpus.

    PySpark warns of its own dependencies; those warnings are not ours to fix.
    """
    own = [item for item in items if "tests/spark" in str(item.path)]
    for item in own:
        item.add_marker(pytest.mark.filterwarnings("default"))
        item.add_marker(pytest.mark.xdist_group(item.name if item.path.name == "test_corpus.py" else item.path.name))
    if len(own) == len(items):
        items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the catalog `lm`; what it has stays for later tests."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    wanted = os.environ.get("LAKEMARK_SPARK_VERSION")
    assert wanted in (None, pyspark.__version__), f"this environment has PySpark {pyspark.__version__}"
    # Functions in Python run where this package is, too.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = lakemark.spark.configure(
        # A task that fails is tried once more.
        SparkSession.builder.master("local[2,2]").appName("lakemark-tests"),
        warehouse=warehouse,
        tables={"far.trips": warehouse.parent / "trips", "gone": warehouse.parent / "gone"},
        accelerate=True,
    )
    for key, value in {
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # What tasks hold outside of the heap is Spark's to manage; what they do not give back fails them.
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "256m",
        "spark.unsafe.exceptionOnMemoryLeak": "true",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        # The session catalog's own folders and metastore: beside the catalog's, not in the checkout.
        "spark.sql.warehouse.dir": str(warehouse.parent / "spark-warehouse"),
        # Here `spark.read.parquet` is vanilla Spark's; sessions that are accelerated say so.
        "spark.lakemark.use_index": "false",
        "spark.sql.catalog.bare": "io.lakemark.spark.LakemarkCatalog",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def fast(spark: SparkSession) -> SparkSession:
    """Another session, with indexes; in `spark` they are switched off."""
    session = spark.newSession()
    session.conf.set("spark.lakemark.use_index", "true")
    return session


@pytest.fixture(autouse=True)
def no_leak(spark: SparkSession) -> Iterator[None]:
    """After each test every vector and every stream has given its memory back."""
    yield
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # noqa: SLF001 - there is no other way to the JVM
    wait_for(lambda: allocator.getAllocatedMemory() == 0)

"""What Spark's own scans of files read, as their plans and metrics say, and what the extension logs of them."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_tables import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

SKIPPED = re.compile(r"(\d+) of (\d+) row groups skipped by the index")


@contextmanager
def settings(sessions: tuple[SparkSession, ...], values: dict[str, str]) -> Iterator[None]:
    for session in sessions:
        for key, value in values.items():
            session.conf.set(key, value)
    try:
        yield
    finally:
        for session in sessions:
            for key in values:
                session.conf.unset(key)


def collected(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def scans(frame: DataFrame) -> list[JavaObject]:
    """The scans of Parquet files in the plan as it ran."""
    return list(_scans(frame._jdf.queryExecution().executedPlan()))  # noqa: SLF001 - PySpark gives plans no other way


def _scans(node: JavaObject) -> Iterator[JavaObject]:
    name = node.getClass().getSimpleName()
    if name == "FileSourceScanExec":
        yield node
    elif name == "AdaptiveSparkPlanExec":
        yield from _scans(node.executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _scans(node.plan())
    else:
        children = node.children()
        for place in range(children.size()):
            yield from _scans(children.apply(place))


def read_of(frame: DataFrame) -> tuple[int, int]:
    """Rows that Spark's reader gave to its filters, and files that it was told of."""
    metrics = [scan.metrics() for scan in scans(frame)]
    return tuple(sum(of.apply(name).value() for of in metrics) for name in ("numOutputRows", "numFiles"))  # type: ignore[return-value]


def skipped(frame: DataFrame) -> tuple[int, int] | None:
    found = SKIPPED.search(plan_of(frame))
    return (int(found[1]), int(found[2])) if found else None


@contextmanager
def logged(spark: SparkSession) -> Iterator[Callable[[], list[str]]]:
    """What the extension logs meanwhile."""
    jvm = spark._jvm  # noqa: SLF001 - there is no other way to the JVM
    log4j = jvm.org.apache.logging.log4j
    text = jvm.java.io.StringWriter()
    appender = log4j.core.appender.WriterAppender.createAppender(None, None, text, "captured", False, True)
    appender.start()
    name = "io.lakemark"
    log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)
    logger = log4j.LogManager.getContext(False).getLogger(name)
    logger.addAppender(appender)
    try:
        yield lambda: str(text.toString()).splitlines()
    finally:
        logger.removeAppender(appender)
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def without_numbers(frame: DataFrame) -> str:
    return re.sub(r"#\d+L?|plan_id=\d+", "", plan_of(frame))

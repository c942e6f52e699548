"""The notebooks about Spark run as they are, each in a session of its own on the context that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import pytest
from pyspark.sql import SparkSession

from test_examples import ROOT, run_notebook

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `getOrCreate` finds in a notebook: another session, whose catalogs are those of the notebook."""
    mpl.use("agg")
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(SparkSession, "_instantiatedSession", spark.newSession())
    yield
    # The active session of this thread is the notebook's; later tests ask for their own.
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001 - PySpark has no other way


def test_the_tour_of_spark_sql() -> None:
    names = run_notebook("spark_sql.ipynb", 14)
    assert names["from_indexes"] == 707
    assert names["after_changes"] == 708
    assert {row["coverage"] for row in names["indexes"].collect()} == {1.0}
    assert {(len(row["damaged"]), len(row["stale"])) for row in names["verified"].collect()} == {(0, 0)}
    by_key = "flight_carrier_year_month_day_hour_key"
    assert names["remaining"] == ["by_carrier", "by_dep_delay", "by_dest", "by_month", "by_tailnum", by_key]


def test_the_day_of_updates() -> None:
    names = run_notebook("spark_updates.ipynb", 9)
    assert (names["today"].num_rows, names["cancelled"]) == (1004, 121)
    assert names["report"]["delta_version"] == 1
    # The board was looked at while the day went by; how often is up to the machine.
    assert (len(names["steps"]), len(names["seen"]) >= 1) == (10, True)

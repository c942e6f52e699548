"""Jar, native library and Python package are of one release, or refuse each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakemark
import lakemark.spark
from spark_tables import create_indexes, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_the_jar_of_this_session_is_of_this_package(spark: SparkSession) -> None:
    version = spark._jvm.io.lakemark.spark.LakemarkVersion  # noqa: SLF001 - there is no other way to the JVM
    assert version.get() == lakemark.__version__


def test_a_session_with_the_jar_of_another_release_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    create_indexes(folder, "k")
    monkeypatch.setattr(lakemark.spark, "_release", lambda: "9.9.9")
    with pytest.raises(lakemark.UnsupportedError) as refused:
        lakemark.spark.build(spark, folder)
    told = (
        f"this session has the connector of lakemark {lakemark.__version__} and this Python package is lakemark 9.9.9"
    )
    assert told in str(refused.value)


def test_a_session_without_the_connector_says_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoClasses:
        def __getattr__(self, name: str) -> NoClasses:
            return self

        def __call__(self) -> None:
            raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr(spark.sparkContext, "_jvm", NoClasses())
    with pytest.raises(lakemark.UnsupportedError, match="no connector of Lakemark"):
        lakemark.spark.build(spark, "t")

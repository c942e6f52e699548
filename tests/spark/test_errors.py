"""Failures arrive as exceptions with a kind and a message, and the JVM lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

from spark_tables import write_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def failure(action: Callable[[], object]) -> str:
    """The text of the error, with the Java class that caused it."""
    with pytest.raises(Exception, match="lakemark") as caught:
        action()
    error = caught.value
    return str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)


def test_a_table_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    text = failure(lambda: spark.read.format("lakemark").load(str(tmp_path / "absent")))
    assert "LakemarkException$NotFound" in text
    assert "absent" in text


def test_a_folder_without_parquet(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "readme.txt").write_text("no data", "utf-8")
    text = failure(lambda: spark.read.format("lakemark").load(str(tmp_path)))
    assert "LakemarkException$NotFound" in text
    assert "arquet" in text


def test_a_read_without_a_path(spark: SparkSession) -> None:
    text = failure(lambda: spark.read.format("lakemark").load())
    assert "LakemarkException$InvalidInput" in text
    assert "needs a path" in text


def test_several_paths(spark: SparkSession) -> None:
    text = failure(lambda: spark.read.format("lakemark").load(["a", "b"]))
    assert "LakemarkException$Unsupported" in text
    assert "one path at a time" in text


def test_an_option_of_a_read_that_is_not_known_is_no_silent_slip(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    reader = spark.read.format("lakemark")
    for option in ("sotre", "use_indx", "versionAsOf"):
        text = failure(reader.option(option, "1").load(str(folder)).collect)
        assert "LakemarkException$InvalidInput" in text
        assert f"there is no option {option.lower()} of a read; there are path, store, use_index, version and " in text
        assert "max_staleness" in text
        reader = spark.read.format("lakemark")
    text = failure(lambda: spark.sql(f"SELECT * FROM lm.`{folder}` WITH (use_indx = 'false')").collect())
    assert "there is no option use_indx of a read" in text
    text = failure(lambda: reader.option("use_index", "maybe").load(str(folder)))
    assert "use_index is maybe, it must be true or false" in text


def test_an_option_of_the_catalog_that_is_not_known(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.catalog.slip", "io.lakemark.spark.LakemarkCatalog")
    spark.conf.set("spark.sql.catalog.slip.warehose", "/data")
    text = failure(lambda: spark.sql("SHOW NAMESPACES IN slip"))
    assert "there is no option spark.sql.catalog.slip.warehose; a catalog has warehouse" in text


def test_an_index_on_a_view(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW passing AS SELECT * FROM lm.`{folder}`")
    spark.sql(f"CREATE OR REPLACE VIEW lasting AS SELECT * FROM lm.`{folder}`")
    try:
        for view in ("passing", "lasting"):
            with pytest.raises(Exception, match=f"EXPECT_TABLE_NOT_VIEW.*{view}"):
                spark.sql(f"CREATE INDEX by_k ON {view} USING bitmap (k)")
    finally:
        spark.sql("DROP VIEW lasting")
    assert not (folder / "_lakemark").exists()


def test_a_type_that_spark_lacks_is_named_and_can_be_left_out(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([1, 2], pa.time64("ns"))
    pq.write_table(pa.table({"id": [1, 2], "alarm": times}), tmp_path / "a.parquet")
    text = failure(lambda: spark.read.format("lakemark").load(str(tmp_path)))
    assert "LakemarkException$Unsupported" in text
    assert "column 'alarm'" in text
    without = spark.read.format("lakemark").schema("id BIGINT").load(str(tmp_path))
    assert sorted(without.collect()) == [(1,), (2,)]


def test_a_schema_that_the_data_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=1)
    wrong = spark.read.format("lakemark").schema("id STRING").load(str(folder))
    text = failure(wrong.collect)
    assert "SchemaMismatch" in text
    assert "id:bigint" in text


def test_a_data_file_cut_short_fails_the_task_with_its_kind(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "t", files=2)
    ours = spark.read.format("lakemark").load(str(folder))
    assert ours.where("id = 1500").select("id").collect() == [(1500,)]
    path = folder / "part-1.parquet"
    content = path.read_bytes()
    # The footer stays readable and the pages before it do not.
    path.write_bytes(b"PAR1" + b"\xff" * (len(content) // 2 - 4) + content[len(content) // 2 :])
    text = failure(ours.select("id", "city").collect)
    assert "LakemarkException$Corrupt" in text
    assert "part-1.parquet" in text


def test_a_panic_in_a_call_becomes_an_exception(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        spark._jvm.io.lakemark.spark.jni.NativeSelfTest.panicInCall()  # noqa: SLF001 - there is no other way to the JVM
    text = str(caught.value.java_exception.toString())
    assert text.startswith("io.lakemark.spark.LakemarkException$Internal: native panic: asked for")
    assert spark.range(3).count() == 3


def test_a_panic_in_a_stream_becomes_an_exception(spark: SparkSession) -> None:
    with pytest.raises(Py4JJavaError) as caught:
        spark._jvm.io.lakemark.spark.jni.NativeSelfTest.panicInStream()  # noqa: SLF001 - there is no other way to the JVM
    text = str(caught.value.java_exception.toString())
    assert text.startswith("io.lakemark.spark.LakemarkException$Internal: native panic: asked for")
    assert spark.range(3).count() == 3

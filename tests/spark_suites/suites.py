"""Which of Spark's own suites are run, and which runs each of them takes part in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from differences import ENGINE, EXTENSION, RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SQL = "org.apache.spark.sql.SQLQueryTestSuite"
_PARQUET = "org.apache.spark.sql.execution.datasources.parquet"
_CONNECTOR = "org.apache.spark.sql.connector"

# The suites of Spark's scans of Parquet, of joins that leave partitions out, and of sources of the second kind.
SCALA = (
    f"{_PARQUET}.ParquetAvroCompatibilitySuite",
    f"{_PARQUET}.ParquetColumnIndexSuite",
    f"{_PARQUET}.ParquetDeltaByteArrayEncodingSuite",
    f"{_PARQUET}.ParquetDeltaEncodingSuite",
    f"{_PARQUET}.ParquetDeltaLengthByteArrayEncodingSuite",
    f"{_PARQUET}.ParquetEncodingSuite",
    f"{_PARQUET}.ParquetFieldIdIOSuite",
    f"{_PARQUET}.ParquetFieldIdSchemaSuite",
    f"{_PARQUET}.ParquetFileFormatV1Suite",
    f"{_PARQUET}.ParquetFileMetadataStructRowIndexSuite",
    f"{_PARQUET}.ParquetInteroperabilitySuite",
    f"{_PARQUET}.ParquetIOSuite",
    f"{_PARQUET}.ParquetProtobufCompatibilitySuite",
    f"{_PARQUET}.ParquetRebaseDatetimeV1Suite",
    f"{_PARQUET}.ParquetRowIndexSuite",
    f"{_PARQUET}.ParquetSchemaInferenceSuite",
    f"{_PARQUET}.ParquetSchemaSuite",
    f"{_PARQUET}.ParquetThriftCompatibilitySuite",
    f"{_PARQUET}.ParquetTypeWideningSuite",
    f"{_PARQUET}.ParquetV1FilterSuite",
    f"{_PARQUET}.ParquetV1PartitionDiscoverySuite",
    f"{_PARQUET}.ParquetV1QuerySuite",
    f"{_PARQUET}.ParquetV1SchemaPruningSuite",
    f"{_PARQUET}.ParquetVariantShreddingSuite",
    f"{_PARQUET}.ParquetVectorizedSuite",
    "org.apache.spark.sql.execution.datasources.ParquetCodecSuite",
    "org.apache.spark.sql.execution.datasources.ParquetReadSchemaSuite",
    "org.apache.spark.sql.execution.datasources.ParquetV1AggregatePushDownSuite",
    "org.apache.spark.sql.DynamicPartitionPruningV1SuiteAEOff",
    "org.apache.spark.sql.DynamicPartitionPruningV1SuiteAEOn",
    f"{_CONNECTOR}.DataSourceV2DataFrameSessionCatalogSuite",
    f"{_CONNECTOR}.DataSourceV2DataFrameSuite",
    f"{_CONNECTOR}.DataSourceV2FunctionSuite",
    f"{_CONNECTOR}.DataSourceV2MetricsSuite",
    f"{_CONNECTOR}.DataSourceV2OptionSuite",
    f"{_CONNECTOR}.DataSourceV2SQLSessionCatalogSuite",
    f"{_CONNECTOR}.DataSourceV2SQLSuiteV1Filter",
    f"{_CONNECTOR}.DataSourceV2SQLSuiteV2Filter",
    f"{_CONNECTOR}.DataSourceV2Suite",
    f"{_CONNECTOR}.DataSourceV2UtilsSuite",
    f"{_CONNECTOR}.FileDataSourceV2FallBackSuite",
)
# Nothing of them is written as files of ours.
SCALA_RUNS = (ENGINE, EXTENSION)
# Their functions are Python's.
LEFT_OUT = ("udaf/", "udtf/")


def short(suite: str) -> str:
    """The name of a suite without its package."""
    return suite.rpartition(".")[2]


def sql_files(inputs: Path, words: Sequence[str]) -> list[str]:
    """The files of SQL that the words name, all of them without words."""
    return wanted(sorted(str(path.relative_to(inputs)) for path in inputs.rglob("*.sql")), words)


def scala_suites(words: Sequence[str]) -> list[str]:
    """The other suites that the words name, all of them without words."""
    names = {short(suite): suite for suite in SCALA}
    return [names[name] for name in wanted(list(names), words)]


def wanted(names: list[str], words: Sequence[str]) -> list[str]:
    """The names that words stand for: one that is a word, else all that have it in them."""
    exact = set(words) & set(names)
    parts = [word for word in words if word not in exact]
    return [name for name in names if not words or name in exact or any(part in name for part in parts)]


def test_of(file: str) -> str | None:
    """The test that runs a file of SQL; none of those whose functions are Python's."""
    if file.startswith(LEFT_OUT):
        return None
    return f"{file} - Scala UDF" if file.startswith("udf/") else file


def file_of(test: str) -> str:
    """The file of SQL that a test runs."""
    return test.removesuffix(" - Scala UDF")


def runs_of(text: str) -> list[str]:
    """The runs that are named, in their order."""
    named = set(text.replace(",", " ").split()) or set(RUNS)
    if unknown := named - set(RUNS):
        raise ValueError(f"there is no run {', '.join(sorted(unknown))}; there are {', '.join(RUNS)}")
    return [run for run in RUNS if run in named]

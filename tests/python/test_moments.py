"""96-bit timestamps are microseconds of UTC everywhere; dates of another calendar are not indexed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

UTC = dt.timezone.utc
ROWS = 600


def at(text: str) -> str:
    """A literal in microseconds: a plain one has nanoseconds, which end in 2262."""
    return f"arrow_cast('{text}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


LEAP_NOON = at("2024-02-29T12:00:00Z")
LAST = at("9999-12-31T23:59:59.999999Z")

CONDITIONS = [
    f"t = {LEAP_NOON}",
    f"t < {at('1969-12-31T23:59:59Z')}",
    f"t >= {at('2300-01-01T00:00:00Z')}",
    f"t BETWEEN {at('1582-10-15T00:00:00Z')} AND {at('1970-01-01T00:00:00Z')}",
    "t IS NULL",
    "t IS NOT NULL AND n % 2 = 0",
    f"t IN ({LEAP_NOON}, {LAST})",
    f"t != {at('1970-01-01T00:00:00Z')}",
]


def moment(row: int) -> dt.datetime | None:
    """Moments of six ages, two of them beyond what 64 bits of nanoseconds hold."""
    if row % 11 == 0:
        return None
    ages = [
        dt.datetime(1, 1, 2, tzinfo=UTC),
        dt.datetime(1600, 5, 6, 7, 8, 9, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 12, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ]
    return ages[row % 6]


def write_wide(path: Path, zone: str | None = None, metadata: dict[str, str] | None = None) -> None:
    moments = [moment(row) for row in range(ROWS)]
    local = [None if value is None else value.replace(tzinfo=None) for value in moments]
    values = pa.array(moments if zone else local, pa.timestamp("us", tz=zone))
    days = pa.array([dt.date(1500, 1, 1) + dt.timedelta(days=row) for row in range(ROWS)], pa.date32())
    data = pa.table({"n": pa.array(range(ROWS), pa.int32()), "t": values, "d": days})
    data = data.replace_schema_metadata(metadata)
    pq.write_table(data, path, use_deprecated_int96_timestamps=True, row_group_size=100)
    assert pq.ParquetFile(path).schema.column(1).physical_type == "INT96"


def naive_rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    moments = rows["t"].cast(pa.timestamp("us")).to_pylist()
    return sorted(zip(rows["n"].to_pylist(), moments, strict=True))


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_wide_timestamps_are_the_moments_that_pyarrow_reads(tmp_path: Path, zone: str | None) -> None:
    write_wide(tmp_path / "a.parquet", zone)
    table = lakemark.Table(tmp_path)
    assert str(pa.schema(table.schema).field("t").type) == "timestamp[us, tz=UTC]"
    expected = pq.read_table(tmp_path / "a.parquet", coerce_int96_timestamp_unit="us")
    assert naive_rows(table.scan(columns=["n", "t"]).to_arrow()) == naive_rows(expected)
    index = table.create_index("t", progress=False)
    assert (index.data_type, index.coverage) == ('Timestamp(µs, "UTC")', 1.0)
    assert naive_rows(table.scan("t IS NOT NULL", columns=["n", "t"]).to_arrow()) == naive_rows(
        expected.filter(expected["t"].is_valid())
    )


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_on_wide_timestamps_are_the_same_with_and_without_indexes(tmp_path: Path, condition: str) -> None:
    write_wide(tmp_path / "a.parquet")
    table = lakemark.Table(tmp_path)
    table.create_index("t", progress=False)
    expected = naive_rows(table.scan(condition, columns=["n", "t"], use_index=False).to_arrow())
    assert 0 < len(expected) < ROWS
    assert naive_rows(table.scan(condition, columns=["n", "t"]).to_arrow()) == expected
    assert table.count(condition) == table.count(condition, use_index=False) == len(expected)
    report = table.explain(condition)
    assert report.leaves[0].index == "t_bitmap", report
    assert report.leaves[0].reason is None, report


def test_wide_timestamps_inside_lists_and_structs_are_moments_too(tmp_path: Path) -> None:
    utc = [dt.datetime(9999, 1, 1, tzinfo=UTC), None, dt.datetime(1, 1, 2, tzinfo=UTC)]
    moments = [None if value is None else value.replace(tzinfo=None) for value in utc]
    data = pa.table(
        {
            "n": pa.array([0, 1, 2]),
            "many": pa.array([moments, None, []], pa.list_(pa.timestamp("us"))),
            "one": pa.array([{"at": value} for value in moments], pa.struct({"at": pa.timestamp("us")})),
        }
    )
    pq.write_table(data, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found = lakemark.Table(tmp_path).scan().to_arrow().sort_by("n")
    assert found["many"].to_pylist() == [utc, None, []]
    assert [row["at"] for row in found["one"].to_pylist()] == utc


def test_a_table_of_wide_and_of_plain_timestamps_has_one_type(tmp_path: Path) -> None:
    write_wide(tmp_path / "a.parquet")
    plain = pq.read_table(tmp_path / "a.parquet", coerce_int96_timestamp_unit="us")
    plain = plain.set_column(1, "t", plain["t"].cast(pa.timestamp("us", tz="UTC")))
    pq.write_table(plain, tmp_path / "b.parquet")
    table = lakemark.Table(tmp_path)
    table.create_index("t", progress=False)
    last = sum(moment(row) is not None and row % 6 == 5 for row in range(ROWS))
    assert table.count(f"t = {LAST}") == table.count(f"t = {LAST}", use_index=False) == 2 * last > 0


@pytest.mark.parametrize(
    ("metadata", "declined"),
    [
        ({"org.apache.spark.version": "4.1.0"}, []),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyINT96": ""}, ["t"]),
        ({"org.apache.spark.version": "3.5.1", "org.apache.spark.legacyDateTime": ""}, ["d"]),
        ({"org.apache.spark.version": "2.4.8"}, ["d", "t"]),
        ({"org.apache.spark.legacyINT96": ""}, []),
    ],
)
def test_files_of_a_rebased_calendar_are_scanned(tmp_path: Path, metadata: dict[str, str], declined: list[str]) -> None:
    write_wide(tmp_path / "a.parquet", metadata=metadata)
    table = lakemark.Table(tmp_path)
    for column in ("d", "t", "n"):
        table.create_index(column, build=False)
    report = table.build(progress=False)
    assert [finding.path for finding in report.declined] == ["a.parquet"] * len(declined)
    assert {index.column: index.coverage for index in table.indexes} == {
        column: float(column not in declined) for column in ("d", "t", "n")
    }
    for column, condition in [("t", CONDITIONS[0]), ("d", "d = DATE '1500-03-01'")]:
        explained = lakemark.Table(tmp_path).explain(condition).leaves[0]
        assert explained.reason == ("calendar_rebased" if column in declined else None)
        assert table.count(condition) == table.count(condition, use_index=False) > 0
    assert ("that they can" in str(table.build(progress=False))) == bool(declined)

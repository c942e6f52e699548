"""`lakemark.Table`, method by method; DuckDB says what is right."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Judged

COLUMNS = ["id", "city", "amount", "day", "paid"]

CONDITIONS = [
    "city = 'Oslo'",
    "city != 'Oslo'",
    "city IN ('Rom', 'Zürich')",
    "city NOT IN ('Rom', 'Zürich')",
    "city IS NULL",
    "city IS NOT NULL AND id >= 3500",
    "city LIKE 'W%'",
    "id = 1234",
    "id BETWEEN 990 AND 1010",
    "NOT (id BETWEEN 10 AND 3990)",
    "id < 5 OR city IS NULL",
    "day = DATE '2024-02-29'",
    "day > DATE '2024-03-25' AND city = 'Wien'",
    "city = 'Oslo' AND amount > 200",
    "city = 'Oslo' OR amount > 250",
    "paid AND city = 'Rom'",
    "NOT paid AND city = 'Rom'",
    "city = 'Nowhere'",
    "id + 1 = 1000",
]


def scanned(judged: Judged, condition: str) -> list[tuple[object, ...]]:
    rows = judged.table.scan(condition, columns=COLUMNS).to_arrow().to_pylist()
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=repr)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_count_and_scan_are_what_duckdb_says_with_and_without_indexes(plain: Judged, condition: str) -> None:
    expected = plain.count(condition)
    rows = plain.rows(COLUMNS, condition)
    assert len(rows) == expected
    assert plain.table.count(condition) == expected
    assert scanned(plain, condition) == rows
    for column in ("city", "id", "day"):
        plain.table.create_index(column, using="bitmap", progress=False)
    assert plain.table.count(condition) == expected
    assert plain.table.count(condition, use_index=False) == expected
    assert scanned(plain, condition) == rows


def test_indexes_can_be_left_out(indexed: Judged) -> None:
    assert indexed.table.explain("city = 'Oslo'").coverage == 1.0
    assert indexed.table.explain("city = 'Oslo'", use_index=False).coverage == 0.0
    found = indexed.table.scan("id < 3", columns=["id"], use_index=False).to_arrow()
    assert sorted(found["id"].to_pylist()) == [0, 1, 2]


def test_count_without_a_condition_counts_every_row(indexed: Judged) -> None:
    assert indexed.table.count() == 4000


def test_a_data_file_that_was_written_over_with_its_time_set_back_is_seen(indexed: Judged) -> None:
    expected = indexed.count("city = 'Oslo' AND id < 2000")
    report = indexed.table.explain("city = 'Oslo' AND id < 2000")
    assert (report.rows_exact, report.rows_rechecked) == (expected, 0)
    assert indexed.table.count("city = 'Oslo' AND id < 2000") == expected
    for path in indexed.folder.glob("*.parquet"):
        times = path.stat()
        path.write_bytes(bytes(times.st_size))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Nobody can set back the time at which the system saw the change.
    with pytest.raises(lakemark.CorruptError, match="part-0"):
        indexed.table.count("city = 'Oslo' AND id < 2000")


def test_scan_chooses_columns_in_the_order_asked(indexed: Judged) -> None:
    found = indexed.table.scan("id = 8", columns=["day", "id"]).to_arrow()
    assert found.column_names == ["day", "id"]
    assert [tuple(row.values()) for row in found.to_pylist()] == indexed.rows(["day", "id"], "id = 8")


def test_scan_stops_at_the_limit(indexed: Judged) -> None:
    found = indexed.table.scan("city = 'Oslo'", limit=17).to_arrow()
    assert found.num_rows == 17
    assert set(found["city"].to_pylist()) == {"Oslo"}
    assert indexed.table.scan(limit=0).to_arrow().num_rows == 0


def test_scan_refuses_a_bare_string_of_columns(indexed: Judged) -> None:
    with pytest.raises(lakemark.InvalidInputError, match=r"\['city'\]"):
        indexed.table.scan(columns="city")


def test_create_index_returns_the_index_with_its_coverage(plain: Judged) -> None:
    index = plain.table.create_index("city", using="bitmap", progress=False)
    assert (index.column, index.kind, index.encoding) == ("city", "bitmap", "equality")
    assert (index.files_covered, index.files_total, index.coverage) == (4, 4, 1.0)
    assert index.rows == 4000
    assert index.bytes > 0
    assert index.segments >= 1
    assert plain.table.indexes == [index]


def test_auto_chooses_a_kind_that_exists(plain: Judged) -> None:
    assert plain.table.create_index("city", progress=False).kind == "bitmap"


def test_a_declared_index_covers_nothing_until_it_is_built(plain: Judged) -> None:
    declared = plain.table.create_index("city", using="bitmap", name="later", build=False)
    assert (declared.name, declared.files_covered, declared.coverage) == ("later", 0, 0.0)
    report = plain.table.build(progress=False)
    assert (report.indexes, report.files, report.rows) == (["later"], 4, 4000)
    assert report.bytes_written == plain.table.indexes[0].bytes
    assert plain.table.indexes[0].coverage == 1.0


def test_a_second_build_has_nothing_to_do(indexed: Judged) -> None:
    report = indexed.table.build(progress=False)
    assert (report.segments, report.rows, report.bytes_written) == (0, 0, 0)
    assert str(report) == "nothing to build: the indexes cover every file"


def test_build_takes_up_a_new_file_and_counts_are_right_before_and_after(indexed: Judged) -> None:
    late = indexed.table.scan("id < 500").to_arrow().cast(pq.read_schema(indexed.folder / "part-0.parquet"))
    pq.write_table(late, indexed.folder / "part-9.parquet")
    expected = indexed.count("city = 'Oslo'")
    assert indexed.table.count("city = 'Oslo'") == expected
    assert [index.coverage for index in indexed.table.indexes] == [0.8, 0.8, 0.8]
    assert indexed.table.build(progress=False).files == 1
    assert [index.coverage for index in indexed.table.indexes] == [1.0, 1.0, 1.0]
    assert indexed.table.count("city = 'Oslo'") == expected


def test_build_can_be_told_which_index_how_much_memory_and_how_many_threads(plain: Judged) -> None:
    plain.table.create_index("city", using="bitmap", name="one", build=False)
    plain.table.create_index("id", using="bitmap", name="two", build=False)
    report = plain.table.build(memory=1 << 20, threads=1, progress=False, index="two")
    assert report.indexes == ["two"]
    assert {index.name: index.coverage for index in plain.table.indexes} == {"one": 0.0, "two": 1.0}


def test_build_tells_its_progress_to_a_function(plain: Judged) -> None:
    seen: list[tuple[int, int]] = []
    plain.table.create_index("city", using="bitmap", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4000, 4000)
    assert seen == sorted(seen)


def test_an_error_in_the_progress_function_stops_the_build_and_is_raised(plain: Judged) -> None:
    def refuse(_done: int, _total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        plain.table.create_index("city", using="bitmap", progress=refuse)
    assert plain.table.count("city = 'Oslo'") == plain.count("city = 'Oslo'")


def test_drop_index_takes_it_away(indexed: Judged) -> None:
    assert indexed.table.drop_index("by_city") is True
    assert [index.name for index in indexed.table.indexes] == ["by_day", "by_id"]
    assert indexed.table.drop_index("by_city", if_exists=True) is False
    assert indexed.table.count("city = 'Oslo'") == indexed.count("city = 'Oslo'")


def test_if_not_exists_leaves_the_index_as_it_is(indexed: Judged) -> None:
    before = indexed.table.indexes[0]
    again = indexed.table.create_index("city", using="bitmap", name="by_city", if_not_exists=True, progress=False)
    assert again == before


def test_verify_is_true_for_what_was_built(indexed: Judged) -> None:
    report = indexed.table.verify()
    assert report
    assert [(verdict.name, verdict.files_ok) for verdict in report.indexes] == [
        ("by_city", 4),
        ("by_day", 4),
        ("by_id", 4),
    ]
    assert "by_city: 4 files ok, 0 damaged, 0 stale" in str(report)


@pytest.mark.filterwarnings("default::lakemark.LakemarkWarning")
def test_verify_finds_a_damaged_index_and_answers_stay_right(indexed: Judged) -> None:
    segment = max(indexed.folder.glob("_lakemark/indexes/*.lmx"), key=lambda path: path.stat().st_size)
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 0xFF
    segment.write_bytes(damaged)
    report = lakemark.Table(indexed.folder).verify()
    assert not report
    assert sum(len(verdict.damaged) for verdict in report.indexes) == 1
    assert "1 damaged" in str(report)
    assert "\n  damaged: indexes/" in str(report)
    for condition in CONDITIONS:
        assert lakemark.Table(indexed.folder).count(condition) == indexed.count(condition)


def test_a_missing_index_is_a_warning_and_the_answer_is_right(indexed: Judged) -> None:
    for segment in indexed.folder.glob("_lakemark/indexes/*.lmx"):
        segment.unlink()
    with pytest.warns(lakemark.LakemarkWarning):
        assert indexed.table.count("city = 'Oslo'") == indexed.count("city = 'Oslo'")


def test_removing_the_store_only_forgets_the_indexes(indexed: Judged) -> None:
    shutil.rmtree(indexed.folder / "_lakemark")
    table = lakemark.Table(indexed.folder)
    assert table.indexes == []
    assert table.count("city = 'Oslo'") == indexed.count("city = 'Oslo'")


def test_schema_names_types_and_nullability(indexed: Judged) -> None:
    schema = indexed.table.schema
    assert schema.names == COLUMNS
    assert len(schema) == 5
    assert schema["id"].type == "Int64"
    assert schema["day"].type == "Date32"
    assert [field.name for field in schema] == COLUMNS
    assert schema.to_arrow().field("amount").type == pa.float64()
    assert "id: Int64" in repr(schema)
    with pytest.raises(KeyError, match="nope"):
        schema["nope"]


def test_snapshot_describes_the_pinned_state(indexed: Judged) -> None:
    snapshot = indexed.table.snapshot
    assert sorted(snapshot.files) == [f"part-{n}.parquet" for n in range(4)]
    assert snapshot.bytes == sum(path.stat().st_size for path in indexed.folder.glob("*.parquet"))
    assert (snapshot.delta_version, snapshot.rows_deleted, snapshot.partition_columns) == (None, 0, [])
    assert snapshot.rows == 4000
    assert snapshot.manifest is not None
    assert snapshot.manifest > 0


def test_info_sums_it_up(indexed: Judged) -> None:
    info = indexed.table.info()
    assert (info.format, len(info.columns), info.files, info.rows) == ("parquet", 5, 4, 4000)
    assert info.index_bytes == sum(index.bytes for index in info.indexes)
    assert info.index_bytes == sum(path.stat().st_size for path in indexed.folder.glob("_lakemark/indexes/*.lmx"))
    text = str(info)
    assert "4,000" in text
    assert "bitmap (equality) on city, 100% covered" in text


def test_indexes_can_live_elsewhere_and_the_table_stays_clean(plain: Judged, tmp_path: Path) -> None:
    table = lakemark.Table(plain.folder, store=tmp_path / "store")
    table.create_index("city", using="bitmap", progress=False)
    assert not (plain.folder / "_lakemark").exists()
    assert list((tmp_path / "store").glob("indexes/*.lmx"))
    assert table.explain("city = 'Oslo'").rows_exact == plain.count("city = 'Oslo'")
    assert lakemark.Table(plain.folder).indexes == []


def test_a_glob_and_a_single_file_are_tables(plain: Judged, tmp_path: Path) -> None:
    some = lakemark.Table(f"{plain.folder}/part-[01].parquet", store=tmp_path / "some")
    assert some.count() == 2000
    one = lakemark.Table(plain.folder / "part-3.parquet", store=tmp_path / "one")
    one.create_index("id", using="bitmap", progress=False)
    assert one.count("id >= 3990") == 10


def test_repr_says_what_it_is(plain: Judged) -> None:
    assert repr(plain.table) == f"lakemark.Table({str(plain.folder)!r})"
    assert plain.table.location == str(plain.folder)


@pytest.mark.parametrize(
    ("column", "precision", "conditions"),
    [
        ("id", 2, ["id BETWEEN 400 AND 1300", "id = 37", "id < 1234", "id IN (5, 77, 1999, 2001)", "NOT id >= 3950"]),
        ("amount", 1, ["amount > 100", "amount = 0.25", "amount BETWEEN 12.3 AND 77.7", "amount <> 200"]),
        ("day", "month", ["day >= DATE '2024-02-01'", "day = DATE '2024-03-01'", "day < DATE '2024-02-17'"]),
    ],
)
def test_bins_of_a_precision_count_what_duckdb_counts(
    plain: Judged, column: str, precision: int | str, conditions: list[str]
) -> None:
    index = plain.table.create_index(column, using="bitmap", precision=precision, progress=False)
    assert (index.encoding, index.options["precision"], index.coverage) == ("binned", str(precision), 1.0)
    for condition in conditions:
        assert plain.table.count(condition) == plain.count(condition), condition
        assert plain.table.scan(condition, columns=[column]).to_arrow().num_rows == plain.count(condition), condition


@pytest.mark.parametrize(
    ("column", "options", "problem"),
    [
        ("city", {"precision": 2}, "no precision on strings"),
        ("id", {"precision": 0}, "1 to 15 significant digits"),
        ("id", {"precision": 20}, "1 to 15 significant digits"),
        ("day", {"precision": "week"}, "year, month, day"),
        ("id", {"precision": 2, "encoding": "range"}, "the encoding given is range"),
        ("id", {"encoding": "binned"}, "precision=2"),
    ],
)
def test_a_precision_that_cannot_be_says_what_there_is(
    plain: Judged, column: str, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(lakemark.InvalidInputError, match=problem):
        plain.table.create_index(column, using="bitmap", progress=False, **options)
    assert plain.table.indexes == []


def test_queries_go_by_an_earlier_listing_for_as_long_as_they_are_told(plain: Judged) -> None:
    table = lakemark.Table(plain.folder, max_staleness=timedelta(hours=1))
    session = lakemark.connect()
    options = "OPTIONS (max_staleness '1h')"
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{plain.folder}' {options}")

    def counts() -> list[int]:
        counted = session.sql("SELECT count(*) AS n FROM t").to_arrow().column("n").to_pylist()
        return [table.count(), counted[0], plain.table.count()]

    rows = plain.count("true")
    assert counts() == [rows, rows, rows]
    first = next(plain.folder.rglob("*.parquet"))
    added = pq.read_metadata(first).num_rows
    shutil.copy(first, first.with_name("added.parquet"))
    assert counts() == [rows, rows, rows + added]
    # Whoever builds looks, and later queries of the same table go by that.
    table.create_index("id", using="bitmap", progress=False)
    assert counts() == [rows + added, rows, rows + added]
    with pytest.raises(lakemark.InvalidInputError, match="such as 500ms or 30s"):
        session.sql(f"CREATE EXTERNAL TABLE u STORED AS LAKEMARK LOCATION '{plain.folder}' OPTIONS (max_staleness '1')")

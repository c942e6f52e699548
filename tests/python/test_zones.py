"""The kinds `bloom_tree` and `summary`, and merging of segments; DuckDB says what is right."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged
    from lakemark.reports import IndexKind

COLUMNS = ["id", "city"]
CONDITIONS = [
    "id = 1234",
    "id IN (1, 3999, 4000)",
    "id BETWEEN 100 AND 300",
    "id <> 7",
    "city = 'Oslo'",
    "city IN ('Rom', 'Nowhere')",
    "city > 'P'",
    "city IS NULL",
    "id = 17 OR city = 'Oslo' AND NOT id < 2000",
]


@pytest.mark.parametrize("kind", ["bloom_tree", "summary"])
def test_rows_are_those_of_the_condition(plain: Judged, kind: IndexKind) -> None:
    for column, options in (("id", {"zone_rows": 100}), ("city", {"fpp": 0.1})):
        index = plain.table.create_index(column, using=kind, progress=False, **options)
        assert (index.name, index.kind, index.coverage) == (f"{column}_{kind}", kind, 1.0)
    for condition in CONDITIONS:
        found = plain.table.scan(condition, COLUMNS).to_arrow().to_pylist()
        rows = sorted((tuple(row[name] for name in COLUMNS) for row in found), key=repr)
        assert rows == plain.rows(COLUMNS, condition), condition
        assert plain.table.count(condition) == len(rows), condition
    assert plain.table.verify()


@pytest.mark.parametrize("kind", ["bloom_tree", "summary"])
def test_a_key_that_is_not_there_reads_no_data(plain: Judged, kind: IndexKind) -> None:
    plain.table.create_index("id", using=kind, fpp=1e-9, progress=False)
    report = plain.table.explain("id = 123456789")
    assert (report.files_pruned, report.rows_exact, report.rows_rechecked) == (report.files_total, 0, 0)
    assert plain.table.lookup([17, 123456789], COLUMNS).to_arrow()["id"].to_pylist() == [17]


def test_a_column_in_no_order_gets_a_warning_from_a_tree(plain: Judged) -> None:
    with pytest.warns(lakemark.LakemarkWarning, match="neither ordered nor clustered"):
        plain.table.create_index("city", using="bloom_tree", zone_rows=10, progress=False)


def test_bad_options_are_worded_errors(plain: Judged) -> None:
    for options, text in (
        ({"fpp": 1.5}, "a probability"),
        ({"zone_rows": 0}, "1 or more"),
        ({"precision": 2}, "a summary index has fpp, zone_rows, files_per_segment"),
    ):
        with pytest.raises(lakemark.InvalidInputError, match=text):
            plain.table.create_index("id", using="summary", progress=False, **options)


def test_segments_of_appended_files_are_merged(plain: Judged) -> None:
    plain.table.create_index("id", using="key", files_per_segment=1, progress=False)
    plain.table.create_index("city", using="bitmap", progress=False)
    before = {index.name: index.segments for index in plain.table.indexes}
    assert before["id_key"] > 1
    report = plain.table.compact(progress=False)
    assert not report.segments_written
    assert "nothing to merge" in str(report)
    command = [sys.executable, "-m", "lakemark", "index", "compact", str(plain.folder), "--format", "json"]
    done = subprocess.run([*command, "--index", "city_bitmap"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["segments_merged"] == 0


def test_builds_merge_segments_of_which_there_are_too_many(plain: Judged) -> None:
    content = min(plain.folder.glob("*.parquet")).read_bytes()
    table = plain.table
    table.create_index("id", using="key", progress=False)

    def append(name: str) -> None:
        (plain.folder / f"{name}.parquet").write_bytes(content)

    for number in range(12):
        append(f"more{number}")
        report = table.build(progress=False)
        (index,) = table.indexes
        assert (report.segments, report.merged_into) in {(1, 0), (1, 1)}
        assert index.segments <= 7
    merged = []
    for number in range(12, 24):
        append(f"more{number}")
        merged.append(table.build(progress=False))
    said = [report for report in merged if report.merged_into]
    assert said
    assert all(report.segments_merged > 1 and report.bytes_merged > 0 for report in said)
    assert f"merged {said[0].segments_merged} segments into 1 (" in str(said[0])
    (before,) = table.indexes
    command = [sys.executable, "-m", "lakemark", "index"]
    for number in range(24, 32):
        append(f"more{number}")
        subprocess.run([*command, "build", str(plain.folder), "--no-merge"], check=True, capture_output=True)
    (index,) = table.indexes
    assert index.segments == before.segments + 8
    done = subprocess.run(
        [*command, "compact", str(plain.folder), "--full", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["segments_merged"] == index.segments
    assert [index.segments for index in table.indexes] == [1]
    assert table.verify()


def test_a_table_that_grew_by_appends_is_compacted(plain: Judged) -> None:
    data = sorted(plain.folder.glob("*.parquet"))
    later = [(path, path.read_bytes()) for path in data[1:]]
    for path, _ in later:
        path.unlink()
    table = lakemark.Table(plain.folder)
    kinds: tuple[tuple[str, IndexKind], ...] = (("id", "key"), ("city", "summary"), ("id", "bloom_tree"))
    for column, kind in kinds:
        table.create_index(column, using=kind, progress=False)
    for path, content in later:
        path.write_bytes(content)
        assert table.build(progress=False, merge=False).segments_merged == 0
    assert {index.segments for index in table.indexes} == {len(data)}
    told: list[tuple[int, int]] = []
    report = table.compact(progress=lambda done, total: told.append((done, total)))
    assert max(done for done, _ in told) <= max(total for _, total in told) == 3 * table.count()
    assert sorted(report.indexes) == ["city_summary", "id_bloom_tree", "id_key"]
    assert (report.segments_merged, report.segments_written) == (3 * len(data), 3)
    assert ", segments written 3, " in str(report)
    assert "segments merged" in report._repr_html_()
    assert {index.segments for index in table.indexes} == {1}
    assert table.verify()
    for condition in CONDITIONS:
        rows = table.scan(condition, COLUMNS).to_arrow().to_pylist()
        found = sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=repr)
        assert found == plain.rows(COLUMNS, condition), condition

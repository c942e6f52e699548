"""Reports: values, text and pictures."""

from __future__ import annotations

import dataclasses
import json
import pickle
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged


def svgs(html: str) -> list[ET.Element]:
    """The pictures in a piece of HTML; they must be well-formed."""
    pieces = html.split("<svg")[1:]
    return [ET.fromstring("<svg" + piece.split("</svg>")[0] + "</svg>") for piece in pieces]  # noqa: S314 - ours


def test_explain_says_which_index_answered_what(indexed: Judged) -> None:
    condition = "city = 'Oslo' AND amount > 100"
    report = indexed.table.explain(condition)
    by_column = {leaf.column: leaf for leaf in report.leaves}
    assert by_column["city"].index == "by_city"
    assert by_column["city"].rows == indexed.count("city = 'Oslo'")
    assert by_column["amount"].index is None
    assert by_column["amount"].reason == "no_index"
    assert (report.rows_total, report.rows_exact) == (4000, 0)
    assert report.rows_rechecked == indexed.count("city = 'Oslo'")
    assert report.files_total == 4
    assert report.index_reads > 0
    assert report.index_bytes_read > 0


def test_explain_counts_what_is_skipped(indexed: Judged) -> None:
    report = indexed.table.explain("id BETWEEN 1000 AND 1099")
    assert report.rows_exact == 100
    assert report.files_pruned == 3
    assert report.row_groups_total - report.row_groups_pruned == 1
    assert report.coverage == 1.0


def test_explain_of_a_count_reads_less_than_of_a_scan_and_nothing_is_read_of_what_is_remembered(
    indexed: Judged,
) -> None:
    condition = "city = 'Oslo'"
    indexed.table.explain(condition, selection_cache=False)  # opens the segments
    scan, count = (indexed.table.explain(condition, count=count, selection_cache=False) for count in (False, True))
    assert scan.rows_exact == count.rows_exact == indexed.count(condition)
    assert 0 < count.index_bytes_read < scan.index_bytes_read
    both = "city = 'Oslo' AND id < 2000"
    expected = indexed.count(both)
    for _ in range(2):
        assert indexed.table.count(both) == indexed.table.count(both, selection_cache=False) == expected
    assert indexed.table.explain(both, count=True).index_bytes_read == 0
    assert indexed.table.explain(both, count=True, selection_cache=False).index_bytes_read > 0


def test_explain_without_indexes_scans_everything(plain: Judged) -> None:
    report = plain.table.explain("city = 'Oslo'")
    assert (report.coverage, report.files_total, report.files_scanned) == (0.0, 4, 4)
    assert report.leaves[0].reason == "no_index"


def test_explain_as_values_and_as_json(indexed: Judged) -> None:
    report = indexed.table.explain("city = 'Oslo' OR id < 7")
    values = report.to_dict()
    assert values["rows_exact"] == indexed.count("city = 'Oslo' OR id < 7")
    assert [leaf["column"] for leaf in values["leaves"]] == ["city", "id"]
    assert "_description" not in values
    assert json.loads(json.dumps(values)) == values


def test_explain_as_text(indexed: Judged) -> None:
    text = str(indexed.table.explain("city = 'Oslo'"))
    assert "by_city" in text
    assert str(indexed.count("city = 'Oslo'")) in text.replace(",", "")


def test_explain_draws_what_was_skipped(indexed: Judged) -> None:
    report = indexed.table.explain("id BETWEEN 1000 AND 1099")
    html = report._repr_html_()
    assert "by_id" in html
    pictures = svgs(html)
    assert [picture.get("aria-label") for picture in pictures] == ["files", "row groups", "rows"]
    skipped, exact, to_recheck = pictures[2]
    assert float(skipped.get("width", 0)) == pytest.approx(480 * 3900 / 4000, abs=0.1)
    assert float(exact.get("width", 0)) == pytest.approx(480 * 100 / 4000, abs=0.1)
    assert float(to_recheck.get("width", 1)) == 0
    assert [title.text for title in pictures[2].iter("title")][1] == "exact: 100 of 4,000"


def test_text_from_a_predicate_is_escaped_in_pictures(indexed: Judged) -> None:
    html = indexed.table.explain("city = '<img src=x>'")._repr_html_()
    assert "<img" not in html
    assert "&lt;img" in html


def test_build_and_verify_reports_draw_themselves(indexed: Judged) -> None:
    indexed.table.drop_index("by_city")
    indexed.table.create_index("city", using="bitmap", name="again", build=False)
    report = indexed.table.build(progress=False)
    assert str(report).startswith("built again: rows 4,000, files 4, segments ")
    assert "<td>4,000</td>" in report._repr_html_()
    verdict = indexed.table.verify()
    assert [picture.get("aria-label") for picture in svgs(verdict._repr_html_())] == ["again", "by_day", "by_id"]


def test_info_draws_itself_and_so_does_the_table(indexed: Judged) -> None:
    html = indexed.table.info()._repr_html_()
    assert "<td>4,000</td>" in html
    assert "index by_day" in html
    assert indexed.table._repr_html_().count("<tr>") == html.count("<tr>")


def test_indexes_draw_themselves_with_what_they_cover(indexed: Judged) -> None:
    indexes = indexed.table.indexes
    assert isinstance(indexes, list)
    html = indexes._repr_html_()
    assert "<td>by_city</td>" in html
    assert "<td>4 of 4</td>" in html
    assert svgs(html) == []
    head = " ".join(str(indexes).splitlines()[0].split())
    assert head == "name | kind | encoding | column | files | rows | size | chosen by"
    assert [values["name"] for values in indexes.to_dict()] == [index.name for index in indexes]
    assert json.loads(json.dumps(indexes.to_dict())) is not None
    assert pickle.loads(pickle.dumps(indexes)) == indexes  # noqa: S301 - ours
    # A file that no build has seen.
    first = next(indexed.folder.glob("*.parquet"))
    (indexed.folder / "later.parquet").write_bytes(first.read_bytes())
    html = indexed.table.indexes._repr_html_()
    assert "<td>4 of 5</td>" in html
    assert [picture.get("aria-label") for picture in svgs(html)] == [index.name for index in indexes]
    for index in list(indexes):
        indexed.table.drop_index(index.name)
    assert "no indexes" in indexed.table.indexes._repr_html_()
    assert str(indexed.table.indexes) == "no indexes"


def test_reports_are_values_that_cannot_be_changed(indexed: Judged) -> None:
    index = indexed.table.indexes[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        index.rows = 0  # type: ignore[misc]
    assert index == lakemark.Table(indexed.folder).indexes[0]


def test_reports_become_values_and_keep_their_text(indexed: Judged) -> None:
    table = indexed.table
    reports = [table.build(progress=False), table.compact(progress=False), table.verify(), table.vacuum(), table.info()]
    for report in reports:
        values = report.to_dict()
        assert json.loads(json.dumps(values)) == values
        assert "_description" not in json.dumps(values)
        assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301 - ours
        assert str(pickle.loads(pickle.dumps(report))) == str(report) != ""  # noqa: S301 - ours
    assert "updates" not in str(lakemark.Table(indexed.folder, version=1).info())


def test_lines_of_a_report_keep_their_indents_in_a_notebook(indexed: Judged) -> None:
    segment = next(indexed.folder.glob("_lakemark/indexes/*.lmx"))
    segment.write_bytes(b"<i>")
    html = indexed.table.verify()._repr_html_()
    assert "\n  damaged: indexes/" in html
    assert "<i>" not in html


def test_stats_are_numbers_with_their_meanings_and_draw_themselves(indexed: Judged) -> None:
    stats = indexed.table.stats()
    coverage = stats.stat("lakemark_coverage_ratio")
    assert (coverage.kind, coverage.unit, coverage.by) == ("gauge", "ratio", "index")
    assert stats["lakemark_coverage_ratio"] == coverage.value
    assert isinstance(coverage.value, dict)
    assert coverage.value["by_city"] == 1
    assert stats.meaning("lakemark_data_files") == "Data files of the table."
    assert dict(stats) == {each["name"]: each["value"] for each in stats.to_dict()}
    assert set(stats) <= {each["name"] for each in stats.to_dict()}
    for shown in (str(stats), stats._repr_html_()):
        assert "lakemark_coverage_ratio{by_city}" in shown
        assert "Data files of the table." in shown
    with pytest.raises(KeyError):
        stats["lakemark_nothing"]

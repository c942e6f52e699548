"""The page of `make demo` in the real Chromium: light and dark, on a screen and on a phone, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import demo_page
from demo_sample import MARKUP, PAGES_READ, results

if TYPE_CHECKING:
    from pathlib import Path

    from chromium import Tab

# The contrast of two colours, as the guidelines for accessible pages compute it (WCAG 2.2, "contrast ratio").
CONTRAST = """(() => {
    const light = text => {
        const parts = text.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
        const linear = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const ground = element => {
        const own = getComputedStyle(element).backgroundColor;
        return own === 'rgba(0, 0, 0, 0)' ? ground(element.parentElement) : own;
    };
    const ratio = (one, other) => {
        const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
    };
    const texts = [...document.querySelectorAll('h1, h2, h3, p, code, td, th, .tile, svg text')];
    const colour = element => element.closest('svg') ? getComputedStyle(element).fill : getComputedStyle(element).color;
    return {
        texts: texts.length,
        least: Math.min(...texts.map(element => ratio(colour(element), ground(element)))),
        page: light(getComputedStyle(document.body).backgroundColor),
        ours: Math.min(...[...document.querySelectorAll('rect.ours')].map(
            bar => ratio(getComputedStyle(bar).fill, ground(bar)))),
    };
})()"""
WIDTHS = "[...document.querySelectorAll('article svg')][0].querySelectorAll('rect')"


@pytest.fixture
def page(tmp_path: Path) -> str:
    path = tmp_path / "demo.html"
    path.write_text(demo_page.page(results()), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_can_be_read_in_light_and_dark_and_is_no_wider_than_its_window(
    tab: Tab, page: str, scheme: str, width: int
) -> None:
    tab.emulate(scheme=scheme, width=width)
    tab.go(page)
    found = tab.ask(CONTRAST)
    assert found["texts"] > 30
    assert found["least"] >= 4.5
    assert found["ours"] >= 3
    assert (found["page"] > 0.8) if scheme == "light" else (found["page"] < 0.1)
    assert tab.ask(f"innerWidth === {width} && document.documentElement.scrollWidth <= innerWidth")


def test_the_page_asks_for_nothing_and_complains_of_nothing(tab: Tab, page: str) -> None:
    tab.go(page)
    assert tab.requests == [page]
    assert tab.complaints == []
    assert tab.ask("document.title") == "Lakemark: 200,000 flights"
    assert tab.ask("document.querySelectorAll('h3')[1].textContent") == MARKUP


def test_bars_have_the_lengths_of_what_was_measured(tab: Tab, page: str) -> None:
    tab.emulate(scheme="light", width=1200)
    tab.go(page)
    widths = tab.ask(f"[...{WIDTHS}].map(bar => bar.getBoundingClientRect().width)")
    longest = max(widths)
    assert longest > 100
    expected = [cost.milliseconds / 40 for cost in results().asked[0].costs.values()]
    assert [width / longest for width in widths] == pytest.approx(expected, abs=0.01)


def test_squares_are_filled_where_pages_are_read_and_nowhere_else(tab: Tab, page: str) -> None:
    tab.go(page)
    filled = """(at => [...Array(at.pages).keys()].filter(number => {
        const path = document.querySelectorAll('svg.pages')[at.query].querySelector('path');
        const [column, row] = [number % at.inRow, Math.floor(number / at.inRow)];
        return path.isPointInFill(new DOMPoint((column + 0.4) * at.cell, (row + 0.4) * at.cell));
    }).join())"""
    for query, pages_read in ((0, ()), (1, PAGES_READ)):
        at = f"{{pages: 200, inRow: {demo_page.CELLS_IN_A_ROW}, cell: {demo_page.CELL}, query: {query}}}"
        assert tab.ask(f"'pages ' + {filled}({at})") == "pages " + ",".join(map(str, pages_read))

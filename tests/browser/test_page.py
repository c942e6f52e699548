"""The page of `lakemark serve` in the real Chromium: `make test-browser`, with a browser of its own, not in CI."""

from __future__ import annotations

import json
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import adbc_driver_flightsql.dbapi
import pytest

import lakemark
from serving import PATIENCE, ROWS, Server, serve, write_flights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chromium import Tab

# Markup that would show itself if any of it came into the page as markup.
MARKUP = '<script>document.title = "mine"</script><img src=x onerror=alert(1)><b id=mine>\'\' & "</b></td></table>'
LONG = f"SELECT value, '{MARKUP}' || repeat('x', 1000) AS x FROM generate_series(1, 10000000)"
METER = (
    "[...document.querySelectorAll('#tables div')].find(div => div.textContent.startsWith('by_carrier')).children[0]"
)
CELLS = "[...document.querySelectorAll('#tables tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Flights of which an index covers a part, and which take updates."""
    folder = tmp_path / "flights"
    write_flights(folder)
    table = lakemark.Table(folder)
    table.create_index("carrier", name="by_carrier", progress=False)
    write_flights(folder, first=ROWS)
    table.declare_key("number", progress=False)
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serve(f"flights={folder}", "--http", "0") as server:
        yield server
        assert server.end() == 0


@pytest.fixture
def page(server: Server) -> str:
    return server.page()


@contextmanager
def running(server: Server, statement: str) -> Iterator[None]:
    """A query of which some rows were read, and the others are waited for."""
    with (
        adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
        cursor.fetchone()
        yield


def change(server: Server, statement: str) -> None:
    with (
        adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
        cursor.fetchall()


def test_the_page_shows_tables_and_what_their_indexes_cover(tab: Tab, page: str, server: Server, folder: Path) -> None:
    tab.go(page)
    (index,) = [index for index in lakemark.Table(folder).indexes if index.name == "by_carrier"]
    assert 0 < index.coverage < 1
    ((name, place, files, rows, indexes, pending),) = tab.ask(CELLS)
    assert (name, files, rows) == ("flights", "2", str(2 * ROWS))
    assert str(folder) in place
    assert f"{math.floor(index.coverage * 100)}%" in indexes
    assert pending.startswith("0 keys in the buffer")
    assert tab.ask(f"{METER}.value") == pytest.approx(index.coverage)
    assert tab.ask("document.querySelector('#running').textContent") == "Nothing runs."
    assert server.url in tab.ask("document.body.textContent")
    assert tab.ask("document.title") == "Lakemark"
    # The policy lets the page have its look.
    assert tab.ask("getComputedStyle(document.querySelector('table')).borderCollapse") == "collapse"
    assert tab.ask(f"{METER}.getBoundingClientRect().width") > 0
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    assert tab.complaints == []


def test_the_page_shows_updates_that_are_pending(tab: Tab, page: str, server: Server, folder: Path) -> None:
    change(server, "INSERT INTO flights (number, carrier) VALUES (900001, 'XX'), (900002, 'XX')")
    change(server, "DELETE FROM flights WHERE number = 5")
    tab.go(page)
    *_, rows, _, pending = tab.ask(CELLS)[0]
    assert rows == str(2 * ROWS + 1)
    assert pending.startswith("3 keys in the buffer, 0 runs")
    lakemark.Table(folder).flush()
    tab.go(page)
    *_, pending = tab.ask(CELLS)[0]
    assert pending.startswith("0 keys in the buffer, 1 runs")
    assert tab.complaints == []


def test_a_statement_is_shown_as_text_whatever_is_written_in_it(tab: Tab, page: str, server: Server) -> None:
    with running(server, LONG):
        tab.go(page)
        statement, client, seconds, rows = tab.ask(
            "[...document.querySelectorAll('#running tbody tr')[0].cells].map(cell => cell.textContent)"
        )
        assert statement == LONG
        assert client.startswith("127.0.0.1:")
        assert float(seconds) >= 0
        assert int(rows) > 0
        assert tab.ask("document.querySelectorAll('#running tbody tr').length") == 1
        assert tab.ask("[document.scripts.length, document.images.length]") == [0, 0]
        assert tab.ask("document.querySelector('#mine')") is None
        assert tab.ask("document.title") == "Lakemark"
        # What comes behind it is still where it belongs.
        assert tab.ask(CELLS)[0][0] == "flights"
        assert "1 running" in tab.ask("document.querySelector('p').textContent")
    assert tab.complaints == []
    assert [url for url in tab.requests if url not in (page, "data:,")] == []


def test_the_page_comes_anew_by_itself(tab: Tab, page: str, server: Server) -> None:
    tab.go(page)
    assert tab.ask("document.querySelector('#running').textContent") == "Nothing runs."
    # What a page was given is gone with it.
    tab.ask("window.first = true")
    with running(server, "SELECT value, repeat('y', 1000) AS y FROM generate_series(1, 10000000)"):
        tab.until("!window.first && document.querySelector('#running').textContent.includes('generate_series')")
    tab.until("document.querySelector('#running').textContent === 'Nothing runs.'")
    assert tab.complaints == []


def test_the_page_leads_to_the_counters_and_the_health(tab: Tab, page: str) -> None:
    for path, says in (("metrics", "lakemark_statements_total"), ("health", "serving")):
        tab.go(page)
        tab.ask(f"document.querySelector('a[href=\"/{path}\"]').click()")
        tab.until(f"location.pathname === '/{path}' && document.body.textContent.includes({json.dumps(says)})")


def test_the_browser_runs_no_script_and_loads_nothing_that_came_into_the_page(tab: Tab, page: str) -> None:
    tab.go(page)
    assert tab.complaints == []
    came = """new Promise(done => {
        const script = document.createElement('script'), image = document.createElement('img');
        script.textContent = 'window.ran = true';
        for (const what of ['load', 'error'])
            image.addEventListener(what, () => done([what, window.ran === true]));
        image.src = '/favicon.ico';
        document.body.append(script, image);
    })"""
    assert tab.ask(came) == ["error", False]
    # The browser says that it was kept from both: this is how the tests above would hear of it.
    deadline = time.monotonic() + PATIENCE
    while sum("Content Security Policy" in complaint for complaint in tab.complaints) < 2:
        assert time.monotonic() < deadline, tab.complaints
        time.sleep(0.05)

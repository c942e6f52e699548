"""A table that changes while a second process counts its rows.

```text
this process     insert 100 flights ─▶ … ─▶ insert 100 flights ─▶ migrate ─▶ publish
the other one    count, count, count, …                           DuckDB sees them now
```

A call that adds rows is seen as a whole or not at all: every count is the first one and a number of whole changes, and
none is less than the count before it.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from demo_results import Count, Live
from demo_table import KEY, Flights

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    import lakemark

#: Rows that one change adds.
STEP = 100
#: Seconds between two changes, so that somebody may watch.
PAUSE = 0.05


class Reader:
    """A process that counts rows, and what it has counted so far."""

    def __init__(self, folder: Path, condition: str) -> None:
        program = Path(__file__).with_name("demo_reader.py")
        self._process = subprocess.Popen(
            [sys.executable, program, folder, condition], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._counts: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self._ended = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        # With its input it ends by itself, and with it what the listener reads.
        self._process.stdin.close()
        self._process.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._came:
                self._counts.append(json.loads(line))
                self._came.notify_all()
        with self._came:
            self._ended = True
            self._came.notify_all()

    def wait_for(self, is_seen: Callable[[int], bool]) -> int:
        """Waits for a count of which this is true, however long it takes; gives the count."""
        with self._came:
            self._came.wait_for(lambda: self._ended or (bool(self._counts) and is_seen(self._counts[-1]["rows"])))
            if self._ended:
                raise SystemExit("error: the process that counts rows came to an end")
            return int(self._counts[-1]["rows"])

    def counts(self, since: float) -> tuple[Count, ...]:
        """What it has counted, by the time since some other one."""
        with self._came:
            return tuple(Count(count["at"] - since, count["rows"]) for count in self._counts)


def arrivals(flights: Flights, first: int, count: int) -> dict[str, list[object]]:
    """New flights, as columns."""
    columns: dict[str, list[object]] = {name: [value] * count for name, value in flights.arrival.items()}
    return {KEY: list(range(first, first + count)), **columns}


def change(flights: Flights, table: lakemark.Table, changes: int, tell: Callable[[int, int], None]) -> Live:
    """Adds flights, a change after the other, while another process counts; then migrates and publishes them."""
    next_key = flights.rows + 1
    written: list[Count] = []
    with Reader(flights.folder, flights.watched) as reader:
        first = reader.wait_for(lambda _: True)
        began = time.monotonic()
        for number in range(changes):
            tell(number, changes)
            table.insert(arrivals(flights, next_key + number * STEP, STEP))
            written.append(Count(time.monotonic() - began, first + (number + 1) * STEP))
            time.sleep(PAUSE)
        reader.wait_for(lambda rows: rows >= first + changes * STEP)
        seen = reader.counts(began)
    tell(changes, changes)
    check(first, seen)
    before = counted_by_others(flights)
    table.migrate(publish=True, progress=False)
    return Live(flights.watched, STEP, tuple(written), seen, before, counted_by_others(flights))


def check(first: int, seen: tuple[Count, ...]) -> None:
    """Every count is that of whole changes, and no count goes back."""
    for earlier, later in itertools.pairwise(seen):
        if later.rows < earlier.rows:
            raise SystemExit(f"error: the other process saw {earlier.rows} rows and then {later.rows}")
    for count in seen:
        if (count.rows - first) % STEP:
            raise SystemExit(f"error: the other process saw {count.rows} rows, which is a part of a change")


def counted_by_others(flights: Flights) -> int:
    """What DuckDB counts in the data files, which knows nothing of buffered rows."""
    files = [str(path) for path in flights.files]
    found = duckdb.execute(f"SELECT count(*) FROM read_parquet({files}) WHERE {flights.watched}").fetchone()
    assert found is not None
    return int(found[0])

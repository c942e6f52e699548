"""The other ends of the sharing benchmark's processes, and the judge of what they answer."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import answers
import measure
from sharing_engines import open_duckdb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A way that says nothing for so long hangs.
HANGS_SECONDS = 1800.0
# DuckDB answers so many statements of a point, too: fast ways answer thousands, which would take it longer than them.
MOST_JUDGED = 64


class Way:
    """The process of a way."""

    def __init__(self, name: str, tables: Mapping[str, str]) -> None:
        self.name = name
        worker = str(Path(__file__).with_name("sharing_worker.py"))
        command = [sys.executable, worker, name, json.dumps(dict(tables))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=measure.environment()
        )
        opened = self._reply()
        self.refused: str | None = opened.get("refused")
        self.note: str = opened.get("note", "")

    def run(self, workload: str, point: int, turn: int, seconds: float) -> dict[str, Any]:
        """Measures a point once."""
        order = {"workload": workload, "point": point, "turn": turn, "seconds": seconds}
        if self._process.stdin is None:
            raise RuntimeError("the process takes no orders")
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError("the process has no output")
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if ready.select(HANGS_SECONDS) else ""
        if not line:
            self._process.kill()
            raise AssertionError(f"{self.name} ended, or hung for {HANGS_SECONDS:.0f} s")
        return dict(json.loads(line))

    def close(self) -> None:
        """Lets the process end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


class Judge:
    """The right answers: those of DuckDB to some statements of each point, to others those of whoever was first."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._ask = open_duckdb(tables).client()
        self._right: dict[str, Counter[tuple[Any, ...]]] = {}
        self._left = MOST_JUDGED
        self.judged = 0

    def begin(self) -> None:
        """The statements of another point follow."""
        self._left = MOST_JUDGED

    def check(self, way: str, given: Sequence[tuple[str, list[list[Any]]]]) -> None:
        """Every answer has the rows that it should have."""
        for text, rows in given:
            mine = as_rows(rows)
            if text not in self._right:
                self._right[text] = self._judged(text) if self._left else mine
            if not answers.is_close(mine, self._right[text]):
                right = sorted(map(str, self._right[text].elements()))
                raise AssertionError(f"{way} answers {rows}, not {right}: {text}")

    def _judged(self, text: str) -> Counter[tuple[Any, ...]]:
        """DuckDB's answer."""
        self._left -= 1
        self.judged += 1
        return as_rows(answers.plain_rows(answers.rows_of(self._ask(text))))

    @property
    def known(self) -> int:
        """How many different statements have an answer."""
        return len(self._right)


def as_rows(rows: list[list[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows in no order."""
    return Counter(map(tuple, rows))


def opened(names: Sequence[str], tables: Mapping[str, str]) -> tuple[list[Way], dict[str, str]]:
    """The ways that run here, and why the others do not."""
    ways, skipped = [], {}
    for name in names:
        way = Way(name, tables)
        if way.refused is None:
            ways.append(way)
        else:
            way.close()
            skipped[name] = way.refused
            print(f"{name} is left out: {way.refused}")
    return ways, skipped

"""The engines that are asked side by side, in one process and over the same files, and what a query costs each of them.

All of them run in turn, so that a noisy second falls on all. A first round is not counted: it warms caches and checks
that all engines give the same rows. Footers and directories of indexes stay in memory, and selections do not.
"""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import datafusion
import duckdb

import lakemark
from demo_pages import Pages, pages_of
from demo_results import OURS, Asked, Cost
from demo_table import KEY, Flights, Question

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    Row = tuple[object, ...]
    Ask = Callable[[str], list[Row]]

DUCKDB = "DuckDB"
DATAFUSION = "DataFusion"
OFF = f"{OURS}, index off"


def process_read_bytes() -> int:
    """Bytes that this process has read from files, out of the page cache or from the disk."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, value = line.split(": ")
        if name == "rchar":
            return int(value)
    raise SystemExit("error: /proc/self/io has no rchar, by which the demo counts bytes: run it on Linux")


def looking_bytes() -> int:
    """Bytes that a look at this number reads itself."""
    before = process_read_bytes()
    return process_read_bytes() - before


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a table, in an order of their own."""
    return in_order(list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def in_order(rows: list[Row]) -> list[Row]:
    """Rows in an order that goes by their values alone."""
    return sorted(rows, key=repr)


def sessions(folder: Path) -> dict[str, lakemark.Session]:
    """Two sessions over the table: one goes by the indexes, the other does not."""
    found = {}
    for name, use_index in ((OURS, "true"), (OFF, "false")):
        session = lakemark.connect()
        session.table(folder, name="flights")
        session.sql(f"SET lakemark.use_index = {use_index}")
        session.sql("SET lakemark.selection_cache = false")
        found[name] = session
    return found


def engines(flights: Flights, ours: dict[str, lakemark.Session]) -> dict[str, Ask]:
    """Every engine by its name: a function from a statement to its rows."""
    files = [str(path) for path in flights.files]
    context = datafusion.SessionContext()
    context.register_parquet("flights", str(flights.folder))
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW flights AS SELECT * FROM read_parquet({files})")
    by_session: dict[str, Ask] = {
        name: lambda sql, session=session: rows_of(session.sql(sql).to_arrow()) for name, session in ours.items()
    }
    return {
        **by_session,
        DATAFUSION: lambda sql: rows_of(context.sql(sql).to_arrow_table()),
        DUCKDB: lambda sql: in_order(connection.execute(sql).fetchall()),
    }


def measured(asks: dict[str, Ask], sql: str, rounds: int) -> tuple[int, dict[str, Cost]]:
    """Asks a query of every engine in every round; gives the number of its rows, and what it cost each engine."""
    answers = {name: ask(sql) for name, ask in asks.items()}
    expected = answers[OURS]
    for name, rows in answers.items():
        if rows != expected:
            raise SystemExit(f"error: {name} gives other rows than {OURS} for {sql}\n{rows}\n{expected}")
    names, own = list(asks), looking_bytes()
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            read, began = process_read_bytes(), time.perf_counter()
            asks[name](sql)
            seconds = time.perf_counter() - began
            costs[name].append(Cost(seconds * 1e3, max(0, process_read_bytes() - read - own)))
    return len(expected), {name: _median(found) for name, found in costs.items()}


def _median(costs: list[Cost]) -> Cost:
    milliseconds = statistics.median(cost.milliseconds for cost in costs)
    return Cost(milliseconds, round(statistics.median(cost.bytes_read for cost in costs)))


def ask_all(flights: Flights, rounds: int, tell: Callable[[int, int], None]) -> tuple[Asked, ...]:
    """Asks all questions of all engines; `tell` is given how many are done, and how many there are."""
    ours = sessions(flights.folder)
    asks, pages = engines(flights, ours), pages_of(flights.files, KEY)
    found = []
    for question in flights.questions:
        tell(len(found), len(flights.questions))
        rows, costs = measured(asks, question.sql, rounds)
        read = pages_read(flights, pages, question, ours[OURS])
        found.append(Asked(question.name, question.sql, rows, costs, pages.total, read))
    tell(len(found), len(flights.questions))
    return tuple(found)


def pages_read(flights: Flights, pages: Pages, question: Question, session: lakemark.Session) -> tuple[int, ...]:
    """The pages of a column that a query reads with the indexes.

    A scan whose rows are known reads the pages that hold one of them, which DuckDB finds. If the indexes left files to
    a scan, all pages count. All columns of these tables have the same rows in a page.
    """
    plan = "\n".join(row["plan"] for row in session.sql(f"EXPLAIN ANALYZE {question.sql}").to_arrow().to_pylist())
    if not metric(plan, "bytes_scanned"):
        # The answer came from the indexes alone.
        return ()
    if metric(plan, "files_scanned"):
        return tuple(range(pages.total))
    found: set[int] = set()
    connection = duckdb.connect()
    for place, path in enumerate(flights.files):
        source = f"read_parquet('{path}', file_row_number = true)"
        where = f"WHERE {question.where}" if question.where else ""
        rows = connection.execute(f"SELECT file_row_number FROM {source} {where}").fetchall()
        found |= pages.of_rows(place, (row for (row,) in rows))
    return tuple(sorted(found))


def metric(plan: str, name: str) -> float:
    """A metric of EXPLAIN ANALYZE, summed over the operators of a plan; 0 if none of them has it.

    Large numbers are rounded in a plan, so that this tells nothing from something.
    """
    units = {"": 1, "K": 1e3, "M": 1e6, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
    found = re.findall(rf"\b{name}=([\d.]+)(?: ([KMG]?B?))?", plan)
    return sum(float(number) * units.get(unit.strip(), 1) for number, unit in found)


def versions() -> dict[str, str]:
    """The versions of the engines."""
    return {OURS: lakemark.__version__, DATAFUSION: datafusion.__version__, DUCKDB: duckdb.__version__}

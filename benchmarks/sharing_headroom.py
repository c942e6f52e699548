"""What row sets predict for each level of sharing, before anything is measured.

The row set of a statement is what exact indexes find: the rows of the fact that its own conditions and its dimensions
leave. DuckDB finds them here, row group by row group, as reports of ours have their number alone; where `explain`
knows that number it has to be the same. `sharing_model` says what a shared decode saves of reading them. What scans and
joins take of a query's CPU comes from `EXPLAIN ANALYZE` over the engine's own tables.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import savable
from sharing_engines import ENGINE, open_way
from sharing_model import Costs, Wanted, Work, piece, predicted

import lakemark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sharing_model import Mask
    from sharing_queries import Statement

Sum = TypeVar("Sum", Costs, Work)

JOIN = "HashJoinExec"
# Row sets of more statements than these take too long to find.
MOST_STATEMENTS = 64
# Nanoseconds to decode a value, as `rust/table/src/options.rs` has them.
DECODE_NUMBER, DECODE_TEXT = 4.0, 12.0
# A list of more keys than this is no condition that anybody would write.
MOST_KEYS = 10_000


class Headroom:
    """Predicts what sharing saves over tables, of which some are indexed."""

    def __init__(self, tables: Mapping[str, str], indexed: Sequence[str]) -> None:
        self._tables = tables
        self._connection = duckdb.connect()
        for name, folder in tables.items():
            self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{folder}/*.parquet')")
        self._indexed = {name: lakemark.Table(tables[name]) for name in indexed}
        self._ask = open_way(ENGINE, tables).client()
        self._work: dict[str, Work] = {}

    def predict(self, statements: Sequence[Statement]) -> dict[str, Any] | None:
        """What is predicted of statements that are asked at once; none of one, of too many, or of unknown row sets."""
        distinct = list(dict.fromkeys(statements))
        if len(statements) == 1 or len(distinct) > MOST_STATEMENTS or not all(each.fact for each in distinct):
            return None
        by_fact = {fact: [each for each in distinct if each.fact == fact] for fact in {each.fact for each in distinct}}
        scans = {fact: self._scan_costs(fact, asked) for fact, asked in by_fact.items()}
        of_fact = [(self._work_of(asked), scans[fact][0]) for fact, asked in by_fact.items()]
        work = self._work_of(statements)
        together = sum_of((costs for costs, _ in scans.values()), Costs())
        return {
            "statements": len(statements),
            "distinct": len(distinct),
            "known_to_indexes": sum(known for _, known in scans.values()),
            **asdict(together),
            "bound": together.bound,
            "scan_share": work.scans / work.total,
            "join_share": work.joins / work.total,
            "cpu": predicted(work, self._work_of(distinct), of_fact),
        }

    def _scan_costs(self, fact: str, asked: Sequence[Statement]) -> tuple[Costs, int]:
        """What the statements cost of all pieces of the fact, and how many row sets the indexes know as a whole."""
        files = sorted(Path(self._tables[fact]).glob("*.parquet"))
        decode = decode_costs(files[0])
        columns = [{column: decode[column] for column in each.columns} for each in asked]
        found, costs = [0] * len(asked), Costs()
        for file in files:
            rows = row_groups(file)
            masks = [self._mask(file, sum(rows), each) for each in asked]
            found = [count + int(mask.sum()) for count, mask in zip(found, masks, strict=True)]
            for first, last in pairwise(accumulate(rows, initial=0)):
                wanted = [Wanted(mask[first:last], read) for mask, read in zip(masks, columns, strict=True)]
                costs = costs.plus(piece(wanted))
        return costs, sum(self._is_known(each, count) for each, count in zip(asked, found, strict=True))

    def _mask(self, file: Path, rows: int, asked: Statement) -> Mask:
        """Which rows of a file a statement wants."""
        source = f"read_parquet('{file}', file_row_number=true)"
        sql = f"SELECT file_row_number AS place FROM {source} WHERE {' AND '.join(asked.conditions)}"
        mask = np.zeros(rows, dtype=np.bool_)
        mask[self._connection.execute(sql).fetchnumpy()["place"]] = True
        return mask

    def _is_known(self, asked: Statement, count: int) -> bool:
        """Whether the indexes know all rows of a statement; then they have to be as many."""
        table = self._indexed.get(asked.fact)
        conditions = [self._with_keys(condition) for condition in asked.conditions]
        if table is None or None in conditions:
            return False
        report = table.explain(" AND ".join(str(each) for each in conditions))
        is_known = report.files_scanned == 0 and report.rows_rechecked == 0
        if is_known and report.rows_exact != count:
            raise AssertionError(f"indexes find {report.rows_exact} rows and not {count}: {asked.sql}")
        return is_known

    def _with_keys(self, condition: str) -> str | None:
        """A condition with the keys in place of their subquery; none if there are too many."""
        column, found, subquery = condition.partition(" IN (SELECT ")
        if not found:
            return condition
        keys = self._connection.execute(f"SELECT {subquery.removesuffix(')')}").fetchall()
        if len(keys) > MOST_KEYS:
            return None
        return f"{column} IN ({', '.join(str(key) for (key,) in keys)})" if keys else "false"

    def _work_of(self, statements: Sequence[Statement]) -> Work:
        """What statements take of CPU, each as much as the first one of its template did."""
        for each in statements:
            if each.template not in self._work:
                self._work[each.template] = work(savable.operator_seconds(self._ask, each.sql), each.fact)
        return sum_of((self._work[each.template] for each in statements), Work())


def work(operators: Sequence[tuple[str, float]], fact: str) -> Work:
    """What a query takes: in all, for the scan of its fact, and for joins."""
    found = Work()
    for operator, seconds in operators:
        is_scan = operator.startswith(savable.SCAN) and f"/{fact}/" in operator
        is_join = operator.startswith(JOIN)
        found = found.plus(Work(seconds, seconds if is_scan else 0.0, seconds if is_join else 0.0))
    return found


def sum_of(parts: Iterable[Sum], none: Sum) -> Sum:
    """All of them together."""
    for part in parts:
        none = none.plus(part)
    return none


def decode_costs(file: Path) -> dict[str, float]:
    """For each column of a file the nanoseconds to decode a value."""
    return {
        field.name: DECODE_TEXT if pa.types.is_string(field.type) or pa.types.is_binary(field.type) else DECODE_NUMBER
        for field in pq.read_schema(file)
    }


def row_groups(file: Path) -> list[int]:
    """The rows of each row group of a file."""
    metadata = pq.read_metadata(file)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

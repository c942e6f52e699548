"""The share of a query's CPU that row sets could save at most: all that its scans and the filters over them cost.

The shares come from `EXPLAIN ANALYZE` over the engine's own tables. Decoding is counted where the query still needs
some of the rows, so that the share is an upper bound.
"""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

SCAN, FILTER = "DataSourceExec", "FilterExec"
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
# A scan gives the time to decode, any operator its own.
TIME = re.compile(r"\b(?:elapsed_compute|time_elapsed_processing)=([0-9.]+)(ns|µs|ms|s)\b")


def operator_seconds(ask: Callable[[str], pa.Table], sql: str) -> list[tuple[str, float]]:
    """The operators of the query as the plan has them, each with the time of one core that it took."""
    plan = ask(f"EXPLAIN ANALYZE {sql}").to_pylist()[0]["plan"]
    return [
        (operator.lstrip(), sum(float(number) * SECONDS[unit] for number, unit in TIME.findall(operator)))
        for operator in plan.splitlines()
    ]


def savable_share(ask: Callable[[str], pa.Table], sql: str) -> float:
    """What scans and filters take of the time that all operators of the query take, from 0 to 1."""
    operators = operator_seconds(ask, sql)
    total = sum(seconds for _, seconds in operators)
    savable = sum(seconds for operator, seconds in operators if operator.startswith((SCAN, FILTER)))
    return savable / total if total else 0.0


def reachable_ratio(results: Iterable[dict[str, Any]]) -> float:
    """The geometric mean of the ratios to the engine's time if half of what row sets could save is saved."""
    return statistics.geometric_mean(1 - found["savable"] / 2 for found in results if "savable" in found)

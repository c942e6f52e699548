"""What the demo prints: a table of the queries, one of Spark's, and what became of the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo_results import Asked, AskedOfSpark, Live, Results


def printed(results: Results) -> str:
    """All of it as text."""
    parts = [
        f"{results.rows:,} {results.title}: {results.data_bytes:,} bytes, {results.index_bytes:,} bytes of indexes",
        "Asked of all engines in turn, over the same files; medians, nothing remembered",
        text_table(asked_rows(results.asked)),
    ]
    if results.machine.profile != "release":
        parts.append(
            "Lakemark is a development build here, beside releases; make demo PROFILE=release measures a release."
        )
    if results.spark:
        parts += ["From PySpark", text_table(spark_rows(results.spark))]
    return "\n\n".join([*parts, live_text(results.live)])


def asked_rows(asked: Sequence[Asked]) -> list[list[str]]:
    """A line for each query, and below it one for each engine."""
    rows = [["", "rows", "ms", "bytes read", "pages read"]]
    for query in asked:
        rows.append([query.name, f"{query.rows:,}", "", "", ""])
        for place, (engine, cost) in enumerate(query.costs.items()):
            pages = f"{len(query.pages_read):,} of {query.pages:,}" if place == 0 else ""
            rows.append([f"  {engine}", "", f"{cost.milliseconds:,.1f}", f"{cost.bytes_read:,}", pages])
    return rows


def spark_rows(asked: Sequence[AskedOfSpark]) -> list[list[str]]:
    """A line for each query of Spark."""
    rows = [["", "rows", "ms, index off", "ms", "row groups"]]
    for query in asked:
        without, with_index = query.milliseconds
        rows.append([query.name, f"{query.rows:,}", f"{without:,.0f}", f"{with_index:,.0f}", query.row_groups])
    return rows


def live_text(live: Live) -> str:
    """What became of the changes."""
    added = len(live.written) * live.step
    return (
        f"Added {added:,} rows in {len(live.written)} changes while another process counted {len(live.seen)} times; "
        f"each count was one of whole changes.\n"
        f"DuckDB counts {live.others_before:,} rows in the data files before they are migrated and published, and "
        f"{live.others_after:,} after."
    )


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Draws a table: the first row is its head, the first column is of text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)

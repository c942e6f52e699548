"""What a run of the demo may have found out, made up: for tests of its table and of its page."""

from __future__ import annotations

from demo_results import Asked, AskedOfSpark, Cost, Count, Live, Machine, Results

#: Names and texts come as they are, also where they look like markup.
MARKUP = "<b>few</b> & \"rare\" <script>document.title = 'mine'</script>"
PAGES_READ = (0, 79, 80, 199)


def results(*, with_spark: bool = True) -> Results:
    """A run over 200 pages, whose second query reads four of them."""
    costs = {
        "Lakemark": Cost(1.0, 100),
        "Lakemark, index off": Cost(40.0, 4000),
        "DataFusion": Cost(20.0, 4000),
        "DuckDB": Cost(10.0, 5000),
    }
    asked = (
        Asked("count", "SELECT count(*) FROM flights WHERE a = 1", 1, costs, 200, ()),
        Asked(MARKUP, "SELECT a FROM flights WHERE a < 2 AND b > 3", 7, costs, 200, PAGES_READ),
    )
    written = tuple(Count(0.1 * number, 50 + 10 * number) for number in (1, 2, 3))
    seen = tuple(Count(0.05 * number - 0.1, 50 + 10 * min(3, number // 2)) for number in range(8))
    return Results(
        title="flights of <nowhere>",
        rows=200_000,
        data_bytes=1 << 20,
        index_bytes=1 << 18,
        indexed=("a", "b"),
        build_seconds=0.5,
        machine=Machine(2, "dev", {"Lakemark": "0.1.0", "DataFusion": "55.0.0", "DuckDB": "2.0.1"}),
        asked=asked,
        live=Live("a = '<1>'", 10, written, seen, 50, 80),
        spark=(AskedOfSpark("count", 1, (300.0, 100.0), "all skipped: no scan"),) if with_spark else (),
    )

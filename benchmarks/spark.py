"""Queries in Spark beside plain Parquet, Delta and Iceberg, on the same files: `make bench NAME=spark ROWS=10000000`.

| part | what runs |
|---|---|
| counts | the 75 counts of the Set Query Benchmark, with an index on each of its 13 columns |
| lookups | rows by a permuted key, one at a time and twenty at once, by the kind `key` |
| joins | a star whose dimensions are filtered: one stands in the order of the facts, one in no order |
| tpch | the 22 queries of TPC-H, with indexes on the columns that they filter by |
| ssb | the 13 queries of the Star Schema Benchmark, with indexes on the lines' columns that are filtered or joined by |
| tpcds | the queries of TPC-DS that Spark takes, indexed as in `suites.py`, also by Spark's own scans with indexes |
| planning | one row of a table of 10,000 files, beside plain Parquet, and how much of it is planning |
| build | an index on each of four columns as a job, on one core and on two, in processes of their own |

Each query runs on every format in turn, its answers are equal, and a first round warms all of them. What seems slower
than Parquet runs nine rounds with Parquet beside itself, then 27, and counts as slower as in `suites.py`. Parts are
added to the results of an earlier run with the same rows and scale.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keys_table
import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import spark_build
import sqb_table
import ssb
import tpc
from kept import kept
from pyspark.errors import PySparkException
from spark_formats import EXTENSION, FORMATS, indexed, known_as
from suites import CHECKED_ROUNDS, FACT_ROWS, is_condition, is_longer, pair_ratio
from updates_spark import session

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    Query = Callable[[str], str]
    """The text of a query for a format."""

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
QUERIES = ("counts", "lookups", "joins", "tpch", "ssb", "tpcds")
PARTS = (*QUERIES, "planning", "build")
BASE, AGAIN = "parquet", "parquet again"
FILES = 16
LOOKUPS = 20
DAYS, PRODUCTS = 1000, 10_000
PLANNED_FILES, PLANNED_ROWS = 10_000, 100
# What the queries of TPC-H filter by.
TPCH_INDEXES = {
    "lineitem": ("l_shipdate", "l_discount", "l_quantity", "l_returnflag", "l_shipmode"),
    "orders": ("o_orderdate", "o_orderstatus"),
    "customer": ("c_mktsegment",),
    "part": ("p_brand", "p_size", "p_container"),
}
SSB_INDEXES = {
    "lineorder": ("lo_orderdate", "lo_custkey", "lo_suppkey", "lo_partkey", "lo_discount", "lo_quantity"),
    "dates": ("d_year", "d_yearmonthnum"),
    "customer": ("c_city", "c_nation", "c_region"),
    "supplier": ("s_city", "s_nation", "s_region"),
    "part": ("p_brand1", "p_category", "p_mfgr"),
}


@dataclass(frozen=True)
class Formats:
    """The formats that queries run on, in one session."""

    spark: SparkSession
    names: tuple[str, ...]
    scratch: Path

    def know(self, name: str, folder: Path) -> None:
        """Lets queries name the files of a folder as the views `<format>_<name>`."""
        for kind in self.names:
            known_as(self.spark, kind, name, folder, self.scratch)


def plain(value: object) -> object:
    """A value that can be compared between formats, which add floats in different orders."""
    if isinstance(value, (float, Decimal)):
        return float(f"{float(value):.9g}")
    return value.isoformat() if isinstance(value, date) else value


def ask(spark: SparkSession, sql: str) -> tuple[list[tuple[object, ...]], float]:
    """The rows of an answer in an order of their own, and the seconds that it took."""
    began = time.perf_counter()
    rows = spark.sql(sql).collect()
    seconds = time.perf_counter() - began
    comparable = [tuple(plain(value) for value in row) for row in rows]
    return sorted(comparable, key=lambda row: [(value is None, str(value)) for value in row]), seconds


@dataclass(frozen=True)
class Compared:
    """What queries took on each format."""

    seconds: dict[str, dict[str, float]]
    """Median wall seconds as [query][format]."""
    slower: dict[str, dict[str, float]]
    """Of queries that are slower than on plain Parquet: how many times as long they take, as [query][format]."""


def compare(
    queries: dict[str, Query], formats: Formats, rounds: int, compared: Compared, keep: Callable[[Compared], None]
) -> None:
    """Runs the queries on all formats, after a round that warms; the answers of all formats are equal.

    What is measured is entered in `compared`, and kept after each query.
    """
    ours = [kind for kind in formats.names if kind in ("lakemark", EXTENSION)]
    for name, sql in queries.items():
        taken = take_rounds(name, sql, formats, formats.names, rounds)
        slower = [kind for kind in ours if is_longer(taken[kind], taken[BASE])]
        for enough in CHECKED_ROUNDS:
            if not slower:
                break
            taken = take_rounds(name, sql, formats, (*formats.names, AGAIN), max(rounds, enough))
            is_noise = is_longer(taken[AGAIN], taken[BASE])
            slower = [kind for kind in ours if not is_noise and is_longer(taken[kind], taken[BASE])]
        seconds = {kind: statistics.median(taken[kind]) for kind in formats.names}
        compared.seconds[name] = seconds
        compared.slower.pop(name, None)
        if slower:
            compared.slower[name] = {kind: pair_ratio(taken[kind], taken[BASE]) for kind in slower}
        # All of them take a while.
        shown = ", ".join(f"{kind} {each * 1e3:.0f} ms" for kind, each in seconds.items())
        remarks = "".join(f"; {kind} SLOWER, {times:.2f}" for kind, times in compared.slower.get(name, {}).items())
        print(f"{name}: {shown}{remarks}", flush=True)
        keep(compared)


def take_rounds(name: str, sql: Query, formats: Formats, kinds: tuple[str, ...], rounds: int) -> dict[str, list[float]]:
    """Wall seconds of each round as [format][round], without the round that warms."""
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for turn in range(rounds + 1):
        answers = {}
        for kind in measure.in_turn(kinds, turn):
            answers[kind], took = ask(formats.spark, sql(BASE if kind == AGAIN else kind))
            seconds[kind].append(took)
        measure.check_equal(name, answers)
    return {kind: taken[1:] for kind, taken in seconds.items()}


def counts(formats: Formats, rows: int) -> dict[str, Query]:
    """The Set Query Benchmark."""
    folder = CACHE / f"sqb-{rows}"
    sqb_table.write_table(folder, rows)
    indexed(folder, sqb_table.COLUMNS, using="bitmap")
    formats.know("bench", folder)
    texts = {name: sql.replace('"', "`") for name, sql in sqb_table.queries().items()}
    return {name: lambda kind, sql=sql: sql.replace("FROM bench", f"FROM {kind}_bench") for name, sql in texts.items()}


def lookups(formats: Formats, rows: int) -> dict[str, Query]:
    """Rows by a key that stands in no order."""
    folder = CACHE / f"spark-lookups-{rows}"
    write_files(folder, rows, lambda part: {"key": keys_table.permuted(part, rows)})
    indexed(folder, ["key"], using="key")
    formats.know("rows", folder)
    keys = np.random.default_rng(3).integers(0, rows, LOOKUPS)
    queries: dict[str, Query] = {
        f"one key {number}": lambda kind, key=key: f"SELECT * FROM {kind}_rows WHERE key = {key}"
        for number, key in enumerate(keys)
    }
    several = ", ".join(map(str, keys))
    queries["keys in a list"] = lambda kind: f"SELECT * FROM {kind}_rows WHERE key IN ({several})"
    queries["no such key"] = lambda kind: f"SELECT * FROM {kind}_rows WHERE key = {rows + 7}"
    return queries


def joins(formats: Formats, rows: int) -> dict[str, Query]:
    """Facts joined with selected days, in whose order they stand, and with selected products, which are anywhere."""
    folder = CACHE / f"spark-facts-{rows}"
    each_day = max(rows // DAYS, 1)
    write_files(folder, rows, lambda part: {"day": part // each_day, "product": part * 7919 % 99_991 % PRODUCTS})
    indexed(folder, ["day", "product"])
    formats.know("facts", folder)
    days, products = np.arange(-(-rows // each_day)), np.arange(PRODUCTS)
    for name, dimension in (
        ("days", {"day": days, "week": days // 7, "holiday": days % 91 == 5}),
        ("products", {"product": products, "brand": products // 2}),
    ):
        place = formats.scratch / name
        place.mkdir(parents=True)
        pq.write_table(pa.table(dimension), place / "part-0.parquet")
        formats.spark.read.parquet(str(place)).createOrReplaceTempView(name)
    asked = {
        "a week": "JOIN days d ON f.day = d.day WHERE d.week = 17",
        "a brand": "JOIN products p ON f.product = p.product WHERE p.brand = 1234",
        "a week and brands": (
            "JOIN days d ON f.day = d.day JOIN products p ON f.product = p.product "
            "WHERE d.week = 17 AND p.brand BETWEEN 1000 AND 1100"
        ),
    }
    return {
        f"join, {name}": lambda kind, text=text: f"SELECT count(*), sum(f.v0), max(f.v9) FROM {kind}_facts f {text}"
        for name, text in asked.items()
    }


def write_files(folder: Path, rows: int, of: Callable[[np.ndarray[Any, Any]], dict[str, Any]]) -> None:
    """Files with these columns and ten more of numbers. A complete table is kept."""
    with kept(folder) as is_missing:
        for number, part in enumerate(np.array_split(np.arange(rows), FILES) if is_missing else ()):
            values = {f"v{place}": part * 7919 % (place + 100_003) for place in range(10)}
            pq.write_table(
                pa.table({**of(part), **values}),
                folder / f"part-{number:02}.parquet",
                compression="zstd",
                write_page_index=True,
            )


def tpch_queries(formats: Formats, scale: float) -> dict[str, Query]:
    """TPC-H."""
    folder = CACHE / f"tpch-{scale:g}"
    texts = {f"Q{number}": sql for number, sql in enumerate(tpc.generate("tpch", folder, scale), 1)}
    return of_tables(formats, folder, tpc.tables(folder), TPCH_INDEXES, texts)


def ssb_queries(formats: Formats, scale: float) -> dict[str, Query]:
    """The Star Schema Benchmark."""
    folder = CACHE / f"ssb-{scale:g}"
    return of_tables(formats, folder, ssb.TABLES, SSB_INDEXES, ssb.generate(folder, scale))


def tpcds_queries(formats: Formats, scale: float) -> dict[str, Query]:
    """TPC-DS, without the queries that Spark refuses."""
    folder = CACHE / f"tpcds-{scale:g}"
    texts = {f"Q{number}": sql for number, sql in enumerate(tpc.generate("tpcds", folder, scale), 1)}
    tables = tpc.tables(folder)
    indexes = {}
    for name in tables:
        table = lakemark.Table(folder / name)
        is_fact = table.info().rows > FACT_ROWS
        indexes[name] = tuple(column for column in table.schema.names if not is_fact or is_condition(column))
    # Spark quotes names otherwise.
    quoted = {name: sql.replace('"', "`") for name, sql in texts.items()}
    queries = of_tables(formats, folder, tables, indexes, quoted)
    return {name: query for name, query in queries.items() if is_taken(formats.spark, name, query("parquet"))}


def is_taken(spark: SparkSession, name: str, sql: str) -> bool:
    """Whether Spark can plan a query; prints why not."""
    try:
        spark.sql(f"EXPLAIN {sql}").collect()
    except PySparkException as error:
        print(f"{name} is left out: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


def of_tables(
    formats: Formats, folder: Path, tables: Sequence[str], indexes: dict[str, tuple[str, ...]], texts: dict[str, str]
) -> dict[str, Query]:
    """Queries of several tables, which are views with the names that the queries have for them."""
    # Two benchmarks may have tables of one name.
    of = folder.name.split("-", maxsplit=1)[0]
    for table in tables:
        if table in indexes:
            indexed(folder / table, indexes[table])
        formats.know(f"{of}_{table}", folder / table)

    def text(kind: str, sql: str) -> str:
        formats.spark.conf.set("spark.lakemark.use_index", str(kind == EXTENSION).lower())
        for table in tables:
            formats.spark.table(f"{kind}_{of}_{table}").createOrReplaceTempView(table)
        return sql

    return {name: lambda kind, sql=sql: text(kind, sql) for name, sql in texts.items()}


def planning(spark: SparkSession, rounds: int) -> dict[str, float]:
    """Median seconds of finding one row in many files, and of planning that, each time from the path on."""
    folder, rows = CACHE / f"spark-files-{PLANNED_FILES}", PLANNED_FILES * PLANNED_ROWS
    with kept(folder) as is_missing:
        for number in range(PLANNED_FILES if is_missing else 0):
            key = keys_table.permuted(np.arange(number * PLANNED_ROWS, (number + 1) * PLANNED_ROWS), rows)
            pq.write_table(pa.table({"key": key, "value": key * 3}), folder / f"part-{number:05}.parquet")
    indexed(folder, ["key"], using="key")
    seconds: dict[str, list[float]] = {"lakemark": [], "parquet": [], "lakemark, planned": []}
    spark.conf.set("spark.lakemark.use_index", "false")
    for turn in range(rounds + 1):
        for kind in ("lakemark", "parquet"):
            began = time.perf_counter()
            frame = spark.read.format(kind).load(str(folder)).where(f"key = {turn * 7919}")
            if kind == "lakemark":
                frame._jdf.queryExecution().toRdd().getNumPartitions()  # noqa: SLF001 - nothing else plans alone
                seconds["lakemark, planned"].append(time.perf_counter() - began)
            found = [tuple(row) for row in frame.collect()]
            seconds[kind].append(time.perf_counter() - began)
            measure.check_equal(kind, {"found": found, "written": [(turn * 7919, turn * 7919 * 3)]})
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}


def groups(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds of groups of queries as [group][format]."""
    grouped: dict[str, dict[str, float]] = {}
    for part in QUERIES:
        for query, seconds in result.get(part, {}).items():
            flight = f"SSB {query.split('.')[0]}"
            named = {"counts": query.split()[0], "lookups": query.rstrip("0123456789 ")}
            named |= {"tpch": "TPC-H", "ssb": flight, "tpcds": "TPC-DS"}
            into = grouped.setdefault(named.get(part, query), dict.fromkeys(seconds, 0.0))
            for kind in seconds:
                into[kind] += seconds[kind]
    return grouped


def report(result: dict[str, Any]) -> None:
    """Prints the tables."""
    lines = [
        [
            name,
            *[f"{seconds[kind]:.2f} s" if kind in seconds else "" for kind in (*FORMATS, EXTENSION)],
            f"{seconds['parquet'] / seconds['lakemark']:.1f}",
        ]
        for name, seconds in groups(result).items()
    ]
    if lines:
        measure.print_table(["all queries of", *FORMATS, EXTENSION, "times faster than parquet"], lines)
    for part in [part for part in ("tpch", "ssb", "tpcds") if part in result]:
        for kind in ("lakemark", EXTENSION):
            worse = {name: row[kind] / row["parquet"] for name, row in result[part].items() if kind in row}
            highest = sorted(worse.items(), key=lambda one: -one[1])[:5]
            if highest:
                shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in highest)
                print(f"\n{part}, {kind} beside parquet, the highest: {shown}")
    if "planning" in result:
        seconds = result["planning"]
        measure.print_table(
            ["one row of 10,000 files", *seconds], [["", *[f"{taken:.2f} s" for taken in seconds.values()]]]
        )
    if "build" in result:
        one, two = (result["build"][cores] for cores in spark_build.CORES)
        measure.print_table(
            ["build", "one core", "two", "times"], [["job", f"{one:.2f} s", f"{two:.2f} s", f"{one / two:.2f}"]]
        )


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws how many times as long as Lakemark the others take."""
    grouped = groups(result)
    figure, axes = plt.subplots(figsize=(9, 4))
    width = 0.8 / (len(FORMATS) - 1)
    for number, kind in enumerate(FORMATS[1:]):
        heights = [seconds.get(kind, 0.0) / seconds["lakemark"] for seconds in grouped.values()]
        axes.bar([place + number * width for place in range(len(grouped))], heights, width, align="edge", label=kind)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(yscale="log", ylabel="time / time of Lakemark", title="Queries in Spark on the same Parquet files")
    axes.set_xticks([place + 0.4 for place in range(len(grouped))], list(grouped), rotation=30, ha="right")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def earlier(folder: Path, name: str, about: dict[str, Any]) -> dict[str, Any]:
    """The parts that an earlier run with the same rows and scale measured."""
    path = folder / f"{name}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    same = all(known.get(key) == about[key] for key in ("rows", "scale"))
    return {part: known[part] for part in (*PARTS, "slower") if part in known} if same else {}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the tables of all parts but tpch")
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor of TPC-H and SSB")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument(
        "--formats", nargs="*", choices=FORMATS[2:], default=FORMATS[2:], help="which beside plain Parquet"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--queries", default="", help="only these, such as Q48,Q64, beside what is known of the others")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    rows, scale, rounds, only = arguments.rows, arguments.scale, arguments.rounds, arguments.only
    chosen = {query for query in arguments.queries.split(",") if query}
    about: dict[str, Any] = {"machine": measure.machine(), "rows": rows, "scale": scale, "rounds": rounds}
    name = f"spark-{rows}-sf{scale:g}"
    result = {**about, **earlier(arguments.results, name, about)}
    scratch = CACHE / f"spark-{rows}"
    shutil.rmtree(scratch, ignore_errors=True)
    spark = session("4.1", scratch, accelerate=True)
    spark.conf.set("spark.lakemark.use_index", "false")
    named = (*FORMATS[:2], *arguments.formats)
    for part, queries in (
        ("counts", lambda formats: counts(formats, rows)),
        ("lookups", lambda formats: lookups(formats, rows)),
        ("joins", lambda formats: joins(formats, rows)),
        ("tpch", lambda formats: tpch_queries(formats, scale)),
        ("ssb", lambda formats: ssb_queries(formats, scale)),
        ("tpcds", lambda formats: tpcds_queries(formats, scale)),
    ):
        if part in only:
            # Other formats than plain Parquet do not run 99 queries.
            formats = Formats(spark, (*FORMATS[:2], EXTENSION) if part == "tpcds" else named, scratch)
            all_slower = result.setdefault("slower", {})
            known = Compared(result.get(part, {}), all_slower.get(part, {})) if chosen else Compared({}, {})

            def keep(compared: Compared, part: str = part) -> None:
                result[part], result["slower"][part] = compared.seconds, compared.slower
                measure.write_json(arguments.results, name, result)

            asked = {query: sql for query, sql in queries(formats).items() if not chosen or query in chosen}
            compare(asked, formats, rounds, known, keep)
    if "planning" in only:
        result["planning"] = planning(spark, rounds)
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)
    if "build" in only:
        folder = CACHE / f"spark-build-{rows}"
        spark_build.write_table(folder, rows)
        result["build"] = spark_build.build_seconds(folder, max(1, rounds // 2))
    report(result)
    measure.publish(arguments.results, name, result, plot)


if __name__ == "__main__":
    main()

"""Scans in Spark after updates, beside Delta, Iceberg, Hudi and Paimon: `make bench NAME=updates-spark ROWS=2000000`.

Each format holds the same records of 100 bytes. Then 1 and 5% of them, anywhere, are modified: by deletion vectors in
Delta, position deletes in Iceberg, logs in Hudi (merge on read), sorted runs in Paimon, buffered changes in Lakemark.
Measured is the scan of all columns after against before. Hudi and Paimon have no jar for the Spark that this project is
for. So they run in a process of its own with an older one (LAKEMARK_SPARK35_PYTHON). The ratio of each is to its own
scan before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
PEERS = Path(os.environ.get("LAKEMARK_SPARK_PEERS", Path.home() / ".cache" / "lakemark" / "spark-peers"))
SHARES = (0.01, 0.05)
VALUES = 12
COLUMNS = ", ".join(["k INT", *[f"v{number} BIGINT" for number in range(VALUES)]])
# Formats by the Spark that has jars of them.
FORMATS = {"4.1": ("parquet", "lakemark", "delta", "iceberg"), "3.5": ("parquet", "hudi", "paimon")}
SETTINGS = {
    "4.1": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.iceberg.type": "hadoop",
        # Delta reads its log by 50 tasks if nothing is said, which takes longer than these queries.
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "3.5": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension,"
        "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
    },
}
PATHS = ("parquet", "lakemark")
WAREHOUSES = {"iceberg": "spark.sql.catalog.iceberg.warehouse", "paimon": "spark.sql.catalog.paimon.warehouse"}
CREATE = {
    "delta": "CREATE TABLE {name} ({columns}) USING delta LOCATION '{place}' "
    "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "iceberg": "CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ('format-version' = '2', "
    "'write.merge.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')",
    "hudi": "CREATE TABLE {name} ({columns}) USING hudi LOCATION '{place}' TBLPROPERTIES ("
    "type = 'mor', primaryKey = 'k', 'hoodie.compact.inline' = 'false', 'hoodie.metadata.enable' = 'false')",
    "paimon": "CREATE TABLE {name} ({columns}) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '4', "
    "'file.format' = 'parquet', 'write-only' = 'true')",
}
NAMES = {"iceberg": "iceberg.db.{}", "paimon": "paimon.db.{}"}


def session(spark: str, scratch: Path, *, accelerate: bool = False) -> SparkSession:
    """A session with the jars of the formats of this Spark; accelerated, its own scans may use indexes."""
    builder = SparkSession.builder.master("local[2]").appName("bench-updates")
    jars = [str(path) for path in sorted((PEERS / spark).glob("*.jar"))]
    if not jars:
        raise RuntimeError(f"{PEERS / spark} has no jars: run it by make")
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.memory": "6g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        **SETTINGS[spark],
        **{key: str(scratch / name) for name, key in WAREHOUSES.items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    if "lakemark" in FORMATS[spark]:
        import lakemark.spark

        builder = lakemark.spark.configure(builder, accelerate=accelerate)
    return builder.getOrCreate()


def load(spark: SparkSession, kind: str, name: str, data: Path, scratch: Path) -> str:
    """Makes a table of a format with the records; returns its name, or its path where it needs no name."""
    place = scratch / f"{kind}-{name}"
    if kind in PATHS:
        shutil.copytree(data, place)
        if kind == "lakemark":
            import lakemark

            lakemark.Table(place, key="k")
        return str(place)
    table = NAMES.get(kind, "{}").format(f"{kind}_{name}")
    if "." in table:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    spark.sql(CREATE[kind].format(name=table, columns=COLUMNS, place=place))
    spark.sql(f"INSERT INTO {table} SELECT * FROM parquet.`{data}`")
    return table


def scan(spark: SparkSession, kind: str, table: str) -> list[Any]:
    """The sums of all columns, of the table as it is now."""
    rows = spark.read.format(kind).load(table) if kind in PATHS else spark.table(table)
    return [tuple(row) for row in rows.selectExpr(*[f"sum(v{number})" for number in range(VALUES)]).collect()]


def modify(spark: SparkSession, kind: str, table: str, changed: Path) -> float:
    """Modifies the records that a file names; returns the seconds that it took."""
    began = time.perf_counter()
    if kind == "paimon":
        spark.sql(f"INSERT INTO {table} SELECT * FROM parquet.`{changed}`")
    elif kind != "parquet":
        name = f"lm.`{table}`" if kind == "lakemark" else table
        spark.sql(
            f"MERGE INTO {name} t USING (SELECT * FROM parquet.`{changed}`) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    return time.perf_counter() - began


def records(keys: np.ndarray[Any, Any], seed: int) -> pa.Table:
    """Records as `updates_table` has them, which needs a package that old Pythons of peers lack."""
    random = np.random.default_rng(seed)
    columns = {f"v{number}": random.integers(0, 1 << 40, len(keys)) for number in range(VALUES)}
    return pa.table({"k": keys.astype(np.int32), **columns})


def write(data: Path, rows: int) -> None:
    """Four files of records in order of their keys."""
    data.mkdir(parents=True)
    for number, keys in enumerate(np.array_split(np.arange(rows), 4)):
        pq.write_table(records(keys, number), data / f"part-{number}.parquet", row_group_size=1 << 20)


def run(spark_version: str, rows: int, rounds: int, scratch: Path) -> dict[str, Any]:
    """Seconds before and after, as [share][format]."""
    shutil.rmtree(scratch, ignore_errors=True)
    data = scratch / "data"
    write(data, rows)
    spark = session(spark_version, scratch)
    result: dict[str, Any] = {}
    for share in SHARES:
        changed = scratch / f"changed-{share}.parquet"
        keys = np.random.default_rng(7).choice(rows, int(rows * share), replace=False)
        pq.write_table(records(np.sort(keys), 99), changed)
        asks: dict[str, Callable[[str], Any]] = {}
        row: dict[str, Any] = {}
        for kind in FORMATS[spark_version]:
            # The first statement of its kind pays for what Spark compiles.
            modify(spark, kind, load(spark, kind, f"warm_{round(share * 100)}", data, scratch), changed)
            names = [load(spark, kind, f"{state}_{round(share * 100)}", data, scratch) for state in ("before", "after")]
            row[kind] = {"modify_seconds": modify(spark, kind, names[1], changed)}
            for state, name in zip(("before", "after"), names, strict=True):
                asks[f"{kind}, {state}"] = lambda _, kind=kind, name=name: scan(spark, kind, name)
        check(asks)
        seconds = interleaved(asks, rounds)
        for kind in FORMATS[spark_version]:
            before, after = (seconds[f"{kind}, {state}"] for state in ("before", "after"))
            row[kind] |= {"before_seconds": before, "after_seconds": after, "ratio": after / before}
        result[str(share)] = row
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)
    return result


def check(asks: dict[str, Callable[[str], Any]]) -> None:
    """All formats agree, before and after, and the changes changed something."""
    before = measure.check_equal("before", {name: ask("") for name, ask in asks.items() if name.endswith("before")})
    formats = {name: ask("") for name, ask in asks.items() if name.endswith("after") and "parquet" not in name}
    if measure.check_equal("after", formats) == before:
        raise AssertionError("the changes changed nothing")


def interleaved(asks: dict[str, Callable[[str], Any]], rounds: int) -> dict[str, float]:
    """Median wall seconds of each, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            seconds[name].append(measure.measure(lambda ask=ask: ask(""))[1].wall_seconds)
    return {name: statistics.median(values) for name, values in seconds.items()}


def older(rows: int, rounds: int) -> dict[str, Any]:
    """The formats that need an older Spark, in a process of its own."""
    python = os.environ.get("LAKEMARK_SPARK35_PYTHON")
    if python is None:
        raise RuntimeError("LAKEMARK_SPARK35_PYTHON names no Python with PySpark 3.5: run it by make")
    # What PYTHONPATH names is made for another Python.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, __file__, "--spark", "3.5", "--rows", str(rows), "--rounds", str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(result: dict[str, Any]) -> None:
    """Prints the tables."""
    for share in map(str, SHARES):
        lines = [
            [
                f"{kind}, Spark {spark}",
                *[f"{row[f'{state}_seconds'] * 1e3:.0f} ms" for state in ("before", "after")],
                f"{row['ratio']:.2f}",
                f"{row['modify_seconds']:.2f} s",
            ]
            for spark in FORMATS
            for kind, row in result[spark][share].items()
        ]
        measure.print_table([f"{float(share):.0%} modified", "before", "after", "ratio", "to modify"], lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the ratios."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = [(spark, kind) for spark in FORMATS for kind in FORMATS[spark] if kind != "parquet"]
    figure, axes = plt.subplots(figsize=(7, 4))
    for number, share in enumerate(SHARES):
        ratios = [result[spark][str(share)][kind]["ratio"] for spark, kind in names]
        places = [place + (number - 1) * 0.4 for place in range(len(names))]
        axes.bar(places, ratios, 0.4, align="edge", label=f"{share:.0%} modified")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(ylabel="after / before", title="Scans in Spark after updates")
    axes.set_xticks(range(len(names)), [f"{kind}\nSpark {spark}" for spark, kind in names])
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--spark", choices=list(FORMATS), help="only the formats of one Spark, as JSON on one line")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    scratch = CACHE / f"updates-spark-{rows}"
    if arguments.spark:
        print(json.dumps(run(arguments.spark, rows, rounds, scratch)))
        return
    result: dict[str, Any] = {"machine": measure.machine(), "rows": rows}
    result |= {"4.1": run("4.1", rows, rounds, scratch), "3.5": older(rows, rounds)}
    report(result)
    measure.publish(arguments.results, f"updates-spark-{rows}", result, plot)


if __name__ == "__main__":
    main()

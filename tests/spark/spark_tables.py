"""Tables that the Spark tests read, and ways to look at plans."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_FILE = 1000
ROW_GROUP_ROWS = 100
# Seconds: longer than anything takes that is waited for on a machine that is busy.
PATIENCE = 300
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def rows(start: int, stop: int) -> pa.Table:
    """Every type that both readers know; nulls in each column but `id`."""
    ids = range(start, stop)

    def column(make: object, every: int = 9) -> list[object]:
        return [None if n % every == 0 else make(n) for n in ids]  # type: ignore[operator]

    utc = dt.timezone.utc
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array(column(lambda n: n // 100), pa.int32()),
            "tiny": pa.array(column(lambda n: n % 250 - 125), pa.int8()),
            "short": pa.array(column(lambda n: n % 300), pa.int16()),
            "city": pa.array(column(lambda n: ("Oslo", "Rom", "Wien", "Zürich")[n % 4], every=7)),
            "amount": pa.array(column(lambda n: n * 37 % 1009 / 4), pa.float64()),
            "ratio": pa.array(column(lambda n: n / 8), pa.float32()),
            "price": pa.array(column(lambda n: decimal.Decimal(n % 500) / 100), pa.decimal128(10, 2)),
            "day": pa.array(column(lambda n: dt.date(2024, 1, 1) + dt.timedelta(days=n % 90)), pa.date32()),
            "at": pa.array(
                column(lambda n: dt.datetime(2024, 1, 1, tzinfo=utc) + dt.timedelta(minutes=n % 500)),
                pa.timestamp("us", "UTC"),
            ),
            "local": pa.array(
                column(lambda n: dt.datetime(2024, 1, 1) + dt.timedelta(minutes=n % 500)),  # noqa: DTZ001 - it is a local time
                pa.timestamp("ms"),
            ),
            "paid": pa.array(column(lambda n: n % 3 == 0, every=11), pa.bool_()),
            "blob": pa.array(column(lambda n: bytes([n % 7, 255])), pa.binary()),
            "tags": pa.array(column(lambda n: [f"t{n % 3}", None]), pa.list_(pa.string())),
            "place": pa.array(
                column(lambda n: {"x": n, "seen": n % 2 == 0}), pa.struct([("x", pa.int32()), ("seen", pa.bool_())])
            ),
        }
    )


def write_folder(folder: Path, files: int = 3) -> Path:
    folder.mkdir(parents=True)
    for part in range(files):
        add_file(folder, part)
    return folder


def add_file(folder: Path, part: int) -> None:
    table = rows(part * ROWS_PER_FILE, (part + 1) * ROWS_PER_FILE)
    pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=ROW_GROUP_ROWS, write_page_index=True)


def create_indexes(folder: Path, *columns: str) -> None:
    table = lakemark.Table(folder)
    for column in columns:
        table.create_index(column, using="bitmap", build=False)
    table.build(progress=False)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001 - PySpark gives plans no other way


def has_filter(frame: DataFrame) -> bool:
    """Whether Spark evaluates a condition itself; scans name the filters that they took in their description."""
    return any(line.lstrip("*( +-:123456789)").startswith("Filter ") for line in plan_of(frame).splitlines())


def is_counted(frame: DataFrame) -> bool:
    """Whether the plan of the frame's count reads no data: one row is there before anything runs."""
    plan = plan_of(frame.groupBy().count())
    return "LocalTableScan" in plan and "BatchScan" not in plan


def same_rows(left: DataFrame, right: DataFrame) -> bool:
    return left.exceptAll(right).isEmpty() and right.exceptAll(left).isEmpty()


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of Spark's SQL, by their names without `spark.sql.`, `_` for `.`."""
    names = {f"spark.sql.{name.replace('_', '.')}": value for name, value in values.items()}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def write_delta(folder: Path) -> None:
    """Two partitions, 100 and 150 rows."""
    for year, ids in ((2023, range(100)), (2024, range(100, 250))):
        table = pa.table(
            {"id": list(ids), "kind": [f"k{n % 5}" for n in ids], "year": pa.array([year] * len(ids), pa.int32())}
        )
        deltalake.write_deltalake(folder, table, mode="append", partition_by=["year"])


def delete_by_vector(folder: Path, year: int, positions: list[int]) -> None:
    """Commits a deletion vector by hand, because the package writes none: an even number of positions of one file."""
    log = folder / "_delta_log"
    version = max(int(path.stem) for path in log.glob("*.json"))
    actions = [json.loads(line) for path in sorted(log.glob("*.json")) for line in path.read_text("utf-8").splitlines()]
    added = next(a["add"] for a in actions if "add" in a and a["add"]["partitionValues"] == {"year": str(year)})
    content = inline_vector(positions)
    vector = {"storageType": "i", "pathOrInlineDv": z85(content), "sizeInBytes": len(content)}
    now = added["modificationTime"]
    commit = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": ["deletionVectors"],
            }
        },
        {"remove": {"path": added["path"], "deletionTimestamp": now, "dataChange": True}},
        {"add": {**added, "deletionVector": {**vector, "cardinality": len(positions)}, "dataChange": True}},
    ]
    path = log / f"{version + 1:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in commit), "utf-8")


def inline_vector(positions: list[int]) -> bytes:
    """Delta's magic, then a 64-bit Roaring bitmap with one array container."""
    magic, cookie = 1681511377, 12346
    container = struct.pack(f"<{len(positions)}H", *sorted(positions))
    bitmap = struct.pack("<IIHHI", cookie, 1, 0, len(positions) - 1, 16) + container
    return struct.pack("<IQI", magic, 1, 0) + bitmap


def z85(content: bytes) -> str:
    assert len(content) % 4 == 0
    digits = []
    for (word,) in struct.iter_unpack(">I", content):
        digits.extend(Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return "".join(digits)


def wait_for(is_so: object) -> None:
    """What Spark gives up it does not wait for: tasks end a little later than their job."""
    end = time.monotonic() + PATIENCE
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)

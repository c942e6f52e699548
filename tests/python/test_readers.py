"""Four processes count a table while a fifth changes, migrates, publishes and vacuums it: each count is right.

`LAKEMARK_READERS_SECONDS` is how long each form of the table is read: `make stress NAME=readers`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

READERS = 4
UPKEEP = {
    "folder": ["migrate", "migrate a slice", "publish", "vacuum", "flush"],
    "delta": ["migrate", "migrate a slice", "vacuum", "flush"],
}
PARTITIONS = 60
ROWS = 50

# A reader asks a table that it keeps open, one that it opens anew, and SQL.
READER = """
import json, sys, time, lakemark
folder, until, expected = sys.argv[1], float(sys.argv[2]), json.loads(sys.argv[3])
kept, session = lakemark.Table(folder), lakemark.connect()
session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{folder}'")
asks = {
    "count": lambda: kept.count(),
    "count of a new table": lambda: lakemark.Table(folder).count(),
    "scan": lambda: session.sql("SELECT count(*) + 0 * sum(v) FROM t").to_arrow().column(0)[0].as_py(),
    "scan without indexes": lambda: kept.count("v > -1", use_index=False),
}
counts, wrong = dict.fromkeys(asks, 0), []
while True:
    for name, ask in asks.items():
        try:
            found = ask()
        except lakemark.LakemarkError as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        else:
            counts[name] += 1
            if found != expected:
                wrong.append(f"{name}: {found}")
    # On a machine that is busy a reader may begin when its time is over already.
    if time.time() >= until or len(wrong) >= 5:
        break
print(json.dumps([counts, wrong]))
"""


def rows_of(keys: list[int], value: int) -> pa.Table:
    return pa.table(
        {
            "p": pa.array([key % PARTITIONS for key in keys], pa.int64()),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array([value] * len(keys), pa.int64()),
        }
    )


def make(folder: Path, *, is_delta: bool) -> None:
    rows = rows_of(list(range(PARTITIONS * ROWS)), 0)
    if is_delta:
        deltalake.write_deltalake(str(folder), rows, partition_by=["p"])
    else:
        pq.write_to_dataset(rows, folder, partition_cols=["p"])
    lakemark.Table(folder).declare_key("k", cache_bytes=2_000_000)


@pytest.mark.parametrize("form", ["folder", "delta"])
def test_each_count_is_right_while_a_table_is_published_migrated_and_vacuumed(tmp_path: Path, form: str) -> None:
    seconds = float(os.environ.get("LAKEMARK_READERS_SECONDS", "3"))
    folder = tmp_path / "t"
    make(folder, is_delta=form == "delta")
    until = time.time() + seconds
    command = [sys.executable, "-c", READER, str(folder), str(until), json.dumps(PARTITIONS * ROWS)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(READERS)]
    table, done, chance, value = lakemark.Table(folder), Counter[str](), random.Random(7), 0  # noqa: S311
    while time.time() < until:
        value += 1
        table.upsert(rows_of(chance.sample(range(PARTITIONS * ROWS), 40), value))
        what = chance.choice(UPKEEP[form])
        if what.startswith("migrate"):
            table.migrate(fraction=1.0 if what == "migrate" else chance.uniform(0.05, 0.6), progress=False)
        elif what == "publish":
            table.publish()
        elif what == "vacuum":
            table.vacuum(older_than=dt.timedelta(hours=1))
        else:
            table.flush()
        done[what] += 1
    problems, counts = [], Counter[str]()
    for reader in readers:
        told, said = reader.communicate()
        assert reader.returncode == 0, said.decode()
        of_reader, wrong = json.loads(told)
        counts.update(of_reader)
        problems.extend(wrong)
    print(f"{form}, {seconds:.0f} s: {counts.total()} counts by {READERS} readers, {dict(done)}")  # noqa: T201
    assert problems == [], f"{len(problems)} wrong"
    assert min(counts.values()) > 0

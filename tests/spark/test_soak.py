"""Spark and Python change and read one table at once: no update is lost, and nobody sees half of one.

`LAKEMARK_SOAK_SECONDS` says for how long, for each kind of table.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

import lakemark
from bank import ACCOUNTS, BALANCE, TOTAL, Ledger, draw, update
from spark_tables import PATIENCE, create_indexes
from test_examples import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

SECONDS = float(os.environ.get("LAKEMARK_SOAK_SECONDS", "6"))
FILES = 4
SEED = 11


def accounts(part: int) -> pa.Table:
    size = ACCOUNTS // FILES
    ids = range(part * size, part * size + size)
    return pa.table({"account": pa.array(ids, pa.int64()), "balance": pa.array([BALANCE] * size, pa.int64())})


def write_folder(folder: Path) -> None:
    folder.mkdir()
    for part in range(FILES):
        pq.write_table(accounts(part), folder / f"part-{part}.parquet", row_group_size=50)


def write_delta(folder: Path) -> None:
    for part in range(FILES):
        deltalake.write_deltalake(folder, accounts(part), mode="append")


def is_conflict(error: Exception) -> bool:
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return "LakemarkException$Conflict" in str(text)


def of_spark(spark: SparkSession, folder: Path, seed: int, end: float, ledger: Ledger) -> None:
    """Transfers as UPDATE and as MERGE."""
    chance, table = random.Random(seed), f"lm.`{folder}`"  # noqa: S311 - no secret
    # A statement that takes long meets others in nearly all cases: one is made when these have ended.
    while time.monotonic() < end or not (ledger.done["UPDATE"] or ledger.done["MERGE"]):
        moves = draw(chance)
        values = ", ".join(f"({account}L, {amount}L)" for account, amount in moves.items())
        merge = f"""
            MERGE INTO {table} t USING (SELECT * FROM VALUES {values} AS v(account, amount)) v ON t.account = v.account
            WHEN MATCHED THEN UPDATE SET balance = t.balance + v.amount
        """
        what, statement = chance.choice([("UPDATE", update(table, moves)), ("MERGE", merge)])
        try:
            spark.sql(statement)
        except Exception as error:
            if not is_conflict(error):
                raise
            ledger.done["conflict"] += 1
        else:
            ledger.note(what, moves)


def spark_looks(spark: SparkSession, folder: Path, end: float, ledger: Ledger) -> None:
    sums = "SELECT sum(balance), count(*) FROM lm.`{}` {}"
    while time.monotonic() < end:
        for options in ("", "WITH (use_index = 'false')"):
            total, n = spark.sql(sums.format(folder, options)).first()
            ledger.seen.add((total, n))
            ledger.done["look"] += 1


def keep(folder: Path, end: float, ledger: Ledger) -> None:
    """What is buffered moves on all the time, from the buffer into runs and from there into data files."""
    table, chance = lakemark.Table(folder), random.Random(SEED)  # noqa: S311 - no secret
    while time.monotonic() + 0.5 < end:
        time.sleep(chance.uniform(0.3, 1.2))
        what = chance.choice(["flush", "flush", "migrate", "build", "vacuum"])
        arguments = {} if what in ("flush", "vacuum") else {"progress": False}
        try:
            getattr(table, what)(**arguments)
        except lakemark.ConflictError:
            what = f"{what} in conflict"
        ledger.done[what] += 1


def run_all(*work: Callable[[], object]) -> None:
    """Each in a thread of its own; an error in one of them is an error here."""
    failed: list[BaseException] = []

    def guarded(each: Callable[[], object]) -> None:
        try:
            each()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize("kind", ["folder", "delta"])
def test_money_is_neither_made_nor_lost(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "bank"
    {"folder": write_folder, "delta": write_delta}[kind](folder)
    create_indexes(folder, "balance")
    lakemark.Table(folder, key="account")
    program = [sys.executable, Path(__file__).with_name("bank.py"), folder, str(SECONDS), str(SEED)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    other = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
    end = time.monotonic() + SECONDS
    writing, reading, keeping = Ledger(), Ledger(), Ledger()
    try:
        run_all(
            lambda: of_spark(spark, folder, SEED + 1, end, writing),
            lambda: spark_looks(spark, folder, end, reading),
            lambda: keep(folder, end, keeping),
        )
    finally:
        told, _ = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0
    python = json.loads(told)
    print(kind, writing.done, reading.done, keeping.done, python["done"])  # noqa: T201 - what a long run has seen

    assert {*reading.seen, *map(tuple, python["seen"])} == {(TOTAL, ACCOUNTS)}
    moved = Counter(dict.fromkeys(range(ACCOUNTS), BALANCE))
    moved.update(writing.moved)
    moved.update({int(account): amount for account, amount in python["moved"].items()})
    table = lakemark.Table(folder)
    for step in ("pending", "migrated"):
        found = {row.account: row.balance for row in spark.read.format("lakemark").load(str(folder)).collect()}
        assert found == dict(moved), step
        assert {row["account"]: row["balance"] for row in table.scan().to_arrow().to_pylist()} == dict(moved), step
        table.migrate(progress=False)
    if kind == "delta":
        plain = deltalake.DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
        assert {row["account"]: row["balance"] for row in plain} == dict(moved)
    assert table.verify()
    # Somebody of each sort was at work.
    assert min(writing.done["UPDATE"] + writing.done["MERGE"], python["done"]["python"], reading.done["look"]) >= 1
    assert keeping.done.total() >= 1

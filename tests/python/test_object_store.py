"""Tables and stores on object storage: a real S3 server on loopback, with conditional puts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import lakemark
from conftest import FILES, orders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Judged

BUCKET = "lake"

CONDITIONS = [
    "city = 'Oslo'",
    "city IS NULL OR id < 20",
    "id BETWEEN 990 AND 1010",
    "day = DATE '2024-02-29' AND NOT paid",
    "amount > 200",
]


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, and what a client needs to get there."""

    client: Any
    options: dict[str, str]

    def upload(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(folder)}")

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def environment(self) -> dict[str, str]:
        """The environment of a command that knows the server and nothing else of ours."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        given = {key.upper(): value for key, value in self.options.items()}
        return {**kept, **given, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "aws_endpoint": f"http://{host}:{port}",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "somebody",
        "aws_secret_access_key": "secret",
    }
    server.stop()


@pytest.fixture
def bucket(server: dict[str, str]) -> Iterator[Bucket]:
    client = boto3.client(
        "s3",
        endpoint_url=server["aws_endpoint"],
        region_name=server["aws_region"],
        aws_access_key_id=server["aws_access_key_id"],
        aws_secret_access_key=server["aws_secret_access_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    bucket = Bucket(client, server)
    yield bucket
    for key in bucket.keys(""):
        client.delete_object(Bucket=BUCKET, Key=key)
    client.delete_bucket(Bucket=BUCKET)
    client.close()


def check(table: lakemark.Table, judge: Judged) -> None:
    for condition in CONDITIONS:
        expected = judge.count(condition)
        assert 0 < expected < 4000
        assert table.count(condition) == expected, condition
        assert table.count(condition, use_index=False) == expected, condition
        rows = table.scan(condition, columns=["id", "city"]).to_arrow().to_pylist()
        assert sorted((tuple(row.values()) for row in rows), key=repr) == judge.rows(["id", "city"], condition)


def test_the_server_honours_conditional_puts(bucket: Bucket) -> None:
    bucket.client.put_object(Bucket=BUCKET, Key="once", Body=b"first", IfNoneMatch="*")
    with pytest.raises(bucket.client.exceptions.ClientError, match="PreconditionFailed"):
        bucket.client.put_object(Bucket=BUCKET, Key="once", Body=b"second", IfNoneMatch="*")
    assert bucket.client.get_object(Bucket=BUCKET, Key="once")["Body"].read() == b"first"


@pytest.mark.parametrize("local_store", [False, True])
def test_a_table_in_a_bucket_is_indexed_and_queried(
    bucket: Bucket, plain: Judged, tmp_path: Path, local_store: bool
) -> None:
    bucket.upload(plain.folder, "orders")
    store = str(tmp_path / "store") if local_store else None
    table = lakemark.Table(f"s3://{BUCKET}/orders", store=store, storage_options=bucket.options)
    check(table, plain)
    for column in ("city", "id", "day"):
        index = table.create_index(column, using="bitmap", progress=False)
        assert (index.files_covered, index.coverage, index.rows) == (FILES, 1.0, 4000)
    check(table, plain)
    report = table.explain("city = 'Oslo'")
    assert (report.coverage, report.rows_exact) == (1.0, plain.count("city = 'Oslo'"))
    # Each of three indexes was declared and built once.
    kept = bucket.keys("orders/_lakemark/")
    assert sum(key.endswith(".lmm") for key in kept) == (0 if local_store else 6)
    assert sum(key.endswith(".lmx") for key in kept) == (0 if local_store else 3)
    assert table.verify().ok
    # Another process sees the same indexes.
    again = lakemark.Table(f"s3://{BUCKET}/orders", store=store, storage_options=bucket.options)
    assert [index.coverage for index in again.indexes] == [1.0, 1.0, 1.0]
    check(again, plain)


def test_a_store_in_a_bucket_serves_a_table_on_the_disk(bucket: Bucket, plain: Judged) -> None:
    table = lakemark.Table(plain.folder, store=f"s3://{BUCKET}/store", storage_options=bucket.options)
    table.create_index("city", using="bitmap", progress=False)
    assert not (plain.folder / "_lakemark").exists()
    assert Counter(key.rsplit(".", 1)[1] for key in bucket.keys("store/")) == {"lmm": 2, "lmx": 1}
    check(table, plain)


def test_added_and_rewritten_objects_are_scanned_until_they_are_built(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    table = lakemark.Table(f"s3://{BUCKET}/orders", storage_options=bucket.options)
    table.create_index("city", using="bitmap", progress=False)
    pq.write_table(orders(FILES), plain.folder / "part-4.parquet")
    pq.write_table(orders(1).slice(0, 900), plain.folder / "part-1.parquet")
    bucket.upload(plain.folder, "orders")
    # Parts 0, 2 and 3 were uploaded again, too: other times, but the same tags.
    index = table.indexes[0]
    assert (index.files_covered, index.files_total) == (3, 5)
    check(table, plain)
    report = table.build(progress=False)
    assert (report.files, report.rows, report.adopted) == (2, 1900, 0)
    assert table.indexes[0].coverage == 1.0
    check(table, plain)


def test_two_builders_at_once_both_succeed(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    tables = [lakemark.Table(f"s3://{BUCKET}/orders", storage_options=bucket.options) for _ in range(4)]
    for column in ("city", "id"):
        tables[0].create_index(column, using="bitmap", build=False)
    failures: list[BaseException] = []
    together = threading.Barrier(len(tables))

    def build(table: lakemark.Table, index: str) -> None:
        try:
            together.wait()
            table.build(index=index, progress=False)
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(failure)

    names = ["city_bitmap", "id_bitmap", "city_bitmap", "id_bitmap"]
    threads = [threading.Thread(target=build, args=pair) for pair in zip(tables, names, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [(index.name, index.coverage, index.segments) for index in tables[0].indexes] == [
        ("city_bitmap", 1.0, 1),
        ("id_bitmap", 1.0, 1),
    ]
    # The slower builder of the same index threw its segment away.
    assert sum(key.endswith(".lmx") for key in bucket.keys("orders/_lakemark/")) == 2
    check(tables[3], plain)


def test_many_declarations_at_once_are_all_kept(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    outcomes: list[str] = []

    def declare(number: int) -> None:
        table = lakemark.Table(f"s3://{BUCKET}/orders", storage_options=bucket.options)
        try:
            table.create_index("city", name=f"i{number % 4}", build=False)
            outcomes.append("created")
        except lakemark.AlreadyExistsError:
            outcomes.append("exists")

    threads = [threading.Thread(target=declare, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcomes) == {"created": 4, "exists": 4}
    table = lakemark.Table(f"s3://{BUCKET}/orders", storage_options=bucket.options)
    assert sorted(index.name for index in table.indexes) == ["i0", "i1", "i2", "i3"]
    assert table.snapshot.manifest == 4


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lakemark", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_command_takes_credentials_of_the_environment_and_options(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    place = f"s3://{BUCKET}/orders"
    done = command(bucket.environment(), "index", "create", place, "--on", "city", "--quiet")
    assert done.returncode == 0, done.stderr
    expected = str(plain.count("city = 'Oslo'"))
    done = command(bucket.environment(), "count", place, "city = 'Oslo'")
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    bare = {key: value for key, value in bucket.environment().items() if not key.startswith("AWS_")}
    given = [f"--storage={key}={value}" for key, value in bucket.options.items()]
    done = command(bare, "count", place, "city = 'Oslo'", *given)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
    done = command(bare, "vacuum", place, "--dry-run", "--format", "json", *given)
    assert (done.returncode, json.loads(done.stdout)["manifests_kept"]) == (0, 2), done.stderr


def test_sql_reads_and_indexes_a_table_in_a_bucket(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    options = ", ".join(f"'lakemark.storage.{key}' '{value}'" for key, value in bucket.options.items())
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION 's3://{BUCKET}/orders' OPTIONS ({options})")
    session.sql("CREATE INDEX by_city ON t USING bitmap (city)")
    found = session.sql("SELECT city, count(*) AS n FROM t WHERE city IN ('Rom', 'Wien') GROUP BY city").to_arrow()
    assert dict(zip(*found.to_pydict().values(), strict=True)) == {
        city: plain.count(f"city = '{city}'") for city in ("Rom", "Wien")
    }
    joined = "SELECT count(*) AS n FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.city = 'Oslo' AND b.id < 1000"
    assert session.sql(joined).to_arrow()["n"].to_pylist() == [plain.count("city = 'Oslo' AND id < 1000")]


def test_the_shell_copies_into_a_bucket_and_reads_other_formats_there(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    place = f"s3://{BUCKET}/copied/oslo.csv"
    expected = plain.count("city = 'Oslo'")
    table = f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION 's3://{BUCKET}/orders'"
    copy = f"COPY (SELECT id FROM t WHERE city = 'Oslo') TO '{place}'"
    done = command(bucket.environment(), "sql", "--format", "csv", "-c", table, "-c", copy)
    assert (done.returncode, done.stdout) == (0, f"count\n{expected}\n"), done.stderr
    assert bucket.keys("copied/") == ["copied/oslo.csv"]
    # Without an environment, by the names that DataFusion has for the options.
    bare = {key: value for key, value in bucket.environment().items() if not key.startswith("AWS_")}
    options = ", ".join(f"'{key.replace('_', '.', 1)}' '{value}'" for key, value in bucket.options.items())
    copied = f"CREATE EXTERNAL TABLE c STORED AS CSV LOCATION '{place}' OPTIONS ({options})"
    done = command(bare, "sql", "--format", "csv", "-c", copied, "-c", "SELECT count(*) AS n FROM c")
    assert (done.returncode, done.stdout) == (0, f"n\n{expected}\n"), done.stderr


def test_a_delta_table_in_a_bucket_is_read_with_its_log(bucket: Bucket, tmp_path: Path) -> None:
    folder = tmp_path / "delta"
    deltalake.write_deltalake(
        str(folder), pa.table({"k": [1, 2, 2, 3], "day": ["a", "a", "b", "b"]}), partition_by=["day"]
    )
    deltalake.write_deltalake(str(folder), pa.table({"k": [2, 4], "day": ["b", "c"]}), mode="append")
    bucket.upload(folder, "delta")
    table = lakemark.Table(f"s3://{BUCKET}/delta", storage_options=bucket.options)
    table.create_index("k", progress=False)
    assert table.snapshot.delta_version == 1
    assert table.count("k = 2") == table.count("k = 2", use_index=False) == 3
    assert table.count("k = 2 AND day = 'b'") == 2


def test_a_vacuum_of_a_bucket_keeps_what_is_in_use(bucket: Bucket, plain: Judged) -> None:
    bucket.upload(plain.folder, "orders")
    table = lakemark.Table(f"s3://{BUCKET}/orders", storage_options=bucket.options)
    table.create_index("city", using="bitmap", progress=False)
    before = bucket.keys("orders/_lakemark/")
    report = table.vacuum()
    assert (report.removed, report.manifests_kept, report.segments_kept) == ([], 2, 1)
    assert bucket.keys("orders/_lakemark/") == before
    check(table, plain)


def test_what_is_wrong_is_told(bucket: Bucket, plain: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match=r"no \.parquet file"):
        lakemark.Table(f"s3://{BUCKET}/nothing", storage_options=bucket.options).count()
    bucket.upload(plain.folder, "orders")
    closed = {**bucket.options, "aws_endpoint": "http://127.0.0.1:9", "aws_max_retries": "0"}
    with pytest.raises(lakemark.LakemarkError):
        lakemark.Table(f"s3://{BUCKET}/orders", storage_options=closed).count()

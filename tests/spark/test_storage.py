"""Credentials of Hadoop's configuration reach driver and tasks, and are renewed: a real S3 server behind a gate."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pyspark
import pytest
from moto.server import ThreadedMotoServer

import lakemark
from gate import gate_before
from spark_tables import write_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BUCKET = "lake"
PLACE = f"s3a://{BUCKET}/orders"
CONDITION = "city = 'Oslo'"
SECRET = "the-secret-key"  # noqa: S105 - of a server that takes any

# A class as S3A takes one: it gives the token that a file has.
PROVIDER = """
package test;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;

public final class TokenOfFile {
  public record Keys(String accessKeyId, String secretAccessKey, String sessionToken) {}

  private final Path file;

  public TokenOfFile(URI place, Configuration configuration) {
    file = Path.of(configuration.get("fs.s3a.test.token.file"));
  }

  public Keys resolveCredentials() throws IOException {
    return new Keys("somebody", "the-secret-key", Files.readString(file).strip());
  }
}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[Any]:
    client = boto3.client(
        "s3",
        endpoint_url=server,
        region_name="us-east-1",
        aws_access_key_id="somebody",
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket=BUCKET)
    yield client
    client.close()


@pytest.fixture
def orders(client: Any, tmp_path: Path) -> Iterator[lakemark.Table]:
    """A table in the bucket, and the same files on the disk."""
    folder = write_folder(tmp_path / "orders", files=3)
    for path in sorted(folder.rglob("*.parquet")):
        client.upload_file(str(path), BUCKET, f"orders/{path.relative_to(folder)}")
    yield lakemark.Table(folder)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for key in [entry["Key"] for page in pages for entry in page.get("Contents", [])]:
        client.delete_object(Bucket=BUCKET, Key=key)


def keys(endpoint: str) -> dict[str, str]:
    return {
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.access.key": "somebody",
        "fs.s3a.secret.key": SECRET,
    }


@pytest.fixture(scope="module")
def provider(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a class that gives the token of a file, in a jar that was added to the session."""
    folder = tmp_path_factory.mktemp("provider")
    source, classes, jar = folder / "TokenOfFile.java", folder / "classes", folder / "provider.jar"
    source.write_text(PROVIDER)
    javac = shutil.which("javac")
    assert javac is not None, "the tests of Spark need a JDK"
    jars = Path(pyspark.__file__).parent / "jars"
    subprocess.run([javac, "-proc:none", "-cp", f"{jars}/*", "-d", classes, source], check=True)
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.write(path, path.relative_to(classes))
    spark.sql(f"ADD JAR '{jar}'")
    return "test.TokenOfFile"


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("lakemark").options(**options).load(PLACE)


def test_keys_of_a_read_reach_driver_and_tasks_and_no_text(
    spark: SparkSession, server: str, orders: lakemark.Table
) -> None:
    frame = read(spark, keys(server))
    expected = orders.scan(CONDITION, columns=["id"]).to_arrow()["id"].to_pylist()
    found = [row.id for row in frame.where(CONDITION).select("id").collect()]
    assert sorted(found) == sorted(expected)
    assert SECRET not in frame._jdf.queryExecution().toString()  # noqa: SLF001 - there is no other way to the JVM


def test_keys_of_the_configuration_serve_names_changes_of_indexes_and_their_tasks(
    spark: SparkSession, server: str, client: Any, orders: lakemark.Table
) -> None:
    settings = keys(server)
    # Some are Hadoop's, and some of the session, for the bucket alone.
    hadoop = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way to the JVM
    hadoop.set("fs.s3a.endpoint", settings["fs.s3a.endpoint"])
    hadoop.set("fs.s3a.access.key", "nobody")
    of_session = {name.replace("s3a.", f"s3a.bucket.{BUCKET}."): value for name, value in settings.items()}
    del of_session[f"fs.s3a.bucket.{BUCKET}.endpoint"]
    for name, value in of_session.items():
        spark.conf.set(name, value)
    try:
        counted = f"SELECT count(*) AS n FROM lm.`{PLACE}` WHERE {CONDITION}"
        assert spark.sql(counted).first()["n"] == orders.count(CONDITION)
        spark.sql(f"CREATE INDEX by_city ON lm.`{PLACE}` USING bitmap (city)")
        assert spark.sql(counted).first()["n"] == orders.count(CONDITION)
        indexes = spark.sql(f"SELECT name, coverage FROM lm.`{PLACE}$indexes`").collect()
        assert [(row.name, row.coverage) for row in indexes] == [("by_city", 1.0)]
    finally:
        for name in of_session:
            spark.conf.unset(name)
        for name in ("fs.s3a.endpoint", "fs.s3a.access.key"):
            hadoop.unset(name)
    stored = client.list_objects_v2(Bucket=BUCKET, Prefix="orders/_lakemark/indexes/")["Contents"]
    assert [entry["Key"].endswith(".lmx") for entry in stored] == [True]


def test_a_class_is_asked_anew_when_a_token_is_refused(
    spark: SparkSession, server: str, orders: lakemark.Table, provider: str, tmp_path: Path
) -> None:
    file, expected = tmp_path / "token", orders.count(CONDITION)
    with gate_before(server) as gate:
        options = {
            **keys(gate.url),
            "fs.s3a.aws.credentials.provider": provider,
            "fs.s3a.test.token.file": str(file),
        }
        file.write_text("first")
        gate.tokens = {"first"}
        assert read(spark, options).where(CONDITION).count() == expected
        assert (gate.refused, set(gate.seen)) == (0, {"first"})
        gate.tokens = {"second"}
        file.write_text("second")
        assert read(spark, options).where(CONDITION).count() == expected
        assert gate.refused > 0
        assert gate.seen[-1] == "second"
        # Nobody has a token any more that the storage takes.
        gate.tokens = set()
        with pytest.raises(Exception, match="credentials for s3a://lake have expired") as raised:
            read(spark, options).where(CONDITION).count()
        assert "second" not in str(raised.value)


def test_a_class_that_is_not_there_and_credentials_that_are_none_are_told_what_to_do(
    spark: SparkSession, server: str
) -> None:
    settings = keys(server)
    options = {**settings, "fs.s3a.aws.credentials.provider": "no.such.Provider"}
    with pytest.raises(Exception, match=r"no\.such\.Provider needs a jar that is not there: add it by --packages"):
        read(spark, options)
    with pytest.raises(Exception, match="options of storages are not kept with the name"):
        spark.sql(f"CREATE TABLE lm.kept USING lakemark OPTIONS ('fs.s3a.secret.key' '{SECRET}') LOCATION '{PLACE}'")

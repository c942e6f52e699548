"""Tables of Unity Catalog: names, temporary credentials and their renewal, and what is said when something is wrong.

The server is ours (`unity.py`). That it speaks the protocol is judged by another client: that of Polars.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import deltalake
import polars as pl
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import lakemark
from gate import gate_before
from unity import unity_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Judged
    from gate import Gate
    from unity import Unity

BUCKET = "lake"
NAME = "main.sales.trips"
CONDITION = "city = 'Oslo'"
TOKEN = "token-of-the-catalog"  # noqa: S105 - of the server of these tests


@pytest.fixture
def unity() -> Iterator[Unity]:
    with unity_server() as unity:
        unity.tokens = {TOKEN}
        yield unity


@pytest.fixture
def file(unity: Unity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration that names the catalog, and a table of it."""
    file = tmp_path / "lakemark.toml"
    file.write_text(
        f'[catalogs.main]\nuri = "{unity.url}"\ntoken = {{ env = "CATALOG_TOKEN" }}\n'
        f'[tables]\ntrips = "uc://{NAME}"\n[settings]\n"lakemark.use_index" = true\n'
    )
    monkeypatch.setenv("LAKEMARK_CONFIG", str(file))
    monkeypatch.setenv("CATALOG_TOKEN", TOKEN)
    for name in ("DATABRICKS_HOST", "UNITY_WORKSPACE_URL"):
        monkeypatch.delenv(name, raising=False)
    return file


@pytest.fixture
def local(unity: Unity, file: Path, plain: Judged) -> Judged:
    """The catalog has the four files of orders, on the disk."""
    assert file.is_file()
    unity.add(NAME, plain.folder.as_uri(), "PARQUET")
    return plain


@pytest.fixture(scope="module")
def storage() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def gate(storage: str, unity: Unity, tmp_path: Path) -> Iterator[Gate]:
    """A Delta table in a bucket behind a gate, with keys that the catalog alone gives: each time another token."""
    client = boto3.client(
        "s3",
        endpoint_url=storage,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",  # noqa: S106 - of a server that takes any
    )
    client.create_bucket(Bucket=BUCKET)
    folder = tmp_path / "delta"
    for rows in (range(1000), range(1000, 1500)):
        cities = [("Oslo", "Rom", "Wien")[n % 3] for n in rows]
        deltalake.write_deltalake(str(folder), pa.table({"id": list(rows), "city": cities}), mode="append")
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.upload_file(str(path), BUCKET, f"trips/{path.relative_to(folder)}")
    unity.add(NAME, f"s3://{BUCKET}/trips")
    numbers = count(1)

    def give() -> dict[str, Any]:
        token = f"token-{next(numbers)}"
        keys = {"access_key_id": "somebody", "secret_access_key": "the-secret-key", "session_token": token}
        return {"aws_temp_credentials": keys}

    unity.give = give
    with gate_before(storage) as gate:
        gate.tokens = {f"token-{number}" for number in range(1, 1000)}
        yield gate
    for kept in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=kept["Key"])
    client.delete_bucket(Bucket=BUCKET)
    client.close()


@pytest.fixture
def remote(gate: Gate, file: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The same, and nothing but the catalog has keys for it."""
    options = f'storage = {{ aws_endpoint = "{gate.url}", aws_allow_http = true, aws_region = "us-east-1" }}\n'
    file.write_text(file.read_text().replace("[tables]", f"{options}[tables]"))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    return gate


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-m", "lakemark", *arguments]
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=120)


# Polars calls its client unstable.
@pytest.mark.filterwarnings("ignore:.*unstable")
def test_another_client_reads_the_same_table_of_the_same_server(gate: Gate, unity: Unity) -> None:
    catalog = pl.Catalog(unity.url, bearer_token=TOKEN, require_https=False)
    table = catalog.get_table_info("main", "sales", "trips")
    assert (table.storage_location, table.data_source_format) == (f"s3://{BUCKET}/trips", "DELTA")
    assert [table.name for table in catalog.list_tables("main", "sales")] == ["trips"]
    options = {"aws_endpoint_url": gate.url, "aws_allow_http": "true", "aws_region": "us-east-1"}
    rows = catalog.scan_table("main", "sales", "trips", storage_options=options).collect()
    assert rows.height == 1500
    assert unity.given == ["READ"] * len(unity.given) != []
    assert set(gate.seen) <= gate.tokens
    other = pl.Catalog(unity.url, bearer_token="other", require_https=False)  # noqa: S106 - a wrong one
    for asked, name, status in ((other, "trips", 401), (catalog, "none", 404)):
        with pytest.raises(pl.exceptions.ComputeError, match=str(status)):
            asked.get_table_info("main", "sales", name)


def test_a_table_of_a_catalog_is_read_and_indexed_in_every_way(local: Judged, unity: Unity) -> None:
    expected = local.count(CONDITION)
    table = lakemark.Table(f"uc://{NAME}")
    assert table.count(CONDITION) == expected
    table.create_index("city", using="bitmap", progress=False)
    assert lakemark.Table("trips").explain(CONDITION).coverage == 1.0
    session = lakemark.connect()
    for written in ("trips", NAME, "t"):
        if written == "t":
            session.sql(f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION 'uc://{NAME}'")
        counted = session.sql(f"SELECT count(*) AS n FROM {written} WHERE {CONDITION}").to_arrow()
        assert counted["n"].to_pylist() == [expected], written
    done = command("count", f"uc://{NAME}", CONDITION)
    assert (done.returncode, done.stdout.strip()) == (0, str(expected)), done.stderr
    done = command("sql", "-c", f"SELECT count(*) AS n FROM {NAME} WHERE {CONDITION}", "--format", "csv")
    assert (done.returncode, done.stdout.split()[-1]) == (0, str(expected)), done.stderr
    # Files on a disk need no credentials.
    assert unity.given == []


def test_versions_and_joins_of_names_with_three_parts(remote: Gate) -> None:
    assert remote.refused == 0
    session = lakemark.connect()
    joined = f"SELECT count(*) AS n FROM {NAME} AS a JOIN {NAME} AS b ON a.id = b.id WHERE a.city = 'Rom'"
    assert session.sql(joined).to_arrow()["n"].to_pylist() == [500]
    first = f"SELECT count(*) AS n FROM {NAME} VERSION AS OF 0"
    assert session.sql(first).to_arrow()["n"].to_pylist() == [1000]


def test_a_table_in_a_bucket_is_reached_with_the_keys_of_the_catalog(remote: Gate, unity: Unity) -> None:
    table = lakemark.Table("trips")
    assert table.count(CONDITION) == 500
    table.create_index("city", using="bitmap", progress=False)
    assert table.count(CONDITION) == lakemark.Table(f"uc://{NAME}").count(CONDITION) == 500
    assert (remote.refused, set(unity.given)) == (0, {"READ_WRITE"})
    assert set(remote.seen) <= {f"token-{number}" for number in range(1, 1 + len(unity.given))}


def test_credentials_are_renewed_after_a_refusal_and_before_they_end(remote: Gate, unity: Unity) -> None:
    table = lakemark.Table("trips")
    assert table.count(CONDITION) == 500
    before = len(unity.given)
    # The storage takes none of those that were given until now.
    remote.tokens = {f"token-{number}" for number in range(before + 1, 1000)}
    assert table.count("id < 700") == 700
    assert remote.refused > 0
    assert len(unity.given) > before
    # Those that end at once serve one request each, and none is refused.
    unity.lasts, refused = timedelta(0), remote.refused
    remote.tokens = {f"token-{number}" for number in range(len(unity.given) + 1, 1000)}
    assert table.count("id >= 1200") == 300
    before = len(unity.given)
    refused = remote.refused
    assert table.count("id >= 1400") == 100
    assert (remote.refused, len(unity.given) > before) == (refused, True)


def test_who_may_not_write_reads_and_keeps_indexes_elsewhere(remote: Gate, unity: Unity, tmp_path: Path) -> None:
    unity.may_write = False
    assert lakemark.Table("trips").count(CONDITION) == 500
    assert set(unity.given) == {"READ"}
    asked = [body["operation"] for method, _, body in unity.asked if method == "POST"]
    assert asked.count("READ_WRITE") == 1
    # Where the store is elsewhere, nobody asks for more than reading.
    unity.asked.clear()
    table = lakemark.Table("trips", store=tmp_path / "store")
    table.create_index("city", using="bitmap", progress=False)
    assert table.explain(CONDITION).coverage == 1.0
    assert {body["operation"] for method, _, body in unity.asked if method == "POST"} == {"READ"}
    assert remote.refused == 0


def test_what_is_wrong_is_told_in_one_sentence_without_secrets(
    local: Judged, unity: Unity, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lakemark.Table("trips").count(CONDITION) == local.count(CONDITION)

    def said(written: str = f"uc://{NAME}", kind: type[Exception] = lakemark.LakemarkError) -> str:
        with pytest.raises(kind) as raised:
            lakemark.Table(written)
        text = str(raised.value)
        assert "\n" not in text
        assert TOKEN not in text
        return text

    assert "write catalog, schema and table, as in uc://main.sales.trips" in said(
        "uc://trips", lakemark.InvalidInputError
    )
    missing = said("uc://main.sales.none", lakemark.NotFoundError)
    assert missing.startswith(f"there is no table main.sales.none in the catalog main at {unity.url}: ")
    assert "there is no catalog other: lakemark.toml has main" in said("uc://other.sales.trips")
    unity.tables[NAME]["data_source_format"] = "CSV"
    assert said(kind=lakemark.UnsupportedError).startswith(f"{NAME} is neither a Delta table nor")
    unity.tables[NAME]["table_type"] = "VIEW"
    assert said(kind=lakemark.UnsupportedError).startswith(f"{NAME} is a view")
    unity.failing = 403
    assert "let its owner grant USE CATALOG, USE SCHEMA and SELECT" in said()
    unity.failing = 500
    assert "cannot answer now: try it later" in said()
    unity.failing, unity.tokens = 0, {"another"}
    assert f"does not accept the token of {file}:3, which has expired" in said()
    file.write_text(f'[catalogs]\nmain = "{unity.url}"\n')
    assert "wants a token: write token into [catalogs.main] of lakemark.toml" in said()
    file.write_text('[catalogs]\nmain = "http://127.0.0.1:9"\n')
    assert said().startswith("the catalog main at http://127.0.0.1:9 cannot be reached (")
    file.write_text('[catalogs.main]\nuri = "http://127.0.0.1:9"\ntoken = { env = "NOBODY_SETS_THIS" }\n')
    assert f"{file}:3: catalogs.main.token wants the variable NOBODY_SETS_THIS, which is not set" in said()
    # A statement that reads such a table gets the same, and the session goes on.
    session = lakemark.connect()
    with pytest.raises(lakemark.LakemarkError, match="wants the variable NOBODY_SETS_THIS"):
        session.sql(f"SELECT count(*) FROM {NAME}").to_arrow()
    monkeypatch.setenv("NOBODY_SETS_THIS", TOKEN)
    with pytest.raises(lakemark.LakemarkError, match="cannot be reached"):
        session.sql(f"SELECT count(*) FROM {NAME}").to_arrow()


def test_a_storage_that_the_catalog_gives_no_keys_for_takes_those_of_a_profile(
    remote: Gate, unity: Unity, file: Path
) -> None:
    unity.give = dict
    with pytest.raises(
        lakemark.LakemarkError, match=r"gives no credentials for main.sales.trips: .* a profile with keys"
    ):
        lakemark.Table("trips").count()
    keys = '\naws_access_key_id = "somebody"\naws_secret_access_key = "b"\naws_session_token = "token-1"\n'
    file.write_text(f'{file.read_text()}[profiles.lake]\nscope = "s3://{BUCKET}/"{keys}')
    before = len(unity.given)
    assert lakemark.Table("trips").count(CONDITION) == 500
    assert (set(remote.seen), len(unity.given)) == ({"token-1"}, before)


def test_the_environment_names_a_catalog_that_no_file_names(
    local: Judged, unity: Unity, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("")
    monkeypatch.setenv("DATABRICKS_HOST", unity.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", TOKEN)
    assert lakemark.Table(f"uc://{NAME}").count(CONDITION) == local.count(CONDITION)
    shown = command("config", "--format", "csv")
    assert shown.returncode == 0, shown.stderr
    assert f"environment,DATABRICKS_HOST,,{unity.url}," in shown.stdout
    assert "environment,DATABRICKS_TOKEN,,***," in shown.stdout
    assert TOKEN not in shown.stdout + shown.stderr


def test_logs_and_what_is_shown_have_no_secret(remote: Gate, unity: Unity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMARK_LOG", "trace")
    done = command("count", "trips", CONDITION)
    assert (done.returncode, done.stdout.strip()) == (0, "500"), done.stderr
    shown = command("config")
    for secret in (TOKEN, "the-secret-key", *remote.seen):
        assert secret not in done.stderr + shown.stdout + shown.stderr
    assert unity.url in shown.stdout

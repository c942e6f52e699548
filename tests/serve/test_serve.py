"""`lakemark serve` as a process: how it begins and ends, its page, tokens, encryption, and its configuration."""

from __future__ import annotations

import ipaddress
import json
import signal
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import adbc_driver_flightsql.dbapi
import adbc_driver_manager
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import lakemark
from serving import PATIENCE, ROWS, fails, serve, write_flights

if TYPE_CHECKING:
    from serving import Server

TOKEN = "0123456789abcdef" * 4


def count(url: str, table: str = "flights", **options: str) -> int:
    with (
        adbc_driver_flightsql.dbapi.connect(url, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SELECT count(*) FROM {table}")
        return int(cursor.fetchall()[0][0])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - our own server
        return str(answer.read().decode())


def test_the_first_line_says_where_and_both_signals_end_it_well(folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serve(f"flights={folder}") as server:
            assert server.first_line == f"listening on grpc://127.0.0.1:{server.port}"
            assert count(server.url) == ROWS
            assert server.end(number) == 0


def test_what_was_acknowledged_outlives_a_kill(folder: Path) -> None:
    for number in range(3):
        with serve(f"flights={folder}") as server:
            with (
                adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("INSERT INTO flights (number) VALUES (?)", (9000 + number,))
                assert cursor.fetchall() == [(1,)]
            server.end(signal.SIGKILL)
        assert lakemark.Table(folder).count(f"number = {9000 + number}") == 1


def test_a_warehouse_serves_folders_and_those_that_come_later(tmp_path: Path) -> None:
    write_flights(tmp_path / "sales" / "orders", rows=10)
    with serve("--warehouse", tmp_path) as server:
        assert count(server.url, "sales.orders") == 10
        write_flights(tmp_path / "flights", rows=7)
        assert count(server.url) == 7
        assert server.end() == 0


def test_the_page_the_counters_and_the_health(folder: Path) -> None:
    lakemark.Table(folder).create_index("carrier")
    with serve(f"flights={folder}", "--http", "0") as server:
        page = server.page()
        assert count(server.url) == ROWS
        shown = get(page)
        assert all(text in shown for text in ("<strong>flights</strong>", "carrier_bitmap", "100%", server.url))
        families = {family.name for family in text_string_to_metric_families(get(f"{page}metrics"))}
        assert {"lakemark_statements", "lakemark_statements_running", "lakemark_commits"} <= families
        assert get(f"{page}health") == "serving\n"
        asked = urllib.request.Request(page, headers={"Host": "example.org"})  # noqa: S310 - our own server
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(asked, timeout=PATIENCE)  # noqa: S310 - our own server


def texts_planned(page: str) -> int:
    """How often the server at this page has planned a text."""
    families = {family.name: family for family in text_string_to_metric_families(get(f"{page}metrics"))}
    return int(families["lakemark_statements_planned"].samples[0].value)


def test_a_text_that_the_driver_prepares_and_runs_is_planned_once_and_sees_the_newest_rows(folder: Path) -> None:
    lakemark.Table(folder).declare_key("number")
    with serve(f"flights={folder}", "--http", "0") as server:
        page = server.page()
        with adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection:
            before = texts_planned(page)
            # As most programs do: a cursor for each statement, which prepares it, runs it and closes it.
            for number, text in enumerate(("SELECT count(*) + 0 FROM flights", "SELECT max(number) + 1 FROM flights")):
                with connection.cursor() as cursor:
                    cursor.execute(text)
                    assert cursor.fetchall() == [(ROWS,)]
                assert texts_planned(page) == before + number + 1
            # A cursor that runs a statement again does not prepare it again.
            before = texts_planned(page)
            with connection.cursor() as cursor:
                for last in range(ROWS, ROWS + 3):
                    cursor.execute("SELECT count(*) FROM flights WHERE number >= ?", (0,))
                    assert cursor.fetchall() == [(last,)]
                    lakemark.Table(folder).insert(pa.table({"number": [last]}))
            assert texts_planned(page) == before + 1


def test_slow_queries_are_lines_of_the_log_without_their_values(folder: Path) -> None:
    with serve(f"flights={folder}", "--slow-query-ms", "0", "--log-format", "json") as server:
        with (
            adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT number FROM flights WHERE carrier = 'B6' AND number < ?", (100,))
            rows = len(cursor.fetchall())
        assert server.end() == 0
        lines = [json.loads(line) for line in server.rest()]
    (line,) = [line for line in lines if line.get("message") == "a slow query"]
    assert (line["level"], line["event"]) == ("warn", "log")
    assert line["query"].startswith("SELECT number FROM flights WHERE carrier = ? AND number <")
    assert (line["rows"], line["ended"]) == (rows, "done")
    assert rows > 0
    assert "no_index(carrier)" in line["reasons"]
    assert "B6" not in json.dumps(lines)


def test_a_token_is_needed_and_is_nowhere_to_be_seen(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ann {TOKEN}\n")
    file.chmod(0o600)
    header = DatabaseOptions.AUTHORIZATION_HEADER.value
    with serve(f"flights={folder}", "--token-file", file, "--http", "0", "--log", "debug") as server:
        page = server.page()
        for options in (
            {},
            {header: "Bearer wrong"},
            {header: f"Bearer {TOKEN[1:]}"},
            {"username": "ann", "password": "x"},
        ):
            with pytest.raises(adbc_driver_manager.Error, match=r"(?i)unauthenticated"):
                count(server.url, **options)
        assert count(server.url, **{header: f"Bearer {TOKEN}"}) == ROWS
        assert count(server.url, username="ann", password=TOKEN) == ROWS
        shown = get(page) + get(f"{page}metrics")
        assert server.end() == 0
    said = "".join(server.lines.get() for _ in range(server.lines.qsize()))
    assert TOKEN not in shown + said


def certificate(folder: Path, *, age: timedelta = timedelta()) -> tuple[Path, Path]:
    """A certificate of localhost for two days that signs itself, and its key; made so long ago."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = datetime.now(tz=timezone.utc) - age
    signed = (
        x509.CertificateBuilder(name, name, secret.public_key(), x509.random_serial_number())
        .not_valid_before(made)
        .not_valid_after(made + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(secret, hashes.SHA256())
    )
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert, key


def test_connections_are_encrypted_with_a_certificate(folder: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    header = DatabaseOptions.AUTHORIZATION_HEADER.value
    with serve(f"flights={folder}", "--tls-cert", cert, "--tls-key", key, "--token-file", file) as server:
        assert server.first_line == f"listening on grpc+tls://127.0.0.1:{server.port}"
        roots = {DatabaseOptions.TLS_ROOT_CERTS.value: cert.read_text(), header: f"Bearer {TOKEN}"}
        assert count(server.url, **roots) == ROWS
        # A client that does not trust the certificate, and one that does not encrypt.
        with pytest.raises(adbc_driver_manager.Error, match="certificate"):
            count(server.url, **{header: f"Bearer {TOKEN}"})
        with pytest.raises(adbc_driver_manager.Error):
            count(server.url.replace("+tls", ""), **{header: f"Bearer {TOKEN}"})
        assert count(server.url, **roots) == ROWS


def test_an_expired_certificate_is_refused_by_clients(folder: Path, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, age=timedelta(days=3))
    with serve(f"flights={folder}", "--tls-cert", cert, "--tls-key", key) as server:
        roots = {DatabaseOptions.TLS_ROOT_CERTS.value: cert.read_text()}
        with pytest.raises(adbc_driver_manager.Error, match="expired"):
            count(server.url, **roots)


def test_a_file_says_what_the_command_line_says(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(
        '[serve]\nread_only = true\nhttp = "127.0.0.1:0"\n[serve.limits]\nstatement_bytes = 200\n'
        f'[tables]\nflights = "{folder}"\n[settings]\n"datafusion.execution.batch_size" = 64\n'
    )
    with serve("--config", file) as server:
        assert count(server.url) == ROWS
        assert get(f"{server.page()}health") == "serving\n"
        for statement, says in (("DELETE FROM flights", "read-only"), (f"SELECT '{'x' * 300}'", "200 are allowed")):
            with (
                adbc_driver_flightsql.dbapi.connect(server.url, autocommit=True) as connection,
                connection.cursor() as cursor,
                pytest.raises(adbc_driver_manager.Error, match=says),
            ):
                cursor.execute(statement)


def test_names_of_the_configuration_are_served(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lakemark.toml"
    file.write_text(f'[tables]\nflights = "{folder}"\nlost = "{tmp_path}/nowhere"\n')
    monkeypatch.setenv("LAKEMARK_CONFIG", str(file))
    with serve("flights") as server:
        assert count(server.url) == ROWS
    # Without a name all of them are, and one of them is not there.
    found, error = fails("--listen", "0")
    assert (found, "lost=" in error, "cannot be served" in error) == (1, True, True)
    found, error = fails("--config", file, "--listen", "0")
    assert (found, "lost=" in error) == (1, True)


def test_a_server_that_cannot_begin_says_why(folder: Path, tmp_path: Path) -> None:
    table = f"flights={folder}"
    wrong, empty = tmp_path / "wrong.toml", tmp_path / "empty"
    wrong.write_text("lissten = 1\n")
    empty.write_text("")
    missing = tmp_path / "nowhere"
    for arguments, code, says in (
        ([], 1, "give NAME=PATH"),
        (["flights", "--listen", "0"], 1, "the table flights does not exist"),
        (["/lake/flights"], 2, "NAME=PATH"),
        ([table, table], 1, "two tables are named flights"),
        ([f"x={missing}", "--listen", "0"], 1, "cannot be served"),
        (["--warehouse", missing, "--listen", "0"], 1, "is no folder"),
        ([table, "--listen", "0.0.0.0:0"], 1, "--token-file"),
        ([table, "--listen", "0", "--http", "0.0.0.0:0"], 1, "open to other machines"),
        ([table, "--token-file", empty], 1, "there is no token"),
        ([table, "--token-file", missing], 1, "cannot be read"),
        ([table, "--tls-cert", empty], 1, "--tls-key"),
        ([table, "--listen", "0", "--tls-cert", empty, "--tls-key", empty], 1, "no certificate with its key"),
        (["--config", wrong], 1, "no key lissten"),
        (["--config", missing], 1, "cannot be read"),
        ([table, "--running", "0"], 2, "--running"),
    ):
        found, error = fails(*arguments)
        assert (found, says in error) == (code, True), f"{arguments}: {error}"


def test_a_port_that_is_taken_is_named(server: Server, folder: Path) -> None:
    code, error = fails(f"flights={folder}", "--listen", str(server.port))
    assert (code, f"127.0.0.1:{server.port} cannot be listened on" in error) == (1, True), error


def test_connections_that_end_leave_no_file_open(server: Server) -> None:
    files = Path(f"/proc/{server.process.pid}/fd")
    for _ in range(3):
        count(server.url)
    before = len(list(files.iterdir()))
    for _ in range(50):
        count(server.url)
    deadline = time.monotonic() + PATIENCE
    while len(list(files.iterdir())) > before + 5:
        assert time.monotonic() < deadline, "files stay open"
        time.sleep(0.05)

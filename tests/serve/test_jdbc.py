"""The real JDBC driver: the calls that JDBC tools make, queries, parameters and changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakemark
from serving import CARRIERS, PATIENCE, ROWS, serve

if TYPE_CHECKING:
    from serving import Server

CLIENT = Path(__file__).parent / "jdbc" / "Jdbc.java"
CACHE = Path(os.environ.get("LAKEMARK_CACHE", Path.home() / ".cache" / "lakemark"))


def java() -> str:
    """The Java that Maven and Spark take."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java") or "java"


def ask(url: str, *what: str) -> dict[str, list[str]]:
    """What the client printed, by the name of each answer."""
    jars = sorted((CACHE / "serve-jdbc").glob("*.jar"))
    assert jars, "the driver is not in the cache: `make test-python` puts it there"
    opened = "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED"
    done = subprocess.run(
        [
            java(),
            opened,
            "-Duser.timezone=UTC",
            "--class-path",
            os.pathsep.join(map(str, jars)),
            str(CLIENT),
            url,
            *what,
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = defaultdict(list)
    for line in done.stdout.splitlines():
        name, _, answer = line.partition("\t")
        answers[name].append(answer)
    return answers


@pytest.fixture
def answers(server: Server) -> dict[str, list[str]]:
    return ask(f"jdbc:arrow-flight-sql://127.0.0.1:{server.port}/?useEncryption=false")


def test_a_jdbc_tool_shows_tables_queries_and_changes_them(answers: dict[str, list[str]], folder: Path) -> None:
    assert answers["product"] == ["Lakemark"]
    assert answers["catalogs"] == ["lakemark"]
    assert answers["schemas"] == ["lakemark|information_schema", "lakemark|public"]
    assert answers["types_of_tables"] == ["TABLE", "VIEW"]
    assert answers["tables"] == ["lakemark|public|flights|TABLE"]
    assert answers["tables_of_type"] == ["flights"]
    assert answers["no_views.rows"] == ["0"]
    # BIGINT, VARCHAR, DOUBLE and DATE of java.sql.Types.
    assert answers["columns"] == ["number|-5|1", "carrier|12|2", "delay|8|3", "day|91|4"]
    assert answers["keys"] == ["number|1"]
    assert answers["imported.rows"] == answers["exported.rows"] == answers["crossed.rows"] == ["0"]
    assert answers["tables_by_letter"] == ["flights"]
    assert answers["tables_escaped.rows"] == answers["tables_elsewhere.rows"] == ["0"]
    assert answers["schemas_by_letter"] == ["lakemark|public"]
    assert [line.split("|")[0] for line in answers["columns_by_letter"]] == ["delay", "day"]
    assert answers["columns_escaped.rows"] == answers["keys_elsewhere.rows"] == ["0"]
    assert answers["keys_of_schema"] == ["number|flights_key"]
    assert answers["connections"] == ["4096"]
    assert answers["unanswered"] == []
    assert answers["answered"] == ["true"]
    assert (answers["transactions"], answers["read_only"]) == (["false"], ["false"])

    assert [line.split("|")[0] for line in answers["selected"]] == ["number", "carrier", "delay", "day"]
    assert answers["row"] == ["1|B6|false|9.25|1970-01-02", "11|null|true|0.75|1970-01-12"]
    assert answers["sum"] == [str(sum(range(1, 300_001)))]
    assert answers["first"] == ["true"]
    assert answers["parameters"] == ["3"]
    counted = sum(1 for n in range(500) if n % 11 and CARRIERS[n % 5] == "UA")
    assert answers["counted"] == [str(counted), "0"]

    assert (answers["inserted"], answers["is_query"], answers["updated"]) == (["2"], ["false"], ["1"])
    assert answers["prepared_insert"] == ["1", "1", "1"]
    assert (answers["deleted"], answers["left"]) == (["1"], ["4|3"])
    table = lakemark.Table(folder)
    assert table.count() == ROWS + 4
    assert "j" in [index.name for index in table.indexes]

    unknown, setting, transaction = answers["refused"]
    assert "nosuch" in unknown
    assert "settings are those of the server" in setting
    assert "transactions of several statements" in transaction
    assert "accepted" not in answers


def test_a_jdbc_tool_gives_the_token_as_it_is_and_as_a_password(folder: Path, tmp_path: Path) -> None:
    token = "0123456789abcdef" * 4
    file = tmp_path / "tokens"
    file.write_text(token)
    with serve(f"flights={folder}", "--token-file", file) as server:
        url = f"jdbc:arrow-flight-sql://127.0.0.1:{server.port}/?useEncryption=false"
        with pytest.raises(AssertionError, match=r"(?i)token|unauthenticated"):
            ask(url, "describe")
        for given in (f"&token={token}", f"&user=ann&password={token}"):
            assert ask(url + given, "describe")["tables"] == ["lakemark|public|flights|TABLE"]

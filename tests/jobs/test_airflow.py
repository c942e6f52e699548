"""The DAGs for Airflow, parsed and run by Airflow itself: `make test-jobs`, with packages of its own, not in CI."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

DAGS = Path(__file__).parents[2] / "examples" / "jobs" / "airflow"
AIRFLOW = Path(os.environ["LAKEMARK_AIRFLOW_PYTHON"]).parent / "airflow"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """The command `lakemark` of this checkout, by the interpreter that has what it needs."""
    path = tmp_path / "bin" / "lakemark"
    path.parent.mkdir()
    here = f"PYTHONPATH={shlex.quote(os.pathsep.join(sys.path))} {shlex.quote(sys.executable)}"
    path.write_text(f'#!/bin/sh\n{here} -m lakemark "$@"\n')
    path.chmod(0o755)
    return path


class Home:
    """An Airflow of the test: its files, and runs of its command."""

    def __init__(self, folder: Path, command: Path, tables: list[Path]) -> None:
        self.environment = {
            "HOME": str(folder),
            "PATH": f"{command.parent}:/usr/bin:/bin",
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
            "AIRFLOW_VAR_LAKEMARK_TABLES": "".join(f"{table}\n" for table in tables),
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [AIRFLOW, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=600
        )

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Two tables, one of them in a folder whose name needs quotes, with an index that is declared and not built."""
    folders = [tmp_path / "lake" / "flights", tmp_path / "lake" / "late 'orders'"]
    for folder in folders:
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"k": [1, 2, 2]}), folder / "a.parquet")
        lakemark.Table(folder).create_index("k", using="bitmap", build=False)
    return folders


@pytest.fixture
def home(tmp_path: Path, command: Path, tables: list[Path]) -> Home:
    home = Home(tmp_path / "airflow", command, tables)
    (tmp_path / "airflow").mkdir()
    home.ok("db", "migrate")
    return home


def test_airflow_finds_both_dags_and_nothing_wrong_with_them(home: Home) -> None:
    home.ok("dags", "reserialize")
    errors = home.ok("dags", "list-import-errors", "--output", "plain")
    assert "No data found" in errors
    listed = home.ok("dags", "list", "--output", "plain")
    assert {"lakemark_build", "lakemark_upkeep"} <= {line.split()[0] for line in listed.splitlines() if line.strip()}


def test_a_run_of_the_builds_covers_every_table_and_the_upkeep_merges_their_segments(
    home: Home, tables: list[Path]
) -> None:
    home.ok("dags", "reserialize")
    home.ok("dags", "test", "lakemark_build")
    assert [lakemark.Table(table).indexes[0].coverage for table in tables] == [1.0, 1.0]
    for table in tables:
        pq.write_table(pa.table({"k": [2]}), table / "b.parquet")
    home.ok("dags", "test", "lakemark_build", "2026-11-02T00:15:00")
    assert [lakemark.Table(table).indexes[0].segments for table in tables] == [2, 2]
    home.ok("dags", "test", "lakemark_upkeep")
    assert [lakemark.Table(table).indexes[0].segments for table in tables] == [1, 1]

"""The `lakemark` command as the Python package carries it, and the progress bar that it and the library draw."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from lakemark._progress import ProgressBar

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from conftest import Judged


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lakemark", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_count_prints_the_number_alone(indexed: Judged) -> None:
    done = command("count", indexed.folder, "city = 'Oslo'")
    assert (done.returncode, done.stdout) == (0, str(indexed.count("city = 'Oslo'")) + "\n")


def test_explain_as_json_is_what_the_library_says(indexed: Judged) -> None:
    done = command("explain", indexed.folder, "city = 'Oslo'", "--format", "json")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    for key in ("rows_exact", "rows_rechecked", "files_total", "row_groups_pruned"):
        assert printed[key] == getattr(indexed.table.explain("city = 'Oslo'"), key)


def test_sql_answers(indexed: Judged) -> None:
    table = f"CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{indexed.folder}'"
    done = command("sql", "-c", table, "-c", "SELECT count(*) AS n FROM t WHERE city = 'Rom'", "--format", "csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["n", str(indexed.count("city = 'Rom'"))]


def test_indexes_made_by_the_command_serve_the_library(plain: Judged) -> None:
    assert command("index", "create", plain.folder, "--on", "city", "--using", "bitmap", "--name", "c").returncode == 0
    assert command("index", "build", plain.folder).returncode == 0
    assert [(index.name, index.coverage) for index in plain.table.indexes] == [("c", 1.0)]


def test_exit_codes_are_1_for_a_failure_and_2_for_wrong_usage(tmp_path: Path) -> None:
    failed = command("count", tmp_path / "nowhere")
    assert failed.returncode == 1
    assert "nowhere" in failed.stderr
    assert failed.stdout == ""
    assert command("dance").returncode == 2


def test_a_build_says_on_stderr_how_far_it_came(plain: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    plain.table.create_index("city", using="bitmap", name="a")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("build: 4,000 of 4,000 rows in ")
    plain.table.create_index("id", using="bitmap", name="b", progress=False)
    assert capsys.readouterr().err == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_bar_is_redrawn_in_place() -> None:
    out = Terminal()
    with ProgressBar("build", out) as bar:
        bar(0, 300)
        bar(300, 300)
    drawn = out.getvalue().split("\r")[1:]
    assert "  0%" in drawn[0]
    assert "100%" in drawn[-1]
    assert drawn[-1].count("█") == 30
    assert out.getvalue().endswith("\n")


def test_nothing_to_do_draws_nothing() -> None:
    out = Terminal()
    with ProgressBar("build", out) as bar:
        bar(0, 0)
    assert out.getvalue() == ""

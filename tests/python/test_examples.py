"""The programs under examples/ and benchmarks/ run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

ROOT = Path(__file__).parents[2]


def run(command: list[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_quickstart_notebook_runs_from_top_to_bottom() -> None:
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 11
    names: dict[str, object] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"quickstart.ipynb, code cell {number}", "exec"), names)  # noqa: S102 - our own notebook
    ids = range(200_000)
    zurich = [n for n in ids if n * 31 % 5 == 3 and n * 7919 % 9973 != 42]
    assert names["count"] == len(zurich)
    assert names["report"].rows_certain + names["report"].rows_uncertain > 0
    assert names["found"].num_rows == sum(1 for n in ids if n * 7919 % 9973 == 42 and n * 37 % 100_003 / 4 > 100)
    assert sorted(names["by_key"].to_arrow()["id"].to_pylist()) == [17, 199_999]
    assert (names["searched"].index_reads, names["searched"].index_bytes) == (1, 4096)
    assert names["before"] == 40_000 + 20


def test_notebook_is_committed_without_outputs() -> None:
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    assert [cell for cell in notebook["cells"] if cell.get("outputs")] == []


@pytest.fixture
def command(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "lakemark"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m lakemark "$@"\n')
    path.chmod(0o755)
    return path


def scheduled_build(command: Path, tmp_path: Path, *tables: Path) -> subprocess.CompletedProcess[str]:
    script = ROOT / "examples" / "scheduled_build.sh"
    return run([script, *tables], LAKEMARK=str(command), LAKEMARK_BUILD_LOCK=str(tmp_path / "lock"))


def test_scheduled_build_covers_new_files_and_reports_failures(command: Path, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1, 2, 2]}), folder / "a.parquet")
    table = lakemark.Table(folder)
    table.create_index("k", using="bitmap", build=False)
    assert scheduled_build(command, tmp_path, folder).returncode == 0
    assert lakemark.Table(folder).indexes[0].coverage == 1.0
    pq.write_table(pa.table({"k": [2]}), folder / "b.parquet")
    done = scheduled_build(command, tmp_path, tmp_path / "missing", folder)
    assert done.returncode == 1
    assert "the build failed" in done.stderr
    assert lakemark.Table(folder).indexes[0].files_covered == 2
    assert lakemark.Table(folder).count("k = 2") == 3


def test_scheduled_build_without_tables_is_wrong_usage(command: Path, tmp_path: Path) -> None:
    done = scheduled_build(command, tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_demo_gives_the_same_rows_with_and_without_marks(tmp_path: Path) -> None:
    done = run([sys.executable, ROOT / "examples" / "demo.py", "--no-spark", "--folder", tmp_path / "flights"])
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(" off " in line for line in lines) == sum(" on " in line for line in lines) == 5
    table = lakemark.Table(tmp_path / "flights")
    assert table.count() == 336_776
    assert table.count("dest = 'HNL'") == 707


def test_set_query_benchmark_answers_equal_those_of_the_peers(tmp_path: Path) -> None:
    done = run(
        [sys.executable, ROOT / "benchmarks" / "sqb.py", "--rows", "20000", "--results", tmp_path],
        LAKEMARK_BENCH_DATA=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "sqb-20000.json").read_text("utf-8"))
    assert len(result["answers"]) == 75
    assert len(result["indexes"]) == 13
    engines = {
        "lakemark",
        "lakemark, cache off",
        "lakemark, marks off",
        "lakemark, count()",
        "lakemark, count(), cache off",
        "datafusion",
        "duckdb",
        "duckdb native",
        "polars",
    }
    assert set(result["medians"]["all"]) - {"lance"} == engines
    assert (tmp_path / "sqb-20000.png").stat().st_size > 10_000

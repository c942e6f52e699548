"""Lists the test suites and what each of them holds, from their heads.

`python tests/structure/catalogue.py` writes `tests/README.md`; a test compares it with the suites.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "tests" / "README.md"
# Folders of suites, with their titles.
FOLDERS = {
    "rust/format/tests/it": "Bytes (`rust/format`)",
    "rust/index/tests/it": "Index structures (`rust/index`)",
    "rust/table/tests/it": "Tables (`rust/table`)",
    "rust/table/tests": "Tables under stress (`rust/table`)",
    "rust/datafusion/tests/it": "DataFusion (`rust/datafusion`)",
    "rust/serve/tests/it": "The server (`rust/serve`)",
    "rust/cli/tests/it": "The command (`rust/cli`)",
    "tests/python": "Python",
    "tests/serve": "The server and its clients",
    "tests/browser": "Pages in a browser (`make test-browser`)",
    "tests/spark": "Spark",
    "tests/delta": "Delta in Spark (`make test-delta`)",
    "tests/spark_suites": "Spark's own suites (`make test-spark-suites`)",
    "tests/jobs": "Scheduled jobs in Airflow (`make test-jobs`)",
    "tests/structure": "The code itself",
}
HEAD = """# The tests

Written by `tests/structure/catalogue.py` from the heads of the suites.
A test's name is a sentence that says what is expected; `grep -rn WORD rust/*/tests tests` finds the test of a promise.

Rows come in an order only where somebody asks for one: files are read at the same time, on so many cores as there are.
So tests meet such rows with their second half first: `rows` of `fixture.rs`, and `in_no_order` of `conftest.py`.
A test that goes by the order of its own machine fails at once: it sorts the rows, or says `ORDER BY`.

"""
# Each with the suites, separated by semicolons.
PROMISES = {
    "the five laws of [ARCHITECTURE.md](../ARCHITECTURE.md#laws)": (
        "tests that carry their names: `grep -rn law_1_ rust`"
    ),
    "rows with an index are rows without": (
        "the predicate corpus (`tests/corpus`) in `corpus.rs`, `corpus` and `test_corpus.py`; "
        "random queries in `differential`"
    ),
    "the answers are right": (
        "DuckDB in `tests/python/differential` and `make fuzz NAME=duckdb`; "
        "Spark itself in `test_differential.py`; "
        "DataFusion's own suite in `make test-sqllogic`, and Spark's in `make test-spark-suites`; "
        "a look at every value in Rust"
    ),
    "what was acknowledged outlives crashes, full disks and power cuts": (
        "`crash.rs`, `disk.rs`, `builds.rs`, `test_clients.py`"
    ),
    "several writers and readers at once": (
        "`schedules.rs`, `processes.rs`, `test_readers.py`, `test_soak.py`, `test_clients.py`"
    ),
    "other programs change the same table": ("the model in `rust/table/tests/it/updates/model`, `test_neighbours.py`"),
    "bytes are what [docs/format.md](../docs/format.md) says": (
        "`spec.rs`, `golden.rs`, a second reader in `test_format.py`"
    ),
    "no byte is believed": ("`bad.rs` with [tests/bad](bad/README.md), `rust/fuzz`, `test_damage.py`, `forged.rs`"),
    "less is read, counted and not timed": (
        "tests that count reads by a layer around the store (`layer.rs`), `test_pushdown.py`"
    ),
    "an error says what to do, and nothing is lost": (
        "`bad_input.rs`, `unsupported.rs`, `test_exceptions.py`, `test_errors.py`"
    ),
    "operators see what a job does, and it does it": (
        "`counting.rs`, `watching.rs`, `spans.rs`, `test_watch.py`, `test_jobs.py`, `test_metrics.py`"
    ),
    "documents are true": ("`test_examples.py`, `tests/readme`, the examples of each crate's page"),
}


def suites(folder: Path) -> list[Path]:
    """The files and folders of tests in a folder; helpers have tests of theirs below them or are used by tests."""
    files = [
        path for path in folder.iterdir() if path.suffix in (".rs", ".py") and path.stem not in ("main", "conftest")
    ]
    inside = [head for path in folder.iterdir() if path.is_dir() and (head := path / "mod.rs").exists()]
    return sorted([*files, *inside], key=name)


def name(suite: Path) -> str:
    """How a suite is called in the list."""
    return f"{suite.parent.name}/" if suite.name == "mod.rs" else suite.name


def head(suite: Path) -> str:
    """The first sentence of a suite's head."""
    text = suite.read_text(encoding="utf-8")
    if suite.suffix == ".rs":
        lines = [line[3:].strip() for line in text.splitlines()[:8] if line.startswith("//!")]
        said = " ".join(lines)
    else:
        found = re.match(r'(?:#!.*\n)?"""(.*?)"""', text, re.DOTALL)
        said = " ".join(found.group(1).split()) if found else ""
    sentence = re.match(r".*?[.](?=\s|$)", said)
    said = sentence.group() if sentence else said
    return said.replace("[`", "`").replace("`]", "`")


def page() -> str:
    """The whole page."""
    promises = [f"| {promise} | {held} |" for promise, held in PROMISES.items()]
    table = "\n".join(["| promise | where it is held |", "|---|---|", *promises])
    parts = [f"{HEAD}{table}\n"]
    for folder, title in FOLDERS.items():
        lines = [f"| `{name(suite)}` | {head(suite)} |" for suite in suites(ROOT / folder)]
        parts.append(
            "\n".join([f"## {title}", "", f"In `{folder}`.", "", "| suite | what it holds |", "|---|---|", *lines])
            + "\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

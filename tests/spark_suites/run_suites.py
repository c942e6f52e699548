"""Runs Spark's own suites over folders that are marked: `make test-spark-suites` starts it.

Each suite is run by Spark's own code, from its test jar, several times:

```text
engine     as Spark runs it ─▶ what Spark answers otherwise from outside of its checkout
files      views over Parquet files, no index ┐
extension  the same, index on                 ├▶ equal to what the suite expects, or listed in `differences.toml`
connector  views that the connector reads     ┘
```

A difference that is not listed fails the run, and so does one that is listed and no longer there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyspark

import differences
import golden
import scalatest
import suites
from counts import Reach, SqlCounts, scala_lines
from differences import CONNECTOR, ENGINE, EXTENSION, FILES, Found

HERE = Path(__file__).parent
LIST = HERE / "differences.toml"
# Has the suite of SQL write its results, and those under the first settings of a file alone.
GOLDEN = {"SPARK_GENERATE_GOLDEN_FILES": "1"}
OURS = "io.lakemark.spark.extension"
# Small tables have several row groups then.
ROWS_OF_A_ROW_GROUP = "5"
# How many differences are shown on the screen; a file has all of them.
SHOWN = 20


@dataclass(frozen=True)
class Setup:
    """What all runs share."""

    folder: Path
    classes: Path
    test_jars: Path
    ours: tuple[Path, ...]
    heap: str
    is_short: bool
    # Whether files are run under their first settings alone.
    is_once: bool

    def place(self, run: str, kind: str) -> scalatest.Place:
        """Where a run has its files."""
        paths = (*self.ours, self.classes, self.test_jars / "*", scalatest.spark_jars() / "*")
        place = scalatest.Place(self.folder / "runs" / f"{kind}-{run}", paths, self.heap, self.is_short)
        place.prepare(self.classes)
        return place


def main() -> int:
    """Runs what is asked for, and says what differs."""
    arguments = parsed()
    listed = differences.parse(LIST.read_text(encoding="utf-8"))
    try:
        setup = prepared(arguments)
        runs = suites.runs_of(arguments.runs)
        found, lines = run_all(setup, runs, arguments.words)
    except (scalatest.RunError, golden.MalformedError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if arguments.once:
        listed = {place: entry for place, entry in listed.items() if differences.item_of(place) != place}
    found.settle(listed)
    wrong = found.wrong(listed)
    sys.stdout.write("\n".join(lines) + "\n")
    unlisted = setup.folder / "unlisted"
    found.write_unlisted(listed, unlisted)
    for text in wrong[:SHOWN]:
        sys.stdout.write(f"\n{text}\n")
    if wrong:
        sys.stdout.write(f"\n{len(wrong)} in all; {unlisted} has every difference that is not listed\n")
    return 1 if wrong else 0


def parsed() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description="Spark's own suites over folders that are marked.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="parts of names of files and suites; all without one")
    parser.add_argument("--runs", default="", help=f"some of {', '.join(differences.RUNS)}; all of them by default")
    parser.add_argument("--jars", type=Path, required=True, help="the folder of the test jars")
    parser.add_argument("--ours", type=Path, nargs="*", default=[], help="our jar, and the classes of its tests")
    parser.add_argument("--once", action="store_true", help="run files of SQL under their first settings alone")
    parser.add_argument("--heap", default="4g", help="memory of Java")
    return parser.parse_args()


def prepared(arguments: argparse.Namespace) -> Setup:
    """Unpacks what tests read as files."""
    cache = os.environ.get("LAKEMARK_CACHE")
    if not cache:
        raise ValueError("set LAKEMARK_CACHE to a folder to work in")
    folder = Path(cache) / "spark-suites"
    jars = sorted(arguments.jars.glob("spark-sql_*-tests.jar"))
    if len(jars) != 1:
        raise ValueError(f"{arguments.jars} has no test jar of Spark's SQL: make test-spark-suites copies it there")
    line = ".".join(pyspark.__version__.split(".")[:2])
    if f"-{line}." not in jars[0].name:
        raise ValueError(f"{jars[0].name} is none of Spark {line}, which is installed: set SPARK_TESTS_VERSION")
    classes = folder / jars[0].stem
    scalatest.unpack(jars[0], classes)
    ours = tuple(path.resolve() for path in arguments.ours)
    if missing := [str(path) for path in ours if not path.exists()]:
        raise ValueError(f"there is no {', '.join(missing)}: make jar builds it")
    return Setup(folder, classes, arguments.jars, ours, arguments.heap, bool(arguments.words), arguments.once)


def run_all(setup: Setup, runs: list[str], words: list[str]) -> tuple[Found, list[str]]:
    """Runs files of SQL and other suites, each run in a process of its own."""
    files = suites.sql_files(setup.classes / "sql-tests" / "inputs", words)
    scala = suites.scala_suites(words)
    if not files and not scala:
        raise ValueError(f"no file and no suite has one of {words} in its name; leave them out to run all")
    found, lines = Found(), []
    for run in runs if files else []:
        lines += run_sql(setup, run, files, found)
    for run in [run for run in runs if run in suites.SCALA_RUNS] if scala else []:
        lines += run_scala(setup, run, scala, found)
    return found, lines


def settings_of(run: str, place: scalatest.Place) -> dict[str, str]:
    """The settings of a run, which Spark takes from the properties of its process."""
    if run == ENGINE:
        return {}
    return {
        # Sessions of tests do not look for what jars provide by themselves.
        "spark.sql.extensions": ",".join(f"{OURS}.{name}Extension" for name in ("Suite", "Lakemark", "Connector")),
        "spark.sql.queryExecutionListeners": f"{OURS}.SuiteReach",
        "spark.lakemark.use_index": str(run != FILES).lower(),
        "lakemark.suites.run": run,
        "lakemark.suites.report": str(place.folder / "report.jsonl"),
        "lakemark.suites.folder": str(place.folder / "views"),
    }


def run_sql(setup: Setup, run: str, files: list[str], found: Found) -> list[str]:
    """Runs files of SQL: the suite compares them itself, and writes those anew that differ, statement by statement."""
    place = setup.place(run, "sql")
    settings = settings_of(run, place)
    if run != ENGINE:
        settings["spark.hadoop.parquet.block.row.count.limit"] = ROWS_OF_A_ROW_GROUP
    asked = [(suites.SQL, test) for file in files if (test := suites.test_of(file))]
    left_out = {file: "its functions are Python's" for file in files if suites.test_of(file) is None}
    outcomes = scalatest.run(place, asked, settings, GOLDEN if setup.is_once else {}) if asked else []
    left_out |= {suites.file_of(each.test): "Spark leaves it out" for each in outcomes if each.is_left_out}
    failures = {suites.file_of(each.test): each.failure for each in outcomes if not each.is_left_out}
    results = setup.classes / "sql-tests" / "results"
    expected = {file: golden.read(results / f"{file}.out") for file in failures}
    written = [file for file in failures if setup.is_once or failures[file]]
    if written and not setup.is_once:
        scalatest.run(place, [(suites.SQL, str(suites.test_of(file))) for file in written], settings, GOLDEN)
    differing: dict[str, str] = {}
    for file in written:
        given = golden.read(place.results() / f"{file}.out")
        differing |= differing_statements(run, file, failures[file], (expected[file], given))
    found.add_run(run, list(expected), differing)
    reach = Reach.read(place.folder / "report.jsonl")
    check_reach(run, reach)
    return SqlCounts(run, expected, set(differing), left_out, reach).lines()


def differing_statements(
    run: str, file: str, failure: str, results: tuple[list[golden.Statement], list[golden.Statement]]
) -> dict[str, str]:
    """The statements of a file that differ; the file itself if it fails under other settings alone."""
    expected, given = results
    texts = golden.differences(expected, given, file)
    compared = {number: text for number, text in texts.items() if run == ENGINE or not expected[number - 1].is_plan}
    if failure and not texts:
        return {file: f"equal at first, and under other settings:\n{failure}"}
    return {f"{file}:{number}": text for number, text in compared.items()}


def run_scala(setup: Setup, run: str, names: list[str], found: Found) -> list[str]:
    """Runs suites that are written in Scala."""
    place = setup.place(run, "scala")
    outcomes = scalatest.run(place, [(name, None) for name in names], settings_of(run, place))
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    differing = {}
    for outcome in outcomes:
        suite = suites.short(outcome.suite)
        (failed if outcome.failure else left_out if outcome.is_left_out else passed)[suite] += 1
        if outcome.failure:
            differing[f"{suite}: {outcome.test}"] = outcome.failure
    found.add_run(run, [suites.short(name) for name in names], differing)
    reach = Reach.read(place.folder / "report.jsonl")
    check_reach(run, reach)
    return scala_lines(run, passed, failed, left_out, reach)


def check_reach(run: str, reach: Reach) -> None:
    """A run in which nothing could be marked has shown nothing."""
    if run in (EXTENSION, CONNECTOR) and reach.not_marked and not reach.marked:
        raise ValueError(f"no folder could be marked: {next(iter(reach.not_marked))}")


if __name__ == "__main__":
    sys.exit(main())

"""Runs suites of Spark's own tests from outside: by ScalaTest, with the classes of PySpark and of the test jars."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO
from xml.etree import ElementTree as ET

import pyspark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What Spark starts its own tests with on Java 17.
OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
SETTINGS = {
    "java.awt.headless": "true",
    "file.encoding": "UTF-8",
    "io.netty.tryReflectionSetAccessible": "true",
    "spark.testing": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.unsafe.exceptionOnMemoryLeak": "true",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Tests look at what is logged, so that it has to be logged.
LOG = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = File
appender.file.type = File
appender.file.name = File
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %t %p %c{{1}}: %m%n%ex
"""
# What no suite here needs, and half of the files.
UNUSED = ("structured-streaming/", "META-INF/maven/")
SHOWN_LINES = 30


class RunError(Exception):
    """A run that came to no end of its own."""


@dataclass(frozen=True)
class Outcome:
    """What became of a test."""

    suite: str
    test: str
    # Empty for a test that passed.
    failure: str
    is_left_out: bool


@dataclass(frozen=True)
class Place:
    """Where a run has its files, and what it is started with."""

    folder: Path
    class_path: tuple[Path, ...]
    heap: str
    # A run of a minute is not worth optimised byte code.
    is_short: bool

    @property
    def home(self) -> Path:
        """What Spark's tests take for its checkout."""
        return self.folder / "home"

    def prepare(self, classes: Path) -> None:
        """Makes the folder anew, with the files of Spark's suite of SQL where the suite looks for them."""
        shutil.rmtree(self.folder, ignore_errors=True)
        resources = self.home / "sql" / "core" / "src" / "test" / "resources"
        shutil.copytree(classes / "sql-tests", resources / "sql-tests")
        for name in ("work", "tmp", "views"):
            (self.folder / name).mkdir()

    def results(self) -> Path:
        """Where the suite of SQL has its results."""
        return self.home / "sql" / "core" / "src" / "test" / "resources" / "sql-tests" / "results"


def unpack(jar: Path, folder: Path) -> None:
    """Unpacks a jar once, as tests read their files from folders."""
    if folder.exists():
        return
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(jar) as packed:
        packed.extractall(partial, [name for name in packed.namelist() if not name.startswith(UNUSED)])
    partial.rename(folder)


def spark_jars() -> Path:
    """The folder of PySpark's jars."""
    return Path(str(pyspark.__file__)).parent / "jars"


def run(
    place: Place,
    asked: Sequence[tuple[str, str | None]],
    settings: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Runs tests, or whole suites where a test is `None`, in one process of Java."""
    reports = place.folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    log = place.folder / "log.txt"
    suites = []
    for suite in dict.fromkeys(suite for suite, _ in asked):
        suites += ["-s", suite]
        suites += [word for of, test in asked if of == suite and test is not None for word in ("-t", test)]
    command = [*java(place, settings), "org.scalatest.tools.Runner", "-oDW", "-u", str(reports), *suites]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8", **(variables or {})}
    with log.open("a", encoding="utf-8") as written:
        follow(command, place.folder / "work", environment, written)
    outcomes = [outcome for report in sorted(reports.glob("TEST-*.xml")) for outcome in read_report(report)]
    missing = not_run(asked, outcomes)
    if missing:
        last = "\n".join(log.read_text(encoding="utf-8").splitlines()[-SHOWN_LINES:])
        raise RunError(f"{', '.join(missing)} did not run; the end of {log}:\n{last}")
    return outcomes


def follow(command: list[str], folder: Path, environment: Mapping[str, str], written: TextIO) -> None:
    """Runs a command to its end, writes what it prints, and shows each test that is done."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            written.write(line)
            if line.startswith("- "):
                sys.stderr.write(line)
    finally:
        # Who is interrupted leaves no process behind.
        if process.poll() is None and sys.exc_info()[0] is not None:
            process.kill()
        process.wait()


def not_run(asked: Sequence[tuple[str, str | None]], outcomes: Sequence[Outcome]) -> list[str]:
    """The tests and suites of which there is no report."""
    seen = {(outcome.suite, outcome.test) for outcome in outcomes}
    suites = {suite for suite, _ in seen}
    return [
        test or suite for suite, test in asked if (suite not in suites if test is None else (suite, test) not in seen)
    ]


def java(place: Place, settings: Mapping[str, str]) -> list[str]:
    """The command that starts Java."""
    log = place.folder / "log4j2.properties"
    log.write_text(LOG.format(file=place.folder / "spark.log"), encoding="utf-8")
    properties = {
        **SETTINGS,
        "spark.test.home": str(place.home),
        "java.io.tmpdir": str(place.folder / "tmp"),
        "log4j.configurationFile": str(log),
        **settings,
    }
    home = os.environ.get("JAVA_HOME")
    return [
        f"{home}/bin/java" if home else "java",
        "-ea",
        f"-Xmx{place.heap}",
        "-Xss4m",
        *(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if place.is_short else []),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        ":".join(str(path) for path in place.class_path),
    ]


def read_report(path: Path) -> list[Outcome]:
    """What a report of ScalaTest's says of each test."""
    outcomes = []
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 - written by the run itself
        failed = case.find("failure")
        if failed is None:
            failed = case.find("error")
        failure = "" if failed is None else shortened(f"{failed.get('message') or ''}\n{failed.text or ''}")
        outcomes.append(
            Outcome(str(case.get("classname")), str(case.get("name")), failure, case.find("skipped") is not None)
        )
    return outcomes


def shortened(text: str) -> str:
    """The beginning of a failure, of which there is always something."""
    return "\n".join(text.strip().splitlines()[:SHOWN_LINES]) or "failed without a message"

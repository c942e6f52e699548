"""`lakemark index watch` as a process of its own: what it builds, what it tells, how it ends."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import lakemark
from conftest import FILES, orders, write_orders
from test_command import command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Judged

# Seconds: longer than anything here takes on a machine that is busy.
PATIENCE = 600


class Watching:
    """A watch that runs, and the lines that it wrote."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.put(line)

    def event(self, name: str) -> dict[str, Any]:
        """The next line of this event; others before it are dropped."""
        while True:
            line: dict[str, Any] = json.loads(self.lines.get(timeout=PATIENCE))
            assert {"time", "level", "event"} <= line.keys()
            if line["event"] == name:
                return line

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)


@contextmanager
def watching(*arguments: str | Path) -> Iterator[Watching]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lakemark", "index", "watch", *map(str, arguments), "--log-format", "json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    watch = Watching(process)
    try:
        yield watch
    finally:
        process.kill()
        process.wait()
        watch.reader.join()
        assert process.stderr is not None
        process.stderr.close()


# How often a watch is killed.
KILLS = int(os.environ.get("LAKEMARK_WATCH_KILLS", "3"))


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else is given before the watch listens there."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def metrics(port: int) -> dict[str, list[Any]]:
    """What the port tells, as Prometheus's own parser reads it: samples by their names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        return parsed(answer.read().decode("utf-8"))


def parsed(text: str) -> dict[str, list[Any]]:
    samples: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in {"counter", "gauge"}
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return samples


def value(samples: dict[str, list[Any]], name: str, **labels: str) -> float:
    (sample,) = [sample for sample in samples[name] if labels.items() <= sample.labels.items()]
    number: float = sample.value
    return number


def test_a_watch_builds_what_comes_tells_it_and_ends_with_sigterm(plain: Judged, port: int, tmp_path: Path) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    file = tmp_path / "lakemark.prom"
    with watching(plain.folder, "--every", "1s", "--metrics-port", str(port), "--metrics-file", file) as watch:
        first = watch.event("done")
        assert (first["table"], first["report"]["files"]) == (str(plain.folder), 4)
        samples = metrics(port)
        assert value(samples, "lakemark_coverage_ratio", table=str(plain.folder), index="c") == 1
        assert value(samples, "lakemark_lag_seconds") == 0
        assert value(samples, "lakemark_indexed_rows_total") == 4000
        assert value(samples, "lakemark_runs_total", verb="build") == 1
        # As a careful writer does it: nobody lists half a file.
        pq.write_table(orders(9), tmp_path / "late.parquet")
        (tmp_path / "late.parquet").rename(plain.folder / "late.parquet")
        second = watch.event("done")
        assert (second["report"]["files"], second["report"]["rows"]) == (1, 1000)
        assert second["counters"]["lakemark_indexed_files_total"] == 5
        assert second["counters"]["lakemark_runs_total"]["build"] == 2
        assert watch.end(signal.SIGTERM) == 0
    assert plain.table.indexes[0].coverage == 1.0
    assert plain.table.count("city = 'Oslo'") == plain.count("city = 'Oslo'")
    written = parsed(file.read_text("utf-8"))
    assert value(written, "lakemark_indexed_files_total") == 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_looks_at_an_unchanged_table_are_listings_and_nothing_else(plain: Judged, port: int) -> None:
    plain.table.create_index("city", using="bitmap", name="c")
    with watching(plain.folder, "--every", "1s", "--metrics-port", str(port)) as watch:
        watch.event("done")
        samples = before = metrics(port)
        while value(samples, "lakemark_listings_total") < value(before, "lakemark_listings_total") + 3:
            samples = metrics(port)
        assert value(samples, "lakemark_runs_total", verb="build") == 1
        listings = value(samples, "lakemark_listings_total") - value(before, "lakemark_listings_total")
        reads = value(samples, "lakemark_requests_total", kind="get")
        # A look may have begun, and not yet ended, when it was asked for the second time.
        assert reads - value(before, "lakemark_requests_total", kind="get") <= listings
        assert watch.lines.empty(), "a look that found nothing to do says nothing"
        assert watch.end(signal.SIGINT) == 0


def test_after_an_error_a_watch_says_when_it_looks_again_and_goes_on(plain: Judged) -> None:
    plain.table.create_index("city", using="bitmap", name="c")
    newest = max((plain.folder / "_lakemark" / "manifest").iterdir())
    kept = newest.read_bytes()
    newest.write_bytes(b"damaged")
    with watching(plain.folder, "--every", "1s") as watch:
        failed = watch.event("failed")
        assert failed["table"] == str(plain.folder)
        assert "damaged" in failed["message"]
        assert 1.8 <= failed["seconds_to_next"] <= 2.2
        newest.write_bytes(kept)
        watch.event("done")
        assert watch.end(signal.SIGTERM) == 0


def test_the_port_refuses_what_it_does_not_answer_and_goes_on(plain: Judged, port: int) -> None:
    plain.table.create_index("city", using="bitmap", name="c")
    with watching(plain.folder, "--every", "1h", "--metrics-port", str(port)) as watch:
        watch.event("done")
        for request, status in {
            b"GET / HTTP/1.1\r\n\r\n": b"404",
            b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc": b"405",
            b"GET /metrics HTTP/9.9\r\n\r\n": b"505",
            b"\x16\x03\x01 a handshake of TLS\r\n\r\n": b"400",
            b"GET /metrics\r\n\r\n": b"400",
        }.items():
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 " + status + b" ")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=PATIENCE)
        # One that never says anything keeps nobody else from an answer.
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE):
            assert value(metrics(port), "lakemark_data_files") == 4
        assert watch.end(signal.SIGTERM) == 0


def test_looking_once_ends_with_0_or_with_1_and_says_so(plain: Judged, tmp_path: Path) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    other = tmp_path / "other"
    write_orders(other, range(1))
    done = command("index", "watch", plain.folder, other, "--once")
    assert done.returncode == 0, done.stderr
    assert "built c: rows 4,000, files 4" in done.stderr
    assert f"{other}: nothing to build" in done.stderr
    assert done.stdout == ""
    newest = max((plain.folder / "_lakemark" / "manifest").iterdir())
    newest.write_bytes(b"damaged")
    done = command("index", "watch", plain.folder, other, "--once")
    assert done.returncode == 1
    assert f"error: {plain.folder}: " in done.stderr
    assert f"{other}: nothing to build" in done.stderr, "the others are looked at all the same"


def test_looking_once_ends_with_3_if_a_file_cannot_be_indexed(plain: Judged, tmp_path: Path) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    broken = plain.folder / "broken.parquet"
    broken.write_bytes(b"PAR1 and nothing more PAR1")
    done = command("index", "watch", plain.folder, "--once")
    assert done.returncode == 3, done.stderr
    assert "built c: rows 4,000, files 4" in done.stderr
    assert "failed: broken.parquet: " in done.stderr
    assert "covered 80 %" in done.stderr
    assert "error: some files could not be indexed" in done.stderr
    file = tmp_path / "m.prom"
    assert command("index", "build", plain.folder, "--metrics-file", file).returncode == 3
    samples = parsed(file.read_text("utf-8"))
    assert value(samples, "lakemark_uncovered_files") == 1
    assert value(samples, "lakemark_coverage_ratio", index="c") == 0.8
    broken.unlink()
    assert command("index", "watch", plain.folder, "--once").returncode == 0


def test_a_watch_that_is_killed_at_any_instant_leaves_right_answers_and_the_next_look_does_the_rest(
    plain: Judged, tmp_path: Path
) -> None:
    conditions = ("city = 'Oslo'", "city IS NULL", "id BETWEEN 990 AND 1010", f"id >= {1000 * FILES - 5}")
    chance = random.Random(29)  # noqa: S311
    for name, using, column in (("c", "bitmap", "city"), ("i", "key", "id")):
        plain.table.create_index(column, using=using, name=name, build=False)
    for kill in range(KILLS):
        pq.write_table(orders(FILES + kill), tmp_path / "late.parquet")
        (tmp_path / "late.parquet").rename(plain.folder / f"late-{kill:04}.parquet")
        with watching(plain.folder, "--every", "1s"):
            time.sleep(chance.uniform(0.1, 0.8))
        table = lakemark.Table(plain.folder)
        for condition in conditions:
            assert table.count(condition) == plain.count(condition), f"kill {kill}: {condition}"
        # Some watches meet what several others left.
        if chance.random() < 0.6 or kill + 1 == KILLS:
            done = command("index", "watch", plain.folder, "--once")
            assert done.returncode == 0, done.stderr
            table = lakemark.Table(plain.folder)
            assert {index.coverage for index in table.indexes} == {1.0}, f"kill {kill}"
            assert table.verify().ok, f"kill {kill}"
            for condition in conditions:
                assert table.count(condition) == plain.count(condition), f"kill {kill}: {condition}"


def test_a_watch_refuses_what_it_cannot_tell_apart(plain: Judged, tmp_path: Path) -> None:
    twice = command("index", "watch", plain.folder, plain.folder, "--once")
    assert twice.returncode == 1
    assert "given twice" in twice.stderr
    shared = command("index", "watch", plain.folder, tmp_path, "--store", tmp_path / "s", "--once")
    assert shared.returncode == 1
    assert "a store belongs to one table" in shared.stderr


def test_every_line_of_a_job_is_an_object_also_when_it_fails(plain: Judged, tmp_path: Path) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    file = tmp_path / "m.prom"
    told = ["--log-format", "json", "--metrics-file", file]
    done = command("index", "build", plain.folder, "--format", "json", *told)
    assert done.returncode == 0, done.stderr
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["event"], line["verb"], line["report"]) == ("done", "build", json.loads(done.stdout))
    assert value(parsed(file.read_text("utf-8")), "lakemark_coverage_ratio", index="c") == 1
    done = command("index", "compact", plain.folder, *told)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["event"], line["verb"]) == ("done", "compact")
    # A damaged index file gives a warning, and a manifest that is gone an error.
    newest = max((plain.folder / "_lakemark" / "manifest").iterdir())
    newest.write_bytes(b"damaged")
    failed = command("index", "build", plain.folder, *told)
    assert failed.returncode == 1
    lines = [json.loads(line) for line in failed.stderr.splitlines()]
    assert lines[-1]["event"] == "error"
    assert "damaged" in lines[-1]["message"]
    assert value(parsed(file.read_text("utf-8")), "lakemark_failures_total", verb="build") == 1


def test_more_is_logged_on_request(plain: Judged) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    quiet = command("index", "build", plain.folder, "--log-format", "json", "--log", "error")
    assert [json.loads(line)["event"] for line in quiet.stderr.splitlines()] == ["done"]
    wrong = command("index", "build", plain.folder, "--log", "loud")
    assert wrong.returncode == 2
    assert "give error, warn, info, debug or trace" in wrong.stderr


def test_a_migration_is_a_job_too(plain: Judged, tmp_path: Path) -> None:
    plain.table.declare_key("id", progress=False)
    pq.write_table(orders(7).slice(0, 10), tmp_path / "new.parquet")
    assert command("upsert", plain.folder, tmp_path / "new.parquet").returncode == 0
    file = tmp_path / "m.prom"
    done = command("migrate", plain.folder, "--log-format", "json", "--metrics-file", file)
    assert done.returncode == 0, done.stderr
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["verb"], line["report"]["rows"]) == ("migrate", 10)
    samples = parsed(file.read_text("utf-8"))
    assert value(samples, "lakemark_migrated_files_total") == line["report"]["files_written"]
    assert value(samples, "lakemark_runs_total", verb="migrate") == 1
    assert value(samples, "lakemark_failures_total", verb="migrate") == 0


def test_metrics_that_cannot_be_told_are_an_error_before_anything_is_done(plain: Judged, tmp_path: Path) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    done = command("index", "build", plain.folder, "--metrics-file", tmp_path / "nowhere" / "m.prom")
    assert done.returncode == 1
    assert "--metrics-file" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = command("index", "build", plain.folder, "--metrics-port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "--metrics-port" in done.stderr
    assert plain.table.indexes[0].coverage == 0.0


def test_a_table_in_python_tells_the_same_numbers(plain: Judged) -> None:
    plain.table.create_index("city", using="bitmap", name="c", build=False)
    before = plain.table.stats()
    assert (before["lakemark_uncovered_files"], before["lakemark_coverage_ratio"]) == (4, {"c": 0})
    lag = before["lakemark_lag_seconds"]
    assert isinstance(lag, float)
    assert lag >= 0
    plain.table.build(progress=False)
    after = plain.table.stats()
    assert (after["lakemark_indexed_rows_total"], after["lakemark_coverage_ratio"]) == (4000, {"c": 1})
    assert (after["lakemark_runs_total"], after["lakemark_lag_seconds"]) == (
        {"build": 1, "compact": 0, "migrate": 0},
        0,
    )
    # Another object has done nothing yet, and sees the same coverage.
    other = lakemark.Table(plain.folder).stats()
    assert (other["lakemark_indexed_rows_total"], other["lakemark_coverage_ratio"]) == (0, {"c": 1})

"""Ctrl-C: a build commits what is finished and raises `KeyboardInterrupt`. Forked children are told what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Judged


# Seconds: longer than anything here takes on a machine that is busy.
PATIENCE = 600


@pytest.fixture
def large(tmp_path: Path) -> lakemark.Table:
    """Enough rows to be building for a moment: 3 million in 30 files."""
    folder = tmp_path / "large"
    folder.mkdir()
    rows = pa.table({"id": range(100_000), "text": [f"text number {n * 7919 % 100_003}" for n in range(100_000)]})
    for part in range(30):
        pq.write_table(rows, folder / f"part-{part:02}.parquet", row_group_size=20_000)
    return lakemark.Table(folder)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_build_raises_and_the_committed_state_still_answers(large: lakemark.Table) -> None:
    large.create_index("id", using="bitmap", name="by_id", build=False)
    before = large.snapshot
    told: list[int] = []

    def interrupt_once(done: int, _total: int) -> None:
        if not told and done > 0:
            told.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    large.create_index("text", using="bitmap", name="by_text", build=False)
    with pytest.raises(KeyboardInterrupt):
        large.build(progress=interrupt_once, threads=1)
    assert [index.name for index in large.indexes] == ["by_id", "by_text"]
    assert large.snapshot.files == before.files
    assert large.count("id = 77") == 30
    report = large.build(progress=False)
    assert report.files <= 30
    assert [index.coverage for index in large.indexes] == [1.0, 1.0]
    assert large.count("id = 77") == 30
    assert large.explain("id = 77").rows_exact == 30


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_build_commits_what_is_finished(large: lakemark.Table) -> None:
    large.create_index("id", using="bitmap", name="by_id", build=False, files_per_segment=1)
    told: list[int] = []

    def interrupt_once(done: int, _total: int) -> None:
        if not told and done > 500_000:
            told.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"\d of 30 tasks of the build are committed"):
        large.build(progress=interrupt_once, threads=1)
    (index,) = large.indexes
    assert index.files_covered >= 4
    assert large.build(progress=False).files == 30 - index.files_covered
    assert large.count("id = 77") == 30


def test_what_a_killed_build_has_written_is_taken_over(large: lakemark.Table) -> None:
    large.create_index("id", using="bitmap", name="by_id", build=False, files_per_segment=1)
    script = textwrap.dedent(
        """
        import os, signal, sys, lakemark

        def die(done, _total):
            if done > 500_000:
                os.kill(os.getpid(), signal.SIGKILL)

        lakemark.Table(sys.argv[1]).build(progress=die, threads=1, commit_every=3600)
        """
    )
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    killed = subprocess.run(
        [sys.executable, "-c", script, large.location],
        env=environment,
        timeout=PATIENCE,
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (index,) = large.indexes
    assert index.files_covered == 0
    report = large.build(progress=False)
    # Each of 100,000 rows; the one in hand is built again.
    assert report.taken_over >= 4
    assert report.taken_over + report.segments == report.files == 30
    assert large.count("id = 77") == 30
    assert large.explain("id = 77").rows_exact == 30


def test_other_threads_run_while_a_build_does(large: lakemark.Table) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.005):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        began = time.monotonic()
        large.create_index("text", using="bitmap", progress=False)
        seconds = time.monotonic() - began
    finally:
        stop.set()
        thread.join()
    # If the GIL were held for the whole build, there would be one at most. The load of the machine says how many.
    assert len([at for at in ticks if began < at < began + seconds]) >= 3


def test_threads_can_share_a_table(indexed: Judged) -> None:
    expected = indexed.count("city = 'Oslo'")
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(indexed.table.count("city = 'Oslo'") for _ in range(10)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 40


# What a child may touch that was opened before the fork; each use must be an error at once.
_IN_THE_CHILD = {
    "table.count": "table.count()",
    "table.scan": "pa.table(table.scan())",
    "table.build": "table.build(progress=False)",
    "table.snapshot": "table.snapshot()",
    "table.verify": "table.verify()",
    "new table": "lakemark.Table(sys.argv[1])",
    "session": "pa.table(session.sql('SELECT 1'))",
    "rows": "pa.table(rows)",
    "rows as a stream": "pa.RecordBatchReader.from_stream(rows)",
    "shown rows": "str(rows)",
    "open result": "reader.read_next_batch()",
    "open result, all": "reader.read_all()",
    "result that was never read": "unread.read_all()",
}


def test_a_forked_child_gets_an_error_instead_of_waiting_for_ever(indexed: Judged) -> None:
    script = textwrap.dedent(
        f"""
        import os, signal, sys, lakemark, pyarrow as pa
        table = lakemark.Table(sys.argv[1])
        assert table.count() == 4000
        session = lakemark.connect()
        session.register("orders", table)
        # Each more batches than are computed ahead of the reader.
        many = "SELECT a.id FROM orders a CROSS JOIN (SELECT id FROM orders LIMIT 50) b"
        rows = session.sql(many)
        reader, unread = pa.RecordBatchReader.from_stream(rows), pa.RecordBatchReader.from_stream(rows)
        first = reader.read_next_batch()
        uses = {_IN_THE_CHILD!r}
        child = os.fork()
        if child == 0:
            wrong = 0
            # Whoever waits is ended, and is no success.
            signal.alarm({PATIENCE // 2})
            for name, use in uses.items():
                try:
                    eval(use)
                except lakemark.InternalError as error:
                    print(name, "reads like a defect:", error)
                    wrong += 1
                except Exception as error:
                    if "spawn" not in str(error):
                        print(name, type(error), error)
                        wrong += 1
                else:
                    print(name, "is no error")
                    wrong += 1
            # Letting go of them waits for nobody, either.
            del reader, unread, rows, session, table
            sys.stdout.flush()
            os._exit(100 + wrong)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert reader.read_all().num_rows + first.num_rows == unread.read_all().num_rows == 4000 * 50
        sys.exit(code)
        """
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", script, str(indexed.folder)],
        env={**os.environ, "PYTHONPATH": path},
        timeout=PATIENCE,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 100, done.stdout + done.stderr

"""Several writers: everyone sees changes at once, and Ctrl-C says what became of one."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakemark

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_two_objects_see_each_others_changes_at_once(stock: lakemark.Table, folder: Path) -> None:
    other = lakemark.Table(folder)
    for step in range(20):
        writer, reader = (stock, other) if step % 2 else (other, stock)
        assert writer.upsert([{"id": 1000 + step, "name": "x"}]).sequence == step + 1
        assert reader.count("id >= 1000") == step + 1
        if step % 7 == 0:
            reader.flush()


def test_another_process_sees_changes_at_once_and_makes_them(stock: lakemark.Table) -> None:
    script = textwrap.dedent(
        """
        import sys, lakemark
        table = lakemark.Table(sys.argv[1])
        for line in sys.stdin:
            print(table.count("id >= 1000"), flush=True)
            table.insert([{"id": 2000 + int(line)}])
            print("made", flush=True)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, stock.location],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for step in range(10):
            stock.insert([{"id": 1000 + step}])
            child.stdin.write(f"{step}\n")
            child.stdin.flush()
            assert child.stdout.readline() == f"{2 * step + 1}\n"
            assert child.stdout.readline() == "made\n"
            assert stock.count("id >= 1000") == 2 * step + 2
        child.stdin.close()
    assert child.returncode == 0


def test_threads_write_at_once_and_each_call_has_its_number(stock: lakemark.Table) -> None:
    numbers: list[int] = []

    def write(thread: int) -> None:
        for n in range(25):
            numbers.append(stock.insert([{"id": 1000 + 100 * thread + n}]).sequence)  # noqa: PERF401 - as it goes

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 101))
    assert stock.count("id >= 1000") == 100


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handler of Ctrl-C: a shell that starts the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def interrupted_while_it_waits(table: lakemark.Table) -> Iterator[None]:
    """Somebody else writes for a moment, so that a change waits; Ctrl-C comes while it does."""
    with Path(f"{table.location}/_lakemark/updates/lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timers = [
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)),
            threading.Timer(0.8, fcntl.flock, (lock, fcntl.LOCK_UN)),
        ]
        for timer in timers:
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.join()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_does_not_lose_an_answer(stock: lakemark.Table) -> None:
    for says in ("the change was made all the same, with the sequence number 1", "not made: .* is there already"):
        with interrupted_while_it_waits(stock), pytest.raises(KeyboardInterrupt, match=says):
            stock.insert([{"id": 77}])
        assert (stock.count("id = 77"), stock.snapshot.sequence) == (1, 1)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_statement_says_what_is_not_known(stock: lakemark.Table) -> None:
    session = lakemark.connect()
    session.register("t", stock)
    says = "it is not known whether the change was made"
    with interrupted_while_it_waits(stock), pytest.raises(KeyboardInterrupt, match=says):
        session.sql("DELETE FROM t WHERE id = 7")
    session.sql("DELETE FROM t WHERE id = 8")
    assert stock.count("id = 8") == 0

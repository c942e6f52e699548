"""Measuring engines side by side: interleaved rounds, wall and CPU seconds, bytes read, medians.

All engines run in one process and in turn, so that a noisy minute of the machine falls on all of them. The order
changes with the round, and a first round that is not counted warms caches and checks that the answers are equal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakemark import ExplainReport, Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Cost:
    """What one query cost."""

    wall_seconds: float
    cpu_seconds: float
    read_bytes: int


@dataclass(frozen=True)
class Requests:
    """What was read of a storage: ranges that are within 1 MiB of each other are one request."""

    requests: int
    bytes: int


def process_read_bytes() -> int:
    """Bytes that this process has read from files, out of the page cache or from disk."""
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, value = line.split(": ")
        if name == "rchar":
            return int(value)
    raise RuntimeError("/proc/self/io has no rchar")


def process_cpu_seconds() -> float:
    """User and system time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def process_memory(name: str) -> int:
    """Bytes of memory of this process: `VmRSS` now, `VmHWM` at its peak.

    The peak that getrusage gives is no less than that of the process which started this one.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


def run_apart(code: str, *arguments: str) -> dict[str, Any]:
    """Runs Python in a process of its own; returns the JSON that it prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment())
    return dict(json.loads(done.stdout))


def environment() -> dict[str, str]:
    """The environment of a process of its own that may import what the benchmarks share."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


def measure(run: Callable[[], Any]) -> tuple[Any, Cost]:
    """Runs it once; returns its answer and its cost."""
    read, cpu, wall = process_read_bytes(), process_cpu_seconds(), time.perf_counter()
    answer = run()
    wall = time.perf_counter() - wall
    return answer, Cost(wall, process_cpu_seconds() - cpu, process_read_bytes() - read)


def counted(table: Table, run: Callable[[], Any]) -> tuple[Any, Cost, Requests]:
    """Runs it once; returns its answer, its cost, and what it read of the storage of a table and its indexes."""

    def so_far() -> tuple[float, float]:
        stats = table.stats()
        requests, moved = stats["lakemark_requests_total"], stats["lakemark_request_bytes_total"]
        return requests["get"], moved["get"]  # type: ignore[index]

    before = so_far()
    # To look takes requests as well.
    looked = so_far()
    answer, cost = measure(run)
    after = so_far()
    requests, read = (last + first - 2 * look for first, look, last in zip(before, looked, after, strict=True))
    return answer, cost, Requests(round(requests), round(read))


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """The names in the order of a round, in which each runs behind another one than before (Williams 1949).

    In a circle each would always run behind the same one, which leaves the caches of the processor warm or cold:
    the engine behind DuckDB took 5% longer than behind itself.
    """
    count = len(names)
    zigzag = [(place + 1) // 2 if place % 2 else -place // 2 for place in range(count)]
    order = [names[(place + turn) % count] for place in zigzag]
    # Of an odd number each runs behind half of the others, and behind the other half in the next rounds.
    return order[::-1] if turn // count % 2 else order


def interleave(
    engines: Mapping[str, Callable[[str], Any]], queries: Sequence[str], rounds: int
) -> tuple[list[Any], dict[str, list[list[Cost]]]]:
    """Runs every query on every engine in every round.

    Returns the answers (one per query, the same from all engines, else AssertionError) and for each engine the
    costs as [round][query].
    """
    answers = [check_equal(query, {name: ask(query) for name, ask in engines.items()}) for query in queries]
    costs: dict[str, list[list[Cost]]] = {name: [] for name in engines}
    names = list(engines)
    for turn in range(rounds):
        for name in in_turn(names, turn):
            row = []
            for query, expected in zip(queries, answers, strict=True):
                answer, cost = measure(lambda ask=engines[name], query=query: ask(query))
                if answer != expected:
                    raise AssertionError(f"{name} answers {answer}, not {expected}: {query}")
                row.append(cost)
            costs[name].append(row)
    return answers, costs


def look_up(
    asks: Mapping[str, Callable[[Any], list[Any]]], keys: Sequence[Any], is_right: Callable[[Any, list[Any]], bool]
) -> dict[str, dict[str, float]]:
    """Every engine looks up every key, in turn; the answers are equal and right. Returns what a lookup cost."""
    costs: dict[str, list[Cost]] = {name: [] for name in asks}
    names = list(asks)
    for turn, key in enumerate(keys):
        answers = {}
        for name in in_turn(names, turn):
            answers[name], cost = measure(lambda ask=asks[name], key=key: ask(key))
            costs[name].append(cost)
        if not is_right(key, check_equal(str(key), answers)):  # type: ignore[arg-type]
            raise AssertionError(f"{answers} for {key} is not what the data says")
    # The first tenth warms every engine.
    return {name: per_lookup(paid[len(paid) // 10 :]) for name, paid in costs.items()}


def per_lookup(costs: Sequence[Cost]) -> dict[str, float]:
    """Mean, median and 99th percentile of a lookup, and what it read."""
    wall = sorted(cost.wall_seconds for cost in costs)
    return {
        "wall_ms": statistics.median(wall) * 1e3,
        "wall_ms_mean": statistics.mean(wall) * 1e3,
        "wall_ms_p99": wall[min(len(wall) - 1, len(wall) * 99 // 100)] * 1e3,
        "cpu_ms": statistics.mean(cost.cpu_seconds for cost in costs) * 1e3,
        "read_bytes": statistics.median(cost.read_bytes for cost in costs),
    }


def check_equal(query: str, answers: Mapping[str, object]) -> object:
    """The answer that all engines agree on."""
    first = next(iter(answers.values()))
    if any(answer != first for answer in answers.values()):
        raise AssertionError(f"the engines disagree: {dict(answers)}: {query}")
    return first


def rows_to_read(report: ExplainReport, rows: int) -> float:
    """Rows that are left to be read of a table with so many, in files of the same size.

    A file of which every row may pass is reported as scanned, and not by its rows.
    """
    return report.rows_exact + report.rows_rechecked + report.files_scanned * rows / report.files_total


def medians(costs: Mapping[str, list[list[Cost]]], chosen: Sequence[int]) -> dict[str, dict[str, float]]:
    """For each engine the medians over the rounds of the sums over the chosen queries."""
    result = {}
    for name, rounds in costs.items():
        sums = [[row[ordinal] for ordinal in chosen] for row in rounds]
        result[name] = {
            "wall_seconds": statistics.median(sum(cost.wall_seconds for cost in row) for row in sums),
            "cpu_seconds": statistics.median(sum(cost.cpu_seconds for cost in row) for row in sums),
            "read_bytes": statistics.median(sum(cost.read_bytes for cost in row) for row in sums),
        }
    return result


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_bytes": pages * page,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
    print(f"\n| {' | '.join(header)} |\n|---|{'--:|' * (len(header) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def write_json(folder: Path, name: str, result: Mapping[str, Any]) -> Path:
    """Writes a result to `<folder>/<name>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path


def publish(folder: Path, name: str, result: dict[str, Any], plot: Callable[[dict[str, Any], Path], None]) -> None:
    """Writes a result to `<folder>/<name>.json`, draws it beside, and says where."""
    path = write_json(folder, name, result)
    plot(result, path.with_suffix(".png"))
    print(f"written: {path} and {path.with_suffix('.png').name}")


def run_rounds(
    name: str,
    description: str,
    run: Callable[[int, int], dict[str, Any]],
    report: Callable[[dict[str, Any]], None],
    plot: Callable[[dict[str, Any], Path], None],
) -> None:
    """The command of a benchmark over table BENCH: reads its options, runs it, prints it and writes it down."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of table BENCH (10,000,000 for the goals)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, at least 5")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error("at least 5 rounds: fewer have no meaningful median")
    result = run(arguments.rows, arguments.rounds)
    report(result)
    publish(arguments.results, f"{name}-{arguments.rows}", result, plot)

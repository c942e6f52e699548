"""What builds take that others stopped, share, or need little of: part of `make bench NAME=store`.

```text
full         one process builds an index over all files
new files    the same process again, after 1% more files
stopped      a build is killed at a random instant, and another one goes on
at once      two processes build the same index
```

Every process has one thread, so that two of them have a core each. Times are those of the builds, without the start of
a process. The segments of a table whose build was killed are compared with those of the full build, byte for byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import measure
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept
from suites import CACHE

import lakemark

mpl.use("agg")
import matplotlib.pyplot as plt

GROUP = 4
BUILD = """
import json, sys, time
import lakemark
table = lakemark.Table(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
report = table.build(threads=1, progress=False, merge=False)
print(json.dumps({"seconds": time.perf_counter() - began, "segments": report.segments}), flush=True)
"""


def write(folder: Path, files: range, rows: int) -> None:
    """Writes files of random numbers; each has the same rows in every run."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        numbers = np.random.default_rng(file)
        columns = {"k": numbers.integers(0, 1 << 40, rows), "v": numbers.integers(0, 1000, rows)}
        pq.write_table(pa.table(columns), folder / f"part-{file:05}.parquet")


class Builder:
    """A process that builds once it is told to."""

    def __init__(self, folder: Path, store: Path) -> None:
        """Starts it and waits until it is ready."""
        command = [sys.executable, "-c", BUILD, str(folder), str(store)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=measure.environment()
        )
        self._line()

    def begin(self) -> None:
        """Lets it build."""
        if self.process.stdin is None:
            raise RuntimeError("the process has no stdin")
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """What it took."""
        took = dict(json.loads(self._line()))
        self.process.communicate()
        return took

    def kill(self) -> None:
        """Ends it by SIGKILL."""
        self.process.kill()
        self.process.communicate()

    def _line(self) -> str:
        if self.process.stdout is None:
            raise RuntimeError("the process has no stdout")
        return self.process.stdout.readline()


def declared(folder: Path, store: Path) -> Path:
    """A store with an index that covers nothing yet, copied from one, so that segments are the same in all."""
    model = store.with_name(f"{store.name}-declared")
    if not model.exists():
        table = lakemark.Table(folder, model)
        table.create_index("k", using="key", name="k", build=False, files_per_segment=GROUP)
    shutil.rmtree(store, ignore_errors=True)
    return Path(shutil.copytree(model, store))


def built(folder: Path, store: Path) -> dict[str, Any]:
    """A build by one process, of what is missing."""
    builder = Builder(folder, store)
    builder.begin()
    return builder.end()


def segments(store: Path) -> dict[str, str]:
    """The segments of a store by their names, with hashes of their bytes."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in store.rglob("*.lmx")}


def stopped(folder: Path, store: Path, full: float, share: float) -> float:
    """The seconds that two builds take, one of them killed after a share of the time of a full one."""
    builder = Builder(folder, declared(folder, store))
    began = time.perf_counter()
    builder.begin()
    time.sleep(full * share)
    builder.kill()
    took = time.perf_counter() - began
    return took + float(built(folder, store)["seconds"])


def at_once(folder: Path, store: Path) -> tuple[float, int]:
    """The seconds until the later one of two builders is ready, and the segments that both wrote."""
    declared(folder, store)
    builders = [Builder(folder, store) for _ in range(2)]
    for builder in builders:
        builder.begin()
    took = [builder.end() for builder in builders]
    return max(one["seconds"] for one in took), sum(one["segments"] for one in took)


def times(folder: Path, new: Path, files: int, rounds: int) -> dict[str, Any]:
    """Seconds of each kind of build, and what is the same in all of them."""
    store = folder.with_name(f"{folder.name}-store")
    shutil.rmtree(store.with_name(f"{store.name}-declared"), ignore_errors=True)
    full = [built(folder, declared(folder, store)) for _ in range(rounds)]
    seconds = statistics.median(one["seconds"] for one in full)
    expected = segments(store)
    instants = np.random.default_rng(files).random(10)
    lost, same = [], 0
    for share in instants:
        lost.append(stopped(folder, store, seconds, share) - seconds)
        same += segments(store) == expected
    together = [at_once(folder, store) for _ in range(rounds)]
    few = [one_percent(folder, new, declared(folder, store)) for _ in range(rounds)]
    shutil.rmtree(store)
    return {
        "full": seconds,
        "new_files": statistics.median(few),
        "lost": sorted(lost),
        "same": same,
        "together": statistics.median(took for took, _ in together),
        "segments": len(expected),
        "segments_together": [written for _, written in together],
    }


def one_percent(folder: Path, new: Path, store: Path) -> float:
    """The seconds of a build after the new files have come; they leave again."""
    built(folder, store)
    added = [shutil.copy(file, folder / f"new-{file.name}") for file in sorted(new.glob("*.parquet"))]
    try:
        time.sleep(1)
        return float(built(folder, store)["seconds"])
    finally:
        for file in added:
            Path(file).unlink()


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws each kind of build as a share of the full one, and what each kill cost beside a group of files."""
    taken = result["seconds"]
    full = taken["full"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2))
    shares = {"full": 1.0, "two builders": taken["together"] / full, "1% more files": taken["new_files"] / full}
    left.barh(list(shares), list(shares.values()))
    left.invert_yaxis()
    left.set_xlabel("of the full build's time")
    right.bar(range(len(taken["lost"])), taken["lost"])
    right.axhline(full / taken["segments"], color="black", linestyle="--", label="a group of files")
    right.set_xlabel("kills, by their cost")
    right.set_ylabel("seconds lost")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Generates, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    folder = CACHE / f"store-builds-{given.files}-{given.file_rows}"
    new = folder.with_name(f"{folder.name}-new")
    with kept(folder) as missing:
        if missing:
            write(folder, range(given.files), given.file_rows)
            write(new, range(given.files, given.files + max(1, given.files // 100)), given.file_rows)
    taken = times(folder, new, given.files, given.rounds)
    full, lost = taken["full"], taken["lost"]
    shown = [
        ("full build", f"{full:.2f}", "1"),
        ("after 1% more files", f"{taken['new_files']:.3f}", f"{taken['new_files'] / full:.3f}"),
        ("lost by a kill, median", f"{statistics.median(lost):.2f}", f"{statistics.median(lost) / full:.3f}"),
        ("lost by a kill, most", f"{lost[-1]:.2f}", f"{lost[-1] / full:.3f}"),
        ("a group of files", f"{full / taken['segments']:.2f}", f"{1 / taken['segments']:.3f}"),
        ("two builders", f"{taken['together']:.2f}", f"{taken['together'] / full:.2f}"),
    ]
    measure.print_table((f"{given.files} files of {given.file_rows} rows", "s", "of the full build"), shown)
    print(f"\nthe same bytes after {taken['same']} of {len(lost)} kills")
    print(f"segments: {taken['segments']}; of two builders {taken['segments_together']}")
    result = {"files": given.files, "rounds": given.rounds, "machine": measure.machine(), "seconds": taken}
    measure.publish(given.results, f"store-builds-{given.files}", result, plot)


if __name__ == "__main__":
    main()

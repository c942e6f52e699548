"""What everything but reading takes in a table of many files: `make bench NAME=store`.

```text
open        a table that nobody has open, up to its first lookup
lookup      the row of a key, in a table that is open
known       the same where the listing may be old (`max_staleness`)
snapshot    what lookups and queries begin with: the newest manifest and the listing
upsert      a row that is there
delete      the same
commit      an index that is declared and dropped again: two manifests
one more    a snapshot after another program has added a file
```

The files are small and equal but for their keys, as only their number counts. They lie in one folder, or in as many
partitions as files. Before these times the same target prints what a listing takes beside a bare loop over names and
files (`rust/table/benches/listing.rs`).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import measure
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept
from suites import CACHE

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

LAYOUTS = ("folder", "partitions")
# No file counts as one that somebody may still be writing.
SETTLED = 0.05


def write(folder: Path, files: int, layout: str) -> None:
    """Writes a table of one row a file."""
    with kept(folder) as missing:
        if not missing:
            return
        for file in range(files):
            part = folder / f"p={file}" if layout == "partitions" else folder
            part.mkdir(exist_ok=True)
            pq.write_table(pa.table({"k": [file], "v": [file * 7 % 101]}), part / f"part-{file:06}.parquet")


def timed(run: Callable[[int], object], rounds: int, prepare: Callable[[int], object] | None = None) -> float:
    """The median milliseconds; the first round does not count."""
    taken = []
    for turn in range(rounds + 1):
        if prepare is not None:
            prepare(turn)
        _, cost = measure.measure(lambda turn=turn: run(turn))
        taken.append(cost.wall_seconds * 1e3)
    return statistics.median(taken[1:])


def times(folder: Path, store: Path, files: int, rounds: int) -> dict[str, float]:
    """The milliseconds of each operation."""
    table = lakemark.Table(folder, store)
    table.declare_key("k", progress=False)
    table.lookup([0])
    known = lakemark.Table(folder, store, max_staleness=timedelta(hours=1))
    known.lookup([0])
    model = next(folder.rglob("*.parquet"))
    more = [model.with_name(f"more-{turn}.parquet") for turn in range(rounds + 1)]

    def add(turn: int) -> None:
        shutil.copy(model, more[turn])
        time.sleep(SETTLED)

    def commit(turn: int) -> None:
        table.create_index("v", name=f"commit{turn}", build=False)
        table.drop_index(f"commit{turn}")

    taken = {
        "open": timed(lambda turn: lakemark.Table(folder, store).lookup([turn % files]), rounds),
        "lookup": timed(lambda turn: table.lookup([turn % files]), rounds),
        "known": timed(lambda turn: known.lookup([turn % files]), rounds),
        "snapshot": timed(lambda _: table.schema, rounds),
        "upsert": timed(lambda turn: table.upsert([{"k": turn % files, "v": turn} | part_of(folder, turn)]), rounds),
        "delete": timed(lambda turn: table.delete([turn % files]), rounds),
        "commit": timed(commit, rounds),
    }
    try:
        taken["one more"] = timed(lambda _: table.schema, rounds, add)
    finally:
        for file in more:
            file.unlink(missing_ok=True)
    return taken


def part_of(folder: Path, key: int) -> dict[str, int]:
    """The partition of a key, in a table that has partitions."""
    return {"p": key} if (folder / "p=0").is_dir() else {}


def main() -> None:
    """Generates, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    taken = {}
    for layout in LAYOUTS:
        folder = CACHE / f"store-{given.files}-{layout}"
        write(folder, given.files, layout)
        # Changes stay in the store, so that each run has one of its own.
        store = folder.with_name(f"{folder.name}-store")
        shutil.rmtree(store, ignore_errors=True)
        taken[layout] = times(folder, store, given.files, given.rounds)
        shutil.rmtree(store)
    names = list(taken[LAYOUTS[0]])
    shown = [(name, *(f"{taken[layout][name]:.2f}" for layout in LAYOUTS)) for name in names]
    measure.print_table((f"{given.files} files, ms", *LAYOUTS), shown)
    result = {"files": given.files, "rounds": given.rounds, "machine": measure.machine(), "milliseconds": taken}
    print(f"written: {measure.write_json(given.results, f'store-{given.files}', result)}")


if __name__ == "__main__":
    main()

"""What everything but reading takes in a table of many files: `make bench NAME=store`.

```text
open        a table that the process has not seen, up to its first lookup
again       a table that another handle has open, up to its first lookup
aged        the same where the listing may be old (`max_staleness`)
lookup      the row of a key, in a table that is open
known       the same where the listing may be old (`max_staleness`)
snapshot    what lookups and queries begin with: the newest manifest and the listing
upsert      a row that is there
delete      the same
commit      an index is dropped, which is one edit of the manifest
one more    a snapshot after another program has added a file
```

The files are small and equal but for their keys, as only their number counts. They lie in one folder, in as many
partitions as files, or in the log of a Delta table. Each layout is measured at a tenth of the files, too: what a plot
shows flat costs what changed, and what it shows rising costs as much as there are files. Last comes what a build of one
new file commits, in bytes. Before these times the same target prints what a listing takes beside a bare loop over names
and files (`rust/table/benches/listing.rs`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import measure
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake, write_deltalake
from kept import kept
from suites import CACHE

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

mpl.use("agg")
import matplotlib.pyplot as plt

LAYOUTS = ("folder", "partitions", "delta")
# No file counts as one that somebody may still be writing.
SETTLED = 0.05
HOUR = timedelta(hours=1)
# Files that one segment covers, of which a commit's bytes are counted.
NEW = 4


def write(folder: Path, files: int, layout: str) -> None:
    """Writes a table of one row a file."""
    with kept(folder) as missing:
        if not missing:
            return
        for file in range(files):
            part = folder / f"p={file}" if layout == "partitions" else folder
            part.mkdir(exist_ok=True)
            pq.write_table(row(file), part / f"part-{file:06}.parquet")
        if layout == "delta":
            convert_to_deltalake(folder)


def row(key: int) -> pa.Table:
    """The row of a key."""
    return pa.table({"k": [key], "v": [key * 7 % 101]})


def timed(run: Callable[[int], object], rounds: int, prepare: Callable[[int], object] | None = None) -> float:
    """The median milliseconds; the first round does not count."""
    taken = []
    for turn in range(rounds + 1):
        if prepare is not None:
            prepare(turn)
        _, cost = measure.measure(lambda turn=turn: run(turn))
        taken.append(cost.wall_seconds * 1e3)
    return statistics.median(taken[1:])


def times(folder: Path, store: Path, files: int, rounds: int) -> tuple[dict[str, float], int]:
    """The milliseconds of each operation, and the bytes that a build of new files commits."""
    table = lakemark.Table(folder, store)
    table.declare_key("k", progress=False)
    table.lookup([0])
    known = lakemark.Table(folder, store, max_staleness=HOUR)
    known.lookup([0])
    parts = sorted(folder.rglob("*.parquet"))[:1]

    def link(turn: int) -> None:
        alias(folder, turn).unlink(missing_ok=True)
        alias(folder, turn).symlink_to(folder)

    def add(turn: int) -> None:
        if (folder / "_delta_log").is_dir():
            write_deltalake(folder, row(files + turn), mode="append")
        else:
            shutil.copy(parts[0], parts[0].with_name(f"more-{turn}.parquet"))
        time.sleep(SETTLED)

    def declare(turn: int) -> None:
        table.create_index("v", using="key", name=f"commit{turn}", build=False)

    taken = {
        "open": timed(lambda turn: lakemark.Table(alias(folder, turn), store).lookup([turn % files]), rounds, link),
        "again": timed(lambda turn: lakemark.Table(folder, store).lookup([turn % files]), rounds),
        "aged": timed(lambda turn: lakemark.Table(folder, store, max_staleness=HOUR).lookup([turn % files]), rounds),
        "lookup": timed(lambda turn: table.lookup([turn % files]), rounds),
        "known": timed(lambda turn: known.lookup([turn % files]), rounds),
        "snapshot": timed(lambda _: table.schema, rounds),
        "upsert": timed(lambda turn: table.upsert([{"k": turn % files, "v": turn} | part_of(folder, turn)]), rounds),
        "delete": timed(lambda turn: table.delete([turn % files]), rounds),
        # Of so small files a declaration samples all.
        "commit": timed(lambda turn: table.drop_index(f"commit{turn}"), min(rounds, 3), declare),
    }
    taken["one more"] = timed(lambda _: table.schema, rounds, add)
    table.build(progress=False, merge=False)
    for turn in range(rounds + 1, rounds + 1 + NEW):
        add(turn)
    return taken, commit_bytes(store, table)


def alias(folder: Path, turn: int) -> Path:
    """Another path of a table: what is remembered of a table goes by its path."""
    return folder.with_name(f"{folder.name}-{turn}")


def commit_bytes(store: Path, table: lakemark.Table) -> int:
    """The bytes of the edits by which a build commits the segment of files that nothing covers."""
    before = set(store.rglob("*.lmm"))
    table.build(progress=False, merge=False)
    return sum(file.stat().st_size for file in set(store.rglob("*.lmm")) - before)


def part_of(folder: Path, key: int) -> dict[str, int]:
    """The partition of a key, in a table that has partitions."""
    return {"p": key} if (folder / "p=0").is_dir() else {}


def measured(files: int, layout: str, rounds: int) -> tuple[dict[str, float], int]:
    """The milliseconds of each operation in one layout, and the bytes that a build of new files commits."""
    model = CACHE / f"store-{files}-{layout}"
    write(model, files, layout)
    # Changes stay in the table and its store, so that each run has its own of both; the files are shared.
    folder, store = model.with_name(f"{model.name}-run"), model.with_name(f"{model.name}-store")
    for old in (folder, store):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(model, folder, copy_function=os.link)
    try:
        return times(folder, store, files, rounds)
    finally:
        for turn in range(rounds + 1):
            alias(folder, turn).unlink(missing_ok=True)
        shutil.rmtree(folder)
        shutil.rmtree(store, ignore_errors=True)


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the time of each operation over the number of files, a picture for each layout."""
    figure, axes = plt.subplots(1, len(LAYOUTS), figsize=(5 * len(LAYOUTS), 4.8), sharey=True)
    sizes = [int(files) for files in result["milliseconds"]]
    for axis, layout in zip(axes, LAYOUTS, strict=True):
        taken = [result["milliseconds"][str(files)][layout] for files in sizes]
        for name in taken[0]:
            axis.plot(sizes, [one[name] for one in taken], marker="o", label=name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("files (log)")
        axis.set_title(layout)
    axes[0].set_ylabel("median, ms (log)")
    axes[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Generates, measures, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--results", type=Path, default=measure.RESULTS)
    given = parser.parse_args()
    taken: dict[str, dict[str, dict[str, float]]] = {}
    committed: dict[str, dict[str, int]] = {}
    for files in (max(1, given.files // 10), given.files):
        found = {layout: measured(files, layout, given.rounds) for layout in LAYOUTS}
        taken[str(files)] = {layout: times for layout, (times, _) in found.items()}
        committed[str(files)] = {layout: size for layout, (_, size) in found.items()}
        shown = [
            (name, *(f"{taken[str(files)][layout][name]:.2f}" for layout in LAYOUTS))
            for name in taken[str(files)][LAYOUTS[0]]
        ]
        measure.print_table((f"{files} files, ms", *LAYOUTS), shown)
        sizes = ", ".join(f"{layout} {size}" for layout, size in committed[str(files)].items())
        print(f"\nbytes that a build of {NEW} new files commits: {sizes}", flush=True)
    result = {
        "files": given.files,
        "rounds": given.rounds,
        "machine": measure.machine(),
        "milliseconds": taken,
        "commit_bytes": committed,
    }
    measure.publish(given.results, f"store-{given.files}", result, plot)


if __name__ == "__main__":
    main()

"""Summaries that grow by appending, beside the model of PBFilter: `make bench NAME=pbfilter [ROWS=7000000 STEPS=7]`.

Appends files with a permuted unique key of 12 bytes and builds the new part of each summary. After every append it
takes the metrics of the paper (section 2) from counters:

R   reads of a lookup: those of the index, and the zones that it leaves to be read
W   bytes written so far       IR   bytes read again so far, of earlier segments or rows
RC  peak memory of the last build above that before it
FO  bytes in use               FE   bytes that a vacuum would remove

Two summaries grow. One has the zones of the paper (128 keys) and its false positive probability (d = 16, k = 7; ours
comes from fewer bits of which a key sets more). The other is made as if nothing is said (a zone per row group). Each
grows in two ways. An append stays a segment of its own, or `compact` merges the segments after every append, as the
paper reorganizes partitions. The model stops reading at the key that it looks for; ours reads every zone that is left.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import statistics
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import keys_table
import matplotlib as mpl
import measure
import numpy as np
import pbfilter_model
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

mpl.use("Agg")
import matplotlib.pyplot as plt

CACHE = Path(os.environ.get("LAKEMARK_BENCH_DATA", Path.home() / ".cache" / "lakemark" / "bench"))
# Keys of a page of 2,048 bytes with keys of 12 and pointers of 4.
ZONE_ROWS = 128
GROUP_ROWS = 8 * ZONE_ROWS
BITS, HASHES = 16, 7
SUMMARIES: dict[str, dict[str, object]] = {
    "as in the paper": {"zone_rows": ZONE_ROWS, "fpp": pbfilter_model.false_positive(BITS, HASHES)},
    "zone per row group": {},
}
WAYS = ("appended", "compacted")
COMMAND = """
import json, sys, measure, lakemark
folder, store, options, way = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
table = lakemark.Table(folder, store=store)
if way == "build":
    table.create_index("key", using="summary", name="s", if_not_exists=True, build=False, progress=False, **options)
memory, read = measure.process_memory("VmRSS"), measure.process_read_bytes()
report = table.build(progress=False, merge=False) if way == "build" else table.compact(progress=False, full=True)
print(json.dumps({
    "seconds": report.seconds,
    "read_bytes": measure.process_read_bytes() - read,
    "memory_bytes": measure.process_memory("VmHWM") - memory,
}))
"""


def key_text(number: int) -> str:
    """A key of 12 bytes; even numbers are keys, odd ones are not there."""
    return f"{number:012d}"


def append(folder: Path, step: int, steps: int, rows: int) -> None:
    """Writes the file of a step."""
    first, last = rows * step // steps, rows * (step + 1) // steps
    numbers = 2 * keys_table.permuted(np.arange(first, last, dtype=np.int64), rows)
    values = pa.table(
        {
            "key": pa.array([key_text(number) for number in numbers.tolist()]),
            "p0": pa.array(np.arange(first, last, dtype=np.int64) * keys_table.MULTIPLIER % 2**40),
        }
    )
    path = folder / f"part-{step:04}.parquet"
    pq.write_table(values, path, compression="zstd", row_group_size=GROUP_ROWS, use_dictionary=False)


def change(folder: Path, store: Path, options: dict[str, object], way: str) -> dict[str, Any]:
    """Builds or compacts in a process of its own, so that its memory and reads are known."""
    return measure.run_apart(COMMAND, str(folder), str(store), json.dumps(options), way)


def files_of(store: Path) -> dict[str, tuple[int, str]]:
    """Length and hash of every file of a store."""
    if not store.exists():
        return {}
    paths = [path for path in store.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(store)): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in paths
    }


def grow(folder: Path, store: Path, options: dict[str, object]) -> dict[str, Any]:
    """Builds the part of an append, with all earlier segments out of its reach; returns what it cost."""
    before = files_of(store)
    away = store.with_name(f"{store.name}-away")
    segments = [name for name in before if is_segment(name)]
    for name in segments:
        (away / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).rename(away / name)
        # One that is missing would be built again: another of its length, without its bytes, stands in its place.
        with (store / name).open("wb") as file:
            file.truncate((away / name).stat().st_size)
    cost = change(folder, store, options, "build")
    for name in segments:
        (away / name).replace(store / name)
    # What is not there cannot have been read.
    return {**cost, "read_again_bytes": 0, "written_bytes": written(before, files_of(store))}


def merge(folder: Path, store: Path, options: dict[str, object]) -> dict[str, Any]:
    """Merges all segments; returns what it cost. It reads rows again, and no new ones."""
    before = files_of(store)
    cost = change(folder, store, options, "compact")
    return {**cost, "read_again_bytes": cost["read_bytes"], "written_bytes": written(before, files_of(store))}


def written(before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]) -> int:
    """Bytes of the files that are new; no segment that was there may have changed."""
    for name, file in before.items():
        if is_segment(name) and after.get(name) != file:
            raise AssertionError(f"{name} was rewritten")
    return sum(size for name, (size, digest) in after.items() if before.get(name) != (size, digest))


def is_segment(name: str) -> bool:
    """Whether a file of a store is a part of an index."""
    return name.endswith(".lmx")


def lookups(table: lakemark.Table, keys: list[str], rows: int, zone_rows: int) -> dict[str, float]:
    """Reads and bytes of the index, and the zones left to be read, on average."""
    table.explain(f"key = '{keys[0]}'", selection_cache=False)
    reports = [table.explain(f"key = '{key}'", selection_cache=False) for key in keys]
    reads = statistics.mean(report.index_reads for report in reports)
    zones = statistics.mean(math.ceil(measure.rows_to_read(report, rows) / zone_rows) for report in reports)
    return {
        "index_reads": reads,
        "index_bytes": statistics.mean(report.index_bytes_read for report in reports),
        "zones_read": zones,
        "reads": reads + zones,
    }


def check(folder: Path, table: lakemark.Table, hits: list[str], misses: list[str]) -> None:
    """Every lookup gives what DuckDB finds."""
    wanted = ", ".join(f"('{key}')" for key in hits + misses)
    found = duckdb.execute(
        f"SELECT key, p0 FROM read_parquet('{folder}/*.parquet') JOIN (VALUES {wanted}) AS w(key) USING (key)"
    ).fetchall()
    truth = dict(found)
    if sorted(truth) != sorted(hits):
        raise AssertionError("DuckDB misses keys")
    for key in hits + misses:
        rows = table.lookup([key], ["p0"], on="key").to_arrow()["p0"].to_pylist()
        if rows != ([truth[key]] if key in truth else []):
            raise AssertionError(f"{rows} for {key}")


def metrics(folder: Path, store: Path, options: dict[str, object], keys: tuple[list[str], list[str]]) -> dict[str, Any]:
    """The metrics of a store as it is now."""
    table = lakemark.Table(folder, store=store)
    check(folder, table, *keys)
    # Freshly opened, so that nothing is remembered but directories.
    table = lakemark.Table(folder, store=store)
    index = table.indexes[0]
    zone_rows = int(str(options.get("zone_rows", GROUP_ROWS)))
    waste = waste_of(table, store)
    total = sum(size for size, _ in files_of(store).values())
    return {
        "segments": index.segments,
        "hit": lookups(table, keys[0], index.rows, zone_rows),
        "miss": lookups(table, keys[1], index.rows, zone_rows),
        "live_bytes": total - waste.bytes,
        "index_bytes": index.bytes,
        "stale_bytes": waste.bytes,
        "stale_segment_bytes": sum(file.bytes for file in waste.removed if is_segment(file.path)),
    }


def waste_of(table: lakemark.Table, store: Path) -> lakemark.VacuumReport:
    """What a vacuum would remove two hours from now: it spares what is younger than an hour."""
    then = time.time() - timedelta(hours=2).total_seconds()
    for path in store.rglob("*"):
        os.utime(path, (then, then))
    return table.vacuum(dry_run=True, older_than=timedelta(hours=1))


def chosen_keys(rows: int, done: int, probes: int) -> tuple[list[str], list[str]]:
    """Keys of the rows appended so far, and keys of none."""
    random = np.random.default_rng(done)
    chosen = np.sort(random.choice(done, min(probes, done), replace=False)).astype(np.int64)
    hits = [key_text(2 * int(number)) for number in keys_table.permuted(chosen, rows)]
    misses = [key_text(2 * int(number) + 1) for number in random.choice(rows, min(probes, rows), replace=False)]
    return hits, misses


def step_of(folder: Path, store: Path, options: dict[str, object], way: str, before: dict[str, Any]) -> dict[str, Any]:
    """What an append cost one summary, added to what those before it did."""
    costs = [grow(folder, store, options)]
    if way == "compacted":
        costs.append(merge(folder, store, options))
    return {
        "seconds": sum(cost["seconds"] for cost in costs),
        "read_bytes": sum(cost["read_bytes"] for cost in costs),
        "memory_bytes": max(cost["memory_bytes"] for cost in costs),
        "written_in_all": before.get("written_in_all", 0) + sum(cost["written_bytes"] for cost in costs),
        "read_again_in_all": before.get("read_again_in_all", 0) + sum(cost["read_again_bytes"] for cost in costs),
    }


def run(rows: int, steps: int, probes: int) -> dict[str, Any]:
    """Appends, builds, looks up."""
    root = CACHE / f"pbfilter-{rows}-{steps}"
    shutil.rmtree(root, ignore_errors=True)
    folder = root / "data"
    folder.mkdir(parents=True)
    machine = measure.machine()
    points: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {f"{name}, {way}": {} for name in SUMMARIES for way in WAYS}
    for step in range(steps):
        append(folder, step, steps, rows)
        done = rows * (step + 1) // steps
        keys = chosen_keys(rows, done, probes)
        for name, options in SUMMARIES.items():
            for way in WAYS:
                summary, store = f"{name}, {way}", root / f"{name}-{way}"
                cost = step_of(folder, store, options, way, last[summary])
                last[summary] = {**cost, **metrics(folder, store, options, keys)}
        points.append({"rows": done, "model": asdict(pbfilter_model.pbfilter(done)), "summaries": dict(last)})
        print(f"{done:,} rows in {step + 1} appends: done")
    for name in SUMMARIES:
        for way in WAYS:
            if not lakemark.Table(folder, store=root / f"{name}-{way}").verify():
                raise AssertionError(f"{name}, {way}: damaged")
    result = {
        "benchmark": "summaries that grow",
        "rows": rows,
        "steps": steps,
        "probes": probes,
        "profile": os.environ.get("LAKEMARK_PROFILE", "unknown"),
        "machine": {**machine, "load_after": os.getloadavg()[0]},
        "versions": {"lakemark": lakemark.__version__, "duckdb": duckdb.__version__},
        "parquet_bytes": sum(path.stat().st_size for path in folder.glob("*.parquet")),
        "key_bytes": key_bytes(folder),
        "points": points,
    }
    shutil.rmtree(root)
    return result


def key_bytes(folder: Path) -> int:
    """Bytes of the keys in the data files: what the key area of the paper is to us."""
    total = 0
    for path in folder.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        total += sum(
            metadata.row_group(group).column(0).total_compressed_size for group in range(metadata.num_row_groups)
        )
    return total


def report(result: dict[str, Any]) -> None:
    """Prints the metrics as a table in Markdown; bytes of ours are counted in pages of 2,048 bytes."""
    header = ["N", "summary", "segments", "R hit", "R miss", "KB read, miss", "W", "IR", "RC, KB", "FO", "FE"]
    rows = []
    for point in result["points"]:
        count = f"{point['rows']:,}"
        rows.append([count, "model", "", *report_model(point["model"])])
        rows += [[count, name, *report_summary(found)] for name, found in point["summaries"].items()]
    measure.print_table(header, rows)
    print(
        "\nR: in brackets reads of the index + zones. Model's FO: in brackets without the keys, of which our data files"
    )
    print(f"have {pages(result['key_bytes']):,} pages.")


def report_model(model: dict[str, Any]) -> list[str]:
    """What the model says."""
    live = f"{model['live']:,} ({model['live_filters']:,})"
    read, memory = f"{model['read_lookup']:.1f}", f"{model['memory_kb']:.0f}"
    return [read, "", "", f"{model['written']:,}", f"{model['read_insert']:,}", memory, live, f"{model['stale']:,}"]


def report_summary(found: dict[str, Any]) -> list[str]:
    """What the counters say."""
    hit, miss = found["hit"], found["miss"]
    return [
        f"{found['segments']}",
        f"{hit['reads']:.2f} ({hit['index_reads']:.1f} + {hit['zones_read']:.2f})",
        f"{miss['reads']:.2f}",
        f"{miss['index_bytes'] / 1e3:.1f}",
        f"{pages(found['written_in_all']):,}",
        f"{pages(found['read_again_in_all']):,}",
        f"{found['memory_bytes'] / 1024:,.0f}",
        f"{pages(found['live_bytes']):,}",
        f"{pages(found['stale_bytes']):,}",
    ]


def pages(size: int) -> int:
    """Pages of so many bytes."""
    return -(-size // pbfilter_model.PAGE_BYTES)


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws reads of a lookup and pages written by the number of rows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8))
    rows = [point["rows"] for point in result["points"]]
    left.plot(rows, [point["model"]["read_lookup"] for point in result["points"]], "k--", label="model")
    right.plot(rows, [point["model"]["written"] for point in result["points"]], "k--", label="model")
    for name in result["points"][0]["summaries"]:
        found = [point["summaries"][name] for point in result["points"]]
        left.plot(rows, [value["hit"]["reads"] for value in found], marker="o", label=name)
        right.plot(rows, [pages(value["written_in_all"]) for value in found], marker="o", label=name)
    left.set_ylabel("reads of a lookup that finds its key (R)")
    right.set_ylabel("pages of 2,048 bytes written (W)")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("rows")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in all (7,000,000 as in the paper)")
    parser.add_argument("--steps", type=int, default=5, help="appends, each a data file and a segment")
    parser.add_argument(
        "--probes", type=int, default=100, help="keys that are looked up after every append, of each sort"
    )
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for JSON and plot")
    arguments = parser.parse_args()
    result = run(arguments.rows, arguments.steps, arguments.probes)
    report(result)
    measure.publish(arguments.results, f"pbfilter-{arguments.rows}", result, plot)


if __name__ == "__main__":
    main()

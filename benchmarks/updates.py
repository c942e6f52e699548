"""Updates: `make bench NAME=updates [ROWS=2000000]`.

Writes a table of records of about 100 bytes whose even keys are loaded, and measures what MaSM promises (Athanassoulis
2014, section 3.5). Measured are scans of ranges with 1, 5 and 10% of the rows changed against scans without, in runs
and after any number of commits. Then come commits a second with a sync each, how often an update is written, and the
time of a migration. The last is how many updates a second are sustained, beside rewriting in place by delta-rs. Peers
that keep changes beside the data are in the same run: Lance after `merge_insert`, and DuckDB with an anti-join over a
Parquet file of changes.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import matplotlib as mpl
import measure
import numpy as np
import pyarrow.parquet as pq
from updates_table import (
    CACHE,
    SUMS,
    VALUES,
    apply,
    changes,
    fresh,
    open_table,
    query,
    records,
    session_of,
    timed,
    write_table,
)

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

mpl.use("Agg")
import matplotlib.pyplot as plt

SHARES = (0.01, 0.05, 0.10)
# Of the cache that is filled.
CACHE_PAGES = 4096
RANGES = (0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0)


def overhead(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Scans of ranges with changes against scans without, in the page cache and out of it."""
    asks = {"without": session_of(folder, fresh(scratch, "plain", folder))}
    for share in SHARES:
        store = scratch / f"changed-{share}"
        table = open_table(folder, store)
        apply(table, changes(rows, int(rows * share), 7))
        table.flush()
        asks[f"{share:.0%}"] = session_of(folder, store)
    result: dict[str, Any] = {}
    random = np.random.default_rng(3)
    for part in RANGES:
        width = max(int(2 * rows * part), 2)
        low = int(random.integers(0, max(2 * rows - width, 1)))
        result[str(part)] = timed(asks, query(low, low + width), rounds)
        result[f"{part}, cold"] = timed(asks, query(low, low + width), rounds, [folder, scratch])
    result["count"] = timed(asks, "SELECT count(*) FROM t", rounds)
    return result


def flatness(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, float]:
    """The whole table with 1% changed in few and in many commits."""
    asks = {}
    for commits in (10, 100, 1000):
        store = scratch / f"commits-{commits}"
        apply(open_table(folder, store), changes(rows, max(rows // 100, 3000), 7), max(commits // 3, 1))
        asks[str(commits)] = session_of(folder, store)
    return timed(asks, query(0, 2 * rows + 2), rounds)


def commit_rates(folder: Path, scratch: Path, rows: int, seconds: float) -> dict[str, Any]:
    """Commits and rows a second, each commit synced before the next."""
    result = {}
    for batch in (1, 100, 10_000):
        table = open_table(folder, scratch / f"rate-{batch}")
        given = records(np.random.default_rng(batch).choice(2 * rows, min(batch * 64, rows), replace=False), 5)
        parts = [given.slice(start, batch) for start in range(0, len(given) - batch + 1, batch)] or [given]
        started, commits = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            table.upsert(parts[commits % len(parts)])
            commits += 1
        took = time.perf_counter() - started
        info = table.updates
        result[str(batch)] = {
            "commits_per_second": commits / took,
            "rows_per_second": commits * len(parts[0]) / took,
            "runs": len(info.runs),
        }
    return result


def writes(folder: Path, scratch: Path, rows: int) -> dict[str, float]:
    """How often an update is written when the cache is filled: one of few pages, so that runs are merged."""
    page_bytes = 4096 if rows >= 1_000_000 else 512
    table = open_table(folder, scratch / "writes", cache_bytes=CACHE_PAGES * page_bytes, page_bytes=page_bytes)
    for number in range(2000):
        table.upsert(records(np.random.default_rng(number).choice(2 * rows, min(100, rows), replace=False), number))
        if table.updates.cache_share > 0.9:
            break
    info = table.updates
    return {
        "writes_per_update": info.writes_per_update,
        "bound": info.writes_bound,
        "runs": len(info.runs),
        "runs_limit": info.runs_limit,
        "cache_share": info.cache_share,
    }


def migration(folder: Path, scratch: Path, rows: int) -> dict[str, float]:
    """Migrating 1% of changed rows into a Delta table, beside a plain scan and `merge` of delta-rs."""
    data = pq.read_table(folder)
    ours, theirs = scratch / "delta-ours", scratch / "delta-theirs"
    for place in (ours, theirs):
        shutil.rmtree(place, ignore_errors=True)
        deltalake.write_deltalake(str(place), data)
    # Ours takes all batches, then migrates them at once; delta-rs rewrites for each batch, of which a few are measured.
    keys = np.random.default_rng(11).choice(2 * rows, rows // 20, replace=False)
    batches = [records(part, 5) for part in np.array_split(keys, max(len(keys) // 1000, 1))]
    few = batches[:3]
    table = lakemark.Table(ours, key="k")
    started = time.perf_counter()
    for batch in batches:
        table.upsert(batch)
    buffered = time.perf_counter() - started
    migrated = measure.measure(table.migrate)[1].wall_seconds
    ask = session_of(ours, ours / "_lakemark")
    scanned = timed({"scan": ask}, query(0, 2 * rows + 2), 3)["scan"]
    started = time.perf_counter()
    for batch in few:
        merge = deltalake.DeltaTable(str(theirs)).merge(batch, "t.k = s.k", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rewrite = (time.perf_counter() - started) / len(few)
    changed = {key for batch in batches for key in batch["k"].to_pylist()}
    merged = {key for batch in few for key in batch["k"].to_pylist()}
    counts = [len(deltalake.DeltaTable(str(place)).to_pyarrow_table(columns=["k"])) for place in (ours, theirs)]
    new = [sum(key % 2 for key in keys_of) for keys_of in (changed, merged)]
    if counts != [rows + new[0], rows + new[1]]:
        raise AssertionError(f"{counts} rows where {rows} and {new} new ones should be")
    return {
        "changed_rows": len(changed),
        "buffered_seconds": buffered,
        "migration_seconds": migrated,
        "scan_seconds": scanned,
        "migration_of_scan": migrated / scanned,
        "delta_rs_merge_seconds": rewrite,
        "updates_per_second": len(changed) / (buffered + migrated),
        "delta_rs_updates_per_second": len(merged) / len(few) / rewrite,
    }


def lance_scans(data: pa.Table, changed: pa.Table, scratch: Path) -> dict[str, Callable[[str], Any]]:
    """Scans of all values by Lance before and after a `merge_insert`; none if it is not installed."""
    if importlib.util.find_spec("lance") is None:
        print("Lance is not installed and is left out: pip install --requirement benchmarks/requirements.txt")
        return {}
    import lance

    paths = {"before": scratch / "plain.lance", "after": scratch / f"peer-{len(changed)}.lance"}
    for path in paths.values():
        shutil.rmtree(path, ignore_errors=True)
        lance.write_dataset(data, str(path))
    lance.dataset(str(paths["after"])).merge_insert("k").when_matched_update_all().execute(changed)
    columns = [f"v{number}" for number in range(VALUES)]

    def scan(path: Path) -> int:
        return len(lance.dataset(str(path)).to_table(columns=columns))

    return {f"lance, {state}": lambda _, path=path: scan(path) for state, path in paths.items()}


def peers(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Whole scans after and before 1 and 5% of the rows were replaced, by the peers."""
    data = pq.read_table(folder)
    result: dict[str, Any] = {}
    for share in (0.01, 0.05):
        changed = changes(rows, int(rows * share) * 3, 7)[2]
        pq.write_table(changed, scratch / f"delta-{share}.parquet", compression="zstd")
        connection = duckdb.connect()
        base = f"read_parquet('{folder}/*.parquet')"
        delta = f"read_parquet('{scratch}/delta-{share}.parquet')"
        merged = f"(SELECT * FROM {base} b ANTI JOIN {delta} d USING (k) UNION ALL SELECT * FROM {delta})"
        store = scratch / f"peer-{share}"
        open_table(folder, store).upsert(changed)
        asks: dict[str, Callable[[str], Any]] = {
            "lakemark, before": session_of(folder, scratch / "plain"),
            "lakemark, after": session_of(folder, store),
            **lance_scans(data, changed, scratch),
            "duckdb, before": lambda _, c=connection, b=base: c.execute(f"SELECT {SUMS} FROM {b}").fetchall(),
            "duckdb, after": lambda _, c=connection, m=merged: c.execute(f"SELECT {SUMS} FROM {m}").fetchall(),
        }
        ours, theirs = asks["lakemark, after"](f"SELECT {SUMS} FROM t"), asks["duckdb, after"]("")
        if list(ours[0].values()) != list(theirs[0]):
            raise AssertionError(f"{ours} is not {theirs}")
        result[str(share)] = timed(asks, f"SELECT {SUMS} FROM t", rounds)
    return result


def report(result: dict[str, Any]) -> None:
    """Prints the tables."""
    shares = [f"{share:.0%}" for share in SHARES]
    lines = []
    for part, seconds in result["overhead"].items():
        ratios = [f"{seconds[share] / seconds['without']:.2f}" for share in shares]
        lines.append([part, f"{seconds['without'] * 1e3:.1f} ms", *ratios])
    measure.print_table(["range", "without", *[f"with {share}" for share in shares]], lines)
    print(
        "\nwhole scans with 1% changed in N commits, ms:", {n: round(s * 1e3, 1) for n, s in result["flatness"].items()}
    )
    rates = result["commits"]
    measure.print_table(
        ["rows a commit", "commits/s", "rows/s", "runs"],
        [
            [n, f"{r['commits_per_second']:.0f}", f"{r['rows_per_second']:.0f}", str(r["runs"])]
            for n, r in rates.items()
        ],
    )
    print("\nwrites:", result["writes"])
    print("\nmigration:", result["migration"])
    lines = []
    for share, seconds in result["peers"].items():
        for name in dict.fromkeys(ask.split(",")[0] for ask in seconds):
            before, after = seconds[f"{name}, before"], seconds[f"{name}, after"]
            lines.append([f"{name}, {share}", f"{before * 1e3:.0f}", f"{after * 1e3:.0f}", f"{after / before:.2f}"])
    measure.print_table(["whole scan", "before, ms", "after, ms", "ratio"], lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the overhead of scans by range."""
    figure, axes = plt.subplots(figsize=(7, 4))
    ranges = RANGES
    for share in (f"{share:.0%}" for share in SHARES):
        ratios = [result["overhead"][str(part)][share] / result["overhead"][str(part)]["without"] for part in ranges]
        axes.plot(ranges, ratios, marker="o", label=f"{share} changed")
    axes.axhline(1.07, color="grey", linestyle=":", label="MaSM, 1.07")
    axes.set(
        xscale="log", xlabel="part of the table", ylabel="with changes / without", title="Scans with buffered updates"
    )
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds of commits of each size")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    folder, scratch = CACHE / f"updates-{rows}", CACHE / f"updates-{rows}-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    write_table(folder, rows)
    result = {
        "machine": measure.machine(),
        "rows": rows,
        "overhead": overhead(folder, scratch, rows, rounds),
        "flatness": flatness(folder, scratch, rows, rounds),
        "commits": commit_rates(folder, scratch, rows, arguments.seconds),
        "writes": writes(folder, scratch, rows),
        "migration": migration(folder, scratch, rows),
        "peers": peers(folder, scratch, rows, rounds),
    }
    shutil.rmtree(scratch)
    report(result)
    measure.publish(arguments.results, f"updates-{rows}", result, plot)


if __name__ == "__main__":
    main()

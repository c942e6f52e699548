"""The figures of MaSM: `make bench NAME=updates-figures [ROWS=2000000]`.

Section 3.5.2 of the thesis (Athanassoulis 2014) on this engine and this machine's disk, scaled. The table has records
of 100 bytes, the cache is a tenth of it. Ranges go from 4 KB to the whole table, from disk and from memory.

| part | figure | what |
|---|---|---|
| schemes | 3.16, 3.23 | ranges while updates arrive: rewriting in place (`merge` of delta-rs), MaSM |
| fill | 3.17, 3.23 | ranges with the cache 25, 50, 75 and 99% full |
| speed | 3.18 | ranges with 2,000 to 10,000 updates that no run holds yet |
| migration | 3.20 | migrating the cache into the data files, against a scan, and scans meanwhile |
| sustained | 3.21 | updates a second with a migration whenever the cache is half full, by its size |
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import matplotlib as mpl
import measure
import numpy as np
import pyarrow.dataset as ds
from updates_table import (
    CACHE,
    RECORD_BYTES,
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
from updates_writer import Writer

import lakemark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

mpl.use("Agg")
import matplotlib.pyplot as plt

RANGE_BYTES = (4 << 10, 100 << 10, 1 << 20, 10 << 20, 100 << 20, 1 << 30)
FILLS = (0.25, 0.50, 0.75, 0.99)
SPEEDS = (2000, 4000, 6000, 8000, 10_000)
# Pages of a run that one entry of its index stands for: the thesis calls these coarse and fine.
PAGES = {"coarse": 64 << 10, "fine": 4 << 10}
IN_PLACE_BATCH = 1000
# A merge writes the whole table. Files that it replaced stay until the next one, and for seconds: readers may be slow.
IN_PLACE = """
import sys, time
from pathlib import Path
import deltalake
import numpy as np
from updates_table import records
place, rows, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
current, replaced = set(deltalake.DeltaTable(place).file_uris()), []
print("ready", flush=True)
for number in range(10**9):
    keys = np.random.default_rng([number, 1]).choice(2 * rows, min(batch, rows), replace=False)
    merge = deltalake.DeltaTable(place).merge(records(keys, number), "t.k = s.k", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    print(number + 1, flush=True)
    while replaced and replaced[0][0] < time.monotonic() - 5:
        for path in replaced.pop(0)[1]:
            Path(path).unlink()
    before, current = current, set(deltalake.DeltaTable(place).file_uris())
    replaced.append((time.monotonic(), before - current))
"""
BUFFERED = """
import sys, time
import numpy as np
import lakemark
from updates_table import records
place, rows, batch, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
table = lakemark.Table(place)
print("ready", flush=True)
for number in range(10**9):
    keys = np.random.default_rng([number, 1]).choice(2 * rows, min(batch, rows), replace=False)
    try:
        table.upsert(records(keys, number))
    except lakemark.CacheFullError:
        table.migrate()
    print(number + 1, flush=True)
    time.sleep(pause)
"""


def cache_of(rows: int) -> int:
    """Bytes of the cache: a tenth of the table."""
    return max(rows * RECORD_BYTES // 10, 1 << 20)


def linked(folder: Path, copy: Path) -> Path:
    """The folder under another name, for a table that is migrated: its files are never changed, only replaced."""
    return Path(shutil.copytree(folder, copy, copy_function=os.link))


def write_delta(folder: Path, place: Path) -> Path:
    """The records as a Delta table, in their order."""
    deltalake.write_deltalake(str(place), ds.dataset(folder).scanner().to_reader())
    return place


def fill(table: lakemark.Table, rows: int, share: float, seed: int) -> int:
    """Changes records until the cache is so full, or takes no more; returns how many."""
    step, changed = max(rows // 400, 300), 0
    while table.updates.cache_share < share:
        try:
            apply(table, changes(rows, step, seed + changed))
        except lakemark.CacheFullError:
            break
        changed += step
    return changed


def ranges_of(rows: int, rounds: int) -> Iterator[tuple[str, list[str]]]:
    """The name of every size of range, and its queries: many short ones, few long ones, one whole table."""
    random = np.random.default_rng(3)
    for size in RANGE_BYTES:
        if size < rows * RECORD_BYTES:
            width = 2 * max(size // RECORD_BYTES, 1)
            lows = random.integers(0, 2 * rows - width, 2 * rounds if size <= 10 << 20 else 2)
            yield named(size), [query(int(low), int(low) + width) for low in lows]
    yield "all", [query(0, 2 * rows + 2)]


def named(size: int) -> str:
    """4 KB, 1 MB and so on."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size >> 10} KB"


def scans(
    asks: dict[str, Callable[[str], Any]], rows: int, rounds: int, folders: list[Path]
) -> dict[str, dict[str, dict[str, float]]]:
    """Mean seconds of a query, as [memory or cold][range][engine]."""
    result: dict[str, dict[str, dict[str, float]]] = {"memory": {}, "cold": {}}
    for name, queries in ranges_of(rows, rounds):
        for state, forgotten in (("memory", []), ("cold", folders)):
            each = [timed(asks, sql, rounds, forgotten) for sql in queries]
            result[state][name] = {engine: statistics.mean(seconds[engine] for seconds in each) for engine in asks}
    return result


def fills(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Figure 3.17: ranges by how full the cache is."""
    asks = {"without": session_of(folder, fresh(scratch, "plain", folder))}
    changed = {}
    for share in FILLS:
        store = scratch / f"fill-{share}"
        table = open_table(folder, store, cache_bytes=cache_of(rows))
        changed[f"{share:.0%}"] = fill(table, rows, share, 7) / rows
        asks[f"{share:.0%}"] = session_of(folder, store)
    return {"changed": changed, "scans": scans(asks, rows, rounds, [folder, scratch])}


def schemes(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Figure 3.16: ranges while updates arrive at the rate that rewriting in place sustains."""
    in_place = write_delta(folder, scratch / "in-place")
    result: dict[str, Any] = {"scans": {}}
    quiet = {"without": session_of(folder, fresh(scratch, "plain", folder))}
    parts = {"without": scans(quiet, rows, rounds, [folder])}
    # The table is opened for each query: a session that holds a snapshot would read files that are replaced.
    store = scratch / "in-place-store"
    writer = Writer(IN_PLACE, in_place, rows, IN_PLACE_BATCH)
    try:

        def newest(sql: str) -> list[Any]:
            return session_of(in_place, store)(sql)

        parts["in place"] = scans({"in place": newest}, rows, max(rounds // 2, 1), [in_place])
    finally:
        rate = writer.stop()
        shutil.rmtree(in_place)
    result["batches_per_second"] = rate
    for name, page in PAGES.items():
        copy = linked(folder, scratch / f"masm-{name}")
        table = lakemark.Table(copy)
        table.declare_key("k", cache_bytes=cache_of(rows), page_bytes=page)
        fill(table, rows, 0.5, 7)
        writer = Writer(BUFFERED, copy, rows, IN_PLACE_BATCH, 1 / max(rate, 0.01))
        try:
            parts[name] = scans({name: session_of(copy, copy / "_lakemark")}, rows, rounds, [copy])
        finally:
            result[f"batches_per_second, {name}"] = writer.stop()
            shutil.rmtree(copy)
    for state in ("memory", "cold"):
        result["scans"][state] = {
            size: {engine: part[state][size][engine] for engine, part in parts.items()}
            for size in parts["without"][state]
        }
    return result


def speeds(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Figure 3.18: ranges with updates that came since the last run, the cache half full."""
    asks = {"without": session_of(folder, fresh(scratch, "plain", folder))}
    half = scratch / "half"
    table = open_table(folder, half, cache_bytes=cache_of(rows))
    fill(table, rows, 0.5, 7)
    table.flush()
    for speed in SPEEDS:
        store = Path(shutil.copytree(half, scratch / f"speed-{speed}"))
        table = lakemark.Table(folder, store=store)
        apply(table, changes(rows, min(speed, rows // 100), 99), commits=20)
        asks[f"{speed:,}"] = session_of(folder, store)
    return {"scans": scans(asks, rows, rounds, [folder, scratch])}


def migration(folder: Path, scratch: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Figure 3.20: a migration of a cache that is half full against a scan, and scans while it runs."""
    copy = linked(folder, scratch / "migrated")
    table = lakemark.Table(copy)
    table.declare_key("k", cache_bytes=cache_of(rows))
    changed = fill(table, rows, 0.5, 7)
    ask = session_of(copy, copy / "_lakemark")
    whole = query(0, 2 * rows + 2)
    scan = timed({"scan": ask}, whole, rounds)["scan"]
    before, meanwhile, done = ask(whole), [], threading.Event()

    def keep_asking() -> None:
        # At least once: on a busy machine the migration may end before this thread has a core.
        while not (meanwhile and done.is_set()):
            answer, cost = measure.measure(lambda: ask(whole))
            if answer != before:
                raise AssertionError(f"{answer} while migrating, {before} before")
            meanwhile.append(cost.wall_seconds)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    _, busy = measure.measure(table.migrate)
    done.set()
    asking.join()
    if not meanwhile or ask(whole) != before:
        raise AssertionError("a migration changed an answer, or nobody asked")
    fill(table, rows, 0.5, 8)
    _, quiet = measure.measure(table.migrate)
    return {
        "changed": changed / rows,
        "scan_seconds": scan,
        "migration_seconds": quiet.wall_seconds,
        "migration_cpu_seconds": quiet.cpu_seconds,
        "migration_beside_scans_seconds": busy.wall_seconds,
        "scans_meanwhile": len(meanwhile),
        "scan_meanwhile_seconds": statistics.median(meanwhile),
    }


def sustained(folder: Path, scratch: Path, rows: int, seconds: float) -> dict[str, float]:
    """Figure 3.21: updates a second, migrations included, by the size of the cache; and in place."""
    rates = {}
    for part in (4, 2, 1):
        copy = linked(folder, scratch / f"sustained-{part}")
        table = lakemark.Table(copy)
        cache = cache_of(rows) // part
        table.declare_key("k", cache_bytes=cache, page_bytes=PAGES["coarse" if cache >= 16 << 20 else "fine"])
        batch = min(10_000, cache // RECORD_BYTES // 20)
        updated, migrations, number, began = 0, 0, 0, time.perf_counter()
        while migrations == 0 or time.perf_counter() - began < seconds:
            number += 1
            keys = np.random.default_rng(number).choice(2 * rows, batch, replace=False)
            table.upsert(records(keys, number))
            updated += len(keys)
            if table.updates.cache_share >= 0.5:
                table.migrate()
                migrations += 1
        rates[named(cache)] = updated / (time.perf_counter() - began)
        shutil.rmtree(copy)
    writer = Writer(IN_PLACE, write_delta(folder, scratch / "sustained-in-place"), rows, IN_PLACE_BATCH)
    writer.wait(max(seconds / 2, 5))
    rates["in place (delta-rs)"] = writer.stop() * IN_PLACE_BATCH
    return rates


def report(result: dict[str, Any]) -> None:
    """Prints the tables."""
    for part in ("schemes", "fill", "speed"):
        if part not in result:
            continue
        for state, sizes in result[part]["scans"].items():
            engines = [engine for engine in next(iter(sizes.values())) if engine != "without"]
            lines = [
                [size, f"{row['without'] * 1e3:.1f} ms", *[f"{row[engine] / row['without']:.2f}" for engine in engines]]
                for size, row in sizes.items()
            ]
            measure.print_table([f"{part}, {state}", "without", *engines], lines)
        print({key: value for key, value in result[part].items() if key != "scans"})
    for part in ("migration", "sustained"):
        if part in result:
            print(f"\n{part}:", {key: round(value, 3) for key, value in result[part].items()})


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws the scans of figures 3.16, 3.17 and 3.18 as bars, normalised to those without updates."""
    drawn = [
        (part, state) for part in ("schemes", "fill", "speed") if part in result for state in ("memory", "cold")
    ] or [(None, None)]
    figure, axes = plt.subplots(len(drawn), 1, figsize=(8, 3 * len(drawn)), squeeze=False)
    for (part, state), panel in zip(drawn, axes[:, 0], strict=True):
        if part is None:
            continue
        sizes = result[part]["scans"][state]
        engines = [engine for engine in next(iter(sizes.values())) if engine != "without"]
        for number, engine in enumerate(engines):
            places = np.arange(len(sizes)) + (number - len(engines) / 2) * 0.8 / len(engines)
            ratios = [row[engine] / row["without"] for row in sizes.values()]
            panel.bar(places, ratios, 0.8 / len(engines), align="edge", label=engine)
        panel.axhline(1.0, color="grey", linewidth=0.8)
        panel.set(title=f"{part}, {state}", ylabel="with / without")
        panel.set_xticks(np.arange(len(sizes)), list(sizes))
        panel.legend(fontsize=8, ncols=len(engines))
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of the table (100,000,000 are 10 GB)")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of sustained updates for each cache")
    parser.add_argument("--only", nargs="*", default=[], help="parts: schemes, fill, speed, migration, sustained")
    parser.add_argument("--results", type=Path, default=measure.RESULTS, help="folder for the JSON and the plot")
    arguments = parser.parse_args()
    rows, rounds = arguments.rows, arguments.rounds
    folder, scratch = CACHE / f"updates-{rows}", CACHE / f"updates-{rows}-figures"
    write_table(folder, rows)
    parts: dict[str, Callable[[], Any]] = {
        "fill": lambda: fills(folder, scratch, rows, rounds),
        "schemes": lambda: schemes(folder, scratch, rows, rounds),
        "speed": lambda: speeds(folder, scratch, rows, rounds),
        "migration": lambda: migration(folder, scratch, rows, rounds),
        "sustained": lambda: sustained(folder, scratch, rows, arguments.seconds),
    }
    result: dict[str, Any] = {"machine": measure.machine(), "rows": rows, "cache_bytes": cache_of(rows)}
    for name, run in parts.items():
        if not arguments.only or name in arguments.only:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            result[name] = run()
    shutil.rmtree(scratch, ignore_errors=True)
    report(result)
    measure.publish(arguments.results, f"updates-figures-{rows}", result, plot)


if __name__ == "__main__":
    main()

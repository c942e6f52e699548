"""What the benchmark of links says: tables, and the same as a plot."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import links_goals
import matplotlib as mpl
import measure
import numpy as np
from goals import print_goals
from links_goals import BY_KEYS, CALL, SQL, UPDATED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

mpl.use("Agg")
import matplotlib.pyplot as plt


def publish(result: dict[str, Any], folder: Path, name: str) -> None:
    """Prints the tables, and writes them, the numbers and the plot into a folder."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        report(result)
    print(text.getvalue())
    measure.publish(folder, name, result, plot)
    (folder / f"{name}.md").write_text(f"# Walks over {result['rows']:,} links\n{text.getvalue()}", encoding="utf-8")


def report(result: Mapping[str, Any]) -> None:
    """Prints the result as tables."""
    minutes = sum(result["stages"].values()) / 60
    print(f"\n{result['rows']:,} triples, {result['parquet_bytes'] / 1e6:.1f} MB of Parquet; {minutes:.1f} minutes")
    print_goals(links_goals.judged(result))
    sizes(result)
    queries("query", result["asked"], BY_KEYS)
    queries("query, 5% of the rows updated", result["updated"], CALL)
    cold(result)
    paths(result)
    measure.print_table(
        ("clients", "queries a second", "median, ms", "95%, ms", "CPU of a query, ms"),
        [
            [
                count,
                f"{of['queries_per_second']:,.0f}",
                *(f"{of[key]:.2f}" for key in ("latency_ms", "latency_ms_p95", "cpu_ms")),
            ]
            for count, of in result["clients"].items()
        ],
    )
    measure.print_table(
        ("join of many rows, ms", "with indexes", "without"),
        [[name, f"{of['with indexes']:.1f}", f"{of['without']:.1f}"] for name, of in result["left_alone"].items()],
    )


def sizes(result: Mapping[str, Any]) -> None:
    """Bytes, builds and loads."""
    measure.print_table(
        ("links", "bytes a triple", "load, s"),
        [
            [
                name,
                f"{size:.2f}",
                f"{result['load_seconds'].get(name, 0) or 0:.1f}" if name in result["load_seconds"] else "",
            ]
            for name, size in result["bytes_per_triple"].items()
        ],
    )
    rows = []
    for name, index in result["indexes"].items():
        nanoseconds = index["cpu_seconds"] / result["rows"] / len(index["bytes"]) * 1e9
        peak = (index["peak_bytes"] - index["before_bytes"]) / 1e6
        rows.append(
            [
                name,
                f"{sum(index['bytes'].values()) / 1e6:.1f}",
                f"{index['wall_seconds']:.1f}",
                f"{nanoseconds:.0f}",
                f"{peak:.0f}",
            ]
        )
    measure.print_table(("index", "MB", "build, s", "ns of CPU a row and direction", "MB of memory"), rows)


def queries(title: str, asked: Mapping[str, Any], beside: str) -> None:
    """What each engine took for each query, and how many times as long as one of them."""
    rows = []
    for name, costs in asked.items():
        for engine, cost in costs.items():
            rows.append(
                [
                    f"{name}, {cost['nodes']:g} nodes" if engine == next(iter(costs)) else "",
                    engine,
                    str(len(cost["each_ms"])),
                    f"{cost['wall_ms']:.3f}",
                    f"{max(cost['each_ms']):.3f}",
                    f"{cost['cpu_ms']:.3f}",
                    f"{links_goals.times(costs, engine, beside):.2f}",
                ]
            )
    measure.print_table((title, "engine", "asked", "median, ms", "most, ms", "CPU, ms", f"times {beside}"), rows)


def cold(result: Mapping[str, Any]) -> None:
    """Cold walks."""
    disk = result["disk"]
    print(f"\na page of the disk: {disk['read_ms']:.3f} ms; 32 under way: {disk['reads_per_second']:,.0f} a second")
    rows = []
    for name, walk in result["cold"].items():
        counted = walk["rounds"] or []
        rows.append(
            [
                name,
                *(f"{walk[key]:,.0f}" for key in ("nodes", "depth", "pages")),
                f"{walk['pages_of_leaves']:.2f}",
                f"{max((each['rounds'] for each in counted), default=0)}" if counted else "",
                f"{walk['wall_ms']:.2f}",
                f"{walk['cpu_ms']:.2f}",
            ]
        )
    header = ("cold walk", "nodes", "depth", "pages", "of their leaves", "rounds at most", "ms", "CPU, ms")
    measure.print_table(header, rows)


def paths(result: Mapping[str, Any]) -> None:
    """Table 6.4 and figures 6.1 to 6.5."""
    found = result["paths"]
    if found:
        measure.print_table(
            ("tasks", "nodes of a path", "nodes visited", "reads", "reads a second", "of the disk's", "ms a read"),
            [
                [
                    *(str(each[key]) for key in ("tasks", "length", "visited", "reads")),
                    f"{rate_of(each):,.0f}",
                    f"{rate_of(each) / result['disk']['reads_per_second']:.2f}",
                    f"{each['tasks'] / rate_of(each) * 1e3:.3f}",
                ]
                for each in found
            ],
        )


def rate_of(path: Mapping[str, Any]) -> float:
    """Reads a second."""
    return float(path["reads"] / path["wall_seconds"])


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws queries, sizes, clients, paths and what updates cost."""
    figure, axes = plt.subplots(2, 3, figsize=(19, 10), width_ratios=[3, 1.2, 1.2])
    bars(axes[0][0], result["asked"], {})
    axes[0][0].set_ylabel("median, ms (log)")
    axes[0][0].set_yscale("log")
    axes[0][0].set_title(f"the queries of section 6.5, {result['rows']:,} triples")
    sized = result["bytes_per_triple"]
    axes[0][1].bar(list(sized), list(sized.values()))
    axes[0][1].set_ylabel("bytes a triple")
    axes[0][1].tick_params(axis="x", rotation=80)
    bars(axes[1][0], result["updated"], {f"{way}{UPDATED}": way for way in (CALL, *SQL)})
    axes[1][0].axhline(links_goals.CHANGED, color="black", linewidth=0.8)
    axes[1][0].set_ylabel("times as long as without updates")
    axes[1][0].set_title("5% of the rows updated")
    asked_at_once = result["clients"]
    line(
        axes[0][2], "clients", "queries a second", {int(n): of["queries_per_second"] for n, of in asked_at_once.items()}
    )
    line(axes[1][1], "clients", "median, ms", {int(n): of["latency_ms"] for n, of in asked_at_once.items()})
    tasks = {each["tasks"]: rate_of(each) for each in result["paths"] or () if each["length"] == 10}
    line(axes[1][2], "tasks that follow paths", "reads a second, cold", tasks)
    axes[1][2].axhline(result["disk"]["reads_per_second"], color="black", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def bars(axis: Axes, asked: Mapping[str, Any], beside: Mapping[str, str]) -> None:
    """A group of bars for each query: medians, or those of some ways in times of the ways that they stand beside."""
    engines = list(beside or next(iter(asked.values())))
    width = 0.8 / len(engines)
    for place, engine in enumerate(engines):
        places = np.arange(len(asked)) + (place - len(engines) / 2 + 0.5) * width
        heights = [
            links_goals.times(costs, engine, beside[engine]) if beside else costs[engine]["wall_ms"]
            for costs in asked.values()
        ]
        axis.bar(places, heights, width, label=engine)
    axis.set_xticks(np.arange(len(asked)), [name.replace(" of ", " of\n") for name in asked])
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4, fontsize="small")


def line(axis: Axes, across: str, up: str, values: Mapping[int, float]) -> None:
    """A line over numbers that double."""
    axis.plot(list(values), list(values.values()), "o-")
    axis.set_xscale("log", base=2)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.set_ylim(bottom=0)

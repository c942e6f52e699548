"""Pictures of shared work: throughput and CPU by the number of clients, lone queries beside `off`, and all goals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from sharing_queries import WORKLOADS

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

COLUMNS = 4
CPU = ("cpu_seconds_per_query", 1e3, "CPU ms a query")
RATE = ("queries_per_second", 1.0, "queries/s")
# Of a lone query and of mixes, which goals are about, what a way takes beside unshared queries is above its CPU.
BESIDE = {"alone": ("ratio", 1.0, "times as long as off"), "random": ("cpu_ratio", 1.0, "times the CPU of off")}
MET, MISSED = "tab:green", "tab:red"
# Whoever is further than this is drawn here.
FAR = 3.0


def plot(result: dict[str, Any], path: Path) -> None:
    """Draws two fields of each workload, one above the other, and the goals."""
    names = list(dict.fromkeys(point["workload"] for point in result["points"]))
    places = len(names) + 1
    columns = min(places, COLUMNS)
    bands = -(-places // columns)
    figure, axes = plt.subplots(2 * bands, columns, figsize=(4.6 * columns, 6.4 * bands), squeeze=False)
    for place in range(bands * columns):
        above, below = (axes[2 * (place // columns) + row][place % columns] for row in range(2))
        if place < len(names):
            plot_workload(result, names[place], (above, below))
            continue
        below.axis("off")
        if place == len(names):
            plot_goals(result["goals"], above)
        else:
            above.axis("off")
    figure.suptitle(f"Many queries at once, scale {result['scale']:g}")
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_workload(result: Mapping[str, Any], name: str, axes: tuple[Axes, Axes]) -> None:
    """Draws a workload."""
    for part, (field, factor, label) in zip(axes, (BESIDE.get(name, RATE), CPU), strict=True):
        plot_field(result, name, field, factor, part)
        part.set(yscale="linear" if field.endswith("ratio") else "log", ylabel=label)
        part.set_title(WORKLOADS[name].title, fontsize="small")
        part.legend(fontsize="x-small")


def plot_field(result: Mapping[str, Any], name: str, field: str, factor: float, axes: Axes) -> None:
    """Draws a number of all points of a workload, a line for each way."""
    found = [each for each in result["points"] if each["workload"] == name]
    places = [each["label"] or str(each["clients"]) for each in found]
    # Places of all ways are the same, also of those that were left out at some of them.
    axes.plot(places, [math.nan] * len(places))
    for number, way in enumerate(result["ways"]):
        values = [each["ways"].get(way, {}).get(field) for each in found]
        known = [(place, value * factor) for place, value in zip(places, values, strict=True) if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), marker=".", label=way, color=f"C{number}")
    axes.tick_params(axis="x", labelsize="small", rotation=90 if any(each["label"] for each in found) else 0)
    axes.set_xlabel("" if any(each["label"] for each in found) else "clients")


def plot_goals(goals: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    """Draws how near each goal is that was measured: at 1 it is met, and to the left of it missed."""
    known = [goal for goal in goals if goal["measured"] is not None]
    reached = [min(nearness(goal), FAR) for goal in known]
    colours = [MET if goal["met"] else MISSED for goal in known]
    axes.barh(range(len(known)), reached, color=colours, alpha=0.6)
    # Beside the axis the names would take the room of a second picture.
    for place, goal in enumerate(known):
        axes.text(0.03, place, f"{goal['what']} ({goal['goal']})", fontsize=5, va="center")
    axes.set_yticks([])
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set(xlim=(0, FAR), xlabel="how much of the goal is reached")
    axes.set_title("goals", fontsize="small")


def nearness(goal: Mapping[str, Any]) -> float:
    """How much of a goal is reached; 1 is just it, and more is better."""
    sign, _, limit = goal["goal"].partition(" ")
    measured, wanted = goal["measured"], float(limit)
    if sign == ">=":
        return float(measured) / wanted
    return wanted / measured if measured > 0 else math.inf

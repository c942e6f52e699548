"""The page at the end of the demo: one file of HTML with drawings in it, which needs no network and runs no script.

Colours follow what the reader's system is set to, light or dark. Whatever is drawn stands beside it as a number.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from demo_results import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from demo_results import Asked, AskedOfSpark, Cost, Live, Results

STYLE = """
:root { color-scheme: light dark; --page: #fbfaf7; --card: #ffffff; --text: #1d2430; --faint: #566072; --line: #dcd9d0;
  --ours: #0f6b4f; --other: #8f99a8; --skipped: #e4e1d8; --dot: #b4541a; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --card: #1c2027; --text: #e6e9ee; --faint: #a3adbb;
  --line: #333a45; --ours: #4cc79a; --other: #6f7a89; --skipped: #2c323c; --dot: #f0a06a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .75rem; }
h3 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { max-width: 44rem; margin: .5rem 0; }
.faint { color: var(--faint); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.5rem 0; }
.tile, article { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .9rem 1.1rem; }
.tile b { display: block; font-size: 1.45rem; line-height: 1.3; }
article { margin: 1rem 0; }
code { display: block; color: var(--faint); font: .85rem/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .5rem 2rem;
  margin-top: .75rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
.ours { fill: var(--ours); } .other { fill: var(--other); } .skip { fill: var(--skipped); } .dot { fill: var(--dot); }
.axis { stroke: var(--line); } .steps { fill: none; stroke: var(--ours); stroke-width: 2; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; font-weight: normal; }
th { color: var(--faint); } th:first-child, td:first-child { text-align: left; padding-left: 0; }
.wide { overflow-x: auto; }
"""

# Of drawings, in their own units.
WIDTH = 480
BARS_WIDTH, BAR, BAR_STEP, LABEL, VALUE = 400, 14, 22, 132, 74
CELL = 4
CELLS_IN_A_ROW = WIDTH // CELL
CHART_HEIGHT, CHART_LEFT, CHART_BOTTOM = 220, 64, 24


def page(results: Results) -> str:
    """The page of a run."""
    sections = [_opening(results), *(_asked(query) for query in results.asked)]
    if results.spark:
        sections.append(_spark(results.spark))
    sections += [_live(results.live), _closing(results)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Nothing comes from elsewhere, and no script runs.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Lakemark: {results.rows:,} flights</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{_pattern()}\n"
        f"<main>\n{chr(10).join(sections)}\n</main>\n</body>\n</html>\n"
    )


def _pattern() -> str:
    """What pages without a selected row are painted with, for all drawings of pages."""
    size = CELL - 1
    return (
        '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>'
        f'<pattern id="pages" width="{CELL}" height="{CELL}" patternUnits="userSpaceOnUse">'
        f'<rect class="skip" width="{size}" height="{size}"/></pattern></defs></svg>'
    )


def _opening(results: Results) -> str:
    share = results.index_bytes / results.data_bytes
    median = sorted(query.bytes_skipped for query in results.asked)[len(results.asked) // 2]
    tiles = [
        (f"{results.rows:,}", "rows"),
        (human_bytes(results.data_bytes), "of Parquet"),
        (human_bytes(results.index_bytes), f"of indexes, {share:.0%} of the data"),
        (f"{results.build_seconds:.1f} s", f"to build {len(results.indexed)} indexes"),
        (percent(median), "of the bytes skipped, the median query"),
    ]
    drawn = "".join(f'<div class="tile"><b>{escape(value)}</b>{escape(what)}</div>' for value, what in tiles)
    return (
        f"<h1>{results.rows:,} flights, and only the pages where the answers are</h1>\n"
        f"<p>The table has {escape(results.title)}. "
        f"Indexes on {escape(', '.join(results.indexed))} lie beside its files, which stay as they were.</p>\n"
        f'<div class="tiles">{drawn}</div>\n<h2>Asked of all engines, over the same files</h2>\n'
        '<p class="faint">Medians of warm rounds in turn; footers are in memory, and no selection is remembered. '
        "All engines gave the same rows. "
        "A square is a page of one column: coloured if it holds a row that is needed, and so is read.</p>"
    )


def _asked(query: Asked) -> str:
    rows = f"{query.rows:,} row{'' if query.rows == 1 else 's'}"
    time = bars("milliseconds", query.costs, lambda cost: cost.milliseconds, lambda cost: f"{cost.milliseconds:,.1f}")
    size = bars("bytes read", query.costs, lambda cost: cost.bytes_read, lambda cost: human_bytes(cost.bytes_read))
    return (
        f"<article>\n<h3>{escape(query.name)}</h3>\n<code>{escape(query.sql)}</code>\n"
        f'<div class="charts">\n<div>{time}</div>\n<div>{size}</div>\n</div>\n'
        f'<p class="faint">{rows}; {len(query.pages_read):,} of {query.pages:,} pages read, '
        f"{percent(query.bytes_skipped)} of the bytes skipped</p>\n{page_map(query)}\n</article>"
    )


def bars(title: str, costs: dict[str, Cost], amount: Callable[[Cost], float], shown: Callable[[Cost], str]) -> str:
    """A bar for each engine, each as long as its share of the longest."""
    longest = max((amount(cost) for cost in costs.values()), default=0) or 1
    room = BARS_WIDTH - LABEL - VALUE
    lines = []
    for place, (engine, cost) in enumerate(costs.items()):
        top, width = 20 + place * BAR_STEP, room * amount(cost) / longest
        kind = "ours" if engine == OURS else "other"
        lines.append(
            f'<text x="0" y="{top + 11}">{escape(engine)}</text>'
            f'<rect class="{kind}" x="{LABEL}" y="{top}" width="{max(width, 1):.1f}" height="{BAR}" rx="2"/>'
            f'<text x="{LABEL + max(width, 1) + 6:.1f}" y="{top + 11}">{escape(shown(cost))}</text>'
        )
    label = f"{title}: " + ", ".join(f"{engine} {shown(cost)}" for engine, cost in costs.items())
    return (
        f'<svg viewBox="0 0 {BARS_WIDTH} {20 + len(costs) * BAR_STEP}" role="img" aria-label="{escape(label)}">'
        f'<text x="0" y="11">{escape(title)}</text>{"".join(lines)}</svg>'
    )


def page_map(query: Asked) -> str:
    """All pages of a column in the order of the files, and those among them that are read."""
    full, rest = divmod(query.pages, CELLS_IN_A_ROW)
    height = (full + (rest > 0)) * CELL
    ground = f'<rect width="{CELLS_IN_A_ROW * CELL}" height="{full * CELL}" fill="url(#pages)"/>' if full else ""
    if rest:
        ground += f'<rect y="{full * CELL}" width="{rest * CELL}" height="{CELL}" fill="url(#pages)"/>'
    read = "".join(
        f"M{number % CELLS_IN_A_ROW * CELL} {number // CELLS_IN_A_ROW * CELL}h{CELL - 1}v{CELL - 1}h-{CELL - 1}z"
        for number in query.pages_read
    )
    label = f"{len(query.pages_read):,} of {query.pages:,} pages are read"
    return (
        f'<svg class="pages" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{ground}'
        f'<path class="ours" d="{read}"/></svg>'
    )


def _spark(asked: Sequence[AskedOfSpark]) -> str:
    lines = "".join(
        f"<tr><td>{escape(query.name)}</td><td>{query.rows:,}</td><td>{query.milliseconds[0]:,.0f}</td>"
        f"<td>{query.milliseconds[1]:,.0f}</td><td>{escape(query.row_groups)}</td></tr>"
        for query in asked
    )
    return (
        "<h2>The same from PySpark</h2>\n"
        '<p class="faint">Medians of warm queries in milliseconds, of a whole job each.</p>\n'
        '<article class="wide"><table><thead><tr><th>query</th><th>rows</th><th>index off</th><th>index on</th>'
        f"<th>row groups</th></tr></thead><tbody>{lines}</tbody></table></article>"
    )


def _live(live: Live) -> str:
    added = len(live.written) * live.step
    return (
        "<h2>Changed while a second process counts</h2>\n"
        f"<article>\n<p>{len(live.written)} calls added {live.step} flights each. "
        "A call returns when its rows are on the disk. "
        f"Meanwhile another process counted the rows of <i>{escape(live.watched)}</i> {len(live.seen):,} times. "
        "It saw whole changes alone, and each count is a dot.</p>\n"
        f"{live_chart(live)}\n"
        f'<p class="faint">{added:,} rows came. In the data files DuckDB counts {live.others_before:,} rows while the '
        f"changes are buffered, and {live.others_after:,} once they are migrated and published.</p>\n</article>"
    )


def live_chart(live: Live) -> str:
    """The number of rows over time: steps as calls returned, dots as the other process counted."""
    counts = [*live.written, *live.seen]
    least, most = min(count.rows for count in counts), max(count.rows for count in counts)
    start, end = min(0.0, *(count.seconds for count in counts)), max(count.seconds for count in counts)
    bottom = CHART_HEIGHT - CHART_BOTTOM

    def x(seconds: float) -> float:
        return CHART_LEFT + (2 * WIDTH - CHART_LEFT - 8) * (seconds - start) / ((end - start) or 1)

    def y(rows: float) -> float:
        return bottom - (bottom - 12) * (rows - least) / ((most - least) or 1)

    steps = f"M{x(start):.1f} {y(live.written[0].rows - live.step):.1f}" if live.written else ""
    steps += "".join(f"H{x(count.seconds):.1f}V{y(count.rows):.1f}" for count in live.written) + f"H{x(end):.1f}"
    dots = "".join(
        f'<circle class="dot" cx="{x(count.seconds):.1f}" cy="{y(count.rows):.1f}" r="2.5"/>' for count in live.seen
    )
    label = f"{least:,} rows at first, {most:,} in the end, counted {len(live.seen):,} times in {end - start:.1f} s"
    return (
        f'<svg viewBox="0 0 {2 * WIDTH} {CHART_HEIGHT}" role="img" aria-label="{label}">'
        f'<line class="axis" x1="{CHART_LEFT}" y1="{bottom}" x2="{2 * WIDTH - 8}" y2="{bottom}"/>'
        f'<text x="0" y="{y(least) + 4:.1f}">{least:,}</text><text x="0" y="{y(most) + 4:.1f}">{most:,}</text>'
        f'<text x="{2 * WIDTH - 8}" y="{CHART_HEIGHT - 6}" text-anchor="end">{end - start:.1f} s</text>'
        f'<path class="steps" d="{steps}"/>{dots}</svg>'
    )


def _closing(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{engine} {version}" for engine, version in machine.versions.items())
    build = "a release build" if machine.profile == "release" else "a development build, which is slower"
    return (
        "<h2>How this was measured</h2>\n"
        f"<p>On {machine.cores} cores, in one process: {escape(versions)}. Of Lakemark it was {build} "
        "(<b>make demo PROFILE=release</b>). "
        "Bytes are those that the process read from files, as the system counts them. "
        "DataFusion and DuckDB read the same Parquet files, by their own statistics.</p>"
    )


def percent(share: float) -> str:
    """A share for people, rounded down: what is not all of it is never shown as 100%."""
    return f"{math.floor(share * 1000) / 10:.1f}%"


def human_bytes(count: int) -> str:
    """A number of bytes for people."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"

"""Draws the picture of the landing page: `python site/draw.py` writes docs/pictures/dive.svg.

A test compares the picture with what this draws. It has a ground of its own, so that it is the same on light and on
dark pages.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "dive.svg"
WIDTH, HEIGHT = 960, 400
GROUND, SURFACE, WATER, LINE = "#0d2b45", "#e8f1f8", "#163d5f", "#3d6b91"
TEXT, FAINT, FOUND = "#e8f1f8", "#9fbdd6", "#ffb000"
# Pages of each data file, and those with a selected row: what the index below says of shop 7.
PAGES = 24
SELECTED = {"part-0.parquet": {3, 17}, "part-1.parquet": set(), "part-2.parquet": {9}}
POSTINGS = {"shop 5": "0:11  2:4", "shop 6": "1:8  1:20", "shop 7": "0:3  0:17  2:9", "shop 8": "1:2  2:22"}
ENGINES = ("DataFusion", "Python", "Spark")


def rect(x: float, y: float, width: float, height: float, fill: str, *, more: str = "") -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" fill="{fill}"{more}/>'


def text(x: float, y: float, words: str, size: int = 15, fill: str = TEXT, *, more: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{more}>{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, fill: str) -> str:
    """An arrow."""
    return f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g}" stroke="{fill}" stroke-width="2" marker-end="url(#tip)"/>'


def files() -> list[str]:
    """The data files as rows of pages, each selected page in the colour of what was found."""
    drawn = [text(40, 128, "sales/", 15, FAINT, more=' font-family="monospace"')]
    for row, (name, selected) in enumerate(SELECTED.items()):
        top = 146 + 74 * row
        drawn.append(text(40, top + 12, name, 13, FAINT, more=' font-family="monospace"'))
        for page in range(PAGES):
            fill, height, y = (FOUND, 34, top + 18) if page in selected else (LINE, 26, top + 22)
            drawn.append(rect(40 + 15 * page, y, 12, height, fill))
    return drawn


def index() -> list[str]:
    """The index beside the files: values and where their rows are."""
    drawn = [
        text(470, 128, "sales/_lakemark/", 15, FAINT, more=' font-family="monospace"'),
        rect(470, 142, 250, 164, WATER, more=f' stroke="{LINE}"'),
    ]
    for row, (value, rows) in enumerate(POSTINGS.items()):
        asked = value == "shop 7"
        y = 174 + 36 * row
        if asked:
            drawn.append(rect(478, y - 22, 234, 32, GROUND, more=f' stroke="{FOUND}"'))
        colour = FOUND if asked else TEXT
        drawn += [text(490, y, value, 15, colour), text(562, y, rows, 14, colour, more=' font-family="monospace"')]
    return drawn


def picture() -> str:
    """The whole picture."""
    title = (
        "An index beside three data files names the three pages with rows of shop 7; engines read these pages alone."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        f'<path d="M0 0 L8 4 L0 8 z" fill="{FOUND}"/></marker></defs>',
        rect(0, 0, WIDTH, HEIGHT, GROUND),
        rect(40, 28, 680, 46, SURFACE),
        text(58, 57, "SELECT … FROM sales WHERE shop = 7", 18, GROUND, more=' font-family="monospace"'),
        *files(),
        *index(),
        line(700, 76, 700, 136, FOUND),
        line(466, 224, 410, 224, FOUND),
        rect(760, 142, 168, 164, WATER, more=f' stroke="{LINE}"'),
        *(text(784, 182 + 40 * row, name, 17) for row, name in enumerate(ENGINES)),
        line(724, 224, 756, 224, FOUND),
        text(40, 378, "3 of 72 pages are read. A count reads none: the index has the rows already.", 15, FAINT),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")

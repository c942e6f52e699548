"""Drawing: how rows and reports look in a terminal and in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "GREEN",
    "GREY",
    "ORANGE",
    "Part",
    "bar",
    "definitions",
    "html_table",
    "human_bytes",
    "lines",
    "text_bar",
    "text_table",
]

# Of stretches of bars: readable on light and dark notebooks, and distinct by lightness alone.
GREY = "#b8c4ce"
GREEN = "#2e7d5b"
ORANGE = "#d9822b"

_STYLE = "border-collapse:collapse;font-size:90%"

# Of the stretches of a bar in a terminal.
_SHADES = "█░▒"


class Part(NamedTuple):
    """One stretch of a bar."""

    label: str
    amount: int
    colour: str
    #: The amount for people, where that is no plain number.
    shown: str | None = None

    @property
    def text(self) -> str:
        """The amount for people."""
        return f"{self.amount:,}" if self.shown is None else self.shown


def text_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], more: bool) -> str:
    """Draws rows for a terminal.

    >>> print(text_table([("n", "Int64"), ("s", "Utf8")], [["1", "a"], ["20", ""]], True))
     n | s
    ---+--
     1 | a
    20 |
    … more rows
    """
    names = [name for name, _ in columns]
    widths = [max([len(name), *(len(row[at]) for row in rows)]) for at, name in enumerate(names)]
    right = [_is_number(type_name) for _, type_name in columns]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(cells, widths, right, strict=True)
        )
        return " | ".join(padded).rstrip()

    lines = [line(names), "-+-".join("-" * width for width in widths), *(line(row) for row in rows)]
    if more:
        lines.append("… more rows")
    return "\n".join(lines)


def html_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], more: bool) -> str:
    """Draws rows for a notebook.

    >>> html_table([("s", "Utf8")], [["<b>"]], False).count("&lt;b&gt;")
    1
    """
    head = "".join(f'<th title="{escape(kind)}">{escape(name)}</th>' for name, kind in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    note = "<p>… more rows</p>" if more else ""
    return f'<table style="{_STYLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}'


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Draws named values for a notebook.

    >>> definitions([("rows", "7")]).count("<td>7</td>")
    1
    """
    head = '<th style="text-align:left;white-space:pre">'
    body = "".join(f"<tr>{head}{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
    return f'<table style="{_STYLE}"><tbody>{body}</tbody></table>'


def lines(texts: Sequence[str]) -> str:
    r"""Draws lines of text for a notebook.

    >>> lines(["a: 1", "  <b>"])
    '<pre style="white-space:pre-wrap">a: 1\n  &lt;b&gt;</pre>'
    """
    return f'<pre style="white-space:pre-wrap">{escape(chr(10).join(texts))}</pre>'


def bar(title: str, parts: Sequence[Part], width: int = 480) -> str:
    """Draws amounts as stretches of one bar, with a legend. An empty bar is drawn as nothing.

    >>> bar("row groups", [Part("skipped", 3, "#ccc"), Part("read", 1, "#06c")]).count("<rect")
    2
    >>> bar("row groups", [Part("skipped", 0, "#ccc")])
    ''
    """
    total = sum(part.amount for part in parts)
    if total == 0:
        return ""
    rects = []
    left = 0.0
    for part in parts:
        share = part.amount / total * width
        hint = f"{escape(part.label)}: {escape(part.text)}"
        if part.shown is None:
            hint += f" of {total:,}"
        rects.append(
            f'<rect x="{left:.1f}" y="0" width="{share:.1f}" height="14" fill="{part.colour}">'
            f"<title>{hint}</title></rect>"
        )
        left += share
    legend = " &nbsp; ".join(
        f'<span style="color:{part.colour}">■</span> {escape(part.label)} {escape(part.text)}' for part in parts
    )
    return (
        f'<div style="margin:4px 0"><b>{escape(title)}</b> <small>{legend}</small><br>'
        f'<svg width="{width}" height="14" role="img" aria-label="{escape(title)}">{"".join(rects)}</svg></div>'
    )


def text_bar(title: str, parts: Sequence[Part], width: int = 40) -> str:
    """Draws amounts as stretches of one bar for a terminal, the first part solid. An empty bar is drawn as nothing.

    >>> text_bar("row groups", [Part("read", 1, ""), Part("skipped", 3, "")], width=8)
    'row groups ██░░░░░░ 1 read, 3 skipped'
    >>> text_bar("row groups", [Part("read", 0, "")])
    ''
    """
    total = sum(part.amount for part in parts)
    if total == 0:
        return ""
    ends, done = [], 0
    for part in parts:
        done += part.amount
        ends.append(done)
    cells = "".join(_SHADES[min(sum(end * width <= cell * total for end in ends), 2)] for cell in range(width))
    return f"{title} {cells} " + ", ".join(f"{part.text} {part.label}" for part in parts)


def human_bytes(count: int) -> str:
    """Writes a number of bytes for people.

    >>> human_bytes(0), human_bytes(1023), human_bytes(1536), human_bytes(5 * 1024**3)
    ('0 B', '1023 B', '1.5 KiB', '5.0 GiB')
    """
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004 - the size of a unit
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _is_number(type_name: str) -> bool:
    return type_name.startswith(("Int", "UInt", "Float", "Decimal"))

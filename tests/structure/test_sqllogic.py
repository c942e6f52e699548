"""The list of differences from DataFusion's own suite: each says why, and names a record once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib

LIST = Path(__file__).parents[2] / "rust" / "sqllogic" / "differences.toml"
# A record of a file, and of an included file with the place that includes it.
PLACE = re.compile(r"[\w./-]+\.slt(\.part)?:\d+( in [\w./-]+\.slt(\.part)?:\d+)*")
RUNS = {"both", "on", "off", "engine"}


def wrong(text: str) -> list[str]:
    """What is wrong with a list."""
    entries: list[dict[str, Any]] = tomllib.loads(text).get("difference", [])
    found = [f"{entry.get('at')} says not why" for entry in entries if not entry.get("reason", "").strip()]
    found += [f"{entry.get('at')} is of unknown runs" for entry in entries if entry.get("runs", "both") not in RUNS]
    places = [place for entry in entries for place in entry["at"]]
    found += [f"{place} is no record" for place in places if not PLACE.fullmatch(place)]
    found += [f"{place} is listed twice" for place in sorted({place for place in places if places.count(place) > 1})]
    return found


def test_the_list_says_why_and_names_each_record_once() -> None:
    text = LIST.read_text(encoding="utf-8")
    assert "[[difference]]" in text
    assert not wrong(text)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('at = ["a.slt:1"]\nreason = " "', "['a.slt:1'] says not why"),
        ('at = ["a.slt"]\nreason = "x"', "a.slt is no record"),
        ('at = ["a.slt:1", "a.slt:1"]\nreason = "x"', "a.slt:1 is listed twice"),
        ('at = ["b.slt.part:1 in c/a.slt:1"]\nruns = "never"\nreason = "x"', "unknown runs"),
    ],
)
def test_a_bad_entry_is_seen(entry: str, says: str) -> None:
    found = wrong(f"[[difference]]\n{entry}\n")
    assert len(found) == 1
    assert says in found[0]

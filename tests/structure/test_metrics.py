"""The numbers that operators see have the same names in the code, on the operators' page and in the alerts."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (ROOT / "rust/table/src/metrics/families.rs").read_text("utf-8")
PAGE = (ROOT / "docs/operations.md").read_text("utf-8")
RULES = (ROOT / "examples/jobs/prometheus-rules.yaml").read_text("utf-8")
SPARK = (ROOT / "spark-plugin/src/main/java/io/lakemark/spark/read/LakemarkMetrics.java").read_text("utf-8")

FAMILY = re.compile(
    r"pub static \w+: Family =\s*Family::(counter|gauge)\(\s*"
    r'"(\w+)",\s*"([^"]*)",?\s*\)((?:\s*\.\w+\("\w+"\))*);'
)
ROW = re.compile(r"^\| `(lakemark_\w+)` \| (\w+) \| (?:`(\w+)`)? ?\| (.*) \|$", re.MULTILINE)


def families() -> dict[str, tuple[str, str, str]]:
    """Kind, label and meaning of each number, by the name that it is told under."""
    found = {}
    for kind, name, meaning, options in FAMILY.findall(CODE):
        label = re.search(r'\.by\("(\w+)"\)', options)
        found[name + "_total" * (kind == "counter")] = (kind, label.group(1) if label else "", meaning)
    return found


def test_the_page_has_every_number_with_its_kind_its_label_and_its_meaning() -> None:
    known = families()
    assert len(known) == CODE.count(": Family ="), "a family is written as this test does not read it"
    assert {name: (kind, label, meaning) for name, kind, label, meaning in ROW.findall(PAGE)} == known


def test_alerts_go_by_numbers_that_there_are() -> None:
    known = families()
    for text in (RULES, PAGE):
        named = set(re.findall(r"\blakemark_\w+_(?:seconds|total|segments)\b|\blakemark_segments\b", text))
        assert named, "no number is named"
        assert named <= set(known)


def test_what_spark_shows_of_a_scan_is_on_the_page() -> None:
    shown = re.findall(r'static final String \w+ = "(\w+)";', SPARK)
    assert len(shown) >= 4
    assert [name for name in shown if f"`{name}`" not in PAGE] == []

"""The problems that `lakemark doctor` knows are on the operators' page, each with its severity."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = (ROOT / "rust/table/src/report/health.rs").read_text("utf-8")
PAGE = (ROOT / "docs/operations.md").read_text("utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (note|warning|error) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def problems() -> dict[str, str]:
    """The severity of each problem by its name, as the code says."""
    names = dict(re.findall(r'Self::(\w+) => "(\w+_\w+|\w+)",', CODE))
    severity_of = CODE.split("pub fn severity(self)")[1].split("impl Serialize")[0]
    severities = dict.fromkeys(names, "warning")
    for group, severity in re.findall(r"((?:\s*\|?\s*Self::\w+)+) =>\s*\{?\s*Severity::(\w+)", severity_of):
        severities.update(dict.fromkeys(re.findall(r"Self::(\w+)", group), severity.lower()))
    return {name: severities[variant] for variant, name in names.items() if variant not in ("Note", "Warning", "Error")}


def test_the_page_has_every_problem_with_its_severity() -> None:
    known = problems()
    assert len(known) == len(re.findall(r"^    [A-Z]\w+,$", CODE.split("pub enum ProblemName")[1], re.MULTILINE))
    assert known["no_index"] == "note"
    assert known["unreadable_table"] == "error"
    assert dict(ROW.findall(PAGE)) == known

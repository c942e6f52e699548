"""`Table.doctor`: the same report as the command's, as values and as a picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakemark

if TYPE_CHECKING:
    from conftest import Judged


def test_a_sound_table_is_true_and_says_what_was_looked_at(indexed: Judged) -> None:
    report = indexed.table.doctor()
    assert report
    assert report.problems == []
    assert {"coverage", "index files", "locks", "disk", "permissions", "clock"} <= set(report.checked)
    assert report.release == lakemark.__version__
    assert str(report).startswith("nothing to do: checked ")


def test_lost_index_files_are_false_and_drawn_with_what_to_do(indexed: Judged) -> None:
    shutil.rmtree(Path(indexed.folder) / "_lakemark" / "indexes")
    report = indexed.table.doctor()
    assert not report
    (problem,) = report.problems
    assert (problem.name, problem.severity) == ("lost_index_files", "warning")
    assert "lakemark index build" in problem.remedy
    assert report.to_dict()["problems"] == [
        {"name": problem.name, "severity": "warning", "problem": problem.problem, "remedy": problem.remedy}
    ]
    shown = report._repr_html_()
    assert "lost_index_files" in shown
    assert "1 problem" in shown
    with pytest.warns(lakemark.LakemarkWarning, match="missing or cut off"):
        indexed.table.build(progress=False)
    assert indexed.table.doctor()

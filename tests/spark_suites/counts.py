"""How much of Spark's own suites was run, and how much of that reached us."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from differences import ENGINE

if TYPE_CHECKING:
    from pathlib import Path

    import golden


@dataclass
class Reach:
    """What a run reports of itself."""

    marked: int = 0
    indexes: int = 0
    columns: int = 0
    views: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    not_marked: Counter[str] = field(default_factory=Counter)
    # Texts of statements with scans of Parquet files, and of those with scans of ours.
    over_files: set[str] = field(default_factory=set)
    reaching: set[str] = field(default_factory=set)
    # The same of all queries, whatever their texts.
    queries_over_files: int = 0
    queries_reaching: int = 0

    @classmethod
    def read(cls, report: Path) -> Reach:
        """Reads a report; a run of Spark alone writes none."""
        reach = cls()
        if report.exists():
            with report.open(encoding="utf-8") as lines:
                for line in lines:
                    reach.add(json.loads(line))
        return reach

    def add(self, line: dict[str, object]) -> None:
        """Adds what a line says."""
        if "marked" in line:
            self.marked += 1
            self.indexes += int(str(line["indexes"]))
            self.columns += int(str(line["columns"]))
        elif "notMarked" in line:
            # Without what differs from one folder to the next.
            self.not_marked[str(line["error"]).replace(str(line["notMarked"]), "FOLDER")] += 1
        elif "view" in line:
            self.views += not line["kept"]
            if line["kept"]:
                self.kept[str(line["kept"])] += 1
        elif "query" in line:
            self.add_query(line)

    def add_query(self, line: dict[str, object]) -> None:
        """Adds what a line says of a query."""
        reaches = bool(line["narrowed"] or line["connector"])
        if reaches or line["scans"]:
            self.queries_over_files += 1
            self.over_files.add(str(line["query"]).strip())
        if reaches:
            self.queries_reaching += 1
            self.reaching.add(str(line["query"]).strip())


@dataclass
class SqlCounts:
    """The files of SQL of one run."""

    run: str
    expected: dict[str, list[golden.Statement]]
    differing: set[str]
    left_out: dict[str, str]
    reach: Reach

    def lines(self) -> list[str]:
        """What is printed."""
        statements = [statement for file in self.expected.values() for statement in file]
        selects = [statement.sql for statement in statements if statement.is_select]
        plans = sum(statement.is_plan for statement in statements)
        over = sum(sql in self.reach.over_files for sql in selects)
        reaching = sum(sql in self.reach.reaching for sql in selects)
        equal = len(statements) - len(self.differing)
        said = [f"{self.run}: {len(self.expected)} files, {len(statements)} statements", f"  {equal:>6} equal"]
        if self.run != ENGINE:
            said[-1] += f", among them {plans} plans, which are made and not compared"
        said.append(f"  {len(self.differing):>6} differ")
        if self.run != ENGINE:
            said.append(f"  {len(selects):>6} SELECTs, {over} over files, {reaching} of these reach us")
            said += self.of_reach()
        said += [f"  left out: {file}: {reason}" for file, reason in sorted(self.left_out.items())]
        return said

    def of_reach(self) -> list[str]:
        """What is printed of folders and views."""
        reach = self.reach
        said = [f"  {reach.views:>6} views became files; what did not:"]
        said += [f"    {count:>6} {reason}" for reason, count in reach.kept.most_common()]
        said.append(
            f"  {reach.marked:>6} times a folder was marked: {reach.indexes} indexes on {reach.columns} columns"
        )
        said += [f"    {count:>6} not: {reason}" for reason, count in reach.not_marked.most_common()]
        return said


def scala_lines(
    run: str, passed: Counter[str], failed: Counter[str], left_out: Counter[str], reach: Reach
) -> list[str]:
    """What is printed of the other suites of one run."""
    suites = sorted(set(passed) | set(failed) | set(left_out))
    said = [f"{run}: {len(suites)} suites, {passed.total()} tests passed, {failed.total()} failed"]
    said += [
        f"  {suite}: {passed[suite]} passed, {failed[suite]} failed, {left_out[suite]} left out by Spark"
        for suite in suites
    ]
    if run != ENGINE:
        said.append(
            f"  {reach.queries_over_files} queries over Parquet files, {reach.queries_reaching} of them reach us"
        )
        said.append(f"  {reach.marked} times a folder was marked: {reach.indexes} indexes on {reach.columns} columns")
        said += [f"    {count:>6} not: {reason}" for reason, count in reach.not_marked.most_common()]
    return said

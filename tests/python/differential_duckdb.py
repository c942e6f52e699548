"""Random statements over several tables, judged by DuckDB.

    fuzz-queries write FOLDER STATEMENTS SEED
    python tests/python/differential_duckdb.py FOLDER

The first writes tables, statements and the answers of our engine (`rust/datafusion/tests/it/differential/joins`).
Exits with 1 if DuckDB answers one of them otherwise. Statements that DuckDB has no words for, or another meaning, are
counted and left out.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import duckdb

# What the two engines write differently; DuckDB has no semi or anti join that keeps the right side.
WORDS = {"LEFT SEMI JOIN": "SEMI JOIN", "LEFT ANTI JOIN": "ANTI JOIN"}
UNKNOWN = ["RIGHT SEMI JOIN", "RIGHT ANTI JOIN"]
# A backslash in LIKE escapes in DataFusion, and is a letter in DuckDB. Of the others `docs/limits.md` tells.
OTHERWISE = ["\\", "INTERSECT ALL", "EXCEPT ALL", ".id IS NOT DISTINCT FROM"]
MOST_REFUSED = 0.1


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def text(value: object) -> str:
    """A value as our engine writes it."""
    if value is None:
        return "∅"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def judge(folder: Path) -> Counter[str]:
    """Runs the statements of one seed."""
    counts: Counter[str] = Counter()
    connection = duckdb.connect()
    for name in "tuv":
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{folder / name}.parquet')")
    for line in (folder / "statements.jsonl").read_text().splitlines():
        statement = json.loads(line)
        sql = statement["sql"]
        if any(word in sql for word in UNKNOWN + OTHERWISE):
            counts["left out"] += 1
            continue
        for ours, theirs in WORDS.items():
            sql = sql.replace(ours, theirs)
        try:
            found = ["|".join(map(text, row)) for row in connection.execute(sql).fetchall()]
        except duckdb.Error as error:
            counts["refused"] += 1
            say(f"REFUSED seed {statement['seed']} statement {statement['statement']}: {error}\n  {sql}")
            continue
        if not statement["ordered"]:
            found.sort()
        if found == statement["rows"]:
            counts["passed"] += 1
            continue
        counts["failed"] += 1
        say(f"DIFFERENCE seed {statement['seed']} statement {statement['statement']}\n  {sql}")
        for whose, rows in (("DuckDB", found), ("ours", statement["rows"])):
            say(f"  {whose:6}: {len(rows)} rows: {' ; '.join(rows[:12])}")
    return counts


def main() -> int:
    """Judges all seeds of a folder."""
    counts: Counter[str] = Counter()
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        counts += judge(folder)
    total = max(counts.total(), 1)
    say(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(counts["failed"] > 0 or counts["passed"] == 0 or counts["refused"] / total > MOST_REFUSED)


if __name__ == "__main__":
    raise SystemExit(main())

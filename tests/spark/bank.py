"""A client of a bank, for `test_soak.py`: moves money between accounts by SQL, and counts it all the time.

usage: python bank.py FOLDER SECONDS SEED
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import lakemark

ACCOUNTS = 400
BALANCE = 1000
TOTAL = ACCOUNTS * BALANCE


class Ledger:
    """What a client did and saw."""

    def __init__(self) -> None:
        self.moved: Counter[int] = Counter()
        self.done: Counter[str] = Counter()
        self.seen: set[tuple[int, int]] = set()

    def note(self, what: str, moves: dict[int, int]) -> None:
        """A transfer that was made."""
        self.done[what] += 1
        for account, amount in moves.items():
            self.moved[account] += amount

    def to_json(self) -> str:
        return json.dumps({"moved": dict(self.moved), "done": dict(self.done), "seen": sorted(self.seen)})


def draw(chance: random.Random) -> dict[int, int]:
    """A transfer: two accounts, and what each of them gets."""
    # Few accounts, so that clients meet.
    source, target = chance.sample(range(0, ACCOUNTS, 8), 2)
    amount = chance.randrange(1, 50)
    return {source: -amount, target: amount}


def update(table: str, moves: dict[int, int]) -> str:
    """The transfer as one statement, which reads what it changes."""
    cases = " ".join(f"WHEN {account} THEN {amount}" for account, amount in moves.items())
    accounts = ", ".join(map(str, moves))
    return f"UPDATE {table} SET balance = balance + CASE account {cases} END WHERE account IN ({accounts})"


def transfers(folder: Path, chance: random.Random, end: float, ledger: Ledger) -> None:
    session = lakemark.connect()
    session.sql(f"CREATE EXTERNAL TABLE bank STORED AS LAKEMARK LOCATION '{folder}'")
    # At least one is made, however busy the machine is.
    while time.monotonic() < end or not ledger.done["python"]:
        moves = draw(chance)
        try:
            session.sql(update("bank", moves))
        except lakemark.ConflictError:
            ledger.done["conflict"] += 1
        else:
            ledger.note("python", moves)
        time.sleep(chance.uniform(0, 0.05))


def looks(folder: Path, end: float, ledger: Ledger) -> None:
    table, session = lakemark.Table(folder), lakemark.connect()
    session.register("bank", table)
    while time.monotonic() < end:
        (row,) = session.sql("SELECT sum(balance) AS total, count(*) AS n FROM bank").to_arrow().to_pylist()
        ledger.seen.add((row["total"], row["n"]))
        balances = table.scan(columns=["balance"]).to_arrow()["balance"].to_pylist()
        ledger.seen.add((sum(balances), len(balances)))
        ledger.done["look"] += 2


def main() -> None:
    folder, seconds, seed = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    ledger, end = Ledger(), time.monotonic() + seconds
    reader = threading.Thread(target=looks, args=(folder, end, ledger))
    reader.start()
    transfers(folder, random.Random(seed), end, ledger)  # noqa: S311 - no secret
    reader.join()
    sys.stdout.write(ledger.to_json() + "\n")


if __name__ == "__main__":
    main()

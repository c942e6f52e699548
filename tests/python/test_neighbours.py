"""delta-rs changes a table in turn with Lakemark: whatever comes after whatever, the rows are those of a model.

`LAKEMARK_NEIGHBOURS_OPERATIONS` and `LAKEMARK_NEIGHBOURS_SEED` make more of it: `make stress NAME=neighbours`.
`LAKEMARK_NEIGHBOURS_WITHOUT` names steps to leave out.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from neighbours import Neighbours

if TYPE_CHECKING:
    from pathlib import Path

# Operations of one table.
STEPS = 125


def test_rows_are_those_of_a_model_whatever_delta_rs_does_in_between(tmp_path: Path) -> None:
    operations = int(os.environ.get("LAKEMARK_NEIGHBOURS_OPERATIONS", "250"))
    seed = int(os.environ.get("LAKEMARK_NEIGHBOURS_SEED", "7"))
    without = set(os.environ.get("LAKEMARK_NEIGHBOURS_WITHOUT", "").split(","))
    done: Counter[str] = Counter()
    while done.total() < operations:
        model = Neighbours(tmp_path / str(seed), seed, without)
        try:
            for step in range(min(STEPS, operations - done.total())):
                model.step()
                if step % 200 == STEPS - 1:
                    model.check_apart()
            model.check()
        except BaseException:
            print(f"fails with LAKEMARK_NEIGHBOURS_SEED={seed} after {len(model.trace)} operations")  # noqa: T201
            raise
        done.update(model.counts)
        seed += 1
    print(f"{done.total()} operations: {dict(done.most_common())}")  # noqa: T201

"""The second process of the demo: counts the rows of a condition again and again, until its input ends.

Each count is a line of JSON: the clock of the machine, which all of its processes share, and the number of rows.
"""

from __future__ import annotations

import json
import select
import sys
import time

import lakemark

#: Seconds between two counts.
PAUSE = 0.01


def main() -> None:
    """Counts the rows of `FOLDER CONDITION`."""
    folder, condition = sys.argv[1:]
    table = lakemark.Table(folder)
    while True:
        rows = table.count(condition)
        print(json.dumps({"at": time.monotonic(), "rows": rows}), flush=True)
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            return


if __name__ == "__main__":
    main()

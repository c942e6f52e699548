"""Trees as the thesis counts them (Athanassoulis 2014, equations 5.2 to 5.10), and what it measured.

Measured are tables 5.2 and 5.3. The names of the functions are those of the equations in words; sizes are bytes.
"""

from __future__ import annotations

import math

PAGE_BYTES = 4096
KEY_BYTES = 8
POINTER_BYTES = 8
TUPLE_BYTES = 256
# Equation 5.2.
FANOUT = PAGE_BYTES / (POINTER_BYTES + KEY_BYTES)

# Table 5.2, pages of the trees over a relation of 1 GB, and the B+-tree they are compared with.
PAGES_BPLUS = {"pk": 19296, "att1": 1748}
PAGES = {
    "pk": {0.2: 406, 0.1: 578, 1.5e-7: 3928, 1e-15: 8565},
    "att1": {0.2: 38, 0.1: 54, 1.5e-7: 358, 1e-15: 786},
}
# Table 5.3, pages read in vain by a search.
FALSE_READS = {
    "pk": {0.2: 13.58, 0.1: 1.23, 1.9e-2: 0.11, 1.8e-3: 0.0, 1.72e-4: 0.01},
    "att1": {0.2: 701.15, 0.1: 80.93, 1.9e-2: 4.75, 1.8e-3: 0.36, 1.72e-4: 0.04},
}


def bplus_bytes(tuples: int, average_tuples: float) -> float:
    """A packed B+-tree over keys that have so many tuples each (equations 5.3 and 5.9)."""
    leaves = tuples * (KEY_BYTES / average_tuples + POINTER_BYTES) / PAGE_BYTES
    return PAGE_BYTES * (leaves + leaves / FANOUT)


def keys_per_leaf(fpp: float) -> float:
    """Keys of a leaf of a BF-tree (equation 5.5)."""
    return -PAGE_BYTES * 8 * math.log(2) ** 2 / math.log(fpp)


def bloom_bytes(tuples: int, average_tuples: float, fpp: float) -> float:
    """A BF-tree (equations 5.6 and 5.10)."""
    leaves = tuples / (average_tuples * keys_per_leaf(fpp))
    return PAGE_BYTES * (leaves + leaves / FANOUT)


def bplus_height(tuples: int, average_tuples: float) -> int:
    """Levels of the B+-tree (equation 5.4)."""
    leaves = tuples * (KEY_BYTES / average_tuples + POINTER_BYTES) / PAGE_BYTES
    return math.ceil(math.log(max(leaves, 1), FANOUT)) + 1


def bloom_height(tuples: int, average_tuples: float, fpp: float) -> int:
    """Levels of a BF-tree (equation 5.7)."""
    leaves = tuples / (average_tuples * keys_per_leaf(fpp))
    return math.ceil(math.log(max(leaves, 1), FANOUT)) + 1

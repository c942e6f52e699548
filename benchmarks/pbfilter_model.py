"""PBFilter as its authors count it (Yin, Pucheral and Meng 2009, tables 5 and 6): pages read, written and kept.

The paper's names: N records, Sk bytes of a key, Sp of a page, d bits of a filter for each key, k of them set, s sectors
of a page, L1 pages of a partition that is being filled, B pages of memory. Where the text leaves open how a quotient is
rounded, it is rounded so that R is 10 at N = 1,000,000, as the paper says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PAGE_BYTES = 2048
POINTER_BYTES = 4
SECTORS = 4
PARTITION_PAGES = 4
MEMORY_PAGES = 7


@dataclass(frozen=True)
class Pages:
    """The metrics: all in pages of 2,048 bytes but for the memory."""

    read_lookup: float
    written: int
    read_insert: int
    memory_kb: float
    live: int
    live_filters: int
    stale: int


def yao(records: float, blocks: float, chosen: int) -> float:
    """Blocks that hold at least one of so many records chosen at random (Yao 1977)."""
    outside = records * (1 - 1 / blocks)
    missed = 1.0
    for turn in range(chosen):
        missed *= (outside - turn) / (records - turn)
    return blocks * (1 - missed)


def repartitions(count: int, buffer_pages: int) -> int:
    """Pages of the partitions that so many reorganizations leave behind."""
    return sum(2 ** math.ceil(math.log2(turn - 1)) * buffer_pages for turn in range(2, count + 1))


def false_positive(bits: int, hashes: int) -> float:
    """The probability of a false positive (section 4.1)."""
    return float((1 - math.exp(-hashes / bits)) ** hashes)


def pbfilter(records: int, key_bytes: int = 12, bits: int = 16, hashes: int = 7) -> Pages:
    """The model for so many records (columns PBF)."""
    per_page = PAGE_BYTES // (key_bytes + POINTER_BYTES)
    key_pages = math.ceil(records / per_page)
    filter_bits = 2 ** math.ceil(math.log2(per_page * bits))
    filters_per_page = PAGE_BYTES * 8 // filter_bits
    keys_per_filter = filter_bits // bits
    buffer_pages = PARTITION_PAGES * SECTORS
    # Partitions are split until each holds one bit of all filters; then the next set of partitions begins.
    steps_of_set = filter_bits // buffer_pages
    full_sets = records // (PAGE_BYTES * 8 * keys_per_filter)
    flushed = key_pages // filters_per_page
    reorganizations = flushed // buffer_pages
    steps = reorganizations % steps_of_set
    final = buffer_pages * 2 ** math.ceil(math.log2(steps)) if steps else 0
    filling = flushed % buffer_pages // SECTORS * SECTORS
    live_filters = full_sets * filter_bits + final + filling
    stale = full_sets * repartitions(steps_of_set, buffer_pages) + repartitions(steps, buffer_pages)
    stale += reorganizations * buffer_pages
    read_filling = filling / PARTITION_PAGES % SECTORS / 2
    read_final = math.ceil(yao(filter_bits / SECTORS, final / SECTORS, hashes)) if final else 0
    keys_read = math.ceil(false_positive(bits, hashes) * key_pages * math.ceil(keys_per_filter / per_page) / 2)
    read_sets = full_sets / 2 * yao(filter_bits / SECTORS, filter_bits / SECTORS, hashes)
    return Pages(
        read_lookup=read_filling + read_final + keys_read + read_sets,
        written=key_pages + live_filters + stale,
        read_insert=stale,
        memory_kb=MEMORY_PAGES * PAGE_BYTES / 1024,
        live=key_pages + live_filters,
        live_filters=live_filters,
        stale=stale,
    )

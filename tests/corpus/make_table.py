"""Generates the table that every predicate of `predicates.toml` runs over.

The rows depend on nothing but this file: the random numbers come from `random.Random` with a fixed seed, whose
`random()` and `getrandbits()` are the same in every Python. The Parquet files beside this script (`table/`) are its
output; the Python suite checks that they still hold the same values.

The layout is made to be awkward: four files of different row-group sizes, very small pages, one file without
dictionary pages, one file that lacks the column `late`, and nulls in every column but `id`.
"""

# ruff: noqa: DTZ001, S311 - moments without a zone and predictable random numbers are what this file makes

from __future__ import annotations

import argparse
import datetime as dt
import decimal
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20260
NULL_SHARE = 0.08
EPOCH = dt.datetime(1970, 1, 1)
UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True)
class File:
    """How one data file is written."""

    name: str
    rows: int
    row_group_rows: int
    dictionary: bool = True
    lacks: tuple[str, ...] = ()


FILES = (
    File("part-0.parquet", rows=1500, row_group_rows=400),
    File("part-1.parquet", rows=1500, row_group_rows=500, dictionary=False),
    File("part-2.parquet", rows=1200, row_group_rows=1200, lacks=("late",)),
    File("part-3.parquet", rows=800, row_group_rows=97),
)
ROWS = sum(file.rows for file in FILES)

# Types that plain Spark cannot read from Parquet; `--portable` leaves these columns out.
NOT_PORTABLE = ("t32_s", "t32_ms", "t64_us", "t64_ns", "ts_ns", "tz_ns")

# Columns whose elements are indexed, which the kind `bitmap` alone does.
LISTS = ("tags", "nums")

STRINGS = (
    "", " ", "a", "A", "ab", "abc", "abd", "b", "lake", "lakemark", "lake%", "la_e", "Zürich", "zürich", "Ærø",
    "naïve", "nai\u0308ve", "日本", "日本語", "東京", "🦆", "🦆🦆", "x'y", "tab\tbed", "line\nfeed", "nul\x00l",
    "\U0010ffff", "\ue000", "a" * 70, "a" * 70 + "b", "zzz",
)  # fmt: skip
BINARIES = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"lake",
    b"lakemark",
    b"\xc3\x28",
)


def integers(low: int, high: int) -> Callable[[random.Random, int], int]:
    """Half boundary values, half small numbers."""
    special = sorted({low, low + 1, 0, 1, high - 1, high} | ({-1} if low < 0 else set()))
    small_low = max(low, -20)
    return lambda rng, _: pick(rng, special) if rng.random() < 0.3 else small_low + below(rng, 41)


def floats(rng: random.Random, width: int) -> float:
    """NaN, infinities, both zeros, subnormals and quarters between -5 and 5."""
    tiny = 5e-324 if width == 64 else 1.401298464324817e-45
    huge = 1.7976931348623157e308 if width == 64 else 3.4028234663852886e38
    special = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, tiny, -tiny, huge, -huge, 0.1)
    return pick(rng, special) if rng.random() < 0.4 else (below(rng, 41) - 20) / 4


def decimals(precision: int, scale: int) -> Callable[[random.Random, int], decimal.Decimal]:
    """The largest and smallest number of the precision, one unit in the last place, zero, and hundredths."""
    wide = decimal.Context(prec=76)
    largest = wide.scaleb(decimal.Decimal(10**precision - 1), -scale)
    unit = wide.scaleb(decimal.Decimal(1), -scale)
    special = (largest, wide.minus(largest), unit, wide.minus(unit), wide.scaleb(decimal.Decimal(0), -scale))

    def make(rng: random.Random, _: int) -> decimal.Decimal:
        if rng.random() < 0.3:
            return pick(rng, special)
        return wide.scaleb(decimal.Decimal((below(rng, 81) - 40) * 25 * 10 ** (scale - 2)), -scale)

    return make


def timestamps(unit: str) -> Callable[[random.Random, int], int]:
    """The epoch and its neighbours, both changes to summer time of 2024, year ends, and hours of January 2024."""
    moments = [
        EPOCH,
        EPOCH - dt.timedelta(seconds=1),
        EPOCH + dt.timedelta(seconds=1),
        dt.datetime(1900, 1, 1),
        dt.datetime(1969, 12, 31),
        dt.datetime(1999, 12, 31, 23, 59, 59),
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(2024, 3, 10, 7),
        dt.datetime(2024, 3, 31, 1),
        dt.datetime(2024, 11, 3, 6),
        dt.datetime(2038, 1, 19, 3, 14, 8),
        dt.datetime(2262, 4, 11, 23, 47, 16),
    ]
    per_second = 1_000_000_000 // UNIT_NANOS[unit]
    special = [int((moment - EPOCH).total_seconds()) * per_second for moment in moments]
    start = int((dt.datetime(2024, 1, 1) - EPOCH).total_seconds())

    def make(rng: random.Random, _: int) -> int:
        if rng.random() < 0.3:
            return pick(rng, special)
        whole = (start + 3600 * below(rng, 96)) * per_second
        # One in four has a fraction of the smallest unit, so that a lossy cast would be seen.
        return whole + (1 if per_second > 1 and below(rng, 4) == 0 else 0)

    return make


def times(unit: str) -> Callable[[random.Random, int], int]:
    """Midnight, the last moment of the day and quarters of an hour."""
    per_second = 1_000_000_000 // UNIT_NANOS[unit]
    last = 86_400 * per_second - 1
    special = (0, 1, last, 43_200 * per_second)
    return lambda rng, _: pick(rng, special) if rng.random() < 0.3 else below(rng, 96) * 900 * per_second


def days(rng: random.Random, _: int) -> int:
    """Days since the epoch: its neighbours, leap days, far years, and the first quarter of 2024."""
    special = (0, -1, 1, -719_162, 2_932_896, 11_016, 19_782, -25_567)
    return pick(rng, special) if rng.random() < 0.3 else 19_723 + below(rng, 91)


def strings(rng: random.Random, _: int) -> str:
    """A pool of awkward strings, and short words over a small alphabet."""
    if rng.random() < 0.5:
        return pick(rng, STRINGS)
    return "".join("abkmz"[below(rng, 5)] for _ in range(1 + below(rng, 3)))


def binaries(rng: random.Random, _: int) -> bytes:
    """A pool of awkward byte strings, and two random bytes."""
    return pick(rng, BINARIES) if rng.random() < 0.5 else bytes([below(rng, 8) * 32, below(rng, 4) * 64])


def tags(rng: random.Random, _: int) -> list[str]:
    """Up to four words, some of them twice; none in one row of five."""
    words = ("lake", "", "Zürich", "a", "ab", "🦆", "nul\x00l", "a" * 70)
    return [pick(rng, words) for _ in range(below(rng, 5))]


def nums(rng: random.Random, row: int) -> list[int | None]:
    """Up to three whole numbers; one row of thirty has a NULL among them."""
    draw = integers(-(2**31), 2**31 - 1)
    return [None if below(rng, 60) == 0 else draw(rng, row) for _ in range(below(rng, 4))]


def columns() -> list[tuple[str, pa.DataType, Callable[[random.Random, int], Any]]]:
    """Name, type and value of every column, in order; the value is a function of the generator and the row."""
    made: list[tuple[str, pa.DataType, Callable[[random.Random, int], Any]]] = [
        ("sorted", pa.int32(), lambda _, row: row // 7 - 300),
        ("low_i", pa.int32(), lambda rng, _: below(rng, 5) + 1),
        ("low_s", pa.string(), lambda rng, _: ("north", "east", "south", "west")[below(rng, 4)]),
        ("late", pa.int32(), lambda rng, _: below(rng, 10)),
        ("flag", pa.bool_(), lambda rng, _: rng.random() < 0.4),
    ]
    made += [
        (f"i{bits}", getattr(pa, f"int{bits}")(), integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for bits in (8, 16, 32, 64)
    ]
    made += [(f"u{bits}", getattr(pa, f"uint{bits}")(), integers(0, 2**bits - 1)) for bits in (8, 16, 32, 64)]
    made.append(("f32", pa.float32(), lambda rng, _: floats(rng, 32)))
    made.append(("f64", pa.float64(), lambda rng, _: floats(rng, 64)))
    made += [(f"d{p}", pa.decimal128(p, s), decimals(p, s)) for p, s in ((9, 2), (18, 4), (38, 10))]
    made += [("date_32", pa.date32(), days), ("date_64", pa.date64(), lambda rng, row: days(rng, row) * 86_400_000)]
    made += [("t32_s", pa.time32("s"), times("s")), ("t32_ms", pa.time32("ms"), times("ms"))]
    made += [("t64_us", pa.time64("us"), times("us")), ("t64_ns", pa.time64("ns"), times("ns"))]
    made += [(f"ts_{unit}", pa.timestamp(unit), timestamps(unit)) for unit in UNIT_NANOS]
    zones = {"s": "UTC", "ms": "America/New_York", "us": "UTC", "ns": "Europe/Zurich"}
    made += [(f"tz_{unit}", pa.timestamp(unit, tz=zone), timestamps(unit)) for unit, zone in zones.items()]
    made += [("s", pa.string(), strings), ("ls", pa.large_string(), strings)]
    made.append(("dict_s", pa.dictionary(pa.int32(), pa.string()), strings))
    made += [("bin", pa.binary(), binaries), ("lbin", pa.large_binary(), binaries)]
    made.append(("fixed", pa.binary(2), lambda rng, _: bytes([below(rng, 4) * 85, below(rng, 3) * 127])))
    made += [("tags", pa.list_(pa.string()), tags), ("nums", pa.list_(pa.int32()), nums)]
    return made


def below(rng: random.Random, limit: int) -> int:
    """A whole number in 0..limit, by the one method whose result no Python version changes."""
    return int(rng.random() * limit)


def pick(rng: random.Random, choices: Any) -> Any:
    """One of the choices."""
    return choices[below(rng, len(choices))]


def make_table(seed: int = SEED, *, portable: bool = False) -> pa.Table:
    """The whole table in row order. Another seed gives the same schema with other rows (the stale file)."""
    fields: dict[str, pa.Array] = {"id": pa.array(range(ROWS), pa.int64())}
    for ordinal, (name, kind, value) in enumerate(columns()):
        rng = random.Random(seed * 1_000 + ordinal)
        values = [None if rng.random() < NULL_SHARE else value(rng, row) for row in range(ROWS)]
        if not (portable and name in NOT_PORTABLE):
            fields[name] = to_array(values, kind)
    return pa.table(fields)


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as an array of the type; numbers stand for times, as they do in memory."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_date64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def write_file(table: pa.Table, file: File, folder: Path) -> Path:
    """Writes the rows of one file with small pages, so that a page index has something to prune."""
    start = sum(other.rows for other in FILES[: FILES.index(file)])
    part = table.slice(start, file.rows).drop_columns([name for name in file.lacks if name in table.column_names])
    return write_part(part, file, folder)


def write_part(part: pa.Table, file: File, folder: Path) -> Path:
    """Writes these rows as the file says."""
    path = folder / file.name
    pq.write_table(
        part,
        path,
        row_group_size=file.row_group_rows,
        use_dictionary=file.dictionary,
        compression="zstd",
        data_page_size=1024,
        write_batch_size=64,
        write_page_index=True,
    )
    return path


def write_table(folder: Path, *, seed: int = SEED, portable: bool = False) -> list[Path]:
    """Writes all files into the folder and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    table = make_table(seed, portable=portable)
    return [write_file(table, file, folder) for file in FILES]


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent / "table")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--portable", action="store_true", help="without the types that plain Spark cannot read")
    arguments = parser.parse_args()
    for path in write_table(arguments.folder, seed=arguments.seed, portable=arguments.portable):
        sys.stdout.write(f"{path} {path.stat().st_size}\n")


if __name__ == "__main__":
    main()

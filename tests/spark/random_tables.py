"""Tables, indexes, predicates and statements drawn at random, for Spark; each follows from a seed alone."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakemark

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from lakemark.reports import IndexKind

WORDS = ("", "a", "ab", "abc", "b", "Lake", "lake", "日本", "Zürich", "é", "a%b", "d'or", "back\\slash")
DAY = dt.date(2024, 3, 25)
# Spring's lost hour of several zones is among them.
MOMENT = dt.datetime(2024, 3, 31, 0, 30, tzinfo=dt.timezone.utc)
ENCODINGS = ("equality", "binary", "range", "interval", "interval-equality", "range-equality")


@dataclass(frozen=True)
class Column:
    """A column or the field of a struct: how its values are drawn, and written in SQL."""

    name: str
    type: pa.DataType
    draw: Callable[[random.Random], Any]
    sql: Callable[[Any], str]
    kinds: tuple[IndexKind, ...] = ("bitmap", "key", "bloom_tree", "summary")
    # Whether rows may be grouped by it and extremes asked for: -0.0 and 0.0 are one value with two faces.
    is_exact: bool = True
    is_summed: bool = False


def cast_to(name: str) -> Callable[[Any], str]:
    """A literal of a type that has none, or whose least value has no sign in front of it."""
    return lambda value: f"CAST('{value}' AS {name})"


def integer(bits: int) -> Callable[[random.Random], int]:
    """Small numbers, so that they repeat, and the ends of the range."""
    most = 2 ** (bits - 1)
    return lambda rng: rng.choice((-most, -1, 0, most - 1)) if rng.random() < 0.1 else rng.randrange(-12, 12)


def cents(precision: int, scale: int) -> Callable[[random.Random], decimal.Decimal]:
    most = 10**precision - 1

    def draw(rng: random.Random) -> decimal.Decimal:
        unscaled = rng.choice((-most, most)) if rng.random() < 0.05 else rng.randrange(-200, 200)
        with decimal.localcontext(prec=38):
            return decimal.Decimal(unscaled).scaleb(-scale)

    return draw


def real(rng: random.Random) -> float:
    if rng.random() < 0.2:
        return rng.choice((math.nan, math.inf, -math.inf, -0.0, 0.0))
    return rng.randrange(-20, 20) / 4


def real_sql(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return f"double('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}')"
    return f"{value}D"


def text_sql(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def decimal_column(precision: int, scale: int) -> Column:
    return Column(
        f"d{precision}",
        pa.decimal128(precision, scale),
        cents(precision, scale),
        cast_to(f"DECIMAL({precision}, {scale})"),
        is_summed=precision < 20,
    )


WORD = Column("word", pa.string(), lambda rng: rng.choice(WORDS), text_sql)
COLUMNS = (
    Column("i8", pa.int8(), integer(8), cast_to("TINYINT"), is_summed=True),
    Column("i16", pa.int16(), integer(16), cast_to("SMALLINT"), is_summed=True),
    Column("i32", pa.int32(), integer(32), cast_to("INT"), is_summed=True),
    Column("i64", pa.int64(), integer(64), cast_to("BIGINT")),
    Column("f64", pa.float64(), real, real_sql, ("bitmap",), is_exact=False),
    WORD,
    Column("with space.and dot", pa.string(), lambda rng: rng.choice(WORDS), text_sql),
    Column("blob", pa.binary(), lambda rng: rng.choice((b"", b"\0", b"\xff\x01", b"ab")), lambda v: f"X'{v.hex()}'"),
    Column("flag", pa.bool_(), lambda rng: rng.random() < 0.5, lambda value: str(value).lower(), ("bitmap",)),
    Column("day", pa.date32(), lambda rng: DAY + dt.timedelta(days=rng.randrange(30)), lambda v: f"DATE '{v}'"),
    Column(
        "at",
        pa.timestamp("us", "UTC"),
        lambda rng: MOMENT + dt.timedelta(minutes=15 * rng.randrange(40), microseconds=rng.choice((0, 1))),
        lambda value: f"TIMESTAMP '{value.isoformat()}'",
    ),
    Column(
        "local",
        pa.timestamp("ms"),
        lambda rng: MOMENT.replace(tzinfo=None) + dt.timedelta(minutes=15 * rng.randrange(40)),
        lambda value: f"TIMESTAMP_NTZ '{value.isoformat()}'",
    ),
    decimal_column(4, 1),
    decimal_column(9, 2),
    decimal_column(18, 6),
    decimal_column(38, 10),
)
# A folder for each value; files do not have it.
PARTITION = Column("part", pa.int32(), lambda rng: rng.randrange(3), str, ())
FIELDS = (
    Column("place.city", pa.string(), WORD.draw, text_sql),
    Column("place.point.x", pa.int32(), integer(32), cast_to("INT"), is_summed=True),
    Column("place.point.seen", pa.bool_(), lambda rng: rng.random() < 0.5, lambda v: str(v).lower(), ("bitmap",)),
)
POINT = pa.struct([("x", pa.int32()), ("seen", pa.bool_())])
PLACE = pa.struct([("city", pa.string()), ("point", POINT), ("ignored", pa.list_(pa.int16()))])


def quoted(name: str) -> str:
    """A name as Spark's SQL reads it; that of a field as it is."""
    return f"`{name}`" if " " in name else name


@dataclass
class Drawn:
    """What of a table may be named in predicates."""

    columns: tuple[Column, ...]
    files: int = 0
    next_id: int = 0
    has_key: bool = False


def draw_place(rng: random.Random) -> dict[str, Any] | None:
    def or_null(value: object) -> Any:
        return None if rng.random() < 0.15 else value

    point = or_null({"x": or_null(FIELDS[1].draw(rng)), "seen": or_null(FIELDS[2].draw(rng))})
    return or_null({"city": or_null(WORD.draw(rng)), "point": point, "ignored": [1, None]})


def draw_rows(rng: random.Random, drawn: Drawn, rows: int) -> pa.Table:
    """Rows with new ids."""
    held: dict[str, pa.Array] = {"id": pa.array(range(drawn.next_id, drawn.next_id + rows), pa.int64())}
    drawn.next_id += rows
    for column in drawn.columns:
        if column in (*FIELDS, PARTITION):
            continue
        nulls = rng.choice((0.0, 0.1, 0.8))
        values = [None if rng.random() < nulls else column.draw(rng) for _ in range(rows)]
        if rng.random() < 0.3:
            values.sort(key=lambda one: (one is None, struct.pack(">d", one) if isinstance(one, float) else one))
        held[column.name] = pa.array(values, column.type)
    held["place"] = pa.array([draw_place(rng) for _ in range(rows)], PLACE)
    return pa.table(held)


def write_files(rng: random.Random, drawn: Drawn, folder: Path, files: int) -> None:
    for _ in range(files):
        table = draw_rows(rng, drawn, rng.choice((1, 60, 300)))
        if drawn.files > 0 and not drawn.has_key and rng.random() < 0.2:
            lacking = rng.choice([column.name for column in drawn.columns if column not in (*FIELDS, PARTITION)])
            table = table.drop_columns([lacking])
        place = folder / f"part={PARTITION.draw(rng)}" if PARTITION in drawn.columns else folder
        place.mkdir(exist_ok=True)
        path = place / f"part-{drawn.files}.parquet"
        drawn.files += 1
        pq.write_table(
            table,
            path,
            row_group_size=rng.choice((7, 64, 1000)),
            write_page_index=rng.random() < 0.7,
            data_page_size=rng.choice((64, 1 << 20)),
            compression=rng.choice(("none", "snappy", "zstd")),
        )


def draw_table(rng: random.Random, folder: Path) -> Drawn:
    """An indexed folder: some files come after the index files, some index files are damaged or lost."""
    columns = (*rng.sample(COLUMNS, rng.randrange(3, 8)), *FIELDS)
    drawn = Drawn(columns, has_key=rng.random() < 0.4)
    if not drawn.has_key and rng.random() < 0.3:
        drawn.columns += (PARTITION,)
    folder.mkdir()
    write_files(rng, drawn, folder, rng.randrange(1, 4))
    table = lakemark.Table(folder, **({"key": "id"} if drawn.has_key else {}))
    with warnings.catch_warnings():
        # Filters over columns in no order are what is wanted here.
        warnings.simplefilter("ignore", lakemark.LakemarkWarning)
        for column in columns:
            if column.kinds and rng.random() < 0.75:
                kind = rng.choice(column.kinds)
                options = {"encoding": rng.choice(ENCODINGS)} if kind == "bitmap" else {}
                table.create_index(column.name, using=kind, build=False, **options)
        keys = [column.name for column in columns if "key" in column.kinds]
        for number in range(rng.choice((0, 0, 1, 2))):
            several = rng.sample(keys, min(len(keys), rng.randrange(2, 5)))
            if len(several) > 1:
                table.create_index(several, name=f"several_{number}", build=False)
        table.build(progress=False)
    if rng.random() < 0.4:
        write_files(rng, drawn, folder, 1)
    if rng.random() < 0.3:
        damage(rng, folder)
    return drawn


def damage(rng: random.Random, folder: Path) -> None:
    """Spoils a byte of an index, or removes it; what it said is not known then."""
    indexes = sorted((folder / "_lakemark" / "indexes").rglob("*.lmx"))
    if not indexes:
        return
    index = rng.choice(indexes)
    if rng.random() < 0.3:
        index.unlink()
        return
    content = bytearray(index.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    index.write_bytes(bytes(content))


# ---- predicates


def leaf(rng: random.Random, drawn: Drawn) -> str:
    column = rng.choice(drawn.columns)
    name, negated = quoted(column.name), rng.choice(("", "", "NOT "))

    def value() -> str:
        return column.sql(column.draw(rng))

    def listed() -> str:
        return ", ".join([value() for _ in range(rng.randrange(1, 12))] + ["NULL"] * (rng.random() < 0.2))

    shapes: list[Callable[[], str]] = [
        *[lambda: f"{name} {rng.choice(('=', '=', '<>', '<', '<=', '>', '>='))} {value()}"] * 4,
        *[lambda: f"{name} {negated}IN ({listed()})"] * 2,
        lambda: f"{name} IS {negated}NULL",
        lambda: f"{name} {negated}BETWEEN {value()} AND {value()}",
        lambda: f"{name} <=> {rng.choice((value(), 'NULL'))}",
        lambda: f"{value()} {rng.choice(('=', '<', '>='))} {name}",
        lambda: f"coalesce({name} = {value()}, false)",
        # No NULL for a condition: Spark fails at `(… AND NULL) IS TRUE` before it asks any source.
        lambda: rng.choice(("id % 3 = 1", f"id < {rng.randrange(500)}", "true", "false", f"{name} IS NOT NULL")),
        lambda: "place IS NULL",
    ]
    if column.type == pa.string():
        patterns = ("a%", "ab%", "%", "L%", "%b", "日%", "a\\\\%%", "_")
        shapes += [lambda: f"{name} {negated}LIKE '{rng.choice(patterns)}'"] * 2
    if column.type == pa.bool_():
        shapes += [lambda: name] * 2
    return rng.choice(shapes)()


def predicate(rng: random.Random, drawn: Drawn, depth: int) -> str:
    kind = rng.randrange(7) if depth > 0 else 0
    if kind <= 2:
        return leaf(rng, drawn)
    if kind == 3:
        return f"NOT ({predicate(rng, drawn, depth - 1)})"
    if kind == 4:
        truth = rng.choice(("TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "NULL", "NOT NULL"))
        return f"(({predicate(rng, drawn, depth - 1)}) IS {truth})"
    parts = [f"({predicate(rng, drawn, depth - 1)})" for _ in range(rng.randrange(2, 4))]
    return (" AND " if kind == 5 else " OR ").join(parts)


# ---- statements


def statement(rng: random.Random, drawn: Drawn) -> str:
    """A query of `{t}`, whose answer does not depend on the order of its rows."""
    where = f"WHERE {predicate(rng, drawn, rng.randrange(4))}" if rng.random() < 0.9 else ""
    exact = [column for column in drawn.columns if column.is_exact]
    one, other = (quoted(rng.choice(exact).name) for _ in range(2))
    summed = rng.choice([quoted(column.name) for column in drawn.columns if column.is_summed])
    shown = ", ".join(quoted(column.name) for column in rng.sample(drawn.columns, rng.randrange(1, 4)))
    order = f"{one} {rng.choice(('', 'DESC', 'NULLS LAST', 'DESC NULLS FIRST'))}, id LIMIT {rng.choice((1, 10, 200))}"
    keys = f"(SELECT DISTINCT {one} AS j FROM {{t}} WHERE {leaf(rng, drawn)}) k"
    return rng.choice(
        (
            f"SELECT count(*) FROM {{t}} {where}",
            f"SELECT count({one}), min({one}), max({one}), count(DISTINCT {other}) FROM {{t}} {where}",
            f"SELECT {one}, count(*), max({other}) FROM {{t}} {where} GROUP BY {one}",
            f"SELECT sum({summed}), avg({summed}), count(*) FROM {{t}} {where}",
            f"SELECT id, {shown} FROM {{t}} {where} ORDER BY {order}",
            f"SELECT id, {shown} FROM {{t}} JOIN {keys} ON {one} = k.j {where}",
            f"SELECT id, place FROM {{t}} {where}",
            f"SELECT id, {shown} FROM {{t}} {where}",
        )
    )

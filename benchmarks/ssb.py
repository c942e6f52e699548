"""The Star Schema Benchmark (O'Neil, O'Neil, Chen, Revilak 2009): its five tables as Parquet, and its 13 queries.

```text
customer (30,000 SF) ─┐                     ┌─ part (200,000 (1 + log2 SF))
                      ├─ lineorder (6,000,000 SF) ─┤
supplier (2,000 SF) ──┘                     └─ dates (2,556 days of 1992 to 1998)
```

Lines stand in the order of their order keys, as the benchmark has them; days, customers, parts and suppliers are drawn
evenly. Columns that no query names are left out, but for numbers of each line.
"""

from __future__ import annotations

import calendar
import datetime as dt
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Drawn = np.random.Generator

TABLES = ("dates", "customer", "supplier", "part", "lineorder")
FILES = 8
ROW_GROUP_ROWS = 1 << 20
NATIONS = {
    "AFRICA": ("ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"),
    "AMERICA": ("ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"),
    "ASIA": ("CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"),
    "EUROPE": ("FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"),
    "MIDDLE EAST": ("EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"),
}
PLACES = [(region, nation) for region, nations in NATIONS.items() for nation in nations]
CITIES_OF_NATION = 10
FIRST_DAY, DAYS = dt.date(1992, 1, 1), 2556

# Columns of the lines, other than keys, that conditions are about.
FILTERED = ("lo_orderdate", "lo_discount", "lo_quantity")

DAY = "lo_orderdate = d_datekey"
CUSTOMER, SUPPLIER, PART = "lo_custkey = c_custkey", "lo_suppkey = s_suppkey", "lo_partkey = p_partkey"
KINGDOM = "('UNITED KI1', 'UNITED KI5')"


def flight(number: int, rest: str) -> str:
    """A query of one of the four flights."""
    asked, tables, joins = {
        1: ("SUM(lo_extendedprice * lo_discount) AS revenue", "dates", DAY),
        2: ("SUM(lo_revenue), d_year, p_brand1", "dates, part, supplier", f"{DAY} AND {PART} AND {SUPPLIER}"),
        3: ("{by}, d_year, SUM(lo_revenue)", "customer, supplier, dates", f"{CUSTOMER} AND {SUPPLIER} AND {DAY}"),
        4: (
            "{by}, SUM(lo_revenue - lo_supplycost) AS profit",
            "dates, customer, supplier, part",
            f"{CUSTOMER} AND {SUPPLIER} AND {PART} AND {DAY}",
        ),
    }[number]
    conditions, _, by = rest.partition(" BY ")
    group = {1: "", 2: "d_year, p_brand1", 3: f"{by}, d_year", 4: by}[number]
    grouped = f" GROUP BY {group}" if group else ""
    return f"SELECT {asked.format(by=by)} FROM lineorder, {tables} WHERE {joins} AND {conditions}{grouped}"


QUERIES = {
    "Q1.1": flight(1, "d_year = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25"),
    "Q1.2": flight(1, "d_yearmonthnum = 199401 AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35"),
    "Q1.3": flight(
        1, "d_weeknuminyear = 6 AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7 AND lo_quantity BETWEEN 26 AND 35"
    ),
    "Q2.1": flight(2, "p_category = 'MFGR#12' AND s_region = 'AMERICA'"),
    "Q2.2": flight(2, "p_brand1 BETWEEN 'MFGR#2221' AND 'MFGR#2228' AND s_region = 'ASIA'"),
    "Q2.3": flight(2, "p_brand1 = 'MFGR#2239' AND s_region = 'EUROPE'"),
    "Q3.1": flight(3, "c_region = 'ASIA' AND s_region = 'ASIA' AND d_year BETWEEN 1992 AND 1997 BY c_nation, s_nation"),
    "Q3.2": flight(
        3,
        "c_nation = 'UNITED STATES' AND s_nation = 'UNITED STATES' AND d_year BETWEEN 1992 AND 1997 BY c_city, s_city",
    ),
    "Q3.3": flight(
        3, f"c_city IN {KINGDOM} AND s_city IN {KINGDOM} AND d_year BETWEEN 1992 AND 1997 BY c_city, s_city"
    ),
    "Q3.4": flight(3, f"c_city IN {KINGDOM} AND s_city IN {KINGDOM} AND d_yearmonth = 'Dec1997' BY c_city, s_city"),
    "Q4.1": flight(
        4, "c_region = 'AMERICA' AND s_region = 'AMERICA' AND p_mfgr IN ('MFGR#1', 'MFGR#2') BY d_year, c_nation"
    ),
    "Q4.2": flight(
        4,
        "c_region = 'AMERICA' AND s_region = 'AMERICA' AND d_year IN (1997, 1998) AND p_mfgr IN ('MFGR#1', 'MFGR#2') "
        "BY d_year, s_nation, p_category",
    ),
    "Q4.3": flight(
        4,
        "c_region = 'AMERICA' AND s_nation = 'UNITED STATES' AND d_year IN (1997, 1998) AND p_category = 'MFGR#14' "
        "BY d_year, s_city, p_brand1",
    ),
}


def dates() -> pa.Table:
    """A row for each day."""
    days = [FIRST_DAY + dt.timedelta(days=number) for number in range(DAYS)]
    return pa.table(
        {
            "d_datekey": pa.array([int(f"{day:%Y%m%d}") for day in days], pa.int32()),
            "d_year": pa.array([day.year for day in days], pa.int32()),
            "d_yearmonthnum": pa.array([day.year * 100 + day.month for day in days], pa.int32()),
            "d_yearmonth": [f"{calendar.month_abbr[day.month]}{day.year}" for day in days],
            "d_weeknuminyear": pa.array([(day.timetuple().tm_yday - 1) // 7 + 1 for day in days], pa.int32()),
        }
    )


def people(letter: str, key: str, count: int, drawn: Drawn) -> pa.Table:
    """Customers or suppliers."""
    nations = drawn.integers(0, len(PLACES), count)
    cities = drawn.integers(0, CITIES_OF_NATION, count)
    return pa.table(
        {
            f"{letter}_{key}": pa.array(np.arange(1, count + 1, dtype=np.int32)),
            f"{letter}_name": [f"{key}#{number:09}" for number in range(1, count + 1)],
            f"{letter}_city": [f"{PLACES[at][1]:<9.9}{city}" for at, city in zip(nations, cities, strict=True)],
            f"{letter}_nation": [PLACES[at][1] for at in nations],
            f"{letter}_region": [PLACES[at][0] for at in nations],
        }
    )


def parts(count: int, drawn: Drawn) -> pa.Table:
    """Parts: five makers, of five categories each, of forty brands each."""
    maker, category, brand = (drawn.integers(1, most + 1, count) for most in (5, 5, 40))
    return pa.table(
        {
            "p_partkey": pa.array(np.arange(1, count + 1, dtype=np.int32)),
            "p_mfgr": [f"MFGR#{one}" for one in maker],
            "p_category": [f"MFGR#{one}{two}" for one, two in zip(maker, category, strict=True)],
            "p_brand1": [f"MFGR#{one}{two}{three}" for one, two, three in zip(maker, category, brand, strict=True)],
        }
    )


def lines(numbers: np.ndarray[Any, Any], sizes: dict[str, int], drawn: Drawn) -> pa.Table:
    """Lines of orders, four in each."""
    keys = dates()["d_datekey"].to_numpy()
    count, orders = len(numbers), numbers // 4
    # All lines of an order are of one customer and day.
    of_order = np.random.default_rng(int(orders[0]))
    first = int(orders[0])
    ordered = int(orders[-1]) - first + 1
    quantity, discount = drawn.integers(1, 51, count), drawn.integers(0, 11, count)
    price = drawn.integers(90_000, 200_000, count) * quantity // 10
    columns = {
        "lo_orderkey": orders + 1,
        "lo_linenumber": numbers % 4 + 1,
        "lo_custkey": of_order.integers(1, sizes["customer"] + 1, ordered)[orders - first],
        "lo_partkey": drawn.integers(1, sizes["part"] + 1, count),
        "lo_suppkey": drawn.integers(1, sizes["supplier"] + 1, count),
        "lo_orderdate": keys[of_order.integers(0, DAYS, ordered)[orders - first]],
        "lo_quantity": quantity,
        "lo_extendedprice": price,
        "lo_discount": discount,
        "lo_revenue": price * (100 - discount) // 100,
        "lo_supplycost": price * 6 // 10 // quantity,
        "lo_tax": drawn.integers(0, 9, count),
    }
    return pa.table({name: values.astype(np.int32) for name, values in columns.items()})


def tables(scale: float) -> Iterator[tuple[str, int, pa.Table]]:
    """Each file as the name of its table, its number and its rows."""
    drawn = np.random.default_rng(17)
    sizes = {
        "customer": max(int(30_000 * scale), 1),
        "supplier": max(int(2_000 * scale), 1),
        "part": int(200_000 * (1 + math.log2(scale))) if scale >= 1 else max(int(200_000 * scale), 1),
    }
    yield "dates", 0, dates()
    yield "customer", 0, people("c", "custkey", sizes["customer"], drawn)
    yield "supplier", 0, people("s", "suppkey", sizes["supplier"], drawn)
    yield "part", 0, parts(sizes["part"], drawn)
    for number, part in enumerate(np.array_split(np.arange(int(6_000_000 * scale)), FILES)):
        yield "lineorder", number, lines(part, sizes, drawn)


def generate(folder: Path, scale: float) -> dict[str, str]:
    """Writes the tables to `<folder>/<table>/part-*.parquet` unless they are there; returns the queries."""
    with kept(folder) as is_missing:
        for table, number, rows in tables(scale) if is_missing else ():
            place = folder / table
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(
                rows,
                place / f"part-{number:03}.parquet",
                compression="zstd",
                row_group_size=ROW_GROUP_ROWS,
                write_page_index=True,
            )
    return QUERIES

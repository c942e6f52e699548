"""Clicks: one wide table of page views, and 43 queries of the shape of ClickBench's, over drawn data.

```text
clicks   24 columns, in the order of counter and time; users, pages, phrases and counters are drawn by Zipf's law
         phrases, models and pages are mostly empty, as they are where people browse
```

Queries that take any rows of an order with ties return their number, so that every engine has the same answer.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from kept import kept

if TYPE_CHECKING:
    from pathlib import Path

    Drawn = np.random.Generator
    Numbers = np.ndarray[Any, Any]

TABLE = "clicks"
ROWS = 5_000_000
FILES = 4
ROW_GROUP_ROWS = 1 << 18
COUNTERS, USERS, PAGES, PHRASES, MODELS, REGIONS, DOMAINS = 6_000, 800_000, 400_000, 120_000, 160, 5_000, 2_000
FIRST_DAY, DAYS = dt.date(2013, 7, 1), 31
DAY_SECONDS = 24 * 60 * 60
# A counter that many pages have, and the values that the last queries look for: set by what is drawn.
COUNTER = 62
MONTH = "day >= DATE '2013-07-01' AND day <= DATE '2013-07-31'"
VIEWS = f"counter = {COUNTER} AND {MONTH} AND is_refresh = 0"
# Columns that conditions are about.
FILTERED = (
    "counter",
    "day",
    "engine",
    "advertiser",
    "phrase",
    "model",
    "url",
    "title",
    "referer",
    "user_id",
    "url_hash",
    "referer_hash",
    "source",
    "is_refresh",
    "is_link",
    "is_download",
    "is_counted",
)


def any_ten(query: str) -> str:
    """How many rows there are among any ten."""
    return f"SELECT count(*) FROM ({query} LIMIT 10)"


def top(query: str, count: str = "n", rest: str = "1") -> str:
    """The ten with the highest count; of equal ones the first."""
    return f"{query} ORDER BY {count} DESC, {rest} LIMIT 10"


def long(query: str) -> str:
    """The 25 groups of many rows whose texts are the longest."""
    return f"{query} GROUP BY k HAVING count(*) > 5000 ORDER BY l DESC, k LIMIT 25"


def page(query: str, skipped: int = 1000) -> str:
    """How many rows a late page of a list has, and their sum."""
    return f"SELECT count(*), sum(n) FROM ({query} ORDER BY n DESC LIMIT 10 OFFSET {skipped})"


def queries(url_hash: int, referer_hash: int, user: int) -> dict[str, str]:
    """The queries by name: C1 to C43."""
    widths = ", ".join(f"sum(width + {more})" for more in range(90))
    host = r"regexp_replace(referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1')"
    two_days = (
        f"counter = {COUNTER} AND day IN (DATE '2013-07-14', DATE '2013-07-15') AND is_refresh = 0 AND is_counted = 1"
    )
    found, typed = "url LIKE '%shop%'", "phrase <> ''"
    of_hash = f"{VIEWS} AND is_counted = 1 AND url_hash = {url_hash}"
    ordered = [
        "SELECT count(*) FROM clicks",
        "SELECT count(*) FROM clicks WHERE advertiser <> 0",
        "SELECT sum(advertiser), count(*), avg(width) FROM clicks",
        "SELECT avg(user_id) FROM clicks",
        "SELECT count(DISTINCT user_id) FROM clicks",
        "SELECT count(DISTINCT phrase) FROM clicks",
        "SELECT min(day), max(day) FROM clicks",
        "SELECT advertiser, count(*) AS n FROM clicks WHERE advertiser <> 0 GROUP BY advertiser ORDER BY n DESC",
        top("SELECT region, count(DISTINCT user_id) AS n FROM clicks GROUP BY region"),
        top(
            "SELECT region, sum(advertiser), count(*) AS n, avg(width), count(DISTINCT user_id) FROM clicks"
            " GROUP BY region"
        ),
        top("SELECT model, count(DISTINCT user_id) AS n FROM clicks WHERE model <> '' GROUP BY model"),
        top(
            "SELECT phone, model, count(DISTINCT user_id) AS n FROM clicks WHERE model <> '' GROUP BY phone, model",
            rest="1, 2",
        ),
        top(f"SELECT phrase, count(*) AS n FROM clicks WHERE {typed} GROUP BY phrase"),
        top(f"SELECT phrase, count(DISTINCT user_id) AS n FROM clicks WHERE {typed} GROUP BY phrase"),
        top(f"SELECT engine, phrase, count(*) AS n FROM clicks WHERE {typed} GROUP BY engine, phrase", rest="1, 2"),
        top("SELECT user_id, count(*) AS n FROM clicks GROUP BY user_id"),
        top("SELECT user_id, phrase, count(*) AS n FROM clicks GROUP BY user_id, phrase", rest="1, 2"),
        any_ten("SELECT user_id, phrase, count(*) FROM clicks GROUP BY user_id, phrase"),
        top(
            "SELECT user_id, extract(minute FROM time) AS m, phrase, count(*) AS n FROM clicks"
            " GROUP BY user_id, m, phrase",
            rest="1, 2, 3",
        ),
        f"SELECT user_id FROM clicks WHERE user_id = {user}",
        f"SELECT count(*) FROM clicks WHERE {found}",
        top(f"SELECT phrase, min(url), count(*) AS n FROM clicks WHERE {found} AND {typed} GROUP BY phrase"),
        top(
            "SELECT phrase, min(url), min(title), count(*) AS n, count(DISTINCT user_id) FROM clicks"
            f" WHERE title LIKE '%shop%' AND url NOT LIKE '%.shop%' AND {typed} GROUP BY phrase"
        ),
        f"SELECT * FROM clicks WHERE {found} ORDER BY time, view LIMIT 10",
        f"SELECT phrase FROM clicks WHERE {typed} ORDER BY time, phrase LIMIT 10",
        f"SELECT phrase FROM clicks WHERE {typed} ORDER BY phrase LIMIT 10",
        f"SELECT phrase, time FROM clicks WHERE {typed} ORDER BY time, phrase LIMIT 10",
        long("SELECT counter AS k, avg(length(url)) AS l, count(*) AS n FROM clicks WHERE url <> ''"),
        long(
            f"SELECT {host} AS k, avg(length(referer)) AS l, count(*) AS n, min(referer) FROM clicks"
            " WHERE referer <> ''"
        ),
        f"SELECT {widths} FROM clicks",
        top(
            "SELECT engine, client, count(*) AS n, sum(is_refresh), avg(width) FROM clicks"
            f" WHERE {typed} GROUP BY engine, client",
            rest="1, 2",
        ),
        top(
            "SELECT view, client, count(*) AS n, sum(is_refresh), avg(width) FROM clicks"
            f" WHERE {typed} GROUP BY view, client",
            rest="1, 2",
        ),
        top(
            "SELECT view, client, count(*) AS n, sum(is_refresh), avg(width) FROM clicks GROUP BY view, client",
            rest="1, 2",
        ),
        top("SELECT url, count(*) AS n FROM clicks GROUP BY url"),
        top("SELECT 1 AS one, url, count(*) AS n FROM clicks GROUP BY one, url", rest="2"),
        top(
            "SELECT client, client - 1 AS c1, client - 2 AS c2, client - 3 AS c3, count(*) AS n FROM clicks"
            " GROUP BY client, c1, c2, c3"
        ),
        top(f"SELECT url, count(*) AS n FROM clicks WHERE {VIEWS} AND is_counted = 1 AND url <> '' GROUP BY url"),
        top(f"SELECT title, count(*) AS n FROM clicks WHERE {VIEWS} AND is_counted = 1 AND title <> '' GROUP BY title"),
        page(
            f"SELECT url, count(*) AS n FROM clicks WHERE {VIEWS} AND is_link <> 0 AND is_download = 0 GROUP BY url",
            100,
        ),
        page(
            "SELECT source, engine, advertiser,"
            " CASE WHEN engine = 0 AND advertiser = 0 THEN referer ELSE '' END AS src,"
            f" url AS dst, count(*) AS n FROM clicks WHERE {VIEWS} GROUP BY source, engine, advertiser, src, dst"
        ),
        page(
            f"SELECT url_hash, day, count(*) AS n FROM clicks WHERE {VIEWS} AND source IN (-1, 6)"
            f" AND referer_hash = {referer_hash} GROUP BY url_hash, day",
            10,
        ),
        page(f"SELECT width, height, count(*) AS n FROM clicks WHERE {of_hash} GROUP BY width, height", 10),
        (
            f"SELECT date_trunc('minute', time) AS m, count(*) AS n FROM clicks WHERE {two_days}"
            " GROUP BY m ORDER BY m LIMIT 10 OFFSET 100"
        ),
    ]
    return {f"C{number}": sql for number, sql in enumerate(ordered, 1)}


def generate(folder: Path, scale: float) -> dict[str, str]:
    """Writes `<folder>/clicks/part-*.parquet` unless it is there; returns the queries."""
    rows = int(ROWS * scale)
    with kept(folder) as missing:
        if missing:
            (folder / TABLE).mkdir()
            for part in range(FILES):
                pages = draw(np.random.default_rng(part), rows // FILES, part)
                target = folder / TABLE / f"part-{part:03}.parquet"
                pq.write_table(pages, target, compression="zstd", row_group_size=ROW_GROUP_ROWS)
    of_counter = [("counter", "=", COUNTER)]
    viewed = pq.read_table(folder / TABLE, columns=["url_hash", "referer_hash", "user_id"], filters=of_counter)
    hashes = (most_frequent(viewed[name]) for name in ("url_hash", "referer_hash"))
    return queries(*hashes, least_frequent(viewed["user_id"]))


def most_frequent(values: pa.ChunkedArray) -> int:
    """The value of the most rows; of equal ones the largest."""
    return max(counted(values))[1]


def least_frequent(values: pa.ChunkedArray) -> int:
    """The value of the fewest rows; of equal ones the smallest."""
    return min(counted(values))[1]


def counted(values: pa.ChunkedArray) -> list[tuple[int, int]]:
    """The number of rows of each value, with the value."""
    return [(one["counts"], one["values"]) for one in values.value_counts().to_pylist()]


def zipf(drawn: Drawn, most: int, rows: int, power: float = 1.1) -> Numbers:
    """Numbers below `most`, the small ones often."""
    weights = 1 / np.arange(1, most + 1) ** power
    return np.searchsorted(np.cumsum(weights) / weights.sum(), drawn.random(rows)).astype(np.int64)


def hashed(numbers: Numbers) -> Numbers:
    """Numbers that are far from each other, one for each."""
    with np.errstate(over="ignore"):
        return (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.int64)


def url(number: int) -> str:
    """The address of a page."""
    host = number % DOMAINS
    name = f"{'www.' if host % 3 else ''}{'shop' if host % 97 == 5 else 'site'}{host}.example"
    return f"http{'s' if number % 2 else ''}://{name}/path/{number}/view?item={number * 7}"


def texts(names: list[str], codes: Numbers) -> pa.Array:
    """The names of codes."""
    return pa.array(names, pa.string()).take(pa.array(codes))


def draw(drawn: Drawn, rows: int, part: int) -> pa.Table:
    """The rows of a part, in the order of counter and time."""
    counter = np.sort(zipf(drawn, COUNTERS, rows))
    seconds = drawn.integers(0, DAYS * DAY_SECONDS, rows)
    order = np.lexsort((seconds, counter))
    seconds = seconds[order]
    days = seconds // DAY_SECONDS
    first = np.datetime64(FIRST_DAY, "s")
    pages, from_pages = zipf(drawn, PAGES, rows, 1.05), zipf(drawn, PAGES, rows, 1.05)
    phrases = np.where(drawn.random(rows) < 0.13, zipf(drawn, PHRASES, rows) + 1, 0)
    models = np.where(drawn.random(rows) < 0.06, zipf(drawn, MODELS, rows) + 1, 0)
    users = zipf(drawn, USERS, rows, 1.01)
    urls = ["", *(url(number) for number in range(1, PAGES))]
    titles = ["", *(f"{'A shop of' if n % 53 == 7 else 'All about'} things number {n}" for n in range(1, PAGES))]
    small = np.int16
    flag = lambda share: (drawn.random(rows) < share).astype(small)  # noqa: E731
    return pa.table(
        {
            "view": pa.array(hashed(np.arange(rows) + part * rows)),
            "time": pa.array((first + seconds.astype("timedelta64[s]")).astype("datetime64[us]")),
            "day": pa.array(np.datetime64(FIRST_DAY, "D") + days.astype("timedelta64[D]")),
            "counter": pa.array(counter.astype(np.int32)),
            "user_id": pa.array(hashed(users)),
            "client": pa.array((hashed(users) >> 40).astype(np.int32)),
            "region": pa.array(zipf(drawn, REGIONS, rows).astype(np.int32)),
            "engine": pa.array(np.where(phrases > 0, zipf(drawn, 90, rows) + 1, 0).astype(small)),
            "advertiser": pa.array(np.where(drawn.random(rows) < 0.007, zipf(drawn, 40, rows) + 1, 0).astype(small)),
            "source": pa.array((zipf(drawn, 11, rows) - 1).astype(small)),
            "phone": pa.array(np.where(models > 0, models % 40, 0).astype(small)),
            "model": texts(["", *(f"model {n}" for n in range(MODELS))], models),
            "phrase": texts(["", *(f"where to find {n * 31} of kind {n % 77}" for n in range(PHRASES))], phrases),
            "url": texts(urls, pages),
            "title": texts(titles, pages),
            "referer": texts(urls, from_pages),
            "url_hash": pa.array(hashed(pages)),
            "referer_hash": pa.array(hashed(from_pages)),
            "width": pa.array(drawn.choice(np.array([320, 1024, 1366, 1920], small), rows)),
            "height": pa.array(drawn.choice(np.array([480, 768, 900, 1080], small), rows)),
            "is_refresh": pa.array(flag(0.15)),
            "is_link": pa.array(flag(0.05)),
            "is_download": pa.array(flag(0.01)),
            "is_counted": pa.array(flag(0.95)),
        }
    )

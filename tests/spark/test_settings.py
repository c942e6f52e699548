"""Types and settings that change what a statement means: reads and writes mean what they mean to Spark's own tables."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from spark_tables import create_indexes, is_counted, same_rows, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def ours(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.format("lakemark").load(str(folder))


def outcome(frame: DataFrame) -> object:
    """The rows, or the class of the error."""
    try:
        return sorted((tuple(row) for row in frame.collect()), key=repr)
    except Exception as error:  # noqa: BLE001 - an error is an outcome
        return str(error).partition("]")[0]


def answers(frame: DataFrame, conditions: list[str]) -> dict[str, tuple[object, ...]]:
    """How many rows each condition chooses, and which, in one query."""
    union = None
    for condition in conditions:
        name = condition.replace("'", "''")
        chosen = frame.where(condition).selectExpr(f"'{name}' AS name", "count(id) AS n", "coalesce(sum(id), 0) AS ids")
        union = chosen if union is None else union.unionAll(chosen)
    assert union is not None
    return {row.name: (row.n, row.ids) for row in union.collect()}


# ---- char and varchar, which only tables of Spark's own catalog have


@pytest.fixture
def padded(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "padded"
    folder.mkdir()
    texts = ["ab", "ab    ", "abcdef", " ab", "", None]
    pq.write_table(pa.table({"id": range(6), "c": texts, "v": texts}), folder / "a.parquet")
    create_indexes(folder, "c", "v")
    lakemark.Table(folder, key="id")
    columns = "(id BIGINT NOT NULL, c CHAR(6), v VARCHAR(6))"
    spark.sql(f"CREATE TABLE padded {columns} USING lakemark LOCATION '{folder}'")
    spark.sql(f"CREATE TABLE padded_plain {columns} USING parquet LOCATION '{folder}'")
    yield folder
    spark.sql("DROP TABLE padded")
    spark.sql("DROP TABLE padded_plain")


def test_char_and_varchar_are_read_as_from_parquet(spark: SparkSession, padded: Path) -> None:
    assert padded.is_dir()
    conditions = ["c = 'ab'", "c = 'ab    '", "c IN ('ab', 'abcdef')", "c < 'abc'", "c LIKE 'ab%'", "length(c) = 6"]
    conditions += ["v = 'ab'", "v = 'ab    '", "v < 'abc'", "length(v) = 6", "c = v", "NOT (c = 'ab')"]
    assert answers(spark.table("padded"), conditions) == answers(spark.table("padded_plain"), conditions)
    assert outcome(spark.table("padded")) == outcome(spark.table("padded_plain"))
    for what in ("count(DISTINCT c), min(c), max(v)", "c, count(*)"):
        group = " GROUP BY c" if what.startswith("c,") else ""
        found, expected = (
            outcome(spark.sql(f"SELECT {what} FROM {name}{group}")) for name in ("padded", "padded_plain")
        )
        assert found == expected, what


def test_char_and_varchar_are_written_as_to_parquet(spark: SparkSession, padded: Path) -> None:
    spark.sql("INSERT INTO padded VALUES (10, 'x', 'x'), (11, 'x     ', 'x     ')")
    spark.sql("UPDATE padded SET c = 'y', v = 'y ' WHERE id = 2")
    for statement in (
        "INSERT INTO padded VALUES (12, 'x', 'seven c')",
        "INSERT INTO padded VALUES (12, 'seven c', 'x')",
        "UPDATE padded SET v = concat(v, 'abcdef') WHERE id = 2",
        """MERGE INTO padded p USING (SELECT 2L AS id, 'seven c' AS v) s ON p.id = s.id
        WHEN MATCHED THEN UPDATE SET v = s.v""",
    ):
        with pytest.raises(Exception, match="EXCEED_LIMIT_LENGTH"):
            spark.sql(statement)
    changed = spark.sql("SELECT * FROM padded WHERE id IN (2, 10, 11, 12) ORDER BY id").collect()
    assert changed == [(2, "y     ", "y "), (10, "x     ", "x"), (11, "x     ", "x     ")]
    stored = {row["id"]: row["c"] for row in lakemark.Table(padded).scan("id >= 2").to_arrow().to_pylist()}
    assert (stored[2], stored[10]) == ("y     ", "x     ")


# ---- decimals

WIDTHS = ((1, 0), (4, 2), (9, 0), (9, 9), (10, 3), (18, 0), (18, 6), (19, 1), (28, 14), (38, 0), (38, 38))


def of_width(precision: int, scale: int) -> list[decimal.Decimal | None]:
    unit = decimal.Decimal(1).scaleb(-scale)
    with decimal.localcontext(prec=60):
        most = (10**precision - 1) * unit
        return [most, -most, unit, -unit, 0 * unit, None, most - unit, (most / 2).quantize(unit)]


@pytest.fixture
def decimals(tmp_path: Path) -> Path:
    folder = tmp_path / "decimals"
    folder.mkdir()
    columns: dict[str, pa.Array] = {"id": pa.array(range(8), pa.int64())}
    with decimal.localcontext(prec=60):
        for precision, scale in WIDTHS:
            columns[f"d{precision}_{scale}"] = pa.array(of_width(precision, scale), pa.decimal128(precision, scale))
    pq.write_table(pa.table(columns), folder / "fixed.parquet")
    pq.write_table(pa.table(columns), folder / "integers.parquet", store_decimal_as_integer=True)
    return folder


def test_decimals_of_every_width_are_read(spark: SparkSession, decimals: Path) -> None:
    names = [f"d{precision}_{scale}" for precision, scale in WIDTHS]
    create_indexes(decimals, *names)
    theirs = spark.read.parquet(str(decimals))
    mine = ours(spark, decimals)
    assert mine.schema == theirs.schema
    assert same_rows(mine, theirs)
    conditions = []
    for name, (precision, scale) in zip(names, WIDTHS, strict=True):
        most, _, unit, *_ = of_width(precision, scale)
        conditions += [f"{name} IN ({most:f}BD, 0, 123456789012345678901BD)", f"{name} < {unit:f}BD", f"{name} > 0.5BD"]
    assert answers(mine, conditions) == answers(theirs, conditions)
    asked = [f"{each}({name})" for name in names for each in ("min", "max", "count")]
    fits = [name for name in names if not name.startswith("d38")]
    asked += [f"{each}({name})" for name in fits for each in ("sum", "avg")]
    assert outcome(mine.selectExpr(*asked)) == outcome(theirs.selectExpr(*asked))


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_that_do_not_fit_are_errors_or_null(spark: SparkSession, decimals: Path, ansi: str) -> None:
    create_indexes(decimals, "d38_0", "d38_38")
    theirs = spark.read.parquet(str(decimals))
    with settings(spark, ansi_enabled=ansi):
        for condition in ("id >= 0", "d38_0 > 1", "d38_38 > 0"):
            for each in ("sum(d38_0)", "avg(d38_0)", "sum(d38_38)"):
                found = ours(spark, decimals).where(condition).selectExpr(each)
                assert outcome(found) == outcome(theirs.where(condition).selectExpr(each)), (condition, each)


def test_decimals_of_every_width_are_written(spark: SparkSession, decimals: Path) -> None:
    (decimals / "integers.parquet").unlink()
    before = lakemark.Table(decimals, key="id").scan().to_arrow().sort_by("id")
    names = [name for name in before.column_names if name != "id"]
    table = f"lm.`{decimals}`"
    # Every row gets the values of the row before it: they go through Spark and come back.
    spark.sql(f"""
        MERGE INTO {table} t USING (SELECT (id + 1) % 8 AS next, * FROM {table}) s ON t.id = s.next
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in names)}
    """)
    moved = lakemark.Table(decimals).scan().to_arrow().sort_by("id")
    assert moved.schema == before.schema
    for name in names:
        values = before[name].to_pylist()
        assert moved[name].to_pylist() == values[-1:] + values[:-1], name
    spark.sql(f"""
        MERGE INTO {table} t USING (SELECT id + 100 AS new, * FROM {table}) s ON t.id = s.new
        WHEN NOT MATCHED THEN INSERT (id, {", ".join(names)}) VALUES (s.new, {", ".join(f"s.{name}" for name in names)})
    """)
    for _ in range(2):
        copied = lakemark.Table(decimals).scan("id >= 100").to_arrow().sort_by("id")
        assert copied.drop_columns("id") == moved.drop_columns("id")
        lakemark.Table(decimals).migrate(progress=False)
    for ansi in ("true", "false"):
        with settings(spark, ansi_enabled=ansi), pytest.raises(Exception, match=r"(?i)out_of_range|overflow|cannot"):
            spark.sql(f"UPDATE {table} SET d4_2 = 100 WHERE id = 0")


# ---- moments

MOMENTS = [dt.datetime(2024, 3, 31, 1, 30), dt.datetime(2024, 3, 31, 12), dt.datetime(1969, 7, 20, 20, 17, 40, 5), None]  # noqa: DTZ001 - local on purpose


@pytest.fixture
def moments(tmp_path: Path) -> Path:
    folder = tmp_path / "moments"
    folder.mkdir()
    columns = {
        "id": pa.array(range(4), pa.int64()),
        "at": pa.array(MOMENTS, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(MOMENTS, pa.timestamp("us")),
        "day": pa.array([each and each.date() for each in MOMENTS], pa.date32()),
    }
    pq.write_table(pa.table(columns), folder / "a.parquet")
    create_indexes(folder, "at", "local", "day")
    lakemark.Table(folder, key="id")
    return folder


@pytest.mark.parametrize(
    ("zone", "kind"),
    [("America/St_Johns", "TIMESTAMP_LTZ"), ("Asia/Kolkata", "TIMESTAMP_NTZ"), ("UTC", "TIMESTAMP_NTZ")],
)
def test_moments_mean_the_same_in_every_zone(spark: SparkSession, moments: Path, zone: str, kind: str) -> None:
    with settings(spark, session_timeZone=zone, timestampType=kind):
        theirs = spark.read.parquet(str(moments))
        conditions = [
            "at = TIMESTAMP '2024-03-31 07:00:00'",
            "at > TIMESTAMP '2024-03-30 23:00:00'",
            "at < '2024-03-31'",
            "local = TIMESTAMP '2024-03-31 01:30:00'",
            "local >= TIMESTAMP_NTZ '2024-03-31 01:30:00'",
            "local < at",
            "day = DATE '2024-03-31'",
            "day = CAST(at AS DATE)",
            "at >= DATE '2024-03-31'",
            "hour(at) = 1",
        ]
        assert answers(ours(spark, moments), conditions) == answers(theirs, conditions)
        shown = ("id", "string(at)", "string(local)", "day")
        assert outcome(ours(spark, moments).selectExpr(*shown)) == outcome(theirs.selectExpr(*shown))
        assert outcome(ours(spark, moments).selectExpr("min(at)", "max(local)", "max(day)")) == outcome(
            theirs.selectExpr("min(at)", "max(local)", "max(day)")
        )


def test_moments_are_written_in_the_zone_of_the_session(spark: SparkSession, moments: Path) -> None:
    with settings(spark, session_timeZone="Asia/Kolkata"):
        spark.sql(f"""
            UPDATE lm.`{moments}` SET at = TIMESTAMP '2024-06-01 05:30:00', local = TIMESTAMP_NTZ '2024-06-01 05:30:00',
            day = DATE '2024-06-01' WHERE id = 0
        """)
        spark.sql(f"INSERT INTO lm.`{moments}` SELECT id + 10, at, local, day FROM lm.`{moments}` WHERE id = 2")
    found = {row["id"]: row for row in lakemark.Table(moments).scan().to_arrow().to_pylist()}
    midnight = dt.datetime(2024, 6, 1, tzinfo=dt.timezone.utc)
    assert found[0]["at"] == midnight
    assert found[0]["local"] == dt.datetime(2024, 6, 1, 5, 30)  # noqa: DTZ001 - local on purpose
    assert found[0]["day"] == dt.date(2024, 6, 1)
    assert {**found[12], "id": 2} == found[2]


# ---- names

NAMES = ["a.b", "mit Leerzeichen", "größe", "日本", "tick`s", 'quo"tes', "Dollar$indexes", "ALL", "select"]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.fixture
def named(tmp_path: Path) -> Path:
    folder = tmp_path / "mit Leerzeichen & größe"
    folder.mkdir()
    columns = {"key.1": list(range(100))}
    columns |= {name: [(n * 7 + at) % 10 for n in range(100)] for at, name in enumerate(NAMES)}
    table = pa.table(columns)
    # Beside the column `a.b` a struct with the field b.
    table = table.append_column("a", pa.array([{"b": n % 7} for n in range(100)], pa.struct([("b", pa.int64())])))
    for part in range(2):
        pq.write_table(table.slice(part * 50, 50), folder / f"größe {part}.parquet", row_group_size=10)
    return folder


def test_names_that_need_quotes(spark: SparkSession, named: Path) -> None:
    theirs = spark.read.parquet(str(named))
    table = f"lm.`{named}`"
    for at, name in enumerate([*map(quoted, NAMES), "a.b"]):
        spark.sql(f"CREATE INDEX i{at} ON {table} USING bitmap ({name})")
        mine = ours(spark, named).where(f"{name} = 3")
        assert is_counted(mine), name
        assert mine.count() == theirs.where(f"{name} = 3").count() > 0, name
        assert outcome(mine.select("`key.1`", name)) == outcome(theirs.where(f"{name} = 3").select("`key.1`", name))
        assert outcome(ours(spark, named).groupBy(name).count()) == outcome(theirs.groupBy(name).count()), name
    indexed = [row["column"] for row in spark.sql(f"SELECT column FROM lm.`{named}$indexes`").collect()]
    assert len(set(indexed)) == len(NAMES) + 1
    lakemark.Table(named, key="key.1")
    for at, name in enumerate(map(quoted, NAMES)):
        spark.sql(f"UPDATE {table} SET {name} = -{name} WHERE {name} = 3 AND `key.1` % 9 = {at}")
        theirs = theirs.selectExpr(
            *[
                f"CASE WHEN {name} = 3 AND `key.1` % 9 = {at} THEN -{name} ELSE {name} END AS {name}"
                if quoted(column) == name
                else quoted(column)
                for column in theirs.columns
            ]
        )
    assert same_rows(ours(spark, named), theirs)
    spark.sql(f"DELETE FROM {table} WHERE `größe` < 0 OR a.b = 6")
    kept = theirs.where("NOT (`größe` < 0 OR a.b = 6)")
    assert same_rows(ours(spark, named), kept)
    lakemark.Table(named).migrate(progress=False)
    assert same_rows(ours(spark, named), kept)


def test_names_that_differ_by_case_only(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "cased"
    folder.mkdir()
    pq.write_table(pa.table({"id": range(10), "n": range(10), "N": [n % 3 for n in range(10)]}), folder / "a.parquet")
    with settings(spark, caseSensitive="true"):
        table = f"lm.`{folder}`"
        spark.sql(f"CREATE INDEX upper ON {table} USING bitmap (N)")
        spark.sql(f"CREATE INDEX lower ON {table} USING bitmap (n)")
        theirs = spark.read.parquet(str(folder))
        for condition in ("n = 2", "N = 2", "n = 2 AND N = 2", "n > N"):
            assert outcome(ours(spark, folder).where(condition)) == outcome(theirs.where(condition)), condition
        lakemark.Table(folder, key="id")
        spark.sql(f"UPDATE {table} SET N = 100 WHERE n = 4")
        spark.sql(f"UPDATE {table} SET n = 200 WHERE N = 2")
        changed = {row.id: (row.n, row.N) for row in ours(spark, folder).collect()}
        assert changed[4] == (4, 100)
        assert {key for key, (n, _) in changed.items() if n == 200} == {2, 5, 8}
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
            spark.sql(f"SELECT ID FROM {table}")
    with pytest.raises(Exception, match=r"AMBIGUOUS|COLUMN_ALREADY_EXISTS"):
        ours(spark, folder).where("n = 2").collect()


def test_names_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "cased"
    folder.mkdir()
    pq.write_table(pa.table({"Id": range(10), "Größe": [n % 3 for n in range(10)]}), folder / "a.parquet")
    table = f"lm.`{folder}`"
    spark.sql(f"CREATE INDEX by_size ON {table} USING bitmap (`größe`)")
    lakemark.Table(folder, key="Id")
    assert is_counted(spark.sql(f"SELECT * FROM {table} WHERE `GRößE` = 2"))
    spark.sql(f"UPDATE {table} SET `größe` = 7 WHERE iD = 3")
    spark.sql(f"MERGE INTO {table} t USING (SELECT 4 AS ID) s ON t.id = s.id WHEN MATCHED THEN DELETE")
    spark.createDataFrame([(11, 5)], "ID BIGINT, `größe` BIGINT").writeTo(table).append()
    found = {row.Id: row["Größe"] for row in ours(spark, folder).collect()}
    assert found == {n: n % 3 for n in range(10) if n != 4} | {3: 7, 11: 5}

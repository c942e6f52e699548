"""Delta tables that map column names, whose logs are written by hand: no package for Python maps names."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500
# No id is ever given twice.
IDS = itertools.count(1)


def field(shown: str, stored: str, kind: Any) -> dict[str, Any]:
    mapping = {"delta.columnMapping.id": next(IDS), "delta.columnMapping.physicalName": stored}
    return {"name": shown, "type": kind, "nullable": True, "metadata": mapping}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def point() -> dict[str, Any]:
    return struct(field("x", "col-x", "long"), field("name", "col-name", "string"))


COLUMNS = (
    field("id", "col-1", "long"),
    field("city", "col-2", "string"),
    field("place", "col-3", point()),
    field("many", "col-4", {"type": "array", "elementType": point(), "containsNull": True}),
    field("day", "col-5", "string"),
)


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(json.dumps(action) for action in actions))


def metadata(*columns: dict[str, Any], mode: str = "name") -> dict[str, Any]:
    return {
        "metaData": {
            "id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b12",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct(*columns)),
            "partitionColumns": [column["name"] for column in columns if column["name"] == "day"],
            "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "1000"},
            "createdTime": 0,
        }
    }


def rows(part: int) -> list[dict[str, Any]]:
    ids = range(part * ROWS, (part + 1) * ROWS)
    return [
        {
            "id": n,
            "city": None if n % 7 == 0 else ("Oslo", "Rom", "Wien")[n % 3],
            "place": {"x": n % 11, "name": f"p{n}"},
            "many": [{"x": n, "name": None}] * (n % 3),
        }
        for n in ids
    ]


def stored_field(column: dict[str, Any]) -> pa.Field:
    """The column as files have it: under its stored name, and with its id."""
    said = column["metadata"]
    number = {"PARQUET:field_id": str(said["delta.columnMapping.id"])}
    return pa.field(said["delta.columnMapping.physicalName"], stored_type(column["type"]), metadata=number)


def stored_type(kind: Any) -> pa.DataType:
    if kind == "long":
        return pa.int64()
    if kind == "string":
        return pa.string()
    if kind["type"] == "array":
        return pa.list_(stored_type(kind["elementType"]))
    return pa.struct([stored_field(field) for field in kind["fields"]])


def write_part(folder: Path, part: int) -> dict[str, Any]:
    def stored(value: dict[str, Any]) -> dict[str, Any]:
        return {"col-x": value["x"], "col-name": value["name"]}

    found = rows(part)
    values = [
        [row["id"] for row in found],
        [row["city"] for row in found],
        [stored(row["place"]) for row in found],
        [[stored(value) for value in row["many"]] for row in found],
    ]
    schema = pa.schema([stored_field(column) for column in COLUMNS[:4]])
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    data = pa.table(arrays, schema=schema)
    path = folder / f"part-{part}.parquet"
    pq.write_table(data, path, row_group_size=100, write_page_index=True)
    return {
        "add": {
            "path": path.name,
            "partitionValues": {"col-5": f"day{part}"},
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
        }
    }


ALL = [{**row, "day": f"day{part}"} for part in range(2) for row in rows(part)]


def write_mapped(folder: Path, mode: str = "name") -> None:
    """Two files of a table, one in each partition."""
    folder.mkdir(exist_ok=True)
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    commit(folder, 0, protocol, metadata(*COLUMNS, mode=mode), write_part(folder, 0), write_part(folder, 1))

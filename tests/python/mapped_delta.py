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


def metadata(*columns: dict[str, Any]) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b12",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct(*columns)),
            "partitionColumns": [column["name"] for column in columns if column["name"] == "day"],
            "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1000"},
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


def write_part(folder: Path, part: int) -> dict[str, Any]:
    def stored(value: dict[str, Any]) -> dict[str, Any]:
        return {"col-x": value["x"], "col-name": value["name"]}

    kind = pa.struct({"col-x": pa.int64(), "col-name": pa.string()})
    found = rows(part)
    data = pa.table(
        {
            "col-1": pa.array([row["id"] for row in found], pa.int64()),
            "col-2": pa.array([row["city"] for row in found]),
            "col-3": pa.array([stored(row["place"]) for row in found], kind),
            "col-4": pa.array([[stored(value) for value in row["many"]] for row in found], pa.list_(kind)),
        }
    )
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


def write_mapped(folder: Path) -> None:
    """Two files of a table, one in each partition."""
    folder.mkdir(exist_ok=True)
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    commit(folder, 0, protocol, metadata(*COLUMNS), write_part(folder, 0), write_part(folder, 1))

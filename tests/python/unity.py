"""A server of Unity Catalog: the part of its protocol that has to do with reading tables.

What it serves is written in `api/all.yaml` of Unity Catalog: `getTable`, `listTables`, `getMetastoreSummary` and
`generateTemporaryTableCredentials`. Questions that the protocol does not have are refused, as a server refuses them.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = "/api/2.1/unity-catalog/"
OPERATIONS = {"UNKNOWN_TABLE_OPERATION", "READ", "READ_WRITE"}


class RefusedError(Exception):
    """A question that the server does not answer as it was meant."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status


def nothing() -> dict[str, Any]:
    return {}


@dataclass
class Unity:
    """What a server knows, and what it was asked.

    Attributes:
        url: Where it listens.
        tokens: The tokens that it takes; it asks for none if there are none.
        tables: What it says of tables, by their full names.
        give: Makes the credentials of an answer.
        lasts: How long they are good.
        may_write: Whether it gives credentials to write.
        failing: A status that it gives to everybody.
        asked: Methods, paths and bodies of questions, in their order.
        given: The operations that it gave credentials for, in their order.
    """

    url: str
    tokens: set[str] = field(default_factory=set)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    give: Callable[[], dict[str, Any]] = nothing
    lasts: timedelta = timedelta(hours=1)
    may_write: bool = True
    failing: int = 0
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    def add(self, name: str, location: str, kind: str = "DELTA") -> None:
        """Makes a table known by its full name."""
        catalog, schema, table = name.split(".")
        now = int(time.time() * 1000)
        self.tables[name] = {
            "name": table,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": kind,
            "columns": [],
            "storage_location": location,
            "properties": {},
            "owner": "somebody",
            "created_at": now,
            "updated_at": now,
            "table_id": str(uuid.uuid4()),
        }

    def answer(self, method: str, path: str, token: str | None, body: Any) -> dict[str, Any]:
        """What it says to a question."""
        self.asked.append((method, path, body))
        if self.failing:
            raise RefusedError(self.failing, "TEMPORARILY_UNAVAILABLE")
        if self.tokens and token not in self.tokens:
            raise RefusedError(401, "UNAUTHENTICATED")
        parts = urlsplit(path)
        if not parts.path.startswith(ROOT):
            raise RefusedError(404, "ENDPOINT_NOT_FOUND")
        match (method, parts.path.removeprefix(ROOT).split("/")):
            case ("GET", ["tables"]):
                return self.listed({key: values[-1] for key, values in parse_qs(parts.query).items()})
            case ("GET", ["tables", name]):
                return self.table(unquote(name))
            case ("POST", ["temporary-table-credentials"]):
                return self.credentials(body)
            case ("GET", ["metastore_summary"]):
                return {"metastore_id": "6c8d1c1a-3f3f-4f6e-8a53-8e8b0f4f9d11", "name": "tests"}
        raise RefusedError(404, "ENDPOINT_NOT_FOUND")

    def table(self, name: str) -> dict[str, Any]:
        if name not in self.tables:
            raise RefusedError(404, "TABLE_DOES_NOT_EXIST")
        return self.tables[name]

    def listed(self, asked: dict[str, str]) -> dict[str, Any]:
        place = (asked.get("catalog_name"), asked.get("schema_name"))
        if None in place:
            raise RefusedError(400, "INVALID_ARGUMENT")
        of_schema = [table for table in self.tables.values() if (table["catalog_name"], table["schema_name"]) == place]
        return {"tables": of_schema}

    def credentials(self, asked: Any) -> dict[str, Any]:
        if not isinstance(asked, dict) or not {"table_id", "operation"} <= set(asked):
            raise RefusedError(400, "INVALID_ARGUMENT")
        table = next((table for table in self.tables.values() if table["table_id"] == asked["table_id"]), None)
        if table is None:
            raise RefusedError(404, "TABLE_DOES_NOT_EXIST")
        if asked["operation"] not in OPERATIONS:
            raise RefusedError(400, "INVALID_ARGUMENT")
        if asked["operation"] == "READ_WRITE" and not self.may_write:
            raise RefusedError(403, "PERMISSION_DENIED")
        self.given.append(asked["operation"])
        ends = int((time.time() + self.lasts.total_seconds()) * 1000)
        return {**self.give(), "expiration_time": ends, "url": table["storage_location"]}


def handler(unity: Unity) -> type[BaseHTTPRequestHandler]:
    class Served(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            token = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            try:
                status, said = 200, unity.answer(self.command, self.path, token, json.loads(body) if body else None)
            except RefusedError as error:
                # A server may repeat what it was sent.
                status, said = error.status, {"error_code": str(error), "message": f"Refused {token}.", "details": []}
            text = json.dumps(said).encode()
            self.send_response_only(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    for command in ("GET", "POST"):
        setattr(Served, f"do_{command}", Served.serve)
    return Served


@contextmanager
def unity_server() -> Iterator[Unity]:
    """Serves until the block is left."""
    unity = Unity("")
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler(unity))
    # Clients keep connections open, and their threads with them.
    listening.daemon_threads = True
    unity.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield unity
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()

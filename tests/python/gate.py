"""A gate before an S3 server: who has a token that it takes comes in, and others learn that theirs has expired."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

# Headers that are of one connection and not of what is asked.
HOP = {"connection", "content-length", "transfer-encoding", "keep-alive", "host"}


@dataclass
class Gate:
    """What a gate takes, and what came to it.

    Attributes:
        url: Where it listens.
        tokens: The tokens of sessions that it lets in.
        seen: The token of each request, in their order.
        refused: How many requests it let not in.
    """

    url: str
    tokens: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    refused: int = 0


def handler(gate: Gate, server: str) -> type[BaseHTTPRequestHandler]:
    place = urlsplit(server)

    class Guarded(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            token = self.headers.get("x-amz-security-token", "")
            gate.seen.append(token)
            if token in gate.tokens:
                self.forward(body)
            else:
                gate.refused += 1
                self.refuse(token)

        def refuse(self, token: str) -> None:
            # As S3 says it: with the token.
            text = f"<Error><Code>ExpiredToken</Code><Message>Expired.</Message><Token-0>{token}</Token-0></Error>"
            self.end(400, {"content-type": "application/xml"}, text.encode())

        def forward(self, body: bytes) -> None:
            assert place.hostname is not None
            connection = http.client.HTTPConnection(place.hostname, place.port)
            kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            connection.request(self.command, self.path, body, kept)
            answer = connection.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP}
            length = answer.getheader("content-length")
            self.end(answer.status, headers, answer.read(), length if self.command == "HEAD" else None)
            connection.close()

        def end(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)) if length is None else length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    for command in ("GET", "HEAD", "PUT", "POST", "DELETE"):
        setattr(Guarded, f"do_{command}", Guarded.answer)
    return Guarded


@contextmanager
def gate_before(server: str) -> Iterator[Gate]:
    """Opens a gate before the server at a URL."""
    gate = Gate("")
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler(gate, server))
    # Clients keep connections open, and their threads with them.
    listening.daemon_threads = True
    gate.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield gate
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()

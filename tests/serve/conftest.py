"""A server over a table of flights, for tests that need no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakemark
from serving import Server, serve, write_flights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of flights that takes updates."""
    folder = tmp_path / "flights"
    write_flights(folder)
    lakemark.Table(folder, key="number")
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A server over it, which ends well."""
    with serve(f"flights={folder}") as server:
        yield server
        assert server.end() == 0

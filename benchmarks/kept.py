"""Tables that are written once and kept for the next run."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def kept(folder: Path) -> Iterator[bool]:
    """Whether the folder is to be written: it is empty then, and counts as complete once the block has ended."""
    done = folder / "_complete"
    if done.exists():
        yield False
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield True
    done.touch()

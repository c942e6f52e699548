"""Packages that are not required: what to install if they are missing, and which versions work."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from typing import TYPE_CHECKING

from lakemark.exceptions import MissingPackageError, UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["DATAFUSION_MAJOR", "require", "require_datafusion"]

DATAFUSION_MAJOR = 55
"""The versions of the `datafusion` package whose tables have the layout in memory that ours have."""


def require(name: str, use: str, at_least: tuple[int, int] | None = None) -> ModuleType:
    """Imports a package that a function needs.

    Args:
        name: The package, which is a module of that name.
        use: The function that needs it, for messages.
        at_least: The oldest version that works.

    Returns:
        The module.

    Raises:
        MissingPackageError: It is not installed, or cannot be imported.
        UnsupportedError: It is older.
    """
    wanted = name if at_least is None else f"{name}>={'.'.join(str(part) for part in at_least)}"
    try:
        module = importlib.import_module(name)
    except ImportError as cause:
        raise MissingPackageError(f"{use} needs {name} ({cause}): pip install '{wanted}'") from cause
    found = _version(module, name)
    if at_least is not None and found is not None and _numbers(found) < at_least:
        raise UnsupportedError(f"{use} does not work with {name} {found}: pip install '{wanted}'")
    return module


def require_datafusion() -> None:
    """Sees that a table that is handed to the `datafusion` package is one that it can read.

    Tables are handed over as structures in memory, whose layout every major version changes.

    Raises:
        MissingPackageError: It is not installed.
        UnsupportedError: It is of another major version.
    """
    wanted = f"pip install 'datafusion=={DATAFUSION_MAJOR}.*', or query with lakemark.connect()"
    try:
        module = importlib.import_module("datafusion")
    except ImportError as cause:
        raise MissingPackageError(f"the table is read by the datafusion package ({cause}): {wanted}") from cause
    found = _version(module, "datafusion")
    if found is None or _numbers(found)[:1] != (DATAFUSION_MAJOR,):
        raise UnsupportedError(
            f"the datafusion package is of version {found or 'unknown'}, and tables are handed to version "
            f"{DATAFUSION_MAJOR} only: {wanted}"
        )


def _version(module: ModuleType, name: str) -> str | None:
    """The version that a module says it has, or its package."""
    told = getattr(module, "__version__", None)
    if isinstance(told, str):
        return told
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version.

    >>> _numbers("1.30.0rc1"), _numbers("55.dev"), _numbers("")
    ((1, 30, 0), (55,), ())
    """
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()

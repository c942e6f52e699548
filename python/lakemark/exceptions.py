"""What Lakemark raises.

Each class stands for one kind of failure, the same kinds that the shell, Rust and Spark report; that a package is
missing is one of Python alone. All of them are `LakemarkError`. Those with a counterpart among Python's own exceptions
are that as well, so that code written for `ValueError` or `OSError` keeps working.

>>> import lakemark
>>> try:
...     lakemark.Table("/no/such/folder")
... except FileNotFoundError as error:
...     print(type(error).__name__)
NotFoundError
"""

from __future__ import annotations

__all__ = [
    "AlreadyExistsError",
    "CacheFullError",
    "CancelledError",
    "ConflictError",
    "ConstraintViolationError",
    "CorruptError",
    "InternalError",
    "InvalidInputError",
    "LakemarkError",
    "LakemarkIOError",
    "LakemarkWarning",
    "MissingPackageError",
    "NotFoundError",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "StoreMismatchError",
    "UnsupportedError",
]


class LakemarkError(Exception):
    """Base of everything that Lakemark raises."""


class InvalidInputError(LakemarkError, ValueError):
    """An argument, an option or a statement is wrong."""


class NotFoundError(LakemarkError, FileNotFoundError):
    """A table, a file, a column or an index does not exist."""


class AlreadyExistsError(LakemarkError, FileExistsError):
    """An index of that name exists, or a row with a key that was to be inserted."""


class UnsupportedError(LakemarkError, NotImplementedError):
    """The request is understood and not served, for example an index on a type that its kind cannot hold."""


class MissingPackageError(LakemarkError, ImportError):
    """A Python package that a function needs is not installed; the message says which one to install."""


class SchemaMismatchError(LakemarkError, TypeError):
    """Data files, or a file and a predicate, disagree about a column's type."""


class ConstraintViolationError(LakemarkError, ValueError):
    """A buffered row does not meet a constraint of the Delta table; the message names both, and nothing was lost."""


class ConflictError(LakemarkError):
    """Another writer was faster; nothing was lost, try again."""


class CacheFullError(LakemarkError):
    """There is no room for more buffered updates; those that were made are safe."""


class SnapshotExpiredError(LakemarkError):
    """What an old version of the table needs is gone; the message says which versions can still be read."""


class StoreMismatchError(LakemarkError):
    """The buffered changes of a store may not be those of the table; `Table.repair` decides what becomes of them."""


class CorruptError(LakemarkError):
    """Bytes that had to be believed failed their checks."""


class LakemarkIOError(LakemarkError, OSError):
    """Storage could not be read or written."""


class CancelledError(LakemarkError):
    """The work was cancelled before it was committed."""


class InternalError(LakemarkError, RuntimeError):
    """A fault of Lakemark's own; please report it."""


class LakemarkWarning(UserWarning):
    """An index file was damaged, stale or missing. The data was scanned instead: the answer is right, only slower."""

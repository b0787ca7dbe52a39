"""Conversion of Lance's exceptions to `StorageError`. Lance has few exception types, so messages are parsed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from omnigraph.errors import StorageError, StorageErrorKind
from omnigraph.storage.objects.os_failures import os_advice

_PLACE = re.compile(r",? ?/[^ ]*\.rs:\d+:\d+")
"""Rust source location in Lance's messages. It is removed, because it does not help users."""
REF_ERRORS = (OSError, ValueError, RuntimeError)
"""Raised by Lance if it cannot read or change a branch or tag."""
UNREADABLE = (OSError, ValueError, RuntimeError)
"""Raised by Lance if a file cannot be decoded."""
_FAILED_READ = re.compile(r"LanceError\(IO\)|^(External error: )?Not found|\bExternal error: KeyboardInterrupt\b")
T = TypeVar("T")

_ATTEMPTS = 16
_PASSING = ("Generic S3 error", "error sending request", "timed out", "timeout")
_INTERRUPT = re.compile(r"\bExternal error: KeyboardInterrupt\b")
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
_ADVICE = {
    StorageErrorKind.PERMANENT: "check the address and the files of the graph; restore a damaged file from a backup",
    StorageErrorKind.TRANSIENT: "the store could not be reached, or was busy: try again",
    StorageErrorKind.UNKNOWN: "the write may or may not have taken effect: read the graph before trying again",
}


def is_missing(error: Exception) -> bool:
    """Whether a dataset, branch or version does not exist. Any other error means that it could not be read."""
    text = str(error)
    return text.startswith("Dataset at path") and "was not found" in text


def is_conflict(error: Exception) -> bool:
    """Whether a plain OSError of Lance means that another writer was first."""
    text = str(error)
    return "conflict" in text.lower() or "Too many concurrent writers" in text


def read_refs(request: Callable[[], T]) -> T:
    """Call a function that reads all refs: the branches and tags of a dataset.

    Lance lists the refs, then reads each of them, and fails if one was removed in between. The call is then repeated.
    """
    for _ in range(_ATTEMPTS):
        try:
            return request()
        except REF_ERRORS as error:
            if not _is_overtaken(error):
                raise
    return request()


def remove_ref(removal: Callable[[], None]) -> None:
    """Remove a ref: a branch or a tag. Lance also reads all refs for this, and may fail after it removed the ref."""
    failed = False

    def request() -> None:
        nonlocal failed
        try:
            removal()
        except REF_ERRORS as error:
            if failed and "does not exist" in str(error):
                return
            failed = _is_overtaken(error)
            raise

    read_refs(request)


def _is_overtaken(error: Exception) -> bool:
    return "Not found" in str(error) and "/_refs/" in str(error)


def is_panic(error: BaseException) -> bool:
    """Whether Lance panicked, for example because of a damaged file. It raises a BaseException then."""
    return type(error).__name__ == "PanicException"


def lance_failure(error: BaseException, root: str, path: str, *, write: bool = False) -> StorageError:
    """Convert an exception of Lance.

    Args:
        error: the exception.
        root: the graph root.
        path: the dataset below it.
        write: whether the request may have taken effect.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C while Lance ran Python code. Lance reports this as a failed request.
    """
    text = _PLACE.sub("", str(error)).strip()
    if _INTERRUPT.search(text):
        raise KeyboardInterrupt from error
    kind = StorageErrorKind.PERMANENT
    if write:
        kind = StorageErrorKind.UNKNOWN
    elif any(word in text for word in _PASSING):
        kind = StorageErrorKind.TRANSIENT
    if (number := _SYSTEM_ERROR.search(text)) is not None and (advice := os_advice(int(number[1]))) is not None:
        reason = os.strerror(int(number[1])).lower()
        return StorageError(reason, kind=kind if write else advice[0], uri=root, path=path, hint=advice[1])
    return StorageError(text, kind=kind, uri=root, path=path, hint=_ADVICE[kind])


@contextmanager
def reporting(
    root: str, path: str, kinds: tuple[type[Exception], ...] = (OSError,), *, write: bool = False
) -> Iterator[None]:
    """Convert Lance's exceptions; by default only those of failed reads and writes.

    For a failed read, Lance raises an OSError, or a ValueError with a known message.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, kinds) or (isinstance(error, ValueError) and _FAILED_READ.search(str(error))):
            raise lance_failure(error, root, path, write=write) from error
        raise
    except BaseException as error:
        if is_panic(error):
            raise lance_failure(error, root, path, write=write) from error
        raise

"""Errors of the storage of a graph: a directory, a bucket, or memory."""

from __future__ import annotations

from enum import StrEnum

from omnigraph.errors.family import Disposition, OmnigraphError


class StorageErrorKind(StrEnum):
    """Kinds of storage failures, for information. A kind does not show whether it is safe to send a write again."""

    TRANSIENT = "Transient"
    """Nothing happened. The store was busy or not reachable."""
    CONFIGURATION = "Configuration"
    """Wrong address, credentials, permissions or options."""
    NOT_FOUND = "NotFound"
    """There is no such object."""
    PRECONDITION = "Precondition"
    """The object is not in the state that the caller expected. Read it again."""
    PERMANENT = "Permanent"
    """Nothing happened. A retry fails again."""
    UNKNOWN = "Unknown"
    """The request may or may not have taken effect."""


_DISPOSITIONS = {
    StorageErrorKind.TRANSIENT: Disposition.RETRY,
    StorageErrorKind.PRECONDITION: Disposition.DECIDE,
    StorageErrorKind.UNKNOWN: Disposition.UNKNOWN,
}


class StorageError(OmnigraphError):
    """An operation of the store failed.

    Attributes:
        kind: the kind of failure.
        uri: the root of the store.
        path: the object or prefix below the root; empty for the root itself.
    """

    code = "storage"

    def __init__(
        self, reason: str, *, kind: StorageErrorKind, uri: str, path: str = "", hint: str | None = None
    ) -> None:
        place = f"{uri.rstrip('/')}/{path}" if path else uri
        super().__init__(f"{place}: {reason}", hint=hint)
        self.kind = kind
        self.uri = uri
        self.path = path
        self.disposition = _DISPOSITIONS.get(kind, Disposition.FIX)


class FlushFailedError(StorageError):
    """An `fsync` failed, so the data may be lost. A later successful `fsync` does not prove that it was stored.

    Attributes:
        in_effect: whether the data that was not flushed is visible to readers.
    """

    code = "flush_failed"
    _summary = "cannot be flushed to disk"

    def __init__(self, reason: str, *, uri: str, path: str = "", in_effect: bool = False, hint: str) -> None:
        kind = StorageErrorKind.UNKNOWN if in_effect else StorageErrorKind.PERMANENT
        super().__init__(f"{self._summary}: {reason}", kind=kind, uri=uri, path=path, hint=hint)
        self.reason = reason
        self.in_effect = in_effect


class WriteUndoneError(FlushFailedError):
    """A write was undone, because an `fsync` of its files failed. Nothing of it is visible."""

    _summary = "the write was undone, because its files cannot be flushed to disk"

    def __init__(self, error: FlushFailedError) -> None:
        super().__init__(
            error.reason,
            uri=error.uri,
            path=error.path,
            hint="check the disk and the system log, then send the write again",
        )


class ClockError(StorageError):
    """The clocks of this machine and of the store differ by too much. This machine must not write."""

    code = "clock"

    def __init__(self, uri: str, seconds: float, allowed: float) -> None:
        side = "behind" if seconds > 0 else "ahead of"
        super().__init__(
            f"the clock of this machine is {abs(seconds):.0f} seconds {side} that of the store, "
            f"but a writer may differ by {allowed:.0f} at most",
            kind=StorageErrorKind.CONFIGURATION,
            uri=uri,
            hint="set the clock of this machine, or raise OMNIGRAPH_CLOCK_TOLERANCE; reads still work",
        )
        self.seconds = seconds


class ObjectNotFoundError(StorageError):
    """There is no object of this name."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            "there is no such object",
            kind=StorageErrorKind.NOT_FOUND,
            uri=uri,
            path=path,
            hint="check the address of the graph; another process may have deleted the object",
        )


class ObjectExistsError(StorageError):
    """The object to create already exists. Nothing happened."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            "the object exists already",
            kind=StorageErrorKind.PRECONDITION,
            uri=uri,
            path=path,
            hint="another process created it first: read the object, then decide",
        )


class ObjectChangedError(StorageError):
    """The object changed since the caller read it. Nothing happened."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            "the object was changed or deleted since it was read",
            kind=StorageErrorKind.PRECONDITION,
            uri=uri,
            path=path,
            hint="read the object again, then decide",
        )


DAMAGED_FILE_HINT = (
    "restore the file from a backup; commits that do not need it can still be read; "
    "'omnigraph verify' lists all damaged files, and 'omnigraph repair' lists the possible repairs"
)
"""Default hint for a damaged file."""


class DamagedFileError(StorageError):
    """A file of the graph is missing, truncated, overwritten or changed. Other files are not affected.

    Attributes:
        reason: the kind of damage.
    """

    code = "damaged_file"

    def __init__(self, uri: str, path: str, reason: str, *, hint: str = DAMAGED_FILE_HINT) -> None:
        super().__init__(f"damaged: {reason}", kind=StorageErrorKind.PERMANENT, uri=uri, path=path, hint=hint)
        self.reason = reason

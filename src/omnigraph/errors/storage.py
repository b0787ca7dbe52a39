"""Errors of the place where a graph lies: a directory, a bucket, memory."""

from __future__ import annotations

from enum import StrEnum

from omnigraph.errors.family import Disposition, OmnigraphError


class StorageErrorKind(StrEnum):
    """What a failure says about the store. Advisory: no kind by itself allows a write to be sent again."""

    TRANSIENT = "Transient"
    """Nothing happened; the store was busy or out of reach."""
    CONFIGURATION = "Configuration"
    """Wrong address, credentials, permissions or options."""
    NOT_FOUND = "NotFound"
    """There is no such object."""
    PRECONDITION = "Precondition"
    """The object is not in the state that the caller expected: look at it again."""
    PERMANENT = "Permanent"
    """Nothing happened, and trying again will not help."""
    UNKNOWN = "Unknown"
    """The request may or may not have taken effect."""


_DISPOSITIONS = {
    StorageErrorKind.TRANSIENT: Disposition.RETRY,
    StorageErrorKind.PRECONDITION: Disposition.DECIDE,
    StorageErrorKind.UNKNOWN: Disposition.UNKNOWN,
}


class StorageError(OmnigraphError):
    """The store could not do what it was asked to.

    Attributes:
        kind: what the failure says about the store.
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
    """Files could not be forced to disk, so what they hold may be lost. A later flush that succeeds proves nothing.

    Attributes:
        in_effect: whether what could not be flushed is visible all the same.
    """

    code = "flush_failed"
    _says = "cannot be forced to disk"

    def __init__(self, reason: str, *, uri: str, path: str = "", in_effect: bool = False, hint: str) -> None:
        kind = StorageErrorKind.UNKNOWN if in_effect else StorageErrorKind.PERMANENT
        super().__init__(f"{self._says}: {reason}", kind=kind, uri=uri, path=path, hint=hint)
        self.reason = reason
        self.in_effect = in_effect


class WriteUndoneError(FlushFailedError):
    """A write was undone, because its files could not be forced to disk. Nothing of it is visible."""

    _says = "the write was undone, because its files cannot be forced to disk"

    def __init__(self, error: FlushFailedError) -> None:
        super().__init__(
            error.reason,
            uri=error.uri,
            path=error.path,
            hint="check the disk and the system log, then send the write again",
        )


class ClockError(StorageError):
    """The clock of this machine and that of the store differ by too much for this machine to write."""

    code = "clock"

    def __init__(self, uri: str, seconds: float, allowed: float) -> None:
        side = "behind" if seconds > 0 else "ahead of"
        super().__init__(
            f"the clock of this machine is {abs(seconds):.0f} seconds {side} that of the store, "
            f"and {allowed:.0f} are allowed for a writer",
            kind=StorageErrorKind.CONFIGURATION,
            uri=uri,
            hint="set the clock of this machine, or raise OMNIGRAPH_CLOCK_TOLERANCE; reading works all the same",
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
            hint="check the address of the graph; the object may also have been deleted meanwhile",
        )


class ObjectExistsError(StorageError):
    """An object that was to be created exists. Nothing happened."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            "the object exists already",
            kind=StorageErrorKind.PRECONDITION,
            uri=uri,
            path=path,
            hint="somebody else was first: read the object, then decide",
        )


class ObjectChangedError(StorageError):
    """An object is not, or no longer, what the caller read. Nothing happened."""

    def __init__(self, uri: str, path: str) -> None:
        super().__init__(
            "the object was changed or deleted meanwhile",
            kind=StorageErrorKind.PRECONDITION,
            uri=uri,
            path=path,
            hint="read the object again, then decide",
        )


WAY_OUT = (
    "put the file back from a backup; commits that do not need it can still be read; "
    "'omnigraph verify' names all damaged files, and 'omnigraph repair' says what can be done"
)
"""What to do about a damaged file, where nothing better is known."""


class DamagedFileError(StorageError):
    """A file of the graph is missing, cut, overwritten or changed. Nothing was done; other files are not concerned.

    Attributes:
        reason: what is wrong with it.
    """

    code = "damaged_file"

    def __init__(self, uri: str, path: str, reason: str, *, hint: str = WAY_OUT) -> None:
        super().__init__(f"damaged: {reason}", kind=StorageErrorKind.PERMANENT, uri=uri, path=path, hint=hint)
        self.reason = reason

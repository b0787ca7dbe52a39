"""Errors of blobs: references that are not allowed or not readable, ranges outside of a blob, damaged blob cells."""

from __future__ import annotations

from omnigraph.errors.family import InputError, OmnigraphError


class ExternalBlobPolicyError(InputError):
    """A blob reference to a location that is not allowed. Nothing was opened or written.

    Attributes:
        uri: the reference, without credentials, query and fragment.
        reason: the rule that the reference breaks.
    """

    code = "external_blob_policy"

    def __init__(self, uri: str, reason: str, *, place: str = "") -> None:
        super().__init__(
            f"{place}: {uri}: {reason}" if place else f"{uri}: {reason}",
            hint="write the content as base64:…, or allow the location: pass blob_sources= when a program opens the "
            "graph, or set OMNIGRAPH_BLOB_SOURCES for commands",
        )
        self.uri = uri
        self.reason = reason


class ExternalBlobSourceError(OmnigraphError):
    """A blob reference is allowed, but its target could not be read. Nothing was written.

    Attributes:
        uri: the reference, without credentials, query and fragment.
        reason: why the target could not be read, as a text for people.
    """

    code = "external_blob_source"

    def __init__(self, uri: str, reason: str, *, place: str = "") -> None:
        super().__init__(
            f"{place}: {uri}: {reason}" if place else f"{uri}: {reason}",
            hint="nothing was written; make the source readable and send it again",
        )
        self.uri = uri
        self.reason = reason


class BlobRangeError(InputError):
    """A byte range outside of a blob.

    Attributes:
        start: the first requested byte.
        end: the end of the range, exclusive; None for the end of the blob.
        length: the size of the blob in bytes.
    """

    code = "blob_range"

    def __init__(self, start: int, end: int | None, length: int) -> None:
        requested = f"{start}..{'' if end is None else end}"
        super().__init__(
            f"bytes {requested} are outside of the blob, which has {length} bytes", hint="request a smaller range"
        )
        self.start = start
        self.end = end
        self.length = length


class BlobIntegrityError(OmnigraphError):
    """The stored data of a blob is inconsistent. No content is returned.

    Attributes:
        reason: the inconsistency.
    """

    code = "blob_integrity"

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}", hint="restore the table from a backup, or write the entity again")
        self.reason = reason

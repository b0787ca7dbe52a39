"""Errors of blobs: references that are not allowed or lead nowhere, ranges outside of a value, and broken cells."""

from __future__ import annotations

from omnigraph.errors.family import InputError, OmnigraphError


class ExternalBlobPolicyError(InputError):
    """A reference to a place that blobs may not come from. Nothing was opened, and nothing was written.

    Attributes:
        uri: the reference, without credentials, query and fragment.
        reason: which rule it breaks.
    """

    code = "external_blob_policy"

    def __init__(self, uri: str, reason: str, *, place: str = "") -> None:
        super().__init__(
            f"{place}: {uri}: {reason}" if place else f"{uri}: {reason}",
            hint="write the content as base64:…, or allow the place: blob_sources= when a program opens the graph, "
            "OMNIGRAPH_BLOB_SOURCES for commands",
        )
        self.uri = uri
        self.reason = reason


class ExternalBlobSourceError(OmnigraphError):
    """A reference to a place that is allowed, and that could not be read. Nothing was written.

    Attributes:
        uri: the reference, without credentials, query and fragment.
        reason: what the place said; for people.
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
    """A range that does not lie within a blob.

    Attributes:
        start: the first byte that was asked for.
        end: the byte behind the last one.
        length: how many bytes there are.
    """

    code = "blob_range"

    def __init__(self, start: int, end: int | None, length: int) -> None:
        asked = f"{start}..{'' if end is None else end}"
        super().__init__(f"bytes {asked} do not lie within the {length} bytes of the blob", hint="ask for less")
        self.start = start
        self.end = end
        self.length = length


class BlobIntegrityError(OmnigraphError):
    """What is stored about a blob contradicts itself. Nothing is guessed.

    Attributes:
        reason: what does not fit.
    """

    code = "blob_integrity"

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}", hint="restore the table from a backup, or write the entity again")
        self.reason = reason

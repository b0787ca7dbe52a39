"""Requests that only clients have. All others are those of the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from omnigraph.dataclass import dataclass
from omnigraph.engine.query_requests import QueryRequest
from omnigraph.engine.requests import BaselineRequest, ExportRequest, LoadRequest, MutateRequest
from omnigraph.errors import InputError, cut, shown

Ndjson = str | bytes | bytearray | memoryview | os.PathLike[str]
"""NDJSON: its text, its bytes, or the path of a file."""


@contextmanager
def of_valid_text() -> Iterator[None]:
    """Report names and texts that are not valid Unicode.

    Raises:
        InputError: the request has half of a surrogate pair.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        message = f"{shown(error.object)} contains half of a surrogate pair, which is not valid Unicode"
        raise InputError(message) from None


@dataclass(frozen=True, slots=True)
class HealthRequest:
    """Whether the server answers."""


@dataclass(frozen=True, slots=True)
class GraphsRequest:
    """The graphs of the server."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The versions of all tables at the head of a branch, or at a commit."""

    branch: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class LoadCall:
    """A load of NDJSON: its text, its bytes, or the path of a file."""

    data: Ndjson
    load: LoadRequest

    def lines(self) -> bytes:
        """The bytes of the input.

        Raises:
            InputError: the file cannot be read, or the input is of another type.
        """
        data: object = self.data
        if isinstance(data, os.PathLike):
            try:
                return Path(data).read_bytes()
            except OSError as error:
                raise InputError(f"cannot read {cut(str(data))}: {error.strerror}") from error
        if isinstance(data, str):
            try:
                return data.encode()
            except UnicodeEncodeError:
                raise InputError("the input has half of a surrogate pair, which is not valid Unicode") from None
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        raise InputError(
            f"the input is a value of type {type(data).__name__}", hint="give NDJSON as a text or bytes, or a Path"
        )


@dataclass(frozen=True, slots=True)
class BranchesRequest:
    """The names of all branches."""


@dataclass(frozen=True, slots=True)
class CreateBranchRequest:
    """A branch to create, at the head of another branch or at a commit."""

    name: str
    source: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteBranchRequest:
    """A branch to delete."""

    name: str


@dataclass(frozen=True, slots=True)
class CommitsRequest:
    """A page of the history of a branch.

    Attributes:
        actor: only commits of this actor.
    """

    branch: str | None = None
    actor: str | None = None
    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One commit."""

    commit_id: str


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The text of the schema of a branch, by default `main`, or of a commit."""

    branch: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class StoredQueriesRequest:
    """The stored queries of a graph."""


@dataclass(frozen=True, slots=True)
class InvokeRequest:
    """A call of a stored query. The request has its name, and an empty text."""

    call: QueryRequest | MutateRequest


@dataclass(frozen=True, slots=True)
class BlobRequest:
    """A blob.

    Attributes:
        start: the first byte.
        end: the end of the range, exclusive; None for the end of the blob.
        with_data: whether to read its bytes.
    """

    type_name: str
    entity_id: str
    property: str
    branch: str | None
    snapshot: str | None
    start: int = 0
    end: int | None = None
    with_data: bool = False


@dataclass(frozen=True, slots=True)
class ExportParts:
    """An export in parts of any size."""

    request: ExportRequest


@dataclass(frozen=True, slots=True)
class BaselineCall:
    """A baseline whose end is checked."""

    request: BaselineRequest

"""Blobs that are given as the address of something elsewhere: which are allowed, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import (
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    InputError,
    ResourceLimitError,
    cut,
)
from omnigraph.storage.blob_sources import BlobSources, SourceFailedError, SourceUri, UnusableUriError, redacted
from omnigraph.storage.blobs import CELL, blob_columns
from omnigraph.write.rules.changes import TableChange

URI_BYTES = 64 * 1024
URI_CELLS = 8192
URI_METADATA_BYTES = 32 * 1024 * 1024
COPIED_BYTES = 256 * 1024 * 1024
"""How much of external sources one write copies into the graph. What is copied is in memory at once."""
_AT_ONCE = 8

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Base:
    """A directory that blobs may come from: as it was named, and without symbolic links."""

    named: SourceUri
    resolved: SourceUri


@dataclass(frozen=True, slots=True)
class BlobPolicy:
    """Where external blobs may come from. By default nowhere.

    Attributes:
        sources: looks at sources and reads them.
    """

    _bases: tuple[_Base, ...] = ()
    sources: BlobSources = field(default_factory=BlobSources)

    @classmethod
    def allowing(cls, bases: Sequence[str], options: Mapping[str, str] | None = None) -> BlobPolicy:
        """A policy that allows what lies below some directories.

        Args:
            bases: `s3://bucket/prefix/`, or `file:///directory/`, which must exist.
            options: how to reach an S3 store; overrides the environment.

        Raises:
            InputError: a base is no such address, or lies within another.
        """
        sources = BlobSources(dict(options or {}))
        read: list[_Base] = []
        for text in bases:
            base = _read_base(text, sources)
            for other in read:
                here, there = base.resolved, other.resolved
                if here == there or here.contains(there) or there.contains(here):
                    raise InputError(
                        f"the blob sources {base.named} and {other.named} overlap", hint="name only the wider one"
                    )
            read.append(base)
        return cls(tuple(read), sources)

    def check(self, text: str) -> SourceUri:
        """The source that a reference names. Looks at nothing but the text.

        Raises:
            UnusableUriError: blobs may not come from there.
        """
        source = SourceUri.parse(text)
        if not self._bases:
            raise UnusableUriError("external blobs are not allowed")
        if not any(base.named.contains(source) or base.resolved.contains(source) for base in self._bases):
            raise UnusableUriError("it lies below no place that blobs may come from")
        return source

    def resolve(self, source: SourceUri) -> SourceUri:
        """A source that was checked, without the symbolic links that may lead out of what is allowed.

        Raises:
            UnusableUriError: they do.
        """
        found = self.sources.resolved(source)
        if not any(base.resolved.contains(found) for base in self._bases):
            raise UnusableUriError("a symbolic link leads out of the place that blobs may come from")
        return found


def _read_base(text: str, sources: BlobSources) -> _Base:
    try:
        base = SourceUri.parse(text, directory=True)
        resolved = sources.resolved(base)
        sources.check_directory(resolved)
    except (UnusableUriError, SourceFailedError) as error:
        raise InputError(
            f"the blob source {redacted(text)} cannot be used: {error}",
            hint="write s3://bucket/prefix/ or file:///directory/",
        ) from None
    return _Base(base, resolved)


def admit(
    changes: Mapping[str, TableChange],
    policy: BlobPolicy,
    *,
    keep_references: bool,
    budget: int = COPIED_BYTES,
) -> dict[str, TableChange]:
    """Changes whose external blobs are allowed and there: their bytes copied, or the references kept.

    All references are held against the policy before any source is looked at, and all sources are looked at before
    any is read.

    Args:
        changes: what is to be written, by type key.
        policy: where blobs may come from.
        keep_references: whether the references are written as they are, and not what they lead to.
        budget: how many bytes may be copied.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
        ExternalBlobSourceError: a source cannot be read.
        ResourceLimitError: there are too many references, or too much behind them.
    """
    references = References()
    for _, change in sorted(changes.items()):
        for name in blob_columns(change.rows):
            references.add(change.name, name, *given_references(change.rows, name))
    if not references.places:
        return dict(changes)
    admission = Admission(policy, references)
    admission.probe(None if keep_references else budget)
    stored = admission.kept() if keep_references else admission.read()
    return {key: replace(change, rows=with_cells(change.rows, stored)) for key, change in changes.items()}


Stored = Mapping[str, tuple[bytes | None, str | None]]
"""By reference, the bytes that are stored in its place, or the address that is."""


@dataclass(slots=True)
class _Place:
    """Where a reference stands, first of all: for errors. And how often it is there."""

    text: str
    count: int = 0


def given_references(rows: pa.Table, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The ids of rows whose blob is a reference, and the references."""
    uris = pc.struct_field(rows[name], "uri")
    present = uris.is_valid()
    return rows["id"].filter(present), uris.filter(present)


class References:
    """The distinct references of a change, which are added in the order of types, properties and rows."""

    def __init__(self) -> None:
        self.places: dict[str, _Place] = {}
        self._cells = self._bytes = 0

    def add(
        self, type_name: str, name: str, ids: pa.ChunkedArray, uris: pa.ChunkedArray, count: int | None = None
    ) -> None:
        """Take in the references of a property.

        Args:
            type_name: the type.
            name: the property.
            ids: of the entities that have them.
            uris: the references.
            count: how many there are, if these are not all.

        Raises:
            ResourceLimitError: there are too many, or they are too long.
        """
        self._cells += len(uris) if count is None else count
        if self._cells > URI_CELLS:
            raise ResourceLimitError("external Blob reference cells", URI_CELLS, self._cells)
        for entity_id, uri in zip(ids.to_pylist(), uris.to_pylist(), strict=True):
            place = f"{type_name}.{name} of '{cut(entity_id)}'"
            size = len(uri.encode())
            self._bytes += size
            if size > URI_BYTES:
                raise ResourceLimitError("external Blob URI bytes", URI_BYTES, size, place=place)
            self.places.setdefault(uri, _Place(place)).count += 1
        if self._bytes > URI_METADATA_BYTES:
            raise ResourceLimitError("external Blob URI metadata bytes", URI_METADATA_BYTES, self._bytes)


class Admission:
    """The references of one write on their way in. Several spellings of one source are looked at once.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
    """

    def __init__(self, policy: BlobPolicy, references: References) -> None:
        self.policy = policy
        self.places = references.places
        self.sources = {text: self._allowed(text, policy.check, text) for text in self.places}
        self._resolved: dict[str, SourceUri] = {}

    def _allowed(self, text: str, check: Callable[[S], SourceUri], given: S) -> SourceUri:
        try:
            return check(given)
        except UnusableUriError as error:
            raise ExternalBlobPolicyError(redacted(text), str(error), place=self.places[text].text) from None

    def probe(self, budget: int | None = None) -> None:
        """Look at every source.

        Args:
            budget: how many bytes may be copied, if they are.

        Raises:
            ExternalBlobPolicyError: a symbolic link leads out of what is allowed.
            ExternalBlobSourceError: a source cannot be looked at.
            ResourceLimitError: there is too much behind them.
        """
        for text, source in self.sources.items():
            self._resolved[text] = self._allowed(text, self.policy.resolve, source)
        sizes = self._all(asked(self.policy.sources.size, self._resolved))
        if budget is not None:
            _check_budget(self.places, sizes, budget)

    @property
    def resolved(self) -> Mapping[str, SourceUri]:
        """What to read, by reference."""
        return self._resolved

    def kept(self) -> Stored:
        """The references themselves, in one spelling."""
        return {text: (None, str(source)) for text, source in self.sources.items()}

    def read(self) -> Stored:
        """The content of every source, by reference."""
        return {text: (data, None) for text, data in self._all(asked(self.policy.sources.read, self._resolved)).items()}

    def _all(self, answers: Mapping[str, T | SourceFailedError]) -> dict[str, T]:
        """The answers about all sources. What failed first, in the order of the references, is reported."""
        results: dict[str, T] = {}
        for text in self.places:
            answer = answers[text]
            if isinstance(answer, SourceFailedError):
                raise self.failed(text, answer)
            results[text] = answer
        return results

    def failed(self, text: str, error: SourceFailedError) -> ExternalBlobSourceError:
        """What to raise about a source."""
        return ExternalBlobSourceError(redacted(text), str(error), place=self.places[text].text)


def asked(request: Callable[[SourceUri], T], sources: Mapping[str, SourceUri]) -> dict[str, T | SourceFailedError]:
    """Ask every source once, a few at a time. Returns the answers by reference."""
    distinct = list(dict.fromkeys(sources.values()))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="omnigraph-blob") as pool:
        answers = dict(zip(distinct, pool.map(lambda source: _outcome(request, source), distinct), strict=True))
    return {text: answers[source] for text, source in sources.items()}


def _outcome(request: Callable[[SourceUri], T], source: SourceUri) -> T | SourceFailedError:
    try:
        return request(source)
    except SourceFailedError as error:
        return error


def _check_budget(places: Mapping[str, _Place], sizes: Mapping[str, int], budget: int) -> None:
    for text, size in sizes.items():
        if size > budget:
            raise ResourceLimitError("external Blob object bytes", budget, size, place=places[text].text)
    total = sum(size * places[text].count for text, size in sizes.items())
    if total > budget:
        raise ResourceLimitError(
            "materialized external blob payload bytes",
            budget,
            total,
            hint="write fewer entities at once, or load with mode overwrite, which keeps references",
        )


def with_cells(rows: pa.Table, stored: Stored) -> pa.Table:
    """Rows with what is stored in the place of every reference."""
    for name in blob_columns(rows):
        cells = rows[name].combine_chunks()
        uris = pc.struct_field(cells, "uri")
        if uris.null_count == len(uris):
            continue
        distinct = uris.unique().drop_null()
        content = [stored[text] for text in distinct.to_pylist()]
        position = pc.index_in(uris, value_set=distinct)
        data = pa.array([data for data, _ in content], pa.large_binary()).take(position)
        uri = pa.array([uri for _, uri in content], pa.utf8()).take(position)
        data = pc.if_else(position.is_valid(), data, pc.struct_field(cells, "data"))
        admitted = pa.StructArray.from_arrays([data, uri], fields=list(CELL), mask=cells.is_null())
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), admitted)
    return rows

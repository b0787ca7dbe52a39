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
from omnigraph.write.changes import TableChange

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
    places = _places(changes)
    if not places:
        return dict(changes)
    admission = _Admission(policy, places)
    sizes = admission.probed()
    stored: dict[str, tuple[bytes | None, str | None]]
    if keep_references:
        stored = {text: (None, str(source)) for text, source in admission.sources.items()}
    else:
        _check_budget(places, sizes, budget)
        stored = {text: (data, None) for text, data in admission.read().items()}
    return {key: _with_cells(change, stored) for key, change in changes.items()}


@dataclass(slots=True)
class _Place:
    """Where a reference stands, first of all: for errors. And how often it is there."""

    text: str
    count: int = 0


def _places(changes: Mapping[str, TableChange]) -> dict[str, _Place]:
    """The distinct references of a change, in the order of types, properties and rows.

    Raises:
        ResourceLimitError: there are too many, or they are too long.
    """
    found: dict[str, _Place] = {}
    cells = total = 0
    for _, change in sorted(changes.items()):
        for name in blob_columns(change.rows):
            uris = pc.struct_field(change.rows[name], "uri")
            present = uris.is_valid()
            count = pc.sum(present).as_py() or 0
            cells += count
            if cells > URI_CELLS:
                raise ResourceLimitError("external Blob reference cells", URI_CELLS, cells)
            if not count:
                continue
            ids = change.rows["id"].filter(present).to_pylist()
            for entity_id, uri in zip(ids, uris.filter(present).to_pylist(), strict=True):
                place = f"{change.name}.{name} of '{cut(entity_id)}'"
                size = len(uri.encode())
                total += size
                if size > URI_BYTES:
                    raise ResourceLimitError("external Blob URI bytes", URI_BYTES, size, place=place)
                found.setdefault(uri, _Place(place)).count += 1
    if total > URI_METADATA_BYTES:
        raise ResourceLimitError("external Blob URI metadata bytes", URI_METADATA_BYTES, total)
    return found


class _Admission:
    """The references of one write on their way in. Several spellings of one source are looked at once."""

    def __init__(self, policy: BlobPolicy, places: Mapping[str, _Place]) -> None:
        self.policy = policy
        self.places = places
        self.sources = {text: self._allowed(text, policy.check, text) for text in places}
        self._resolved: dict[str, SourceUri] = {}

    def _allowed(self, text: str, check: Callable[[S], SourceUri], given: S) -> SourceUri:
        try:
            return check(given)
        except UnusableUriError as error:
            raise ExternalBlobPolicyError(redacted(text), str(error), place=self.places[text].text) from None

    def probed(self) -> dict[str, int]:
        """The size of every source, by reference."""
        for text, source in self.sources.items():
            self._resolved[text] = self._allowed(text, self.policy.resolve, source)
        return self._each(self.policy.sources.size)

    def read(self) -> dict[str, bytes]:
        """The content of every source, by reference."""
        return self._each(self.policy.sources.read)

    def _each(self, request: Callable[[SourceUri], T]) -> dict[str, T]:
        """Ask every source once, a few at a time. What failed first, in the order of the references, is reported."""
        distinct = list(dict.fromkeys(self._resolved.values()))
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="omnigraph-blob") as pool:
            answers = dict(zip(distinct, pool.map(lambda source: _outcome(request, source), distinct), strict=True))
        results: dict[str, T] = {}
        for text, source in self._resolved.items():
            answer = answers[source]
            if isinstance(answer, SourceFailedError):
                raise ExternalBlobSourceError(redacted(text), str(answer), place=self.places[text].text)
            results[text] = answer
        return results


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


def _with_cells(change: TableChange, stored: Mapping[str, tuple[bytes | None, str | None]]) -> TableChange:
    """A change with what is stored in the place of every reference."""
    rows = change.rows
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
    return replace(change, rows=rows)

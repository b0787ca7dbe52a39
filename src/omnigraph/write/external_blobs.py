"""External blobs: check references against the policy, then copy the content or store the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    ExternalBlobPolicyError,
    ExternalBlobSourceError,
    InputError,
    ResourceLimitError,
    cut,
)
from omnigraph.storage.blob_sources import BlobSources, SourceFailedError, SourceUri, UnusableUriError, redacted
from omnigraph.storage.blobs import CELL, blob_columns
from omnigraph.worker_pool import WorkerPool

if TYPE_CHECKING:
    from omnigraph.write.rules.changes import TableChange

URI_BYTES = 64 * 1024
URI_CELLS = 8192
URI_METADATA_BYTES = 32 * 1024 * 1024
COPIED_BYTES = 256 * 1024 * 1024
"""Maximum bytes of external content that one write copies into the graph, because all of it is in memory at once."""
_THREADS = 8

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Base:
    """An allowed source directory: its address as configured, and its address with symbolic links resolved."""

    named: SourceUri
    resolved: SourceUri


@dataclass(frozen=True, slots=True)
class BlobPolicy:
    """The directories that external blobs may come from. By default there are none.

    Attributes:
        sources: reads the content and the size of an external file.
    """

    _bases: tuple[_Base, ...] = ()
    sources: BlobSources = field(default_factory=BlobSources)

    @classmethod
    def allowing(cls, bases: Sequence[str], options: Mapping[str, str] | None = None) -> BlobPolicy:
        """A policy that allows everything below some directories.

        Args:
            bases: `s3://bucket/prefix/`, or `file:///directory/`, which must exist.
            options: connection options of an S3 store; they override the environment.

        Raises:
            InputError: a base is not an address of this form, or two bases overlap.
        """
        sources = BlobSources(dict(options or {}))
        read: list[_Base] = []
        for text in bases:
            base = _read_base(text, sources)
            for other in read:
                one, another = base.resolved, other.resolved
                if one == another or one.contains(another) or another.contains(one):
                    raise InputError(
                        f"the blob sources {base.named} and {other.named} overlap",
                        hint="name only the directory that contains the other one",
                    )
            read.append(base)
        return cls(tuple(read), sources)

    def check(self, text: str) -> SourceUri:
        """Parse a reference and check it against the policy. Does no I/O.

        Raises:
            UnusableUriError: the policy does not allow this source.
        """
        source = SourceUri.parse(text)
        if not self._bases:
            raise UnusableUriError("external blobs are not allowed")
        if not any(base.named.contains(source) or base.resolved.contains(source) for base in self._bases):
            raise UnusableUriError("it is not below a directory that blobs may come from")
        return source

    def resolve(self, source: SourceUri) -> SourceUri:
        """Resolve the symbolic links of a checked source, and check the result against the policy.

        Raises:
            UnusableUriError: a symbolic link leads out of the allowed directories.
        """
        found = self.sources.resolved(source)
        if not any(base.resolved.contains(found) for base in self._bases):
            raise UnusableUriError("a symbolic link leads out of the directories that blobs may come from")
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
    """Check the external blobs that a write refers to.

    Returns the changes, in which each reference is replaced by the content or by the normalised URI of the blob.

    Checks all references against the policy first. Then reads the sizes of all sources, and their content last.

    Args:
        changes: the changes to write, by type key.
        policy: the directories that blobs may come from.
        keep_references: whether to store the references instead of the content.
        budget: maximum number of bytes to copy.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
        ExternalBlobSourceError: a source cannot be read.
        ResourceLimitError: there are too many references, or their content is too large.
    """
    references = References()
    for _, change in sorted(changes.items()):
        for name in blob_columns(change.rows):
            references.add(change.name, name, *external_references(change.rows, name))
    if not references.occurrences:
        return dict(changes)
    admission = Admission(policy, references)
    admission.probe(None if keep_references else budget)
    stored = admission.stored_references() if keep_references else admission.read()
    return {key: replace(change, rows=with_cells(change.rows, stored)) for key, change in changes.items()}


Stored = Mapping[str, tuple[bytes | None, str | None]]
"""For each reference, either the content to store or the URI to store."""


@dataclass(slots=True)
class _Occurrence:
    """The first location of a reference, for errors, and its number of occurrences."""

    text: str
    count: int = 0


def external_references(rows: pa.Table, name: str) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The ids of rows whose blob is a reference, and the references."""
    uris = pc.struct_field(rows[name], "uri")
    present = uris.is_valid()
    return rows["id"].filter(present), uris.filter(present)


class References:
    """The distinct references of a change. They are added in order of type, property and row."""

    def __init__(self) -> None:
        self.occurrences: dict[str, _Occurrence] = {}
        self._cells = self._bytes = 0

    def add(
        self, type_name: str, name: str, ids: pa.ChunkedArray, uris: pa.ChunkedArray, count: int | None = None
    ) -> None:
        """Add the references of a property.

        Args:
            type_name: the type.
            name: the property.
            ids: for each reference, the id of its entity.
            uris: the references.
            count: the total number of references, if `uris` has only some of them.

        Raises:
            ResourceLimitError: there are too many references, or they are too long.
        """
        self._cells += len(uris) if count is None else count
        if self._cells > URI_CELLS:
            raise ResourceLimitError("number of references to external blobs", URI_CELLS, self._cells)
        for entity_id, uri in zip(ids.to_pylist(), uris.to_pylist(), strict=True):
            place = f"{type_name}.{name} of '{cut(entity_id)}'"
            size = len(uri.encode())
            self._bytes += size
            if size > URI_BYTES:
                raise ResourceLimitError("bytes of the URI of an external blob", URI_BYTES, size, place=place)
            self.occurrences.setdefault(uri, _Occurrence(place)).count += 1
        if self._bytes > URI_METADATA_BYTES:
            raise ResourceLimitError("bytes of the URIs of all external blobs", URI_METADATA_BYTES, self._bytes)


class Admission:
    """Checks the references of one write. Sources are read once, even if several URIs refer to them.

    Raises:
        ExternalBlobPolicyError: a reference is not allowed.
    """

    def __init__(self, policy: BlobPolicy, references: References) -> None:
        self.policy = policy
        self.occurrences = references.occurrences
        self.sources = {text: self._allowed(text, policy.check, text) for text in self.occurrences}
        self._resolved: dict[str, SourceUri] = {}

    def _allowed(self, text: str, check: Callable[[S], SourceUri], given: S) -> SourceUri:
        try:
            return check(given)
        except UnusableUriError as error:
            raise ExternalBlobPolicyError(redacted(text), str(error), place=self.occurrences[text].text) from None

    def probe(self, budget: int | None = None) -> None:
        """Check that every source (the file or object of a reference) can be read.

        Args:
            budget: maximum number of bytes to copy; None if the content is not copied.

        Raises:
            ExternalBlobPolicyError: a symbolic link leads out of the allowed directories.
            ExternalBlobSourceError: a source cannot be read.
            ResourceLimitError: the sources are too large.
        """
        for text, source in self.sources.items():
            self._resolved[text] = self._allowed(text, self.policy.resolve, source)
        sizes = self._successful(query_sources(self.policy.sources.size, self._resolved))
        if budget is not None:
            _check_budget(self.occurrences, sizes, budget)

    @property
    def resolved(self) -> Mapping[str, SourceUri]:
        """For each reference, its source with symbolic links resolved."""
        return self._resolved

    def stored_references(self) -> Stored:
        """For each reference, its normalised URI."""
        return {text: (None, str(source)) for text, source in self.sources.items()}

    def read(self) -> Stored:
        """Read all external blobs. Returns the content of each blob, keyed by its reference (path or URI)."""
        return {
            text: (data, None)
            for text, data in self._successful(query_sources(self.policy.sources.read, self._resolved)).items()
        }

    def _successful(self, answers: Mapping[str, T | SourceFailedError]) -> dict[str, T]:
        """The results for all sources. If requests failed, raises the first error, in the order of the references."""
        results: dict[str, T] = {}
        for text in self.occurrences:
            answer = answers[text]
            if isinstance(answer, SourceFailedError):
                raise self.failed(text, answer)
            results[text] = answer
        return results

    def failed(self, text: str, error: SourceFailedError) -> ExternalBlobSourceError:
        """The error for a source that cannot be read."""
        return ExternalBlobSourceError(redacted(text), str(error), place=self.occurrences[text].text)


def query_sources(
    request: Callable[[SourceUri], T], sources: Mapping[str, SourceUri]
) -> dict[str, T | SourceFailedError]:
    """Call a function once per distinct source, on several threads. Returns the results by reference."""
    distinct = list(dict.fromkeys(sources.values()))
    with WorkerPool(_THREADS, thread_name_prefix="omnigraph-blob") as pool:
        answers = dict(zip(distinct, pool.map(lambda source: _outcome(request, source), distinct), strict=True))
    return {text: answers[source] for text, source in sources.items()}


def _outcome(request: Callable[[SourceUri], T], source: SourceUri) -> T | SourceFailedError:
    try:
        return request(source)
    except SourceFailedError as error:
        return error


def _check_budget(occurrences: Mapping[str, _Occurrence], sizes: Mapping[str, int], budget: int) -> None:
    for text, size in sizes.items():
        if size > budget:
            raise ResourceLimitError("bytes of an external blob", budget, size, place=occurrences[text].text)
    total = sum(size * occurrences[text].count for text, size in sizes.items())
    if total > budget:
        raise ResourceLimitError(
            "bytes of external blobs to copy into the graph",
            budget,
            total,
            hint="write fewer entities at once, or load with mode overwrite, which keeps references",
        )


def with_cells(rows: pa.Table, stored: Stored) -> pa.Table:
    """Rows in which every reference is replaced by the content or the URI to store."""
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

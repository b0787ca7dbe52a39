"""Read one blob of a snapshot: metadata, and bytes by range."""

# See docs/decisions/0051-a-blob-tag-names-a-place.md

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import field

from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.errors import BlobIntegrityError, BlobRangeError, InputError, NotFoundError, ResourceLimitError, cut
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.lang.types import Scalar
from omnigraph.storage.blobs import StoredBlob
from omnigraph.storage.files.local_output import output_file

RANGE_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes that one call of `read` returns."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of a snapshot. It never changes, because the snapshot never changes.

    Attributes:
        size: number of bytes; None for a reference, because its target is never opened.
        etag: a strong ETag, in quotes: blobs with equal tags have equal bytes. None for a reference.
        uri: target of a reference; None for content that the graph stores.
        snapshot_id: the snapshot that contains the blob.
        commit_id: the newest commit of that snapshot.
    """

    size: int | None
    etag: str | None
    uri: str | None
    snapshot_id: str
    commit_id: str
    _snapshot: Snapshot = field(repr=False, compare=False)
    _key: str = field(repr=False, compare=False)
    _column: str = field(repr=False, compare=False)
    _row_id: int = field(repr=False, compare=False)

    def read(self, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to `end` (exclusive), by default to the end of the blob.

        Raises:
            BlobRangeError: the range is outside the blob.
            ResourceLimitError: the range is larger than 4 MiB: use `iter` or `save`.
            InputError: the blob is a reference.
        """
        size = self._managed_size()
        stop = size if end is None else end
        if not 0 <= start <= stop <= size:
            raise BlobRangeError(start, end, size)
        if stop - start > RANGE_BYTES:
            raise ResourceLimitError(
                "Blob read range bytes",
                RANGE_BYTES,
                stop - start,
                hint="use iter() or save(), which read the blob in chunks",
            )
        return self._bytes(start, stop)

    def iter(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The bytes of a range of any length, in chunks of at most 4 MiB.

        Raises:
            BlobRangeError: the range is outside the blob.
            InputError: the blob is a reference.
        """
        size = self._managed_size()
        stop = size if end is None else end
        if not 0 <= start <= stop <= size:
            raise BlobRangeError(start, end, size)
        pieces = range(start, stop, RANGE_BYTES)
        return (self._bytes(piece, min(piece + RANGE_BYTES, stop)) for piece in pieces)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the blob to a file.

        An existing file is replaced once the new content is complete. A device, such as `/dev/stdout`, is written
        directly.

        Raises:
            InputError: the blob is a reference, or the file cannot be written.
        """
        pieces = self.iter()
        with output_file(path) as file:
            file.writelines(pieces)

    def _managed_size(self) -> int:
        if self.size is None:
            raise InputError(
                f"the blob is a reference to {self.uri}, and references are not followed",
                hint="read the content from that address",
            )
        return self.size

    def _bytes(self, start: int, end: int) -> bytes:
        return self._snapshot.table(self._key).read_blob(self._column, self._row_id, start, end) if end > start else b""


def find_blob(snapshot: Snapshot, accepted: AcceptedSchema, key: str, entity_id: str, prop: str) -> Blob:
    """The blob of an entity.

    Args:
        snapshot: the snapshot to read.
        accepted: the schema of the snapshot.
        key: the type key.
        entity_id: id of the entity.
        prop: name of the property.

    Raises:
        NotFoundError: the type or entity does not exist, or the property is null.
        InputError: the property does not exist, or is not a Blob.
        BlobIntegrityError: the stored data is inconsistent.
    """
    snapshot.pin(key)
    kind, name = TypeKey.parse(key)
    declared = (accepted.catalog.nodes if kind == TypeKind.NODE else accepted.catalog.edges)[name]
    if prop not in declared.properties:
        raise InputError(f"{name} has no property '{prop}'", hint=did_you_mean(prop, declared.properties))
    if declared.properties[prop].type.scalar is not Scalar.BLOB:
        raise InputError(
            f"{name}.{prop} is not a Blob", hint="give a property of type Blob; to read other properties, use a query"
        )
    number = accepted.identity(kind, name).properties[prop]
    _check_lifetime(snapshot, key, prop, number)
    stored = snapshot.blob(key, prop, entity_id)
    if stored is None:
        raise NotFoundError(f"there is no {name} '{cut(entity_id)}'")
    if stored.info is None:
        raise NotFoundError(f"{name}.{prop} of '{entity_id}' is null")
    etag = None if stored.info.uri is not None else _etag(snapshot, key, number, stored)
    return Blob(
        stored.info.size, etag, stored.info.uri, snapshot.id, snapshot.commit.id, snapshot, key, prop, stored.row_id
    )


def _check_lifetime(snapshot: Snapshot, key: str, prop: str, number: int) -> None:
    """Check that the column belongs to this property, and not to a dropped property with the same name."""
    metadata = snapshot.table(key).schema().field(prop).metadata or {}
    found = metadata.get(PROPERTY_ID.encode())
    if found != str(number).encode():
        raise BlobIntegrityError(f"{key}.{prop}", "the stored column belongs to another property")


def _etag(snapshot: Snapshot, key: str, number: int, stored: StoredBlob) -> str:
    """ETag from the location of the bytes. Table files are immutable, so the same location has the same content."""
    identity = snapshot.pin(key).id
    digest = hashlib.sha256(b"omnigraph/blob-etag/v1\0")
    for value in (identity.type_id, identity.incarnation, number, *stored.descriptor):
        digest.update(value.to_bytes(8, "big"))
    name = stored.file.encode()
    digest.update(len(name).to_bytes(8, "big") + name)
    return f'"{digest.digest()[:16].hex()}"'

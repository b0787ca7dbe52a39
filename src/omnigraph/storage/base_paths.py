"""Base paths: where the forks (Lance branches) of a table find the files that they share with it.

A fork copies nothing: its manifests contain the absolute paths of the directories of the table and of the forks that it
was made from. After a graph is copied or moved, these paths point to the old location. So every dataset is opened here,
and the base paths of a fork are replaced in memory by paths below the given root. `moved_manifest` does the same for a
manifest file.

The offsets in a manifest file refer only to bytes before the manifest, which is a protobuf message. So they stay valid
if a path in the message gets longer.
"""

# See docs/decisions/0133-base-paths-are-replaced-in-memory.md

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import pack

import lance
from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public, but not declared so

from omnigraph.errors import CorruptionError, DamagedFileError
from omnigraph.storage.lance_manifest import TornManifestError, encoded, fields, split
from omnigraph.storage.table_files import below

_BASES = 18
"""Protobuf field number of the base paths in a manifest."""
_PATH = 4
"""Protobuf field number of the path in a base path message."""


class MovedDataset(LanceDataset):
    """A dataset whose base paths differ on disk and in memory.

    Reads, commits and forks work. `delta` and other calls that make Lance open the same version again do not work.
    """


def open_dataset(
    root: str,
    table: str,
    fork: str | None,
    version: int | None = None,
    *,
    options: Mapping[str, str] | None = None,
    session: Session | None = None,
) -> LanceDataset:
    """Open a table or a fork of it. Reads use only files below `root`, even if the manifest has other base paths.

    Args:
        root: the graph root in the form that Lance takes.
        table: path of the table below it.
        fork: the fork; None for the table itself.
        version: an exact version; None for the newest.
        options: storage options for object stores.
        session: Lance's cache.

    Raises:
        ValueError: Lance cannot open it.
        DamagedFileError: the version refers to files outside of its table.
    """
    uri = f"{root}/{table}" if fork is None else f"{root}/{table}/tree/{fork}"
    found = lance.dataset(uri, version=version, storage_options=_plain(options), session=session)
    return at_root(found, root, table, options=options, session=session)


def at_root(
    dataset: LanceDataset,
    root: str,
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    session: Session | None = None,
) -> LanceDataset:
    """The same version of a dataset, with base paths below `root`.

    A commit that restores an old version also restores its base paths.

    Raises:
        DamagedFileError: the version refers to files outside of its table.
    """
    bases = dataset.base_paths()
    try:
        if all(base.path == _moved(base.path, table, root) for base in bases.values()):
            return dataset
        message = _with_bases(bytes(dataset._ds.serialized_manifest()), lambda old: _moved(old, table, root))
    except CorruptionError as error:
        file = f"{below(dataset.uri, table)}/_versions/{2**64 - 1 - int(dataset.version):020d}.manifest"
        raise DamagedFileError(root, file, f"invalid base path: {error.message}") from error
    return MovedDataset(
        dataset.uri,
        int(dataset.version),
        storage_options=_plain(options),
        serialized_manifest=message,
        session=session,
    )


def _plain(options: Mapping[str, str] | None) -> dict[str, str] | None:
    return dict(options) if options else None


def moved_manifest(file: bytes, table: str, root: str) -> bytes | None:
    """A manifest file with base paths below `root`; None if its base paths are already below `root`.

    Args:
        file: the content of the file.
        table: path of its table below the root.
        root: the graph root in the form that Lance takes.

    Raises:
        CorruptionError: the file is damaged, or refers to files outside of its table.
    """
    try:
        head, message, tail = split(file)
        moved = _with_bases(message, lambda old: _moved(old, table, root))
    except (TornManifestError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"a manifest of {table} cannot be read: {error}",
            hint="it is damaged, or was written by a newer release: restore it from a backup, or update omnigraph",
        ) from error
    if moved == message:
        return None
    return head + pack("<I", len(moved)) + moved + pack("<q", len(head)) + tail


def _moved(old: str, table: str, root: str) -> str:
    """Replace the root in a base path. The base path ends with the path of the table or of a fork.

    >>> _moved("/old/nodes/t/tree/a", "nodes/t", "s3://bucket/new")
    's3://bucket/new/nodes/t/tree/a'
    """
    place = old.rstrip("/")
    start = place.rfind(f"/{table}/tree/")
    if start >= 0:
        return f"{root}{place[start:]}"
    if place.endswith(f"/{table}"):
        return f"{root}/{table}"
    raise CorruptionError(
        f"table {table} refers to files at {old}, which is not a directory of the table",
        hint="another program changed the table: restore it from a backup",
    )


def _with_bases(message: bytes, moved: Callable[[str], str]) -> bytes:
    """A manifest (protobuf message) with other base paths. Everything else is copied byte by byte."""
    return _with_field(
        message, _BASES, lambda base: _with_field(base, _PATH, lambda path: moved(path.decode()).encode())
    )


def _with_field(message: bytes, wanted: int, changed: Callable[[bytes], bytes]) -> bytes:
    """A protocol buffers message with new content in all fields that have the field number `wanted`."""
    return b"".join(
        encoded(number, changed(value)) if number == wanted and isinstance(value, bytes) else message[start:end]
        for number, value, start, end in fields(message)
    )

"""Creating, opening, repairing, restoring and relocating graphs."""

# See docs/decisions/0252-the-probe-of-a-store-is-not-flushed.md

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.commit.commit_metadata import check_actor
from omnigraph.commit.copy_record import refuse_incomplete_copy
from omnigraph.commit.format_upgrade import upgrade_format
from omnigraph.commit.location import Relocation, adopt_location
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.store import Store
from omnigraph.engine.session import Session
from omnigraph.errors import CorruptionError, InputError, NotFoundError, shown
from omnigraph.settings import FSYNC
from omnigraph.storage.objects import probe_create_if_absent
from omnigraph.storage.objects.disk_space import unless_full
from omnigraph.storage.uri import GraphUri, check_directory

if TYPE_CHECKING:
    from omnigraph.embed import Embedder
    from omnigraph.engine.access import AccessPolicy
    from omnigraph.upkeep.backup import CopyReceipt
    from omnigraph.upkeep.repair import RepairReport
    from omnigraph.write.external_blobs import BlobPolicy

Uri = str | os.PathLike[str]


def create_session(
    uri: Uri,
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
    blob_sources: Sequence[str] = (),
    policy: AccessPolicy | None = None,
) -> Session:
    """Create a graph and open it. `omnigraph.init` documents the arguments.

    Raises:
        CompileError: the schema does not compile.
        AlreadyInitializedError: there is already a graph at this location.
    """
    check_actor(actor)
    blobs = _allowed_blobs(blob_sources, storage_options)
    store = store_at(uri, storage_options)
    from omnigraph.commit.create import create_graph

    create_graph(store, schema_text(schema), force=force)
    return _bound(Session(store, actor=actor, embedder=embedder, blobs=blobs), policy)


def open_session(
    uri: Uri,
    *,
    branch: str = MAIN,
    read_only: bool = False,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    embedder: Embedder | None = None,
    blob_sources: Sequence[str] = (),
    policy: AccessPolicy | None = None,
) -> Session:
    """Open a graph. `omnigraph.open` documents the arguments.

    Raises:
        NotFoundError: there is no graph, or a schema file is missing.
        BranchNotFoundError: there is no such branch.
        FormatError: this release does not read the format of the graph.
        IncompleteCopyError: a backup or a restore to this location was interrupted.
    """
    check_actor(actor)
    blobs = _allowed_blobs(blob_sources, storage_options)
    store = store_at(uri, storage_options)
    if store.newest(MAIN, None) is None:
        refuse_incomplete_copy(store.objects)
        raise NotFoundError(
            f"there is no graph at {store.objects.uri}",
            hint="create one with 'omnigraph init'; if there was one, restore its __manifest from a backup",
        )
    if not read_only:
        with unless_full():
            probe_create_if_absent(store.leases)  # the leases are not flushed
    try:
        session = Session(store, branch=branch, read_only=read_only, actor=actor, embedder=embedder, blobs=blobs)
    except (NotFoundError, CorruptionError):
        refuse_incomplete_copy(store.objects)  # a copy writes the schema files last
        raise
    return _bound(session, policy)


def _bound(session: Session, policy: AccessPolicy | None) -> Session:
    if policy is None:
        return session
    try:
        return session.bound_to(policy, session.actor)
    except BaseException:
        session.close()
        raise


def _allowed_blobs(sources: Sequence[str], storage_options: Mapping[str, str] | None) -> BlobPolicy | None:
    if not sources:
        return None
    from omnigraph.write.external_blobs import BlobPolicy

    return BlobPolicy.allowing(sources, storage_options)


def repair(
    uri: Uri, *, confirm: bool = False, force: bool = False, storage_options: Mapping[str, str] | None = None
) -> RepairReport:
    """Repair a graph that may be too damaged to open. Does not run recovery first. See `Graph.repair`.

    Raises:
        NotFoundError: there is no graph.
    """
    store = store_at(uri, storage_options)
    if not store.objects.list(store.manifest.path):
        raise NotFoundError(
            f"there is no graph at {store.objects.uri}", hint="if there was one, restore its __manifest from a backup"
        )
    from omnigraph.upkeep.repair import repair as repair_store

    return repair_store(store, confirm=confirm, force=force)


def restore(
    source: Uri,
    target: Uri,
    *,
    source_options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CopyReceipt:
    """Copy a backup, or any graph, to an empty location. The target cannot be opened until the copy is complete.

    To continue an interrupted restore, run it again.

    Args:
        source: the backup. It is not changed.
        target: an empty directory or `s3://bucket/prefix`.
        source_options: the storage options of the source.
        storage_options: the storage options of the target.

    Raises:
        NotFoundError: there is no graph at the source.
        ConflictError: the target is not empty.
    """
    session = open_session(source, read_only=True, storage_options=source_options)
    from omnigraph.upkeep import backup

    try:
        return backup.restore(session.store, store_at(target, storage_options))
    finally:
        session.close()


def relocate(uri: Uri, *, storage_options: Mapping[str, str] | None = None) -> Relocation:
    """Adjust a copied or moved graph to its new location. Checks every file again.

    Opening a moved graph for writing does the same, once.

    Args:
        uri: the new location of the graph.
        storage_options: its storage options.

    Raises:
        NotFoundError: there is no graph.
    """
    store = store_at(uri, storage_options)
    if store.manifest.open() is None:
        refuse_incomplete_copy(store.objects)
        raise NotFoundError(f"there is no graph at {store.objects.uri}", hint="give the new location of the graph")
    upgrade_format(store, read_only=True)
    done = adopt_location(store, always=True)
    if done is None:
        raise InputError("a graph in memory (memory://) has no location, so it cannot be relocated")
    return done


def store_at(uri: Uri, storage_options: Mapping[str, str] | None) -> Store:
    """The store at a location. The graph does not have to exist."""
    address = GraphUri.parse(os.fspath(uri), storage_options)
    check_directory(address)
    return Store.at(address, durable=FSYNC.text() != "0")


def schema_text(schema: str | os.PathLike[str]) -> str:
    """The source text of a schema. Reads the file if a path is given.

    Raises:
        InputError: the file cannot be read, or the schema is neither a text nor a path.
    """
    if isinstance(schema, str) and ("{" in schema or "\n" in schema or not schema.strip()):
        return schema
    if not isinstance(schema, str | os.PathLike):
        raise InputError(f"{shown(schema)} is not a schema", hint="give its text, or the path of a .pg file")
    path = Path(schema)
    if "\0" in str(path):
        raise InputError(f"{shown(str(path))} is not a schema", hint="give its text, or the path of a .pg file")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read the schema {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the schema {path} is not UTF-8", hint="save the file as UTF-8") from error

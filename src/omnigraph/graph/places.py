"""Graphs in other places: restoring a backup, and settling a graph that was copied or moved."""

from __future__ import annotations

import os
from collections.abc import Mapping

from omnigraph.commit.copy_record import refuse_incomplete_copy
from omnigraph.commit.format_upgrade import upgrade_format
from omnigraph.commit.location import Relocation, adopt_location
from omnigraph.errors import InputError, NotFoundError
from omnigraph.graph.graph import _store, open
from omnigraph.upkeep import backup
from omnigraph.upkeep.backup import CopyReceipt


def restore(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    source_options: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> CopyReceipt:
    """Copy a backup, or any graph, to an empty place. Until all of it is there, there is no graph.

    A restore that was interrupted goes on where it stopped when it is started again.

    Args:
        source: the backup. It is only read.
        target: an empty directory or `s3://bucket/prefix`.
        source_options: how to reach the source.
        storage_options: how to reach the target.

    Raises:
        NotFoundError: there is no graph at the source.
        ConflictError: the target is not empty.
    """
    with open(source, read_only=True, storage_options=source_options) as graph:
        return backup.restore(graph._store, _store(target, storage_options))


def relocate(uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> Relocation:
    """Settle a graph that was copied or moved in the place where it is now.

    Opening it for writing does the same, once. This looks at every file again.

    Args:
        uri: where the graph is now.
        storage_options: how to reach it.

    Raises:
        NotFoundError: there is no graph.
    """
    store = _store(uri, storage_options)
    if store.manifest.open() is None:
        refuse_incomplete_copy(store.objects)
        raise NotFoundError(f"there is no graph at {store.objects.uri}", hint="give the place where it is now")
    upgrade_format(store, read_only=True)
    done = adopt_location(store, always=True)
    if done is None:
        raise InputError("a graph in memory has no other place")
    return done

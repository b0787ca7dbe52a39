"""Dropped data that a schema change has to remove from earlier commits.

The commit of the schema change records it in the manifest of `main`. So if a process dies after the commit, other
processes know that the removal is not complete.
"""

# See docs/decisions/0197-hard-drops-are-recorded-in-the-manifest.md

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.commit.manifest import MAIN, DroppedData, Manifest
from omnigraph.commit.removal_list import TableRemovals
from omnigraph.commit.retention import ORPHANS_OLDER_THAN
from omnigraph.commit.store import Store
from omnigraph.errors import CorruptionError
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.uri import Scheme
from omnigraph.upkeep.cleanup import removable_versions
from omnigraph.upkeep.reachable import Policy

TableVersion = tuple[str | None, int]
"""A fork (Lance branch) of a table, None for the table itself, and a version."""


def newest_drops(view: Manifest) -> list[DroppedData]:
    """The last hard drop of each table. Its removal includes that of all earlier ones."""
    return sorted({one.path: one for one in sorted(view.dropped_data)}.values())


def policies(drops: Iterable[DroppedData]) -> Iterator[Policy]:
    """The policies of the cleanups that remove dropped data. Later commits keep their table versions."""
    drops = list(drops)
    for since in sorted({one.manifest_version for one in drops}):
        paths = frozenset(one.path for one in drops if one.manifest_version == since)
        yield Policy(1, None, ORPHANS_OLDER_THAN, tables=paths, since=since)


def unfinished_drops(store: Store) -> list[DroppedData]:
    """The hard drops whose data still exists, although no branch, tag or running job needs it. Changes nothing."""
    if store.objects.uri.scheme is Scheme.MEMORY:
        return []  # cleanup does not support graphs in memory
    drops = [one for one in newest_drops(store.capture(MAIN)) if has_data(store, one)]
    if not drops:
        return []
    try:
        removable = removable_versions(store, {one.path for one in drops})
    except CorruptionError:
        return drops  # a sidecar cannot be read, so it is unknown which versions its write needs
    return [one for one in drops if one.path in removable and _is_left(store, one, removable[one.path])]


def _is_left(store: Store, drop: DroppedData, removable: TableRemovals) -> bool:
    """Whether a version with dropped data, or the files of a dropped type, can be removed."""
    return removable.whole or any(removable.removes(*version) for version in versions_with_data(store, drop))


def has_data(store: Store, drop: DroppedData) -> bool:
    """Whether a table still has versions with dropped data."""
    if drop.version is None:
        return bool(store.objects.list(drop.path))
    return bool(versions_with_data(store, drop))


def versions_with_data(store: Store, drop: DroppedData) -> set[TableVersion]:
    """The versions of a table that contain dropped data, with those of its forks."""
    path, found = drop.path, _versions(store, drop.path, None)
    if drop.version is not None:
        found = {(fork, version) for fork, version in found if version < drop.version}
    if store.tables.head(path, None) is None:
        return found
    points = store.tables.fork_points(path)
    for fork in points:
        if drop.version is None or _root(points, fork).version < drop.version:
            found |= _versions(store, path, fork)
    return found


def _versions(store: Store, path: str, fork: str | None) -> set[TableVersion]:
    return {(fork, version) for version in store.tables.versions(path, fork)}


def _root(points: dict[str, TableRef], fork: str) -> TableRef:
    """The version of the table itself that a fork goes back to."""
    point = points[fork]
    while point.branch is not None and point.branch in points:
        point = points[point.branch]
    return point

"""Removal of dropped data from earlier commits, after a schema change is published."""

# See docs/decisions/0192-hard-drops-clean-up-afterwards.md

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.manifest import MAIN, TablePin
from omnigraph.commit.store import Store
from omnigraph.errors import OmnigraphError
from omnigraph.migrate.receipt import HardDrop
from omnigraph.upkeep.cleanup import ORPHANS_OLDER_THAN, cleanup
from omnigraph.upkeep.reachable import Policy


def remove_dropped(store: Store, dropped: Mapping[str, TablePin]) -> tuple[HardDrop, ...]:
    """Remove the versions of some tables that only earlier commits use.

    Does not raise errors, because the schema change is already published. An error becomes part of the result.

    Args:
        store: the graph.
        dropped: the tables with dropped data, by type key before the change.
    """
    if not dropped:
        return ()
    paths = {pin.ref.path: key for key, pin in dropped.items()}
    try:
        before = {path: _versions(store, path) for path in paths}
        cleanup(store, Policy(1, None, ORPHANS_OLDER_THAN, tables=frozenset(paths)))
        current = {pin.ref.path: pin.ref.version for pin in store.capture(MAIN).tables.values()}
        found = []
        for path, key in sorted(paths.items(), key=lambda item: item[1]):
            store.tables.forget(path)
            left = _versions(store, path)
            kept = [version for fork, version in left if fork is not None or version < current.get(path, version + 1)]
            found.append(HardDrop(key, len(before[path] - left), len(kept)))
        return tuple(found)
    except OmnigraphError as error:
        message = f"{error.message}; run 'omnigraph cleanup' to remove the dropped data from earlier commits"
        return tuple(HardDrop(key, 0, 0, message) for key in sorted(dropped))


def _versions(store: Store, path: str) -> set[tuple[str | None, int]]:
    """All versions of a table, on all its forks."""
    forks: list[str | None] = [None]
    if store.tables.head(path, None) is not None:
        forks += store.tables.forks(path)
    return {(fork, version) for fork in forks for version in store.tables.versions(path, fork)}

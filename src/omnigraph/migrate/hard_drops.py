"""Removal of dropped data from earlier commits, after a schema change is published."""

# See docs/decisions/0192-hard-drops-clean-up-afterwards.md

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from omnigraph.commit.manifest import MAIN, Manifest, TablePin
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.commit.refs import list_tag_refs
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import read_records
from omnigraph.errors import BranchNotFoundError, OmnigraphError, VersionReclaimedError
from omnigraph.migrate.receipt import HardDrop
from omnigraph.storage.table_ref import TableRef
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
            kept = {
                (fork, version)
                for fork, version in left
                if fork is not None or version < current.get(path, version + 1)
            }
            needed_by = tuple(_needed_by(store, path, kept)) if kept else ()
            found.append(HardDrop(key, len(before[path] - left), len(kept), kept_for=needed_by))
        return tuple(found)
    except OmnigraphError as error:
        message = f"{error.message}; run 'omnigraph cleanup' to remove the dropped data from earlier commits"
        return tuple(HardDrop(key, 0, 0, message) for key in sorted(dropped))


def _needed_by(store: Store, path: str, kept: set[tuple[str | None, int]]) -> Iterator[str]:
    """The branches, tags and running jobs that need some of the given versions of a table."""

    def needs(refs: Iterable[TableRef]) -> bool:
        return any(ref.path == path and (ref.branch, ref.version) in kept for ref in refs)

    def state_needs(view: Manifest | None) -> bool:
        return view is not None and needs(pin.ref for pin in view.tables.values())

    for name, branch in sorted(store.branch_refs().items()):
        with suppress(BranchNotFoundError, VersionReclaimedError):
            start = (branch.parent_ledger, branch.parent, branch.parent_version)
            if state_needs(store.capture(recorded_branch(name))) or state_needs(store.manifest_in(*start)):
                yield "a running transaction" if branch.is_hidden else f"branch '{name}'"
    for name, tag in sorted(list_tag_refs(store.objects).items()):
        with suppress(BranchNotFoundError, VersionReclaimedError):
            if state_needs(store.manifest_in(tag.ledger, tag.branch, tag.manifest_version)):
                yield f"tag '{name}'"
    for record in read_records(store.leases):
        if needs(record.needs):
            yield f"{record.kind or 'job'} {record.name}"


def _versions(store: Store, path: str) -> set[tuple[str | None, int]]:
    """All versions of a table, on all its forks."""
    forks: list[str | None] = [None]
    if store.tables.head(path, None) is not None:
        forks += store.tables.forks(path)
    return {(fork, version) for fork in forks for version in store.tables.versions(path, fork)}

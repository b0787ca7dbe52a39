"""Removal of dropped data from earlier commits, after a schema change is published."""

# See docs/decisions/0192-hard-drops-clean-up-afterwards.md
# See docs/decisions/0197-hard-drops-are-recorded-in-the-manifest.md

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from omnigraph.commit.manifest import MAIN, Commit, DroppedData, Manifest
from omnigraph.commit.ref_names import recorded_branch
from omnigraph.commit.refs import list_tag_refs
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import read_records
from omnigraph.errors import BranchNotFoundError, OmnigraphError, VersionReclaimedError
from omnigraph.migrate.receipt import HardDrop
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.cleanup import cleanup
from omnigraph.upkeep.dropped_data import has_data, newest_drops, policies, unfinished_drops, versions_with_data


def remove_dropped(store: Store, commit: Commit | None) -> tuple[HardDrop, ...]:
    """Remove dropped data from earlier commits: that of a schema change, and that of earlier ones that still exists.

    Does not raise errors, because the schema change is already published. An error becomes part of the result.

    Args:
        store: the graph.
        commit: the schema change; None if there was nothing to change.
    """
    made = None if commit is None else commit.manifest_version
    drops: list[DroppedData] = []
    try:
        drops = newest_drops(store.capture(MAIN))
        drops = [one for one in drops if one.manifest_version == made or has_data(store, one)]
        return _remove(store, drops)
    except OmnigraphError as error:
        message = f"{error.message}; run 'omnigraph upkeep' to remove the dropped data from earlier commits"
        return tuple(HardDrop(key, 0, 0, message) for key in sorted(one.key for one in drops))


def finish_drops(store: Store) -> tuple[HardDrop, ...]:
    """Complete the interrupted removals of dropped data, and those that a branch or tag prevented until now.

    Raises:
        ConflictError: another cleanup is running.
    """
    return _remove(store, unfinished_drops(store))


def _remove(store: Store, drops: list[DroppedData]) -> tuple[HardDrop, ...]:
    before = {one: versions_with_data(store, one) for one in drops}
    for policy in policies(drops):
        cleanup(store, policy)
    found = []
    for one in sorted(drops, key=lambda one: one.key):
        store.tables.forget(one.path)
        kept = versions_with_data(store, one)
        needed_by = tuple(_needed_by(store, one.path, kept)) if kept else ()
        found.append(HardDrop(one.key, len(before[one] - kept), len(kept), kept_for=needed_by))
    return tuple(found)


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

"""Migrations from each older format to the next.

A migration writes the format number last. It may be interrupted and run again. Several processes may start it at once:
it holds the leases that it needs, and each of its actions is safe even if it takes effect late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.manifest import MAIN, STAMP
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.refs import BranchRef, TagRef, create_branch_ref, create_tag_ref, delete_tag_ref
from omnigraph.commit.store import Store
from omnigraph.errors import ObjectChangedError, ObjectExistsError, RetryableError
from omnigraph.storage.ledger import LedgerTag
from omnigraph.storage.staged import TableConflictError

Migration = Callable[[Store], None]


def _references(store: Store) -> None:
    """Format 1 to 2: store branches and tags as objects instead of references of the Lance dataset.

    The manifest of a branch stays in the Lance branch with the name of the graph branch. New branches never use such a
    name. The table forks of the branch keep their prefix.
    """
    with store.exclusive(MAIN), store.exclusive_refs():
        for branch in store.manifest.branches().values():
            parent = branch.parent or MAIN
            ref = BranchRef(
                branch.name, branch.identifier, branch.name, parent, branch.parent, branch.parent_version, None
            )
            with suppress(ObjectExistsError):  # an earlier run wrote the reference
                create_branch_ref(store.objects, ref)
            reach(Failpoint.MIGRATION_REF_WRITTEN)
        for tag in store.manifest.tags().values():
            _migrate_tag(store, tag)
        _stamp(store, 2)


def _migrate_tag(store: Store, tag: LedgerTag) -> None:
    version = store.manifest.open(tag.branch, tag.version)
    if version is None:
        return
    branch = tag.branch or MAIN
    head = read_manifest(branch, branch, version).head
    created = None if tag.created_at is None else int(tag.created_at.timestamp() * 1_000_000)
    try:
        made = create_tag_ref(store.objects, TagRef(tag.name, head.id, branch, tag.branch, tag.version, created))
    except ObjectExistsError:
        return
    if tag.name not in store.manifest.tags():
        # Another process has finished this migration, and a user has deleted the tag since. Remove the reference
        # that was just created for it.
        with suppress(ObjectChangedError):
            delete_tag_ref(store.objects, made)


def _stamp(store: Store, number: int) -> None:
    """Write the format number, unless another process has written it."""
    ledger = store.manifest.open()
    assert ledger is not None
    metadata = dict(ledger.schema.metadata or {})
    if int(metadata[STAMP.encode()]) >= number:
        return
    schema = ledger.schema.with_metadata(metadata | {STAMP.encode(): str(number).encode()})
    try:
        store.manifest.publish(ledger, range(len(ledger.parts)), [], schema=schema)
    except TableConflictError as error:
        raise RetryableError("the graph was written to while its format was migrated", hint="open it again") from error
    store.forget(MAIN)
    reach(Failpoint.MIGRATION_STAMPED)


def _groups(store: Store) -> None:
    """Format 2 to 3: commits may have members. Older releases would not find the idempotency keys of members."""
    with store.exclusive(MAIN):
        _stamp(store, 3)


MIGRATIONS: Mapping[int, Migration] = {1: _references, 2: _groups}
"""The migration from each older format to the next, by the number of the older format."""

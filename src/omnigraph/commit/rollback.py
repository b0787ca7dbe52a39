"""Rollback: restore every table of a write to its version in the manifest, and publish the undo as a commit.

A request whose response was lost may take effect later: a table that seems unchanged may get a new version, and so may
the manifest. Each such request names the version that it creates, and fails if that version exists. So an undo takes
the next version of every table of the write, changed or not, and the next version of the manifest. Afterwards no
request of the undone write can succeed, and its sidecar can be removed.
"""

# See docs/decisions/0139-an-undo-takes-the-next-versions.md

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ulid_transform import ulid_now

from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.audit import TableOutcome
from omnigraph.commit.clock import commit_time
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.manifest import Change, Commit, Manifest, Member, TablePin
from omnigraph.commit.sidecar import Sidecar, TableIntent
from omnigraph.commit.store import Store
from omnigraph.errors import CorruptionError, OmnigraphError
from omnigraph.storage.staged import TableConflictError
from omnigraph.storage.staging import stage_restore
from omnigraph.storage.table_ref import TableRef

RECOVERY_ACTOR = "omnigraph:recovery"
_ATTEMPTS = 8
"""Maximum number of attempts to restore a table while late requests of the undone write create versions of it."""

Found = tuple[TableIntent, str, int | None]
"""A table of the write, its `TableState`, and its newest version; None if the table is missing."""


def roll_back(
    store: Store, sidecar: Sidecar, view: Manifest, found: list[Found], held: Lease, *, settled: bool = False
) -> tuple[Commit, list[TableOutcome]]:
    """Undo a write that is not visible. If it is already `settled`, undo only its late table versions."""
    held.check()
    reach(Failpoint.RECOVERY_CHECKED)
    pins: list[TablePin] = []
    forks: list[TableIntent] = []
    outcomes: list[TableOutcome] = []
    for table, state, head in found:
        after = head
        pin = pin_of(view, table)
        current = pin is not None and pin.ref.branch == table.base.branch
        if table.forked and not current:
            forks.append(table)
            after = None
        elif pin is not None and current and head is not None:
            back = restored(store, table.base.at(head), pin.ref.version)
            pins.append(replace(pin, ref=back))
            after = back.version
        outcomes.append(TableOutcome(table.key, state, head, after))
    reach(Failpoint.RECOVERY_RESTORED)
    commit = _undoing(store, sidecar, view)
    if settled:
        commit = replace(commit, message=f"late requests of write {sidecar.operation_id} undone", operation_id=None)
    undone = store.publish(view, Change(tuple(pins)), commit, held).head
    # Remove forks only after the publish. If the lease was lost, the publish fails, and another process may have
    # published the forks.
    for table in forks:
        with suppress(OmnigraphError):  # cleanup removes leftovers
            drop_fork(store, table)
    return undone, outcomes


def undo(
    store: Store, sidecar: Sidecar, view: Manifest, published: Commit, found: list[Found], held: Lease
) -> tuple[Commit, list[TableOutcome]]:
    """Undo a visible write that was not acknowledged. Publishes the undo as the next commit."""
    held.check()
    reach(Failpoint.RECOVERY_CHECKED)
    before = state_before(store, sidecar, published)
    pins = {pin.id: pin for pin in before.tables.values()}
    back: dict[str, TablePin] = {}
    outcomes: list[TableOutcome] = []
    for table, state, head in found:
        after = head
        if sidecar.adopted is None and table.id in pins and head is not None:
            pin = replace(pins[table.id], ref=restored(store, table.base.at(head), table.base.version, visible=True))
            back[pin.key] = pin
            after = pin.ref.version
        outcomes.append(TableOutcome(table.key, state, head, after))
    reach(Failpoint.RECOVERY_RESTORED)
    now = {pin.id: key for key, pin in view.tables.items()}
    # A branch update takes over tables of the parent. The tables that the branch had before are unchanged.
    dropped = {pin.key: pin for pin in pins.values() if pin.id not in now or sidecar.adopted is not None}
    change = Change(
        tuple((dropped | back).values()),
        tuple(key for identity, key in now.items() if identity not in pins),
        tuple((key, pins[i].key) for i, key in now.items() if i in pins and pins[i].key != key),
        None if before.schema_hash == view.schema_hash else before.schema_hash,
        undone=published.manifest_version,
    )
    # A retry with the idempotency key of the write, or of a member, finds that it was undone.
    keys = [member for member in sidecar.commit.members if member.idempotency_key is not None]
    commit = replace(
        _undoing(store, sidecar, view),
        idempotency_key=sidecar.commit.idempotency_key,
        members=tuple(Member(member.id, idempotency_key=member.idempotency_key) for member in keys),
    )
    if published.merged_parent is not None:
        # The undo removes all rows that came from the merged branch, so this branch must not count as merged.
        commit = replace(commit, parent=before.head.id)
    return store.publish(view, change, commit, held).head, outcomes


def state_before(store: Store, sidecar: Sidecar, published: Commit) -> Manifest:
    """The graph state before a visible write.

    Raises:
        CorruptionError: the state cannot be found.
        VersionReclaimedError: the state was removed.
    """
    before = store.manifest_at(sidecar.branch, published.manifest_version - 1)
    if before.head.id != sidecar.base_head:
        raise CorruptionError(
            f"write {sidecar.operation_id} has to be undone, but the state before it cannot be found",
            hint=f"{sidecar.path} is kept; restore the graph from a backup, or run 'omnigraph repair'",
        )
    return before


def republish(store: Store, sidecar: Sidecar, view: Manifest, held: Lease) -> Commit:
    """Publish a state again, in new files: the old files cannot be flushed to disk."""
    held.check()
    reach(Failpoint.RECOVERY_CHECKED)
    commit = replace(
        _undoing(store, sidecar, view), message=f"second copy of write {sidecar.operation_id}", operation_id=None
    )
    return store.publish(view, Change(), commit, held).head


def pin_of(view: Manifest, table: TableIntent) -> TablePin | None:
    """The table's entry in the manifest, found by identity: after a schema change, another table may have its name."""
    return next((pin for pin in view.tables.values() if pin.id == table.id), None)


def drop_fork(store: Store, table: TableIntent) -> None:
    """Remove a fork, if it exists. No manifest may point at it."""
    assert table.base.branch is not None
    if table.base.branch in store.tables.forks(table.base.path):
        store.tables.drop_fork(table.base.path, table.base.branch)


def restored(store: Store, base: TableRef, version: int, *, visible: bool = False) -> TableRef:
    """Restore the content of a version as the next version of its table, and flush it. Returns the new version."""
    for _ in range(_ATTEMPTS):
        staged = stage_restore(store.tables.at(base), version, visible=visible)
        try:
            for step in staged.steps:
                made = store.tables.commit_staged(step)
        except TableConflictError:
            # A late request has created the version. Restore the content as the version after it.
            head = store.tables.head(base.path, base.branch)
            base = base if head is None else base.at(head)
            continue
        store.tables.make_durable([staged])
        return made
    raise TableConflictError(f"{base.path} keeps changing while it is restored")


def _undoing(store: Store, sidecar: Sidecar, view: Manifest) -> Commit:
    message = f"undo of interrupted write {sidecar.operation_id}"
    return recovery_commit(store, view, message, sidecar.kind.value, sidecar.operation_id)


def recovery_commit(store: Store, view: Manifest, message: str, writer: str, operation_id: str) -> Commit:
    """The commit that recovery publishes after a state."""
    return Commit(
        id=ulid_now(),
        branch=view.branch,
        manifest_version=view.version + 1,
        parent=view.head.id,
        merged_parent=None,
        actor=RECOVERY_ACTOR,
        created_at=commit_time(view),
        message=message,
        writer=writer,
        operation_id=operation_id,
        ledger=view.ledger.branch,
        generation=1 + generation_of(store, view),
    )

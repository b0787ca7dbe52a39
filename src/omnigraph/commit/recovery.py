"""Recovery: roll interrupted writes forward or back, always with all tables of a write."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import pyarrow as pa

from omnigraph.commit import audit
from omnigraph.commit.ancestor_files import read_ancestors, remove_ancestors
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease, owner_of
from omnigraph.commit.lineage import find_in
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.rollback import RECOVERY_ACTOR as RECOVERY_ACTOR
from omnigraph.commit.rollback import Found, drop_fork, pin_of, republish, roll_back, state_before, undo
from omnigraph.commit.rollback_only import mark_rollback_only, with_pending_mark
from omnigraph.commit.schema_files import discard_staged, promote_contract, staged_contract
from omnigraph.commit.sidecar import Sidecar, TableIntent, pending
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.torn_versions import intends_torn, quarantine_torn
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    CorruptionError,
    DamagedFileError,
    FlushFailedError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.storage.table_ref import table_directory


class TableState(StrEnum):
    """How the newest version of a table compares with the manifest and with the version that the sidecar names."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    INVARIANT_VIOLATION = "InvariantViolation"


class Settled(StrEnum):
    FORWARD = "forward"
    BACK = "back"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of a settled write, and the commit that records it, if there is one."""

    outcome: Settled
    commit: Commit | None


def recovered_view(store: Store, branch: str) -> Manifest:
    """The newest state of a branch, after recovery of interrupted writes. Costs one listing if there are none.

    Raises:
        BranchNotFoundError: there is no such branch.
    """
    if has_interrupted_write(store, branch):
        with store.exclusive(branch) as held:
            recover_branch(store, branch, held)
    return store.capture(branch)


def has_interrupted_write(store: Store, branch: str) -> bool:
    """Whether the branch has an interrupted write. A write whose process holds the lease is still running."""
    owners = [sidecar.owner for sidecar in pending(store.objects) if sidecar.branch == branch]
    if not owners:
        return False
    at_work = owner_of(store.leases, branch)
    return any(owner != at_work for owner in owners)


def recover_branch(store: Store, branch: str, held: Lease) -> list[Settlement]:
    """Settle all writes of a branch. The caller holds the lease, so no other writer is running."""
    mine = [sidecar for sidecar in pending(store.objects) if sidecar.branch == branch]
    if mine:
        held.check()
        quarantine_torn(store, branch, mine)
    return [settle(store, sidecar, held) for sidecar in mine]


def settle(store: Store, sidecar: Sidecar, held: Lease) -> Settlement:
    """Finish or undo one write, add it to the audit, and remove its sidecar. May be interrupted and run again.

    Raises:
        CorruptionError: it can be neither finished nor undone: a table is behind its version in the manifest,
            or files are damaged or missing. The sidecar stays.
    """
    try:
        return _settle(store, sidecar, held)
    except (StorageError, VersionReclaimedError) as error:
        reason = error.message if is_permanent(error) else unrecoverable_reason(store, sidecar)
        if reason is None:
            raise
        raise _cannot_settle(sidecar, reason) from error


def is_permanent(error: OmnigraphError) -> bool:
    """Whether an error means that files are damaged or missing, so that a retry fails again."""
    return isinstance(error, CorruptionError | DamagedFileError | VersionReclaimedError)


def unrecoverable_reason(store: Store, sidecar: Sidecar) -> str | None:
    """Find out why a write can be neither finished nor undone; None if it can. Changes nothing."""
    try:
        return _unrecoverable_reason(store, sidecar)
    except OmnigraphError as error:
        unreadable = isinstance(error, StorageError) and error.kind is StorageErrorKind.PERMANENT
        return error.message if unreadable or is_permanent(error) else None


def _unrecoverable_reason(store: Store, sidecar: Sidecar) -> str | None:
    if store.branch_identifier(sidecar.branch) != sidecar.branch_identifier:
        return None
    if intends_torn(store, sidecar):
        return None  # recovery quarantines the torn file and can then continue
    view, found = _read_states(store, sidecar)
    published = find_in(view, sidecar.commit.id)
    settled = _settled_before(view, sidecar)
    if settled is None and not sidecar.rollback_only:
        ancestors = None if sidecar.ancestors is None else read_ancestors(store.objects, sidecar.ancestors)
        if _is_complete(store, sidecar, view, found, ancestors):
            return None
    if settled is not None and all(state is TableState.NO_MOVEMENT for _, state, _ in found):
        return None
    visible = settled is None and published is not None
    if visible:
        assert published is not None
        state_before(store, sidecar, published)
    for table, _, head in found:
        pin = pin_of(view, table)
        wanted = table.base if visible else pin.ref if pin is not None else None
        own = wanted is not None and wanted.branch == table.base.branch and head is not None
        if own and wanted is not None and not store.tables.at(wanted).exists():
            directory = table_directory(wanted.path, wanted.branch)
            return f"version {wanted.version} of {directory}, which has to be restored, no longer exists"
    return None


def _cannot_settle(sidecar: Sidecar, reason: str) -> CorruptionError:
    return CorruptionError(
        f"write {sidecar.operation_id} was interrupted, and can be neither finished nor undone: {reason}",
        hint=f"reads still work; {sidecar.path} is kept; 'omnigraph repair' lists the possible repairs",
    )


def _settle(store: Store, sidecar: Sidecar, held: Lease) -> Settlement:
    reach(Failpoint.RECOVERY_STARTED)
    if store.branch_identifier(sidecar.branch) != sidecar.branch_identifier:
        return _discard(store, sidecar)
    sidecar = with_pending_mark(store, sidecar)
    view, found = _read_states(store, sidecar)
    settlement, outcomes = _decide(store, sidecar, view, found, held)
    reach(Failpoint.RECOVERY_PUBLISHED)
    if sidecar.schema is not None:
        # Promote or discard the schema files with the write.
        if settlement.outcome is Settled.FORWARD:
            promote_contract(store.objects, sidecar.schema.schema_hash, sidecar.operation_id)
        else:
            discard_staged(store.objects, sidecar.operation_id)
    kind = RecoveryKind.ROLLED_FORWARD if settlement.outcome is Settled.FORWARD else RecoveryKind.ROLLED_BACK
    _record(store, sidecar, kind, settlement.commit, outcomes)
    reach(Failpoint.RECOVERY_AUDITED)
    store.objects.delete(sidecar.path)
    remove_ancestors(store.objects, sidecar.ancestors)
    return settlement


def _read_states(store: Store, sidecar: Sidecar) -> tuple[Manifest, list[Found]]:
    """The newest state of the branch, and the states of the tables of the write."""
    store.forget(sidecar.branch)
    view = store.capture(sidecar.branch)
    found: list[Found] = []
    for table in sidecar.tables:
        state, head = _classify(store, view, table)
        if state is TableState.INVARIANT_VIOLATION:
            where = "missing" if head is None else f"at version {head}, older than the version in the manifest"
            raise CorruptionError(
                f"{table.key} is {where}",
                hint=f"another program removed files; {sidecar.path} is kept; restore the table from a backup, "
                "or run 'omnigraph repair'",
            )
        found.append((table, state, head))
    return view, found


def _decide(
    store: Store, sidecar: Sidecar, view: Manifest, found: list[Found], held: Lease
) -> tuple[Settlement, list[TableOutcome]]:
    """Roll a write forward or back, unless that is already done."""
    settled = _settled_before(view, sidecar)
    if settled is not None:
        return _settled_again(store, sidecar, view, found, held, settled)
    ancestors = None if sidecar.ancestors is None else read_ancestors(store.objects, sidecar.ancestors)
    if not sidecar.rollback_only and _is_complete(store, sidecar, view, found, ancestors):
        try:
            return _roll_forward(store, sidecar, view, found, ancestors, held)
        except FlushFailedError:
            # After a failed flush the write must be undone, even if the manifest was published.
            sidecar = mark_rollback_only(store, sidecar)
            view, found = _read_states(store, sidecar)
    published = find_in(view, sidecar.commit.id)
    if published is not None:
        commit, outcomes = undo(store, sidecar, view, published, found, held)
    else:
        commit, outcomes = roll_back(store, sidecar, view, found, held)
    return Settlement(Settled.BACK, commit), outcomes


def _roll_forward(
    store: Store, sidecar: Sidecar, view: Manifest, found: list[Found], ancestors: pa.Table | None, held: Lease
) -> tuple[Settlement, list[TableOutcome]]:
    """Publish a write whose tables all have the versions that its sidecar names."""
    # The writer may have died before its tables were flushed.
    store.objects.sync_files(sorted({table_directory(t.base.path, t.base.branch) for t in sidecar.tables}))
    held.check()
    reach(Failpoint.RECOVERY_CHECKED)
    manifest = store.publish(view, replace(sidecar.change, ancestors=ancestors), sidecar.commit, held)
    outcomes = [TableOutcome(t.key, state, t.base.version, head) for t, state, head in found]
    return Settlement(Settled.FORWARD, manifest.head), outcomes


def _settled_again(
    store: Store, sidecar: Sidecar, view: Manifest, found: list[Found], held: Lease, settled: Settlement
) -> tuple[Settlement, list[TableOutcome]]:
    """For a write that is already settled: flush the result to disk, and undo table versions created since."""
    if any(state is not TableState.NO_MOVEMENT for _, state, _ in found):
        # The publish of an earlier recovery took effect late. Meanwhile, tables have got versions after those that
        # it published.
        _, outcomes = roll_back(store, sidecar, view, found, held, settled=True)
        return settled, outcomes
    try:
        store.manifest.make_durable(view.ledger)
    except FlushFailedError:
        # The write may be acknowledged, so do not undo it. Publish the same state again, in new files.
        republish(store, sidecar, view, held)
    return settled, [TableOutcome(t.key, state, head, head) for t, state, head in found]


def _is_complete(
    store: Store, sidecar: Sidecar, view: Manifest, found: list[Found], ancestors: pa.Table | None
) -> bool:
    """Whether all tables and files of the write exist, so that only its publish is missing."""
    if sidecar.ancestors is not None and ancestors is None:
        return False  # without the lineage of the merged branch, later merges would find wrong bases
    if view.head.id != sidecar.base_head:
        return False
    if any(state is not TableState.ROLLED_PAST_EXPECTED for _, state, _ in found):
        return False
    if sidecar.adopted is not None:
        return all(store.tables.at(pin.ref).exists() for pin in sidecar.adopted.pins)
    if sidecar.schema is None:
        return True
    made = all(store.tables.head(pin.ref.path, pin.ref.branch) == pin.ref.version for pin in sidecar.schema.added)
    return made and staged_contract(store.objects, sidecar.schema.schema_hash, sidecar.operation_id) is not None


def _settled_before(view: Manifest, sidecar: Sidecar) -> Settlement | None:
    """The outcome of a write that its writer published, or that an earlier recovery settled; None if there is none."""
    commits = (view.head, *view.recent)
    undone = next((c for c in commits if c.operation_id == sidecar.operation_id and c.id != sidecar.commit.id), None)
    if undone is not None:
        return Settlement(Settled.BACK, undone)
    published = find_in(view, sidecar.commit.id)
    # A write with a failed flush counts as settled only if there are later commits: their writers have read it
    # from disk.
    if published is not None and not (sidecar.rollback_only and view.head.id == published.id):
        return Settlement(Settled.FORWARD, published)
    return None


def _classify(store: Store, view: Manifest, table: TableIntent) -> tuple[TableState, int | None]:
    """Compare a table's newest version with the manifest and with the version that the sidecar names."""
    head = store.tables.head(table.base.path, table.base.branch)
    pin = pin_of(view, table)
    pinned = pin.ref if pin is not None else None
    if head is None:
        # A fork may be missing: it was never finished, or is already removed. Any other missing table is an error.
        return (TableState.NO_MOVEMENT if table.forked else TableState.INVARIANT_VIOLATION), None
    floor = pinned.version if pinned is not None and pinned.branch == table.base.branch else table.base.version
    if head == floor:
        return TableState.NO_MOVEMENT, head
    if head < floor:
        return TableState.INVARIANT_VIOLATION, head
    if head == table.intended.version and floor == table.base.version:
        same = store.tables.at(table.intended).transaction_id() == table.transaction_id
        return (TableState.ROLLED_PAST_EXPECTED if same else TableState.UNEXPECTED_AT_P1), head
    if floor == table.base.version and head < table.intended.version:
        return TableState.INCOMPLETE_PHASE_B, head
    return (TableState.UNEXPECTED_AT_P1 if head == floor + 1 else TableState.UNEXPECTED_MULTISTEP), head


def _discard(store: Store, sidecar: Sidecar) -> Settlement:
    """Discard a write to a branch that does not exist any more."""
    outcomes = []
    for table in sidecar.tables:
        if table.forked:
            drop_fork(store, table)
        outcomes.append(TableOutcome(table.key, "BranchGone", None, None))
    _record(store, sidecar, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, outcomes)
    store.objects.delete(sidecar.path)
    remove_ancestors(store.objects, sidecar.ancestors)
    return Settlement(Settled.DISCARDED, None)


def _record(
    store: Store, sidecar: Sidecar, kind: RecoveryKind, commit: Commit | None, outcomes: list[TableOutcome]
) -> None:
    audit.append(
        store.audit,
        RecoveryRecord(
            sidecar.operation_id,
            commit.id if commit else None,
            kind,
            sidecar.commit.recorded_actor,
            sidecar.kind.value,
            sidecar.branch,
            tuple(outcomes),
            now_micros(),
        ),
    )

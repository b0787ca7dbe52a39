"""Recovery: settling writes that stopped half way, forward or back, always all tables of a write at once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from ulid_transform import ulid_now

from omnigraph.commit import audit
from omnigraph.commit.audit import RecoveryKind, RecoveryRecord, TableOutcome
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease, Owner
from omnigraph.commit.lineage import find_in
from omnigraph.commit.manifest import Change, Commit, Manifest, TablePin
from omnigraph.commit.schema_files import discard_staged, promote_contract, staged_contract
from omnigraph.commit.sidecar import Sidecar, TableIntent, pending
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.sums import sync_sums
from omnigraph.commit.torn import set_aside_torn
from omnigraph.errors import CorruptionError, LeaseTimeoutError
from omnigraph.storage.tables import table_directory

RECOVERY_ACTOR = "omnigraph:recovery"


class TableState(StrEnum):
    """Where a table is, compared with what the manifest points at and what the sidecar intended."""

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
    """How a write ended, and the commit that says so, if one was needed."""

    outcome: Settled
    commit: Commit | None


def recover_all(store: Store) -> list[Settlement]:
    """Settle every write that no live writer owns. A writer that is at work keeps its sidecar."""
    settlements: list[Settlement] = []
    for branch in sorted({sidecar.branch for sidecar in pending(store.objects)}):
        # Also for a branch that is gone: it may be made again, and written, while we look.
        with suppress(LeaseTimeoutError), store.exclusive(branch, wait=0) as held:
            settlements += recover_branch(store, branch, held)
    return settlements


def healed(store: Store, branch: str) -> Manifest:
    """The newest view of a branch, with what interrupted writers left on it settled. Nothing left costs one listing.

    Raises:
        BranchNotFoundError: there is no such branch.
    """
    if any(sidecar.branch == branch for sidecar in pending(store.objects)):
        with store.exclusive(branch) as held:
            recover_branch(store, branch, held)
    return store.capture(branch)


def recover_branch(store: Store, branch: str, held: Lease) -> list[Settlement]:
    """Settle every write of a branch. Whoever holds the lease knows that no other writer is at work on it."""
    mine = [sidecar for sidecar in pending(store.objects) if sidecar.branch == branch]
    if mine:
        held.check()
        set_aside_torn(store, branch, mine)
    return [settle(store, sidecar, held) for sidecar in mine]


def settle(store: Store, sidecar: Sidecar, held: Lease) -> Settlement:
    """Finish or undo one write, say so in the audit, and remove its sidecar. May be interrupted and run again.

    Raises:
        CorruptionError: a table is behind what the graph points at. The sidecar stays.
    """
    reach(Failpoint.RECOVERY_STARTED)
    if store.branch_identifier(sidecar.branch) != sidecar.branch_identifier:
        return _discard(store, sidecar)
    store.forget(sidecar.branch)
    view = store.capture(sidecar.branch)
    found = [(table, *_classify(store, view, table)) for table in sidecar.tables]
    for table, state, head in found:
        if state is TableState.INVARIANT_VIOLATION:
            where = "gone" if head is None else f"at version {head}, before the version that the graph points at"
            raise CorruptionError(
                f"{table.key} is {where}",
                hint=f"files were removed from outside; {sidecar.path} is kept; restore the table from a backup",
            )
    settled = _settled_before(view, sidecar)
    if settled is not None:
        store.manifest.make_durable(view.ledger)
        settlement = settled
        outcomes = [TableOutcome(t.key, state.value, head, head) for t, state, head in found]
    elif _is_complete(store, sidecar, view, [state for _, state, _ in found]):
        _flush(store, sidecar)
        held.check()
        manifest = store.publish(view, sidecar.change, sidecar.commit, held)
        settlement = Settlement(Settled.FORWARD, manifest.head)
        outcomes = [TableOutcome(t.key, state.value, t.base.version, head) for t, state, head in found]
    else:
        settlement, outcomes = _roll_back(store, sidecar, view, found, held)
    reach(Failpoint.RECOVERY_PUBLISHED)
    if sidecar.schema is not None:
        # The schema files follow the write: into their places, or away.
        finish = promote_contract if settlement.outcome is Settled.FORWARD else discard_staged
        finish(store.objects, sidecar.schema.schema_hash)
    kind = RecoveryKind.ROLLED_FORWARD if settlement.outcome is Settled.FORWARD else RecoveryKind.ROLLED_BACK
    _record(store, sidecar, kind, settlement.commit, outcomes)
    reach(Failpoint.RECOVERY_AUDITED)
    store.objects.delete(sidecar.path)
    return settlement


def _is_complete(store: Store, sidecar: Sidecar, view: Manifest, states: list[TableState]) -> bool:
    """Whether all that the write intended is there, and only its publication is missing."""
    if view.head.id != sidecar.base_head or any(s is not TableState.ROLLED_PAST_EXPECTED for s in states):
        return False
    if sidecar.schema is None:
        return True
    made = all(store.tables.head(pin.ref.path, pin.ref.branch) == pin.ref.version for pin in sidecar.schema.added)
    return made and staged_contract(store.objects, sidecar.schema.schema_hash) is not None


def _settled_before(view: Manifest, sidecar: Sidecar) -> Settlement | None:
    """How the write ended, when the branch says so already: its writer published it, or a recovery was interrupted."""
    published = find_in(view, sidecar.commit.id)
    if published is not None:
        return Settlement(Settled.FORWARD, published)
    undo = next((c for c in (view.head, *view.recent) if c.operation_id == sidecar.operation_id), None)
    return None if undo is None else Settlement(Settled.BACK, undo)


def _flush(store: Store, sidecar: Sidecar) -> None:
    """The writer may have died before its tables were forced to disk."""
    store.objects.sync_files(sorted({table_directory(t.base.path, t.base.branch) for t in sidecar.tables}))
    sync_sums(store, sidecar.operation_id)


def _classify(store: Store, view: Manifest, table: TableIntent) -> tuple[TableState, int | None]:
    """Compare a table's newest version with the manifest's pin and the sidecar's intent."""
    head = store.tables.head(table.base.path, table.base.branch)
    pin = _pin(view, table)
    pinned = pin.ref if pin is not None else None
    if head is None:
        # Of a fork that means that it was never finished, or is removed already. Nothing else may be gone.
        return (TableState.NO_MOVEMENT if table.forked else TableState.INVARIANT_VIOLATION), None
    floor = pinned.version if pinned is not None and pinned.branch == table.base.branch else table.base.version
    if head == floor:
        return TableState.NO_MOVEMENT, head
    if head < floor:
        return TableState.INVARIANT_VIOLATION, head
    if head == table.intended.version and floor == table.base.version:
        same = store.tables.transaction_id(table.intended) == table.transaction_id
        return (TableState.ROLLED_PAST_EXPECTED if same else TableState.UNEXPECTED_AT_P1), head
    if floor == table.base.version and head < table.intended.version:
        return TableState.INCOMPLETE_PHASE_B, head
    return (TableState.UNEXPECTED_AT_P1 if head == floor + 1 else TableState.UNEXPECTED_MULTISTEP), head


def _pin(view: Manifest, table: TableIntent) -> TablePin | None:
    """What the graph points at. By identity: a change of schema may have given the name to another table."""
    return next((pin for pin in view.tables.values() if pin.id == table.id), None)


def _roll_back(
    store: Store,
    sidecar: Sidecar,
    view: Manifest,
    found: list[tuple[TableIntent, TableState, int | None]],
    held: Lease,
) -> tuple[Settlement, list[TableOutcome]]:
    """Give every moved table its pinned content back, and publish the versions that do.

    A writer that nobody can see to be dead may only be asleep, and move a table when it wakes up. Lance refuses that
    once the table was restored, so then the tables that have not moved are restored too.
    """
    asleep = sidecar.owner != Owner.here() and not sidecar.owner.is_dead()
    held.check()
    pins: list[TablePin] = []
    outcomes: list[TableOutcome] = []
    for table, state, head in found:
        after = head
        pin = _pin(view, table)
        if table.forked:
            _drop_fork(store, table)
            after = None
        elif head is not None and pin is not None and (asleep or state is not TableState.NO_MOVEMENT):
            staged = store.tables.stage_restore(table.base.at(head), pin.ref.version)
            restored = store.tables.commit_staged(staged)
            store.tables.make_durable([staged])
            pins.append(replace(pin, ref=restored))
            after = restored.version
        outcomes.append(TableOutcome(table.key, state.value, head, after))
    reach(Failpoint.RECOVERY_RESTORED)
    if not pins:
        return Settlement(Settled.BACK, None), outcomes
    commit = Commit(
        id=ulid_now(),
        branch=sidecar.branch,
        manifest_version=view.version + 1,
        parent=view.head.id,
        merged_parent=None,
        actor=RECOVERY_ACTOR,
        created_at=max(now_micros(), view.head.created_at + 1),
        message=f"undo of interrupted write {sidecar.operation_id}",
        writer=sidecar.kind.value,
        operation_id=sidecar.operation_id,
    )
    manifest = store.publish(view, Change(tuple(pins)), commit, held)
    return Settlement(Settled.BACK, manifest.head), outcomes


def _drop_fork(store: Store, table: TableIntent) -> None:
    """Remove a fork that nothing points at, if it is there."""
    assert table.base.branch is not None
    if table.base.branch in store.tables.forks(table.base.path):
        store.tables.drop_fork(table.base.path, table.base.branch)


def _discard(store: Store, sidecar: Sidecar) -> Settlement:
    """A write to a branch that no longer exists: nothing of it can ever be seen."""
    outcomes = []
    for table in sidecar.tables:
        if table.forked:
            _drop_fork(store, table)
        outcomes.append(TableOutcome(table.key, "BranchGone", None, None))
    _record(store, sidecar, RecoveryKind.ORPHANED_BRANCH_DISCARDED, None, outcomes)
    store.objects.delete(sidecar.path)
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
            sidecar.commit.actor,
            sidecar.kind.value,
            sidecar.branch,
            tuple(outcomes),
            now_micros(),
        ),
    )

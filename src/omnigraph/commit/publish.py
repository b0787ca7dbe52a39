"""Publish a staged write: write its sidecar, commit its tables, publish the manifest, and remove the sidecar.

`attempts` decides how often a write is tried. `staged_writes` stages it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ulid_transform import ulid_now

from omnigraph.commit.ancestor_files import remove_ancestors, write_ancestors
from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.clock import commit_time
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.lease import Lease
from omnigraph.commit.lineage import find_in
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.manifest_rows import commit_rows
from omnigraph.commit.owner import Owner
from omnigraph.commit.recovery import Settled, settle
from omnigraph.commit.rollback_only import mark_rollback_only
from omnigraph.commit.schema_files import promote_contract, stage_contract
from omnigraph.commit.sidecar import Sidecar, TableIntent
from omnigraph.commit.staged_checksums import compact_checksums, record_checksums
from omnigraph.commit.staged_writes import CleanupStartedError, StagedWrites
from omnigraph.commit.store import Store, now_micros
from omnigraph.commit.write_request import GRAPH_HEAD, Prepared, WriteRequest
from omnigraph.errors import (
    CorruptionError,
    FlushFailedError,
    LeaseLostError,
    ObjectChangedError,
    ObjectNotFoundError,
    OmnigraphError,
    ReadSetChangedError,
    RecoveryRequiredError,
    StorageError,
    VersionReclaimedError,
    WriteUndoneError,
)
from omnigraph.storage.staged import Staged, TableConflictError


def commit_staged(
    store: Store,
    request: WriteRequest,
    prepared: Prepared,
    view: Manifest,
    staging: StagedWrites,
    held: Lease,
) -> Commit:
    """Write the sidecar, commit the tables, publish the manifest, and remove the sidecar.

    If a step fails after the sidecar was written, this function completes or undoes the write, or leaves this to
    recovery.
    """
    file = None
    try:
        sidecar = _sidecar(store, request, prepared, view, staging)
        commit_rows([sidecar.commit])  # check that the manifest can store the commit, before the sidecar is written
        if prepared.ancestors is not None and prepared.ancestors.num_rows:
            file = write_ancestors(store.objects, sidecar.operation_id, prepared.ancestors)
            sidecar = replace(sidecar, ancestors=file)
        staging.drop_unused_forks()
        record_checksums(store, sidecar.operation_id, staging.staged)
        store.objects.create(sidecar.path, sidecar.dump())
    except BaseException:
        # If the sidecar exists anyway, or appears later, recovery rolls it back: no table has a new version yet.
        staging.abandon()
        remove_ancestors(store.objects, file)
        raise
    try:
        staging.check_files()
    except (CleanupStartedError, VersionReclaimedError):
        # No table has a new version yet, so removing the sidecar undoes the write.
        store.objects.delete(sidecar.path)
        staging.abandon()
        remove_ancestors(store.objects, file)
        raise
    except OmnigraphError as error:
        return _finish(store, sidecar, held, error)
    try:
        reach(Failpoint.SIDECAR_WRITTEN)
        if request.schema is not None and sidecar.schema is not None:
            held.check()  # a writer that has lost its lease must not leave staged schema files behind
            stage_contract(store.objects, request.schema.source, request.schema.accepted, sidecar.operation_id)
        for intent, staged in zip(staging.intents, staging.staged, strict=True):
            _commit_table(store, intent, staged)
            reach(Failpoint.TABLE_COMMITTED)
        change = replace(sidecar.change, ancestors=prepared.ancestors)
        next_ = store.stage_publish(view, change, sidecar.commit, held, staging.staged)
        reach(Failpoint.TABLES_COMMITTED)
        held.check()
        reach(Failpoint.BEFORE_PUBLISH)
        published = store.publish(view, change, sidecar.commit, held, next_).head
    except Exception as error:
        return _finish(store, sidecar, held, error)
    reach(Failpoint.PUBLISHED)
    with suppress(OmnigraphError):
        # The commit is durable. If the sidecar cannot be removed, the next recovery removes it.
        if sidecar.schema is not None:
            promote_contract(store.objects, sidecar.schema.schema_hash, sidecar.operation_id)
        # Not flushed: if the sidecar is back after a power failure, recovery finds its commit and removes it. The
        # next sidecar in this directory makes the removal durable.
        store.leases.delete(sidecar.path)
        remove_ancestors(store.objects, sidecar.ancestors)
    compact_checksums(store)
    reach(Failpoint.SIDECAR_REMOVED)
    return published


def _commit_table(store: Store, intent: TableIntent, staged: Staged) -> None:
    try:
        for step in staged.steps:
            store.tables.commit_staged(step)
            if step.then is not None:
                reach(Failpoint.TABLE_PACKED)
    except TableConflictError as error:
        head = store.tables.head(intent.base.path, intent.base.branch)
        raise ReadSetChangedError(intent.key, intent.base.version, head) from error


def _finish(store: Store, sidecar: Sidecar, held: Lease, error: Exception) -> Commit:
    """Settle a write that failed after its sidecar was written, if this process still holds the lease."""
    unflushed = error if isinstance(error, FlushFailedError) else None
    try:
        if unflushed is not None:
            # Mark the sidecar as undone first, so that recovery in another process does not roll the write forward.
            sidecar = mark_rollback_only(store, sidecar)
        held.check()
        settled = settle(store, sidecar, held)
    except (LeaseLostError, ObjectNotFoundError, ObjectChangedError) as lost:
        return _overtaken(store, sidecar, lost, unflushed)
    except CorruptionError as second:
        hint = f"do not send it again; {second.hint}"
        raise RecoveryRequiredError(sidecar.operation_id, f"{error}; then: {second}", hint=hint) from error
    except Exception as second:
        raise RecoveryRequiredError(sidecar.operation_id, f"{error}; then: {second}") from error
    if settled.outcome is Settled.FORWARD and unflushed is None:
        assert settled.commit is not None
        return settled.commit
    if settled.outcome is Settled.BACK and unflushed is not None:
        raise WriteUndoneError(unflushed) from error
    raise error


def _overtaken(
    store: Store, sidecar: Sidecar, lost: LeaseLostError | StorageError, unflushed: FlushFailedError | None
) -> Commit:
    """Find the outcome of a write whose lease passed to another writer, which completes or undoes this write first."""
    try:
        if not store.objects.exists(sidecar.path):
            current = store.capture(sidecar.branch)
            published = find_in(current, sidecar.commit.id)
            if published is not None and unflushed is not None:
                # The flush of this process failed. A later successful flush of another process does not prove that the
                # data is stored.
                raise FlushFailedError(
                    unflushed.reason,
                    uri=unflushed.uri,
                    path=unflushed.path,
                    in_effect=True,
                    hint="another process has finished the write; check the disk, then read the graph",
                )
            if published is not None:
                return published
            if unflushed is None and current.incarnation == sidecar.branch_identifier:
                # The write was rolled back, so it can be tried again.
                raise ReadSetChangedError(GRAPH_HEAD, sidecar.base_head, current.head.id) from lost
            raise lost
    except FlushFailedError:
        raise
    except StorageError as error:
        raise RecoveryRequiredError(sidecar.operation_id, f"{lost}; then: {error}") from lost
    raise RecoveryRequiredError(sidecar.operation_id, str(lost)) from lost


def _sidecar(store: Store, request: WriteRequest, prepared: Prepared, view: Manifest, staging: StagedWrites) -> Sidecar:
    operation = ulid_now()
    counts = staging.counts if prepared.counts is None else prepared.counts
    commit = Commit(
        id=ulid_now(),
        branch=request.branch,
        manifest_version=view.version + 1,
        parent=view.head.id,
        merged_parent=prepared.merged_parent,
        actor=request.actor,
        created_at=commit_time(view),
        message=request.message,
        labels=tuple(sorted((dict(request.labels) | dict(prepared.labels)).items())),
        writer=request.kind.value,
        operation_id=operation,
        idempotency_key=request.idempotency_key,
        ledger=view.ledger.branch,
        generation=1 + max(generation_of(store, view), prepared.merged_generation),
        counts=counts,
    )
    if prepared.members is not None:
        commit = commit.of_members(prepared.members(view, counts))
    return Sidecar(
        operation,
        Owner.here(),
        now_micros(),
        request.branch,
        view.incarnation,
        request.kind,
        view.head.id,
        commit,
        tuple(staging.intents),
        staging.schema,
        adopted=staging.adopted,
    )

"""Merge: a three-way merge of two branches as one commit. It can delete the source branch afterwards."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256

import orjson

from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.branches import remove_branch
from omnigraph.engine.commit import without_table, write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.prepare import PrepareMerge
from omnigraph.engine.requests import MergeRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    InputError,
    MergeSchemaError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
    WriteTimeoutError,
)
from omnigraph.merge.choices import Choices
from omnigraph.merge.merge import CheckConflicts, Merge, compared_bytes
from omnigraph.merge.property_level import MergeLevel, merge_level
from omnigraph.merge.receipt import LABEL, MergeReceipt, earlier_receipt
from omnigraph.settings import SPARK_THRESHOLD
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget


def merge(
    session: Session,
    request: MergeRequest,
    *,
    kind: WriterKind = WriterKind.BRANCH_MERGE,
    digest: str | None = None,
) -> MergeReceipt:
    """Merge a branch into another as one commit.

    Args:
        session: the session.
        request: the request.
        kind: the kind of write, recorded in the commit.
        digest: the digest of the request, for idempotency; by default computed from the request.

    Raises:
        AccessDeniedError: the policy does not allow the actor to merge these branches, or to delete the source.
        BranchNotFoundError: there is no such branch.
        MergeConflictsError: conflicts remain that no strategy or resolution decides. Nothing was written.
        MergeSchemaError: the schemas of the branches are incompatible.
        PreconditionFailedError: the head of a branch is not the expected one.
    """
    if session.whole is not None:
        return _merge_restricted(session, request, kind)
    return _merge(session, request, kind, digest, None)


def _merge_restricted(session: Session, request: MergeRequest, kind: WriterKind) -> MergeReceipt:
    """Merge all rows for an actor that sees only a part of them."""
    if kind is not WriterKind.BRANCH_MERGE:
        session.require_whole("branch update")
    from omnigraph.engine.restricted_merge import VisibleConflicts, visible_receipt

    check = VisibleConflicts(session, request.source, request.into)
    try:
        return visible_receipt(_merge(session.unrestricted, request, kind, None, check))
    except MergeSchemaError:  # it names types, which may be hidden
        raise check.denied() from None
    except (ReadSetChangedError, WriteTimeoutError) as error:
        raise without_table(error) from None


def _merge(
    session: Session, request: MergeRequest, kind: WriterKind, digest: str | None, check: CheckConflicts | None
) -> MergeReceipt:
    if not request.preview:
        session.require_writable()
    request = replace(request, source=branch_name(request.source), into=branch_name(request.into))
    if request.source == request.into:
        raise InputError(f"'{request.source}' cannot be merged into itself")
    session.allow(Action.BRANCH_MERGE, request.source, request.into)
    for name in (request.source, request.into):
        session.require_known(name)
    if request.delete_branch:
        session.allow(Action.BRANCH_DELETE, target_branch=request.source)
    write = write_request(session, request.into, kind, request)
    choices = Choices.given(request.strategy, request.resolutions, session.type_keys(request.into))
    level = merge_level(request.level)
    if request.idempotency_key is not None and digest is None:
        digest = _digest(request, choices, level)
    store = session.store
    if digest is not None and not request.preview:
        earlier = find_idempotent(store.capture(request.into), request.idempotency_key, session.actor)
        if earlier is not None:
            repeated = earlier_receipt(request.into, digest, earlier, kind)
            return _delete_source_again(session, repeated) if request.delete_branch else repeated
    source = store.capture(request.source) if request.preview else recovered_view(store, request.source)
    request = replace(request, expect_source=session.expected_head(request.expect_source))
    if request.expect_source not in (None, source.head.id):
        raise PreconditionFailedError(request.source, str(request.expect_source), source.head.id)
    target = store.capture(request.into)
    session.refuse_wider(Action.BRANCH_MERGE, source, request.into)
    with ExitStack() as held:
        # The work record protects both states from cleanup, even while the engine is chosen and started.
        if request.preview:
            if write.expect_head not in (None, target.head.id):
                raise PreconditionFailedError(request.into, str(write.expect_head), target.head.id)
            held.enter_context(reading(store.leases, WorkKind.MERGE, source))
        else:
            write = replace(write, work=held.enter_context(at_work(store.leases, WorkKind.MERGE, source, target)))
        size = partial(compared_bytes, store, session.schemas, source, target, SPARK_THRESHOLD.amount)
        choice = choose_engine(session, request, size)
        budget = memory_budget(request.memory_budget)
        comparer = held.enter_context(backend_of(choice, request).comparer(session, budget))
        memory = MemoryLimit(budget)
        work = Merge(store, source, session.schemas, choices, comparer, memory, level=level, check=check)
        prepare = PrepareMerge(session, request, work, source, digest)
        if request.preview:
            merged = work.against(target)
            return replace(prepare.receipt_of(merged), previewed=work.previewed(merged, target))
        commit = write_tables(session, write, prepare)
    last = prepare.receipt
    if last is not None and (commit is None or (LABEL, dict(commit.labels).get(LABEL)) == last.label(digest)):
        receipt = last.committed(commit)
    else:
        assert commit is not None  # the commit of an earlier request with the same idempotency key
        receipt = earlier_receipt(request.into, digest, commit, kind)
    return _delete_source(session, receipt, source.incarnation) if request.delete_branch else receipt


def _digest(request: MergeRequest, choices: Choices, level: MergeLevel | None) -> str:
    """A digest of the request, for idempotency."""
    parts: list[object] = [request.source, choices.default]
    parts.append({key: dict(sides) for key, sides in choices.by_type.items()})
    if level is not None:
        parts.append(level)
    return sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _delete_source_again(session: Session, receipt: MergeReceipt) -> MergeReceipt:
    """Delete the source of an earlier merge, unless that is done: the first request may have been interrupted.

    A branch that was created or reset after the merge is not deleted, although its head may be the merged one.
    """
    incarnation = session.store.branch_identifier(receipt.source)
    if incarnation is None:
        return replace(receipt, branch_deleted=True)
    found = session.store.find_branch(receipt.source)
    created = None if found is None else found.created_at
    if created is not None and receipt.commit is not None and created > receipt.commit.created_at:
        reason = f"'{receipt.source}' was created again or reset since the merge"
        return replace(receipt, branch_deleted=False, branch_delete_error=reason)
    return _delete_source(session, receipt, incarnation)


def _delete_source(session: Session, receipt: MergeReceipt, incarnation: str) -> MergeReceipt:
    """Delete the merged branch. A failure does not undo the merge."""
    try:
        remove_branch(session, receipt.source, receipt.source_commit, incarnation)
    except PreconditionFailedError:
        reason = f"'{receipt.source}' has new commits since the merge"
        return replace(receipt, branch_deleted=False, branch_delete_error=reason)
    except OmnigraphError as error:
        return replace(receipt, branch_deleted=False, branch_delete_error=error.message)
    return replace(receipt, branch_deleted=True)

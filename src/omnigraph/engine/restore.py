"""Restore: brings single entities back to their state in a commit, a tag or a time, as one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256

import orjson
import pyarrow as pa

from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Manifest, combined_models
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.removal_list import state_refs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import now_micros
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.commit.write_request import Prepared
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.requests import RestoreRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, PreconditionFailedError, shown
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.changes import change_of
from omnigraph.merge.compare import rows_write
from omnigraph.merge.entity_restore import EntityRestore
from omnigraph.merge.preview import previewed
from omnigraph.merge.receipt import MergedChanges
from omnigraph.merge.restore_receipt import FROM, RestoreReceipt, earlier_restore
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import require_values, validate
from omnigraph.write.spill import memory_budget


def restore_entities(session: Session, request: RestoreRequest) -> RestoreReceipt:
    """Bring entities of one type back to their state in a commit.

    Raises:
        InputError: there are no ids, or `edges` is given for an edge type.
        NotFoundError: there is no such branch, commit or type, or an entity exists in neither state.
        ConstraintError: the result breaks a constraint. Nothing was written.
        MergeSchemaError: that state does not have the type, or its values do not fit the schema of the branch.
        PreconditionFailedError: the head of the branch is not the expected one.
        VersionReclaimedError: cleanup has removed the state.
    """
    session.require_whole("restore")
    if not request.preview:
        session.require_writable()
    branch, ids = session.branch_or_default(request.branch), _ids(request)
    session.allow(Action.CHANGE, branch)
    if request.at is None:
        raise InputError("restore needs the state to take the rows from", hint="give a commit, a tag or a time as at")
    key = session.type_key(request.type_name, session.snapshot(branch=branch))
    if request.edges and TypeKey.parse(key).kind is TypeKind.EDGE:
        raise InputError(f"{key} is an edge type: edges have no edges of their own", hint="omit edges")
    store = session.store
    write = write_request(session, branch, WriterKind.RESTORE, request)
    target = store.capture(branch) if request.preview else recovered_view(store, branch)
    # A time or a manifest version refers to the branch.
    named = isinstance(request.at, str | Snapshot)
    with session.hiding_existence(Action.READ):
        before = session.snapshot_at(None if named else branch, request.at).manifest
    if session.access is not None:
        if before.branch != branch:
            session.allow(Action.READ, before.branch, names_branch=False)
        for action, view in ((Action.READ, before), (Action.CHANGE, target)):
            session.require_all_rows(action, view)
    digest = None if request.idempotency_key is None else _digest(key, ids, before, request)
    if not request.preview:
        earlier = find_idempotent(target, request.idempotency_key, session.actor)
        if earlier is not None:
            return earlier_restore(branch, digest, earlier)
    prepare = PrepareRestore(session, request, key, ids, before, digest)
    with ExitStack() as held:
        if request.preview:
            if write.expect_head not in (None, target.head.id):
                raise PreconditionFailedError(branch, str(write.expect_head), target.head.id)
            held.enter_context(reading(store.leases, WorkKind.MERGE, before))
            prepare(target)
            assert prepare.receipt is not None
            return prepare.receipt
        message = (
            f"Restore {request.type_name} from commit {before.head.id}" if write.message is None else write.message
        )
        work = held.enter_context(at_work(store.leases, WorkKind.MERGE, before, target))
        write = replace(write, message=message, labels=(*write.labels, (FROM, before.head.id)), work=work)
        commit = write_tables(session, write, prepare)
    last = prepare.receipt
    if last is not None and (commit is None or last.label(digest) in commit.labels):
        return last.committed(commit)
    assert commit is not None  # the commit of an earlier request with the same idempotency key
    return earlier_restore(branch, digest, commit)


def _ids(request: RestoreRequest) -> pa.Array:
    if isinstance(request.ids, Mapping) or not isinstance(request.ids, Iterable):
        raise InputError(f"ids: {shown(request.ids)} is not a list of ids")
    given = [request.ids] if isinstance(request.ids, str) else list(request.ids)
    for one in given:
        if not isinstance(one, str):
            raise InputError(f"an id must be a text, not {shown(one)}", hint='even if the key is a number: "10"')
    if not given:
        raise InputError("restore needs the ids of the entities")
    return pa.array(given, pa.utf8()).unique()


def _digest(key: str, ids: pa.Array, before: Manifest, request: RestoreRequest) -> str:
    """A digest of the request, for idempotency."""
    return sha256(orjson.dumps([key, sorted(ids.to_pylist()), before.head.id, request.edges])).hexdigest()


@dataclass(slots=True)
class PrepareRestore:
    """Create the table writes of one attempt.

    Attributes:
        before: the state that rows are taken from.
        receipt: the receipt of the last attempt, without a commit; None before the first.
    """

    session: Session
    request: RestoreRequest
    key: str
    ids: pa.Array
    before: Manifest
    digest: str | None
    receipt: RestoreReceipt | None = None

    def __call__(self, view: Manifest) -> Prepared:
        session, budget = self.session, memory_budget(self.request.memory_budget)
        found = EntityRestore(session.store, session.schemas, self.before, view, now_micros() // 1000, budget)
        found.run(self.key, self.ids, edges=self.request.edges)
        accepted = found.accepted
        require_values(accepted, {key: one.rows for key, one in found.tables.items()})
        changes = {key: change_of(accepted, one) for key, one in found.tables.items()}
        validate(accepted, changes, Snapshot(session.store, view), MemoryLimit(budget))
        self.receipt = RestoreReceipt(
            view.branch,
            self.before.head.id,
            {key: MergedChanges(one.inserted, one.updated, len(one.deleted)) for key, one in found.tables.items()},
            found.omitted,
            self.request.preview,
            session.actor,
            left_out=tuple(dict.fromkeys(found.left_out)),
            previewed=previewed(found.storage, found.tables, view) if self.request.preview else (),
        )
        writes = [
            rows_write(found.storage, one, view, combined_models(view.tables[key].models, found.models(key)))
            for key, one in found.tables.items()
        ]
        return Prepared(writes, (self.receipt.label(self.digest),), needs=state_refs(self.before))

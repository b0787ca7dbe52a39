"""Branch update: brings the schema and the rows of the parent into a branch, as one commit.

With equal schemas this is a merge of the parent. Otherwise the branch takes over the tables of the parent, and the
changes that the branch has made since the base are written on top of them, in the schema of the parent. The receipt
and the commit count the rows that differ between the old and the new head of the branch. So the cost depends on the
changes of both sides, and not on the size of the tables.
"""

# See docs/decisions/0196-a-branch-update-adopts-tables.md

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256

import orjson

from omnigraph.changes.planned_changes import PlannedChanges
from omnigraph.commit.ancestors import History, generation_of
from omnigraph.commit.branch_parents import parent_of
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import MAIN, Manifest
from omnigraph.commit.read_set import SCHEMA, untracked
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.removal_list import state_refs
from omnigraph.commit.schema_files import archive_contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.commit.write_request import Prepared
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.merge import merge
from omnigraph.engine.requests import BranchUpdateRequest, MergeRequest
from omnigraph.engine.session import Session
from omnigraph.errors import Conflict, InputError, MergeConflictsError, PreconditionFailedError, ReadSetChangedError
from omnigraph.merge.choices import Choices, Strategy
from omnigraph.merge.compare import Comparer
from omnigraph.merge.merge import Merge, Merged, compared_bytes
from omnigraph.merge.property_level import merge_level
from omnigraph.merge.receipt import LABEL, MergedChanges, MergeOutcome, MergeReceipt, earlier_receipt
from omnigraph.settings import SPARK_THRESHOLD
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget


def update_branch(session: Session, request: BranchUpdateRequest) -> MergeReceipt:
    """Bring the schema and the rows of the parent into a branch.

    The receipt is that of a merge of the parent into the branch: its `changes` are those between the old and the new
    head of the branch.

    Raises:
        BranchNotFoundError: there is no such branch.
        InputError: the branch is `main`.
        MergeConflictsError: conflicts remain that no strategy or resolution decides. Nothing was written.
        MergeSchemaError: changes of the branch cannot be brought to the schema of the parent.
        PreconditionFailedError: the head of the branch is not the expected one.
    """
    session.require_whole("branch update")
    if not request.preview:
        session.require_writable()
    request = replace(request, name=branch_name(request.name))
    try:
        return _update(session, request)
    except ReadSetChangedError as error:
        if error.member != SCHEMA:
            raise
        # Another process has updated the branch meanwhile. With the same schema, the update is a merge.
        return _update(session, request)


def _update(session: Session, request: BranchUpdateRequest) -> MergeReceipt:
    if request.name == MAIN:
        raise InputError("'main' has no parent", hint="name a branch; to change the schema of 'main', run schema apply")
    store = session.store
    parent_name = _parent(session, request.name)
    is_known = session.shown_branch(parent_name) == parent_name
    session.allow(Action.BRANCH_MERGE, parent_name, request.name, names_branch=is_known)
    if session.access is not None and not is_known:
        why = "the actor may not read the parent of the branch"
        raise session.access.denied(
            Action.BRANCH_MERGE, why, branch=parent_name, target_branch=request.name, names_branch=False
        )
    if request.preview:
        view, parent = store.capture(request.name), store.capture(parent_name)
    else:
        view, parent = recovered_view(store, request.name), recovered_view(store, parent_name)
    write = write_request(session, request.name, WriterKind.BRANCH_UPDATE, request)
    # Conflicts have the type names of the parent.
    choices = Choices.given(request.strategy, request.resolutions, session.type_keys(parent_name))
    digest = None
    if request.idempotency_key is not None:
        sides = {key: dict(ids) for key, ids in choices.by_type.items()}
        parts = [request.name, choices.default, sides, merge_level(request.level)]
        digest = sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
        earlier = None if request.preview else find_idempotent(view, request.idempotency_key, session.actor)
        if earlier is not None:
            return earlier_receipt(request.name, digest, earlier, WriterKind.BRANCH_UPDATE)
    if view.schema_hash == parent.schema_hash:
        return merge(session, _merge_request(request, parent_name), kind=WriterKind.BRANCH_UPDATE, digest=digest)
    with ExitStack() as held:
        if request.preview:
            if write.expect_head not in (None, view.head.id):
                raise PreconditionFailedError(request.name, str(write.expect_head), view.head.id)
            held.enter_context(reading(store.leases, WorkKind.MERGE, parent))
        else:
            write = replace(write, work=held.enter_context(at_work(store.leases, WorkKind.MERGE, parent, view)))
            archive_contract(store.objects, *session.schemas.version_of(parent))
        size = partial(compared_bytes, store, session.schemas, view, parent, SPARK_THRESHOLD.amount)
        choice = choose_engine(session, request, size)
        budget = memory_budget(request.memory_budget)
        comparer = held.enter_context(backend_of(choice, request).comparer(session, budget))
        prepare = PrepareUpdate(session, request, parent, choices.swapped(), comparer, digest)
        if request.preview:
            return prepare.previewed(view)
        commit = write_tables(session, write, prepare)
    last = prepare.receipt
    if last is not None and (commit is None or (LABEL, dict(commit.labels).get(LABEL)) == last.label(digest)):
        return last.committed(commit)
    assert commit is not None  # the commit of an earlier request with the same idempotency key
    return earlier_receipt(request.name, digest, commit, WriterKind.BRANCH_UPDATE)


def _parent(session: Session, name: str) -> str:
    """The parent of a branch; `main` if it no longer exists."""
    refs = session.store.branch_refs()
    found = refs.get(name)
    if found is None:
        session.allow(Action.BRANCH_MERGE, target_branch=name)
        session.store.capture(name)  # raises the error for an unknown branch
        return MAIN
    return parent_of(session.store, refs, found)


def _merge_request(request: BranchUpdateRequest, parent: str) -> MergeRequest:
    members = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "name"}
    return MergeRequest(source=parent, into=request.name, **members)


@dataclass(slots=True)
class PrepareUpdate:
    """Bring the changes of a branch to the tables of its parent.

    Attributes:
        session: the session.
        request: the request.
        parent: the state of the parent.
        choices: the winning sides of conflicts, where `ours` is the parent and `theirs` is the branch.
        comparer: compares the tables.
        digest: the digest of the request, for idempotency.
        receipt: the receipt of the last attempt, without a commit; None before the first.
    """

    session: Session
    request: BranchUpdateRequest
    parent: Manifest
    choices: Choices
    comparer: Comparer
    digest: str | None
    receipt: MergeReceipt | None = None

    def __call__(self, view: Manifest) -> Prepared:
        store, parent = self.session.store, self.parent
        if parent.schema_hash == view.schema_hash:
            raise ReadSetChangedError(SCHEMA, None, view.schema_hash)
        view = untracked(view)
        work = self._work(view)
        merged = work.against(parent)
        if merged.total:
            conflicts = swapped_sides(merged.conflicts)
            raise MergeConflictsError(parent.branch, view.branch, conflicts, merged.total, valid=Strategy.THEIRS)
        planned = self._planned(view, merged)
        self.receipt = receipt = self.receipt_of(view, merged, planned)
        history = History(store, parent, view)
        return Prepared(
            work.writes(merged, parent),
            (receipt.label(self.digest),),
            parent.head.id,
            generation_of(store, parent),
            history.missing_in_target(history.common()),
            state_refs(parent) | merged.base_refs,
            adopt=parent,
            counts=planned.counts,
            touched=planned.touched,
        )

    def _planned(self, view: Manifest, merged: Merged) -> PlannedChanges:
        """The changes of the branch, without entities that have unresolved conflicts."""
        session, tables = self.session, self.session.store.tables
        aligned = tables if merged.alignment is None else merged.alignment.tables
        return PlannedChanges(
            tables,
            session.graph_state(view),
            session.graph_state(self.parent),
            session.added_properties(self.parent),
            merged.tables,
            aligned,
            merged.conflicting,
        )

    def _work(self, view: Manifest) -> Merge:
        session, budget = self.session, memory_budget(self.request.memory_budget)
        memory, level = MemoryLimit(budget), merge_level(self.request.level)
        # The counts leave out all entities with conflicts, so all of them are needed.
        return Merge(
            session.store,
            view,
            session.schemas,
            self.choices,
            self.comparer,
            memory,
            level=level,
            complete=True,
        )

    def previewed(self, view: Manifest) -> MergeReceipt:
        """The receipt of a preview."""
        view = untracked(view)
        merged = self._work(view).against(self.parent)
        planned = self._planned(view, merged)
        return replace(self.receipt_of(view, merged, planned), previewed=planned.previewed())

    def receipt_of(self, view: Manifest, merged: Merged, planned: PlannedChanges) -> MergeReceipt:
        """The receipt, without a commit."""
        nothing_own = merged.outcome is MergeOutcome.ALREADY_UP_TO_DATE
        return MergeReceipt(
            self.parent.branch,
            view.branch,
            MergeOutcome.FAST_FORWARD if nothing_own else MergeOutcome.MERGED,
            self.parent.head.id,
            merged.bases,
            {one.key: MergedChanges(one.inserted, one.updated, one.deleted) for one in planned.counts},
            merged.resolved,
            merged.edges_kept,
            swapped_sides(merged.conflicts),
            merged.total,
            self.request.preview,
            self.session.actor,
            engine=self.comparer.engine,
            left_out=merged.left_out,
            schema_changes=tuple(map(str, planned.schema)),
        )


def swapped_sides(conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """The conflicts of a merge of the branch into its parent, with the branch as `ours`."""
    return tuple(replace(one, ours=one.theirs, theirs=one.ours) for one in conflicts)

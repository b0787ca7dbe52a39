"""Revert and cherry-pick: three-way merges whose base is known.

A revert merges the parent of a commit, with the commit as the base: it undoes the changes of the commit. A cherry-pick
merges the commit, with its parent as the base: it applies the changes of the commit. The result is an ordinary commit
with one parent. Later merges treat it like any other commit.
"""

# See docs/decisions/0170-an-undo-is-a-merge-with-a-known-base.md

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256

import orjson
import pyarrow as pa

from omnigraph.commit import snapshots
from omnigraph.commit.kept_states import kept_state
from omnigraph.commit.lineage import find_ancestor, find_idempotent, full_commit_id
from omnigraph.commit.manifest import MAIN, Commit, Manifest, Member
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.removal_list import check_present, state_refs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.commit.write_request import Prepared
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.backends import backend_of
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.requests import CherryPickRequest, PickFields, RevertRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    InputError,
    MergeSchemaError,
    NotFoundError,
    PickConflictsError,
    PreconditionFailedError,
    VersionReclaimedError,
    cut,
    shown,
)
from omnigraph.merge.choices import Choices
from omnigraph.merge.compare import Comparer, LocalComparer
from omnigraph.merge.merge import Merge, Merged, compared_bytes
from omnigraph.merge.pick_receipt import PICKED, REVERTED, REVERTED_MEMBER, PickOutcome, PickReceipt, earlier_pick
from omnigraph.merge.property_level import merge_level
from omnigraph.settings import SPARK_THRESHOLD
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.spill import memory_budget

_LONGEST_SUBJECT = 200
"""Maximum length of the quoted message in a default message."""


def revert(session: Session, request: RevertRequest) -> PickReceipt:
    """Undo the changes of one commit on a branch, as one commit.

    Raises:
        NotFoundError: there is no such branch, commit or member.
        InputError: the commit is the first of the graph, or a merge and no parent is given.
        PickConflictsError: conflicts remain that no strategy or resolution decides. Nothing was written.
        MergeSchemaError: the commit changed the schema, or the schemas of the commit and the branch are incompatible.
        PreconditionFailedError: the head of the branch is not the expected one.
        VersionReclaimedError: cleanup has removed the commit or its parent.
    """
    session.require_whole("revert")
    return _Pick(session, request, WriterKind.REVERT, request.branch, request.member).run(request.commit)


def cherry_pick(session: Session, request: CherryPickRequest) -> PickReceipt:
    """Apply the changes of one commit to a branch, as one commit.

    Raises:
        NotFoundError: there is no such branch or commit.
        InputError: the commit is the first of the graph, or a merge and no parent is given.
        PickConflictsError: conflicts remain that no strategy or resolution decides. Nothing was written.
        MergeSchemaError: the commit changed the schema, or the schemas of the commit and the branch are incompatible.
        PreconditionFailedError: the head of the branch is not the expected one.
        VersionReclaimedError: cleanup has removed the commit or its parent.
    """
    session.require_whole("cherry-pick")
    return _Pick(session, request, WriterKind.CHERRY_PICK, request.into).run(request.commit)


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of one commit.

    Attributes:
        commit: the commit.
        after: the state of the commit.
        before: the state of the parent that the change is relative to.
    """

    commit: Commit
    after: Manifest
    before: Manifest


class _Pick:
    """One revert or cherry-pick. `prepare` creates the table writes of one attempt.

    Attributes:
        receipt: the receipt of the last attempt, without a commit; None before the first.
    """

    def __init__(
        self,
        session: Session,
        request: PickFields,
        kind: WriterKind,
        branch: str | None,
        member: str | None = None,
    ) -> None:
        self._session = session
        self._member_name = member
        self._member: Member | None = None
        self._kind = kind
        self._branch = session.branch_or_default(branch)
        self._request = request
        self._choices = Choices.given(request.strategy, request.resolutions, session.type_keys(self._branch))
        self._level = merge_level(request.level)
        self.receipt: PickReceipt | None = None

    @property
    def _reverts(self) -> bool:
        return self._kind is WriterKind.REVERT

    @property
    def _verb(self) -> str:
        return "reverted" if self._reverts else "picked"

    def run(self, commit_id: str) -> PickReceipt:
        session, request = self._session, self._request
        if not request.preview:
            session.require_writable()
        session.allow(Action.CHANGE, self._branch)
        store = session.store
        write = write_request(session, self._branch, self._kind, request)
        target = store.capture(self._branch) if request.preview else recovered_view(store, self._branch)
        with session.hiding_existence(Action.READ):
            change = _change(session, target, commit_id, request.parent, self._verb)
        self._change = change
        self._check_access(target)
        self._member = None if self._member_name is None else _member(change.commit, self._member_name)
        self._source, self._base = (change.before, change.after) if self._reverts else (change.after, change.before)
        self._digest = None if request.idempotency_key is None else self._request_digest()
        if not request.preview:
            earlier = find_idempotent(target, request.idempotency_key, session.actor)
            if earlier is not None:
                return earlier_pick(self._kind, self._branch, self._digest, earlier)
        self._check_schemas()
        named = (REVERTED if self._reverts else PICKED, change.commit.id)
        message = self._message() if write.message is None else write.message
        of_member = () if self._member is None else ((REVERTED_MEMBER, self._member.id),)
        write = replace(write, message=message, labels=(*write.labels, named, *of_member))
        with ExitStack() as held:
            # The work record protects the states from cleanup, even while the engine is chosen and started.
            if request.preview:
                if write.expect_head not in (None, target.head.id):
                    raise PreconditionFailedError(self._branch, str(write.expect_head), target.head.id)
                needed = state_refs(self._source) | state_refs(self._base)
                held.enter_context(reading(store.leases, WorkKind.MERGE, needed))
                check_present(store.objects, needed, certain=False)
            else:
                work = held.enter_context(at_work(store.leases, WorkKind.MERGE, self._source, self._base, target))
                write = replace(write, work=work)
            budget = memory_budget(request.memory_budget)
            comparer = self._comparer(held, target, budget)
            self._work = Merge(
                store,
                self._source,
                session.schemas,
                self._choices,
                comparer,
                MemoryLimit(budget),
                f"the {'revert' if self._reverts else 'cherry-pick'} of {change.commit.id}",
                restoring=self._reverts,
                level=self._level,
            )
            if request.preview:
                merged = self._work.against(target, self._base)
                return replace(self._receipt_of(merged), previewed=self._work.previewed(merged, target))
            commit = write_tables(session, write, self._prepare)
        last = self.receipt
        label = None if last is None else last.label(self._kind, self._digest)
        if last is not None and (commit is None or label in commit.labels):
            return last.committed(commit)
        assert commit is not None  # the commit of an earlier request with the same idempotency key
        return earlier_pick(self._kind, self._branch, self._digest, commit)

    def _check_access(self, target: Manifest) -> None:
        """Check that the actor may read the commit, and may change all rows of all types."""
        session, change = self._session, self._change
        if session.access is not None:
            if change.commit.branch != self._branch:
                session.allow(Action.READ, change.commit.branch, names_branch=False)
            for action, view in ((Action.READ, change.after), (Action.READ, change.before), (Action.CHANGE, target)):
                session.require_all_rows(action, view)

    def _comparer(self, held: ExitStack, target: Manifest, budget: int) -> Comparer:
        session, request = self._session, self._request
        if self._member is not None:
            # A member changes few entities, so it needs no Spark.
            keys = {pin.id: key for key, pin in target.tables.items()}
            pins = self._change.after.tables
            changed = [(keys.get(pins[key].id), ids) for key, ids in self._member.changed if key in pins]
            only = {key: pa.array(ids, pa.utf8()) for key, ids in changed if key is not None}
            return LocalComparer(session.store.tables, budget, only)
        exact_from = SPARK_THRESHOLD.amount
        size = partial(compared_bytes, session.store, session.schemas, self._source, target, exact_from, self._base)
        choice = choose_engine(session, request, size)
        return held.enter_context(backend_of(choice, request).comparer(session, budget))

    def _prepare(self, view: Manifest) -> Prepared:
        merged = self._work.against(view, self._base)
        receipt = self._receipt_of(merged)
        self.receipt = receipt
        if merged.total:
            raise PickConflictsError(self._verb, receipt.commit_id, view.branch, merged.conflicts, merged.total)
        # The commit checks that cleanup has not removed the versions that were compared.
        needs = state_refs(self._source) | state_refs(self._base)
        return Prepared(self._work.writes(merged, view), (receipt.label(self._kind, self._digest),), needs=needs)

    def _receipt_of(self, merged: Merged) -> PickReceipt:
        """The receipt, without a commit."""
        done = PickOutcome.REVERTED if self._reverts else PickOutcome.PICKED
        return PickReceipt(
            self._change.commit.id,
            self._change.before.head.id,
            self._branch,
            done if merged.changes or merged.total else PickOutcome.NOTHING_TO_DO,
            merged.changes,
            merged.resolved,
            merged.edges_kept,
            merged.edges_omitted,
            merged.conflicts,
            merged.total,
            self._request.preview,
            self._session.actor,
            engine=self._work.engine,
            left_out=merged.left_out,
            member_id=None if self._member is None else self._member.id,
        )

    def _check_schemas(self) -> None:
        change = self._change
        changes_schema = change.before.schema_hash != change.after.schema_hash
        if not changes_schema and change.commit.writer != WriterKind.SCHEMA_APPLY:
            return
        raise MergeSchemaError(
            f"commit {change.commit.id} changed the schema of '{change.commit.branch}', so it cannot be {self._verb}",
            hint=self._schema_hint(),
        )

    def _schema_hint(self) -> str:
        branch, before = self._change.commit.branch, self._change.before.head.id
        if self._reverts and branch != MAIN:
            return f"to go back, run 'omnigraph branch reset {branch} --to {before}'"
        if self._reverts:
            return (
                f"to go back, apply the schema that 'omnigraph schema show --snapshot {before}' prints, with "
                "@rename_from for what was renamed"
            )
        if self._branch == MAIN:
            return "apply the schema of that commit with 'omnigraph schema apply'"
        return f"run 'omnigraph branch update {self._branch}', which brings the schema of the parent"

    def _message(self) -> str:
        commit = self._change.commit
        subject = (commit.message or "").strip().partition("\n")[0][:_LONGEST_SUBJECT]
        if not self._reverts:
            return commit.message or f"Pick commit {commit.id}"
        if self._member is not None:
            return f"Revert member {self._member.id} of commit {commit.id}"
        if not subject:
            return f"Revert commit {commit.id}"
        if subject.startswith('Revert "') and REVERTED in dict(commit.labels):
            return f"Reapply {subject.removeprefix('Revert ')}"
        return f'Revert "{subject}"'

    def _request_digest(self) -> str:
        """A digest of the request, for idempotency."""
        sides = {key: dict(by_id) for key, by_id in self._choices.by_type.items()}
        ids = self._change.commit.id, self._change.before.head.id
        parts = [*ids, self._choices.default, sides, self._level, *([] if self._member is None else [self._member.id])]
        return sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _member(commit: Commit, name: str) -> Member:
    """The member of a commit, given its id or the beginning of it.

    Raises:
        NotFoundError: the commit has no such member.
        InputError: several members have ids with this beginning.
    """
    if not isinstance(name, str):
        raise InputError(f"{shown(name)} is not a member of a commit", hint="give the id of a member")
    found = [member for member in commit.members if name and member.id.startswith(name.upper())]
    if len(found) > 1:
        raise InputError(f"'{cut(name)}' is the beginning of {len(found)} members", hint="give more characters")
    if not found:
        hint = "'commit show' lists its members" if commit.members else "it has no members: revert the whole commit"
        raise NotFoundError(f"commit {commit.id} has no member '{cut(name)}'", hint=hint)
    return found[0]


def _change(session: Session, target: Manifest, name: str, parent: int | None, verb: str) -> _Change:
    """The change of a commit.

    Raises:
        NotFoundError: there is no such commit or tag.
        InputError: the commit has no parent, or several and none is chosen.
        VersionReclaimedError: cleanup has removed the commit or its parent.
    """
    store = session.store
    if not isinstance(name, str):
        raise InputError(f"{shown(name)} is not a commit", hint="give the id of a commit, or a tag")
    # A commit of a merged and deleted branch is only in the lineage of the branch that it was merged into.
    found = find_ancestor(target, full_commit_id(store, name))
    after = snapshots.at_commit(store, name).manifest if found is None else kept_state(store, found)
    commit = after.head
    parents = [one for one in (commit.parent, commit.merged_parent) if one is not None]
    if not parents:
        raise InputError(
            f"commit {commit.id} is the first of the graph, so it cannot be {verb}", hint="choose a later commit"
        )
    if parent is not None and (isinstance(parent, bool) or parent not in range(1, len(parents) + 1)):
        raise InputError(
            f"commit {commit.id} has no parent {shown(parent)}",
            hint="a merge commit has the parents 1 and 2" if len(parents) > 1 else "it has one parent: omit the number",
        )
    if parent is None and len(parents) > 1:
        raise InputError(
            f"commit {commit.id} is a merge, so it can be {verb} only relative to one of its parents",
            hint=f"give the parent (--parent 1 or 2): 1 is {parents[0]}, the head of '{commit.branch}' before the "
            f"merge, and 2 is {parents[1]}, the head of the merged branch",
        )
    name = parents[(parent or 1) - 1]
    before = find_ancestor(after, name)
    try:
        if before is None:
            raise VersionReclaimedError(f"the state at commit {name} no longer exists")
        return _Change(commit, after, kept_state(store, before))
    except VersionReclaimedError as error:
        raise VersionReclaimedError(
            f"commit {commit.id} cannot be {verb}: the state at its parent {name} no longer exists",
            hint="cleanup, or a schema change that removed data, has removed it; a tag keeps a state from cleanup",
        ) from error

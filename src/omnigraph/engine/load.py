"""Load: write the rows of a source as one commit. A backend builds the rows, in this process or on Spark."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from omnigraph.commit import branches
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.read_set import SCHEMA
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.refs import BranchRef
from omnigraph.commit.sidecar import WriterKind, pending
from omnigraph.commit.work_records import Work, WorkKind, at_work
from omnigraph.commit.write_request import WriteRequest
from omnigraph.engine.access import Action
from omnigraph.engine.backends import (
    LoadRows,
    StagedRowsOutdatedError,
    backend_of,
)
from omnigraph.engine.branches import hiding_names
from omnigraph.engine.commit import state_of, write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine, input_bytes
from omnigraph.engine.engines import Engine, parse_engine
from omnigraph.engine.prepare import PrepareLoad
from omnigraph.engine.requests import LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    KeyConflictError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.receipt import LABEL, LoadAnswer, LoadMode, LoadReceipt, earlier_receipt, load_mode


def load(session: Session, source: object, request: LoadRequest, transaction_on: Manifest | None = None) -> LoadReceipt:
    """Load rows as one commit. If one record is invalid, nothing is written.

    Args:
        session: the session.
        source: files, tables or records. `Graph.load` documents them.
        request: the request.
        transaction_on: for a load in a transaction: the state of the branch at its start. The rules of this branch
            apply, and the transaction has checked that the actor may change it.

    Raises:
        AccessDeniedError: the policy does not allow the actor to change the branch or a type, or to create the branch.
        BadRowsError: records cannot become rows of their type.
        ConstraintError: rows break a constraint of the schema.
        KeyConflictError: an id already exists, and the mode is `append`.
        InputError: the request is invalid.
    """
    if not request.check:
        session.require_writable()
    mode, mapping = load_mode(request.mode), request.mapping
    if mapping is not None:
        mapping = TableMapping.read(mapping, session.storage_options)
    branch = session.branch_or_default(request.branch)
    if transaction_on is None:
        session.allow(Action.CHANGE, branch)
    request = replace(request, mode=mode, mapping=mapping, branch=branch)
    if session.whole is not None:
        # Spark tasks read the tables themselves, and would see all rows.
        if parse_engine(request.engine) is Engine.SPARK:
            session.require_whole("load on Spark")
        request = replace(request, engine=Engine.LOCAL.value)
    # Build the request first: invalid metadata is rejected before the source is read.
    write = write_request(session, branch, WriterKind.LOAD, request)
    choice = choose_engine(
        session, request, partial(input_bytes, source, session.storage_options, request.format), "of input"
    )
    with (
        backend_of(choice, request).load_rows(session, source, request) as rows,
        _recorded(session, rows) as work,
    ):
        receipt = _Run(session, request, mode, rows, replace(write, work=work), transaction_on).run()
    return replace(receipt, engine=choice.engine.value, why=choice.why)


def _recorded(session: Session, rows: LoadRows) -> AbstractContextManager[Work | None]:
    """A work record that protects the files of the load from cleanup. A read-only session writes none."""
    if session.read_only:
        return nullcontext()
    return at_work(session.store.leases, WorkKind.LOAD, name=rows.work_name)


class _Run:
    """The run of one load: create the branch if it is missing, build the rows, commit, and return the receipt."""

    def __init__(
        self,
        session: Session,
        request: LoadRequest,
        mode: LoadMode,
        rows: LoadRows,
        write: WriteRequest,
        transaction_on: Manifest | None,
    ) -> None:
        self.session = session
        self.request = request
        self.mode = mode
        self.rows = rows
        self.write = write
        self.branch = write.branch
        self.transaction_on = transaction_on

    def run(self) -> LoadReceipt:
        outdated: Exception
        for attempt in range(self.rows.attempts):
            self.rows.begin(attempt)
            try:
                return self._attempt()
            except StagedRowsOutdatedError as error:
                outdated = error
            except ReadSetChangedError as error:
                # An overwrite would discard commits that it has never seen.
                if error.member != SCHEMA or self.mode is LoadMode.OVERWRITE or not self.rows.can_read_again:
                    raise
                outdated = error
            finally:
                self.rows.end_attempt()
        raise outdated if isinstance(outdated, ReadSetChangedError) else outdated.__cause__ or outdated

    def _attempt(self) -> LoadReceipt:
        request, rows, write = self.request, self.rows, self.write
        view, missing = self._target()
        if not missing:
            earlier = find_idempotent(self.session.stored(view), request.idempotency_key, self.session.actor)
            if earlier is not None:
                state = partial(state_of, self.session, earlier, view)
                return earlier_receipt(self.branch, self.mode, lambda: rows.digest(state()), earlier)
        if write.expect_head not in (None, view.head.id):
            raise PreconditionFailedError(self.branch, str(write.expect_head), view.head.id)
        base, created, begun = view, None, view
        try:
            if missing and rows.stages_into_tables and not request.check:
                created = _fork(self.session, self.branch, base)
                begun = self.session.store.capture(self.branch)
            rows.read(begun)
            self._check_types(base)
            if request.check:
                rows.check(begun)
                return self._answer(created=False).receipt(self.branch, self.session.actor, None)
            if missing and not rows.stages_into_tables:
                created = _fork(self.session, self.branch, base)
            answer = self._answer(created=created is not None)
            # Staging into tables takes long, so run recovery again after it.
            write = replace(write, healed=not rows.stages_into_tables)
            commit = write_tables(self.session, write, PrepareLoad(rows, begun.schema_hash, answer.label()))
        except BaseException as error:
            if created is not None:
                delete_failed_branch(self.session.unrestricted, created, base)
            if isinstance(error, KeyConflictError):
                raise rows.located(error) from error.__cause__
            raise
        if commit is not None and not _is_commit_of(commit, answer):
            return earlier_receipt(self.branch, self.mode, lambda: str(rows.fingerprint), commit)
        return replace(answer.receipt(self.branch, self.session.actor, commit), merges=rows.merges)

    def _check_types(self, base: Manifest) -> None:
        """Check that the actor may change the types of the rows."""
        session = self.session
        if session.access is not None:
            view = self.transaction_on or base
            for action in (Action.READ, Action.CHANGE):
                session.refuse_row_limits(action, view)
            session.require_types(Action.CHANGE, view, self.rows.counts)

    def _answer(self, *, created: bool) -> LoadAnswer:
        rows, request = self.rows, self.request
        fingerprint = None if request.check else rows.fingerprint
        return LoadAnswer(self.mode, dict(rows.counts), rows.coerced, request.base, created, fingerprint)

    def _target(self) -> tuple[Manifest, bool]:
        """The state to load into, and whether the branch still has to be created from it.

        Recovery runs first, because an interrupted write may have changed the schema. A check must not write, so it
        skips recovery.

        Raises:
            BranchNotFoundError: there is no such branch, and the request has no base.
        """
        session, store = self.session, self.session.store
        try:
            return store.capture(self.branch) if self.request.check else session.recovered(self.branch), False
        except BranchNotFoundError:
            if self.request.base is None:
                raise
        base = branch_name(self.request.base)
        self.session.allow(Action.BRANCH_CREATE, base, self.branch)
        self.session.require_known(base)
        return store.capture(base), True


def _is_commit_of(commit: Commit, answer: LoadAnswer) -> bool:
    return answer.label() == (LABEL, dict(commit.labels).get(LABEL))


def _fork(session: Session, branch: str, base: Manifest) -> BranchRef | None:
    """Create the branch of a load. Return None if another process created it first."""
    base = session.stored_state(base)
    session = session.unrestricted
    session.refuse_wider(Action.BRANCH_CREATE, base, branch)
    try:
        with hiding_names(session, branch):
            return branches.create_branch(session.store, branch, base)
    except ConflictError:
        if session.store.branch_identifier(branch) is None:
            raise
        return None


def delete_failed_branch(session: Session, created: BranchRef, base: Manifest) -> None:
    """Delete the branch that a failed load created, but no other branch of the same name.

    Keep the branch if it has commits, or if recovery may still complete a write to it.
    """
    with suppress(OmnigraphError):
        has_sidecar = any(sidecar.branch == created.name for sidecar in pending(session.store.objects))
        if not has_sidecar:
            branches.delete_branch(session.store, created.name, base.head.id, created.incarnation)

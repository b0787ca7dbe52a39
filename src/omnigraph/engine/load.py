"""Loads: rows of a source become one commit. The rows are built in this process or on Spark; the run is the same."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace

from omnigraph.commit import branches
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.refs import BranchRef
from omnigraph.commit.sidecar import WriterKind, pending
from omnigraph.commit.work_records import Work, WorkKind, at_work
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.engine.backends import (
    LoadRows,
    StagedRowsOutdatedError,
    backend_of,
    choose,
    input_bytes,
)
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.requests import LoadRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.write.input.table_mapping import TableMapping
from omnigraph.write.receipt import LABEL, LoadAnswer, LoadMode, LoadReceipt, earlier_receipt


def load_mode(mode: LoadMode | str) -> LoadMode:
    """The load mode of a name.

    Raises:
        InputError: there is no such mode.
    """
    try:
        return LoadMode(mode)
    except ValueError:
        raise InputError(f"'{mode}' is not a mode", hint="append, merge or overwrite") from None


def load(session: Session, source: object, request: LoadRequest) -> LoadReceipt:
    """Load rows as one commit. If one record is wrong, nothing is written.

    Args:
        session: the session.
        source: files, tables or records; `Graph.load` lists them.
        request: the request.

    Raises:
        BadRowsError: records cannot become rows of their type.
        ConstraintError: rows break a constraint of the schema.
        KeyConflictError: an id exists that should be new.
        InputError: the request is not valid.
    """
    if not request.check:
        session.require_writable()
    mode, mapping = load_mode(request.mode), request.mapping
    if mapping is not None:
        mapping = TableMapping.read(mapping, session.storage_options)
    branch = session.branch_or_default(request.branch)
    request = replace(request, mode=mode, mapping=mapping, branch=branch)
    write = write_request(session, branch, WriterKind.LOAD, request)  # refuses bad metadata before anything is read
    choice = choose(session, request, lambda: input_bytes(source, session.storage_options), "of input")
    with (
        backend_of(choice, request).load_rows(session, source, request) as rows,
        _recorded(session, rows) as work,
    ):
        receipt = _Run(session, request, mode, rows, replace(write, work=work)).run()
    return replace(receipt, engine=choice.engine.value, why=choice.why)


def _recorded(session: Session, rows: LoadRows) -> AbstractContextManager[Work | None]:
    """A record of the load, so that cleanup leaves its files alone. A session that only reads leaves none."""
    if session.read_only:
        return nullcontext()
    return at_work(session.store.leases, WorkKind.LOAD, name=rows.work_name)


class _Run:
    """One load: the branch, the attempts, the commit and the receipt."""

    def __init__(
        self, session: Session, request: LoadRequest, mode: LoadMode, rows: LoadRows, write: WriteRequest
    ) -> None:
        self.session = session
        self.request = request
        self.mode = mode
        self.rows = rows
        self.write = write
        self.branch = write.branch

    def run(self) -> LoadReceipt:
        for attempt in range(self.rows.attempts):
            self.rows.begin(attempt)
            try:
                return self._attempt()
            except StagedRowsOutdatedError as error:
                outdated = error
            finally:
                self.rows.end_attempt()
        raise outdated.__cause__ or outdated

    def _attempt(self) -> LoadReceipt:
        request, rows, write = self.request, self.rows, self.write
        view, missing = self._target()
        if not missing:
            earlier = find_idempotent(view, request.idempotency_key)
            if earlier is not None:
                return earlier_receipt(self.branch, self.mode, lambda: rows.digest(view), earlier)
        if request.expect_head not in (None, view.head.id):
            raise PreconditionFailedError(self.branch, str(request.expect_head), view.head.id)
        base, made, begun = view, None, view
        try:
            if missing and rows.stages_into_tables and not request.check:
                made = _fork(self.session, self.branch, base)
                begun = self.session.store.capture(self.branch)
            rows.read(begun)
            if request.check:
                rows.check(begun)
                return self._answer(created=False).receipt(self.branch, self.session.actor, None)
            if missing and not rows.stages_into_tables:
                made = _fork(self.session, self.branch, base)
            answer = self._answer(created=made is not None)

            def prepare(now: Manifest) -> Prepared:
                if now.schema_hash != begun.schema_hash:
                    raise ReadSetChangedError("schema", begun.schema_hash, now.schema_hash)
                return Prepared(rows.prepare(now), (answer.label(),))

            write = replace(write, healed=not rows.stages_into_tables)  # staging takes long: recover again after it
            commit = write_tables(self.session, write, prepare)
        except BaseException:
            if made is not None:
                take_back(self.session, made, base)
            raise
        if commit is not None and not _is_own(commit, answer):
            return earlier_receipt(self.branch, self.mode, lambda: str(rows.fingerprint), commit)
        return replace(answer.receipt(self.branch, self.session.actor, commit), merges=rows.merges)

    def _answer(self, *, created: bool) -> LoadAnswer:
        rows, request = self.rows, self.request
        fingerprint = None if request.check else rows.fingerprint
        return LoadAnswer(self.mode, dict(rows.counts), rows.coerced, request.base, created, fingerprint)

    def _target(self) -> tuple[Manifest, bool]:
        """The state to load into, and whether the branch has yet to be forked from it.

        Recovery comes first: an interrupted write may have changed the schema. A check writes nothing, so it skips it.

        Raises:
            BranchNotFoundError: there is no such branch, and no base to fork it from.
        """
        store = self.session.store
        try:
            return store.capture(self.branch) if self.request.check else recovered_view(store, self.branch), False
        except BranchNotFoundError:
            if self.request.base is None:
                raise
        return store.capture(branch_name(self.request.base)), True


def _is_own(commit: Commit, answer: LoadAnswer) -> bool:
    return answer.label() == (LABEL, dict(commit.labels).get(LABEL))


def _fork(session: Session, branch: str, base: Manifest) -> BranchRef | None:
    """Create the branch of a load. None means that another process created it first."""
    try:
        return branches.create_branch(session.store, branch, base)
    except ConflictError:
        if session.store.branch_identifier(branch) is None:
            raise
        return None


def take_back(session: Session, made: BranchRef, base: Manifest) -> None:
    """Delete the branch that was created for a load that failed, and no other branch of that name.

    The branch stays if it has commits, or if recovery may still finish a write to it.
    """
    with suppress(OmnigraphError):
        unsettled = any(sidecar.branch == made.name for sidecar in pending(session.store.objects))
        if not unsettled:
            branches.delete_branch(session.store, made.name, base.head.id, made.incarnation)

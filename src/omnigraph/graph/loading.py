"""A load through the handle of a graph: the branch that it goes to, the rows, the commit and the receipt."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.commit import branches
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.refs import BranchRef
from omnigraph.commit.sidecar import WriterKind, pending
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import Prepared, Unchanged, WriteRequest
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    InputError,
    OmnigraphError,
    PreconditionFailedError,
    ReadSetChangedError,
)
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.write.fingerprint import RowsDigest
from omnigraph.write.load import Load, LoadProgress, loaded
from omnigraph.write.pieces import pieces
from omnigraph.write.problems import Coercion, Coercions, Problems
from omnigraph.write.receipt import LABEL, LoadAnswer, LoadMode, LoadReceipt, answered
from omnigraph.write.sources import LoadSource, Source, open_source
from omnigraph.write.spill import memory_budget
from omnigraph.write.table_mapping import TableMapping

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """What `Graph.load` was asked for; the arguments are described there. The labels are the commit's."""

    mode: LoadMode
    branch: str
    base: str | None = None
    type_name: str | None = None
    lenient: bool = False
    expect_head: str | None = None
    idempotency_key: str | None = None
    message: str | None = None
    embed: bool = True
    memory_budget: int | str | None = None
    progress: Callable[[LoadProgress], None] | None = None
    check: bool = False
    mapping: TableMapping | None = None
    labels: tuple[tuple[str, str], ...] = ()
    unchanged: Unchanged | None = None
    timeout: float | None = None


def load_mode(mode: LoadMode | str) -> LoadMode:
    """The mode of a name.

    Raises:
        InputError: there is none.
    """
    try:
        return LoadMode(mode)
    except ValueError:
        raise InputError(f"'{mode}' is not a mode", hint="append, merge or overwrite") from None


def said_about(graph: Graph, request: LoadRequest) -> WriteRequest:
    """What is said about the commit of a load.

    Raises:
        InputError: a commit cannot hold it.
    """
    return WriteRequest(
        branch=branch_name(request.branch),
        kind=WriterKind.LOAD,
        actor=graph.actor,
        message=request.message,
        labels=request.labels,
        timeout=request.timeout,
        expect_head=request.expect_head,
        unchanged=request.unchanged,
        idempotency_key=request.idempotency_key,
    )


def load(graph: Graph, source: LoadSource, request: LoadRequest) -> LoadReceipt:
    """Carry out a load."""
    said = said_about(graph, request)  # before anything is read
    with at_work(graph._store.leases, WorkKind.LOAD) as work:
        return _load(graph, source, request, replace(said, work=work))


def _load(graph: Graph, source: LoadSource, request: LoadRequest, said: WriteRequest) -> LoadReceipt:
    store = graph._store
    target = branch_name(request.branch)
    view, missing = target_of(graph, target, request.base, heal=not request.check)
    if not missing:
        earlier = find_idempotent(view, request.idempotency_key)
        if earlier is not None:
            return answered(target, request.mode, lambda: digest_of(graph, source, request, view), earlier)
    if request.expect_head not in (None, view.head.id):
        raise PreconditionFailedError(target, str(request.expect_head), view.head.id)
    _, accepted = graph._schema_of(view)
    digest = None if request.idempotency_key is None else RowsDigest(accepted, _unheard(request.lenient))
    rows = Load(
        accepted,
        request.mode,
        budget=memory_budget(request.memory_budget),
        embedder=(lambda: graph.embedder) if request.embed else None,
        policy=graph._blobs,
        progress=request.progress,
        digest=digest,
    )
    rows.read(rows_of(graph, source, request, accepted))
    changes = rows.changes()
    if request.check:
        rows.check(Snapshot(store, view), changes)
        return LoadAnswer(request.mode, loaded(changes), _coerced(rows), request.base).receipt(
            target, graph.actor, None
        )
    made = fork_for(graph, target, view) if missing else None
    fingerprint = None if digest is None else digest.value(request.embed)
    answer = LoadAnswer(request.mode, loaded(changes), _coerced(rows), request.base, made is not None, fingerprint)

    def prepare(now: Manifest) -> Prepared:
        if now.schema_hash != view.schema_hash:
            raise ReadSetChangedError("schema", view.schema_hash, now.schema_hash)
        return Prepared(rows.prepare(Snapshot(store, now), changes), (answer.label(),))

    try:
        commit = graph.write_tables(replace(said, healed=True), prepare)
    except BaseException:
        if made is not None:
            take_back(graph, made, view)
        raise
    if commit is not None and not is_own(commit, answer):
        return answered(target, request.mode, lambda: str(fingerprint), commit)
    return answer.receipt(target, graph.actor, commit)


def rows_of(graph: Graph, source: LoadSource, request: LoadRequest, accepted: AcceptedSchema) -> Source:
    """The rows that a load is asked for. Files in S3 are reached as the graph is.

    Raises:
        InputError: there are none, or what is said about them means nothing.
    """
    return open_source(
        source,
        accepted,
        request.type_name,
        lenient=request.lenient,
        mapping=request.mapping,
        options=graph._store.objects.uri.storage_options,
    )


def _coerced(rows: Load) -> tuple[Coercion, ...]:
    return rows.problems.coerced.all() if rows.problems.coerced is not None else ()


def _unheard(lenient: bool) -> Problems:
    """Problems that nobody asks for: what builds the rows tells the same ones."""
    problems = Problems()
    problems.coerced = Coercions() if lenient else None
    return problems


def digest_of(graph: Graph, source: LoadSource, request: LoadRequest, view: Manifest) -> str:
    """What tells the load from others, from its input alone.

    Raises:
        BadRowsError: records cannot be read.
    """
    accepted, problems = graph._schema_of(view)[1], Problems()
    digest = RowsDigest(accepted, problems)
    for raw in rows_of(graph, source, request, accepted)(problems):
        for piece in pieces(raw):
            digest.take(piece)
    problems.check()
    return digest.value(request.embed)


def is_own(commit: Commit, answer: LoadAnswer) -> bool:
    return answer.label() == (LABEL, dict(commit.labels).get(LABEL))


def target_of(graph: Graph, branch: str, base: str | None, *, heal: bool = True) -> tuple[Manifest, bool]:
    """The state to load into, and whether the branch has yet to be forked from it.

    Args:
        graph: the graph.
        branch: the branch to load into.
        base: what to fork it from if there is none.
        heal: settle what interrupted writers left first. One of them may have changed the schema that rows have to fit.

    Raises:
        BranchNotFoundError: there is no such branch, and no base to fork it from.
    """
    try:
        return recovered_view(graph._store, branch) if heal else graph._store.capture(branch), False
    except BranchNotFoundError:
        if base is None:
            raise
    return graph._store.capture(branch_name(base)), True


def fork_for(graph: Graph, branch: str, base: Manifest) -> BranchRef | None:
    """Make the branch. None when somebody else did meanwhile."""
    try:
        return branches.create_branch(graph._store, branch, base)
    except ConflictError:
        if graph._store.branch_identifier(branch) is None:
            raise
        return None


def take_back(graph: Graph, made: BranchRef, base: Manifest) -> None:
    """Remove the branch that was made for a load which came to nothing, and no other of that name.

    It stays when something is on it, or when a write to it may still be finished by recovery.
    """
    store = graph._store
    with suppress(OmnigraphError):
        unsettled = any(sidecar.branch == made.name for sidecar in pending(store.objects))
        if not unsettled:
            branches.delete_branch(store, made.name, base.head.id, made.incarnation)

"""A merge through the handle of a graph: the branches, the commit, the receipt, and the branch that is done with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import orjson

from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.removal_list import state_refs
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.work_records import WorkKind, at_work, reading
from omnigraph.commit.write_request import Prepared, Unchanged, WriteRequest
from omnigraph.errors import InputError, MergeConflictsError, OmnigraphError, PreconditionFailedError
from omnigraph.merge.choices import Choices, Resolutions, Strategy
from omnigraph.merge.compare import Comparer, LocalComparer
from omnigraph.merge.merge import Merge, Merged
from omnigraph.merge.receipt import LABEL, MergeOutcome, MergeReceipt, answered
from omnigraph.write.checks import Room
from omnigraph.write.spill import memory_budget

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What `Graph.merge` was asked for; the arguments are described there.

    Attributes:
        expect_source: the commit that the source has to be at.
    """

    source: str
    target: str
    strategy: Strategy | str | None = None
    resolutions: Resolutions | None = None
    preview: bool = False
    delete_branch: bool = False
    message: str | None = None
    labels: Mapping[str, str] | None = None
    expect_head: str | None = None
    idempotency_key: str | None = None
    memory_budget: int | str | None = None
    expect_source: str | None = None
    unchanged: Unchanged | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """How tables are compared.

    Attributes:
        engine: what the receipt calls it.
        comparer: makes what compares them.
    """

    engine: str
    comparer: Callable[[Graph, int], Comparer]


def _local(graph: Graph, budget: int) -> Comparer:
    return LocalComparer(graph._store.tables, budget)


LOCAL = Way("local", _local)


def merge(graph: Graph, request: MergeRequest, way: Way = LOCAL) -> MergeReceipt:
    """Carry out a merge."""
    if not request.preview:
        graph._writable()
    request = replace(request, source=branch_name(request.source), target=branch_name(request.target))
    if request.source == request.target:
        raise InputError(f"'{request.source}' cannot be merged into itself")
    said = _said_about(graph, request)
    choices = Choices.given(request.strategy, request.resolutions, graph._type_key)
    digest = None if request.idempotency_key is None else _digest(request, choices)
    store = graph._store
    if digest is not None and not request.preview:
        earlier = find_idempotent(store.capture(request.target), request.idempotency_key)
        if earlier is not None:
            return answered(request.target, digest, earlier)
    source = store.capture(request.source) if request.preview else recovered_view(store, request.source)
    if request.expect_source not in (None, source.head.id):
        raise PreconditionFailedError(request.source, str(request.expect_source), source.head.id)
    budget = memory_budget(request.memory_budget)
    comparer = way.comparer(graph, budget)
    work = Merge(store, source, lambda view: graph._schema_of(view)[1], choices, comparer, Room(budget))
    if request.preview:
        target = store.capture(request.target)
        if request.expect_head not in (None, target.head.id):
            raise PreconditionFailedError(request.target, str(request.expect_head), target.head.id)
        with reading(store.leases, WorkKind.MERGE, source):
            return _receipt(graph, request, source, work.against(target), way)
    answers: list[MergeReceipt] = []

    def prepare(target: Manifest) -> Prepared:
        merged = work.against(target)
        answers.append(_receipt(graph, request, source, merged, way))
        if merged.total:
            raise MergeConflictsError(source.branch, target.branch, merged.conflicts, merged.total)
        if merged.outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return Prepared(())
        # Later merges begin at the source, so it has to stay readable, as the base has: that is checked at the gate.
        needs = state_refs(source) | merged.base_refs
        writes, label = work.writes(merged, target), answers[-1].label(digest)
        return Prepared(writes, (label,), source.head.id, generation_of(store, source), merged.brought, needs)

    with at_work(store.leases, WorkKind.MERGE, source, store.capture(request.target)) as record:
        commit = graph.write_tables(replace(said, work=record), prepare)
    if commit is not None and (not answers or (LABEL, dict(commit.labels).get(LABEL)) != answers[-1].label(digest)):
        receipt = answered(request.target, digest, commit)  # the same request was carried out meanwhile
    else:
        receipt = answers[-1].committed(commit)
    return _deleting(graph, receipt, source.incarnation) if request.delete_branch else receipt


def merge_weight(graph: Graph, source: str, target: str) -> int:
    """About how many bytes a merge has to compare."""
    view = graph._store.capture(branch_name(source))
    tables = graph._store.tables
    work = Merge(graph._store, view, lambda now: graph._schema_of(now)[1], Choices(), LocalComparer(tables), Room())
    return work.weight(graph._store.capture(branch_name(target)))


def _said_about(graph: Graph, request: MergeRequest) -> WriteRequest:
    if request.labels is not None and not isinstance(request.labels, Mapping):
        raise InputError(f"labels are a mapping of names to texts, not a {type(request.labels).__name__}")
    return WriteRequest(
        branch=request.target,
        kind=WriterKind.BRANCH_MERGE,
        actor=graph.actor,
        message=request.message,
        labels=tuple((request.labels or {}).items()),
        timeout=request.timeout,
        expect_head=request.expect_head,
        unchanged=request.unchanged,
        idempotency_key=request.idempotency_key,
    )


def _receipt(graph: Graph, request: MergeRequest, source: Manifest, merged: Merged, way: Way) -> MergeReceipt:
    return MergeReceipt(
        request.source,
        request.target,
        merged.outcome,
        source.head.id,
        merged.bases,
        merged.changes,
        merged.resolved,
        merged.edges_kept,
        merged.conflicts,
        merged.total,
        request.preview,
        graph.actor,
        engine=way.engine,
    )


def _digest(request: MergeRequest, choices: Choices) -> str:
    """What tells the request from others."""
    said = [request.source, choices.default, {key: dict(sides) for key, sides in choices.by_type.items()}]
    return sha256(orjson.dumps(said, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _deleting(graph: Graph, receipt: MergeReceipt, incarnation: str) -> MergeReceipt:
    """Delete the branch that was merged. That it cannot be deleted does not undo the merge."""
    try:
        graph.branches._delete(receipt.source, receipt.source_commit, incarnation)
    except PreconditionFailedError:
        said = f"'{receipt.source}' has moved since it was merged"
        return replace(receipt, branch_deleted=False, branch_delete_error=said)
    except OmnigraphError as error:
        return replace(receipt, branch_deleted=False, branch_delete_error=error.message)
    return replace(receipt, branch_deleted=True)

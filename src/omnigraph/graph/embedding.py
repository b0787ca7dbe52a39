"""Vectors through the handle of a graph: what is looked at, the rows that change, the commit and the receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from omnigraph.commit.manifest import Commit, Manifest, TablePin
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import Change, TableWrite
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.errors import CancelledError, InputError
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.read.budget import Cancellation
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.vectors import (
    BATCH_ROWS,
    Chosen,
    Counts,
    EmbeddedType,
    EmbedProgress,
    EmbedReceipt,
    Which,
    choose,
    revised,
    revision,
)
from omnigraph.write.spill import Spool, memory_budget

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """What `Graph.embed` was asked for; the arguments are described there."""

    branch: str
    which: Which = Which.STALE
    types: Sequence[str] = ()
    properties: Sequence[str] = ()
    expect_head: str | None = None
    message: str | None = None
    memory_budget: int | str | None = None
    progress: Callable[[EmbedProgress], None] | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    check: bool = False


def which_of(which: Which | str) -> Which:
    """The choice of a name.

    Raises:
        InputError: there is none.
    """
    try:
        return Which(which)
    except ValueError:
        raise InputError(f"'{which}' is not a choice of vectors", hint="stale, missing or all") from None


def several(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names that may be a single one."""
    return (names,) if isinstance(names, str) else tuple(names)


@dataclass(frozen=True, slots=True)
class Computed:
    """The vectors of a type that change.

    Attributes:
        counts: how much there was to do.
        parts: ids, row ids and vectors, a table at a time, as often as they are asked for.
    """

    counts: Counts
    parts: Callable[[], Iterator[pa.Table]]


class Compute(Protocol):
    """Computes the vectors of a type, in this process or on Spark."""

    def __call__(self, chosen: Chosen, pin: TablePin, tell: Callable[[Counts], None]) -> Computed: ...


def embed(graph: Graph, request: EmbedRequest, compute: Compute | None = None) -> EmbedReceipt:
    """Bring vectors up to date.

    Args:
        graph: the graph.
        request: what is asked for.
        compute: how vectors are computed; by default in this process.
    """
    work = _Work(graph, request, compute or InProcess(graph, request))
    said = WriteRequest(
        branch=request.branch,
        kind=WriterKind.EMBED,
        actor=graph.actor,
        message=request.message,
        expect_head=request.expect_head,
    )
    if request.check:
        work.prepare(graph._store.capture(request.branch))
        return work.receipt(None)
    with at_work(graph._store.leases, WorkKind.EMBED) as record:
        commit = graph.write_tables(replace(said, work=record), work.prepare)
    return work.receipt(commit)


class _Work:
    """The vectors of a branch. What was computed for a version of a table serves every attempt at the commit."""

    def __init__(self, graph: Graph, request: EmbedRequest, compute: Compute) -> None:
        self.graph = graph
        self.request = request
        self.compute = compute
        self._done: dict[tuple[str, TableRef], Computed] = {}
        self._types: list[EmbeddedType] = []

    def prepare(self, view: Manifest) -> Prepared:
        request, accepted = self.request, self.graph._schema_of(view)[1]
        found = choose(
            accepted.catalog, view.tables, self.graph.embedder, request.which, request.types, request.properties
        )
        total = sum(view.tables[chosen.key].row_count for chosen in found)
        self._types = []
        writes = []
        for chosen in found:
            pin = view.tables[chosen.key]
            computed = self._computed(chosen, pin, total)
            self._types.append(chosen.done(computed.counts, pin))
            if computed.counts.changed:
                writes.append(self._write(accepted, chosen, pin, computed))
        return Prepared(writes, (("model", self.graph.embedder.name),) if writes else ())

    def _computed(self, chosen: Chosen, pin: TablePin, total: int) -> Computed:
        found = self._done.get((chosen.key, pin.ref))
        if found is None:
            before = sum((done.counts for done in self._types), Counts())

            def tell(counts: Counts) -> None:
                if self.request.cancel.cancelled:
                    raise CancelledError("the computing of vectors was cancelled")
                if self.request.progress is not None:
                    so_far = before + counts
                    self.request.progress(EmbedProgress(chosen.declared.name, so_far.rows, total, so_far))

            tell(Counts())
            found = self._done[chosen.key, pin.ref] = self.compute(chosen, pin, tell)
        return found

    def _write(self, accepted: AcceptedSchema, chosen: Chosen, pin: TablePin, computed: Computed) -> TableWrite:
        schema = arrow_schema(accepted, TypeKind.NODE, chosen.declared.name)
        source = revision(self.graph._store.tables, pin.ref, schema, computed.parts)
        return Change(chosen.key, source, models=chosen.models(pin.models))

    def receipt(self, commit: Commit | None) -> EmbedReceipt:
        name = self.graph.embedder.name
        return EmbedReceipt(self.request.branch, name, self.request.which, tuple(self._types), commit)


class InProcess:
    """Computes vectors in this process. What does not fit the memory is put aside in temporary files."""

    def __init__(self, graph: Graph, request: EmbedRequest) -> None:
        self._tables = graph._store.tables
        self._budget = memory_budget(request.memory_budget)

    def __call__(self, chosen: Chosen, pin: TablePin, tell: Callable[[Counts], None]) -> Computed:
        spool, counts = Spool(self._budget), Counts()
        if pin.row_count == 0:
            return Computed(counts, lambda: iter(()))
        numbers = [fragment.number for fragment in self._tables.at(pin.ref).fragments()]
        batches = self._tables.at(pin.ref).read_fragments(
            numbers, columns=chosen.columns, without=chosen.lacking, batch_rows=BATCH_ROWS
        )
        for rows, more in revised(chosen, batches):
            if rows is not None:
                spool.add(chosen.key, rows)
            counts += more
            tell(counts)
        changed = [spool.take(chosen.key)] if counts.changed else []
        return Computed(counts, lambda: iter(changed))

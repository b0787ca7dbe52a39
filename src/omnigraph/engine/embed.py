"""Embed: compute the vectors of `@embed` properties, and commit the changed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.commit.manifest import Commit, Manifest, TablePin
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import Change, TableWrite
from omnigraph.commit.work_records import WorkKind, at_work
from omnigraph.commit.write_request import Prepared
from omnigraph.engine.access import Action
from omnigraph.engine.backends import Computed, ComputeVectors, backend_of
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.engine_choice import choose_engine
from omnigraph.engine.requests import EmbedRequest
from omnigraph.engine.session import Session
from omnigraph.errors import CancelledError, InputError
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import node_key
from omnigraph.storage.table_ref import TableRef
from omnigraph.upkeep.vectors import (
    Counts,
    EmbeddedType,
    EmbedPlan,
    EmbedProgress,
    EmbedReceipt,
    Which,
    plan_embedding,
    revision,
)


def parse_which(which: Which | str) -> Which:
    """Parse the choice of vectors: `stale`, `missing` or `all`.

    Raises:
        InputError: the text is none of these.
    """
    try:
        return Which(which)
    except ValueError:
        raise InputError(f"which='{which}' does not select vectors", hint="use stale, missing or all") from None


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple. Accepts a single name without a list."""
    return (names,) if isinstance(names, str) else tuple(names)


def embed(session: Session, request: EmbedRequest) -> EmbedReceipt:
    """Update the vectors of `@embed` properties as one commit.

    Raises:
        InputError: there is no such type or vector.
        EmbeddingModelError: the configured model is not the model that the schema records.
        EmbeddingError: vectors cannot be computed. Nothing was written.
        CancelledError: the caller cancelled the work.
    """
    session.require_whole("embed")
    session.require_writable()
    branch = session.branch_or_default(request.branch)
    session.allow(Action.CHANGE, branch)
    session.require_all_rows(Action.CHANGE, session.store.capture(branch))
    request = replace(
        request,
        branch=branch,
        which=parse_which(request.which),
        types=as_names(request.types),
        properties=as_names(request.properties),
    )
    write = write_request(session, branch, WriterKind.EMBED, request)
    choice = choose_engine(session, request, lambda: _table_bytes(session, branch, request.types))
    with backend_of(choice, request).vectors(session, request) as compute:
        work = _Work(session, request, compute)
        if request.check:
            work.prepare(session.store.capture(branch))
            return work.receipt(None)
        with at_work(session.store.leases, WorkKind.EMBED) as record:
            commit = write_tables(session, replace(write, work=record), work.prepare)
    return work.receipt(commit)


def _table_bytes(session: Session, branch: str, types: Sequence[str]) -> int:
    """The size of the tables with vectors to compute."""
    view = session.store.capture(branch)
    keys = [
        node_key(name)
        for name, node in session.schemas.of(view).catalog.nodes.items()
        if (not types or name in types) and any(prop.embed for prop in node.properties.values())
    ]
    fragments = (part for key in keys for part in session.store.tables.at(view.tables[key].ref).fragments())
    return sum(fragment.size for fragment in fragments)


class _Work:
    """The vectors of a branch. A retry of the commit reuses the vectors of unchanged table versions."""

    def __init__(self, session: Session, request: EmbedRequest, compute: ComputeVectors) -> None:
        self.session = session
        self.request = request
        self.which = Which(request.which)
        self.compute = compute
        self._done: dict[tuple[str, TableRef], Computed] = {}
        self._types: list[EmbeddedType] = []

    def prepare(self, view: Manifest) -> Prepared:
        request, accepted = self.request, self.session.schemas.of(view)
        found = plan_embedding(
            accepted.catalog, view.tables, self.session.embedder, self.which, request.types, request.properties
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
        return Prepared(writes, (("model", self.session.embedder.name),) if writes else ())

    def _computed(self, chosen: EmbedPlan, pin: TablePin, total: int) -> Computed:
        found = self._done.get((chosen.key, pin.ref))
        if found is None:
            before = sum((done.counts for done in self._types), Counts())

            def report(counts: Counts) -> None:
                if self.request.cancel is not None and self.request.cancel.cancelled:
                    raise CancelledError("computing vectors was cancelled")
                if self.request.progress is not None:
                    so_far = before + counts
                    self.request.progress(EmbedProgress(chosen.declared.name, so_far.rows, total, so_far))

            report(Counts())
            found = self._done[chosen.key, pin.ref] = self.compute(chosen, pin, report)
        return found

    def _write(self, accepted: AcceptedSchema, chosen: EmbedPlan, pin: TablePin, computed: Computed) -> TableWrite:
        schema = arrow_schema(accepted, TypeKind.NODE, chosen.declared.name)
        source = revision(self.session.store.tables, pin.ref, schema, computed.parts)
        return Change(chosen.key, source, models=chosen.models(pin.models))

    def receipt(self, commit: Commit | None) -> EmbedReceipt:
        name = self.session.embedder.name
        return EmbedReceipt(str(self.request.branch), name, self.which, tuple(self._types), commit)

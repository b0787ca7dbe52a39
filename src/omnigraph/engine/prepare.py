"""Preparation of writes: the callables that create the table writes of one attempt from a state of the branch.

A verb passes one of them to `engine.commit.write_tables`. `commit.attempts` calls it for every attempt.
"""

# See docs/decisions/0155-attempts-are-prepared-by-values.md

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from omnigraph.commit.ancestors import generation_of
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.removal_list import state_refs
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.write_request import Prepare, Prepared, WriteRequest
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.backends import LoadRows
from omnigraph.engine.former_names import hints_for_former_types
from omnigraph.engine.preconditions import check_unchanged
from omnigraph.engine.requests import MergeRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, MergeConflictsError, ReadSetChangedError
from omnigraph.lang.query import describe, ir
from omnigraph.merge.merge import Merge, Merged
from omnigraph.merge.receipt import MergeOutcome, MergeReceipt
from omnigraph.read.budget import checkpoint
from omnigraph.write.mutation import Mutation


@dataclass(frozen=True, slots=True)
class PrepareChecked:
    """Run another preparation. Check the schema before it, and the precondition `unchanged_since` after it."""

    session: Session
    request: WriteRequest
    prepare: Prepare

    def __call__(self, view: Manifest) -> Sequence[TableWrite] | Prepared:
        session = self.session
        session.schemas.checked(view)
        if view.branch == session.default_branch:
            session.schema = session.schemas.version_of(view)
        prepared = self.prepare(view)
        if self.request.unchanged is None:
            return prepared
        if not isinstance(prepared, Prepared):
            prepared = Prepared(prepared)
        return check_unchanged(session, view, prepared, self.request.unchanged)


@dataclass(slots=True)
class PrepareMutation:
    """Run a query that writes on the state of an attempt.

    Attributes:
        now: the time of the request in milliseconds.
        digest: the digest of the request, for idempotency.
        mutations: the mutations, by schema hash. An attempt after a change of the schema compiles the query again.
    """

    session: Session
    text: str
    name: str | None
    params: Mapping[str, object]
    now: int
    digest: str | None = None
    mutations: dict[str, Mutation] = field(default_factory=dict)

    def __call__(self, view: Manifest) -> Prepared:
        # In a group, this runs in the context of the member's caller: a cancellation fails this member only.
        checkpoint()
        prepared = self.mutation(view).prepare(Snapshot(self.session.store, view))
        checkpoint()
        return prepared

    def mutation(self, view: Manifest) -> Mutation:
        """The mutation for the schema of a state."""
        session = self.session
        found = self.mutations.get(view.schema_hash)
        if found is None:
            accepted, query = session.schemas.of(view), self.query(view)
            found = Mutation(
                accepted, query, self.params, self.now, lambda: session.embedder, session.blobs, self.digest
            )
            self.mutations[view.schema_hash] = found
        return found

    def query(self, view: Manifest) -> ir.Query:
        """Compile the query against the schema of a state.

        Raises:
            InputError: the query does not write.
        """
        catalog = self.session.schemas.of(view).catalog
        with hints_for_former_types(self.session.store, view):
            query = self.session.compiled.get(self.text, self.name, catalog, view.schema_hash)
        if query.is_read:
            raise InputError(
                f"'{query.name}' is a query that reads; mutate needs a query that writes", hint="run it with query"
            )
        if self.session.access is not None:
            for action in (Action.READ, Action.CHANGE):
                self.session.refuse_row_limits(action, view)
            self.session.require_types(Action.CHANGE, view, [ref.key for ref in describe(query, catalog).writes])
        return query


@dataclass(frozen=True, slots=True)
class PrepareLoad:
    """Create the table writes for rows that are already built.

    Attributes:
        rows: the rows.
        schema_hash: the hash of the schema that they were built for.
        label: the receipt of the load, as a label of the commit.
    """

    rows: LoadRows
    schema_hash: str
    label: tuple[str, str]

    def __call__(self, view: Manifest) -> Prepared:
        if view.schema_hash != self.schema_hash:
            raise ReadSetChangedError("schema", self.schema_hash, view.schema_hash)
        return Prepared(self.rows.prepare(view), (self.label,))


@dataclass(slots=True)
class PrepareMerge:
    """Merge a source into the state of an attempt.

    Attributes:
        work: the merge that computes the changes.
        source: the state of the source branch.
        digest: the digest of the request, for idempotency.
        receipt: the receipt of the last attempt, without a commit; None before the first.
    """

    session: Session
    request: MergeRequest
    work: Merge
    source: Manifest
    digest: str | None
    receipt: MergeReceipt | None = None

    def __call__(self, view: Manifest) -> Prepared:
        store, source = self.session.store, self.source
        merged = self.work.against(view)
        self.receipt = self.receipt_of(merged)
        if merged.total:
            raise MergeConflictsError(source.branch, view.branch, merged.conflicts, merged.total)
        if merged.outcome is MergeOutcome.ALREADY_UP_TO_DATE:
            return Prepared(())
        # Later merges need the source and the base. The commit checks that cleanup has not removed them.
        needs = state_refs(source) | merged.base_refs
        writes, label = self.work.writes(merged, view), self.receipt.label(self.digest)
        return Prepared(writes, (label,), source.head.id, generation_of(store, source), merged.new_commits, needs)

    def receipt_of(self, merged: Merged) -> MergeReceipt:
        """The receipt of a merge, without a commit."""
        return MergeReceipt(
            self.request.source,
            self.request.into,
            merged.outcome,
            self.source.head.id,
            merged.bases,
            merged.changes,
            merged.resolved,
            merged.edges_kept,
            merged.conflicts,
            merged.total,
            self.request.preview,
            self.session.actor,
            engine=self.work.engine,
            left_out=merged.left_out,
        )

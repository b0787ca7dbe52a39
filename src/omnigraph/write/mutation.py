"""Mutations: run the statements of a query in order. A statement sees a snapshot and the changes of earlier statements.

This module writes nothing. It returns the changes of whole tables, validated together, for one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, commit_json, with_models
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import Append, DeleteIds, TableWrite, Upsert
from omnigraph.commit.write_request import Prepared
from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, Tally
from omnigraph.errors import KeyConflictError, ResourceLimitError
from omnigraph.evaluate import Request, bind, holds, table_rows
from omnigraph.evaluate.prefilter import implied_ids, prefilter
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import edge_key, type_key
from omnigraph.settings import LOAD_MEMORY
from omnigraph.storage.blobs import is_blob, unchanged_cells
from omnigraph.write.changed_state import State
from omnigraph.write.external_blobs import BlobPolicy, admit
from omnigraph.write.pending_changes import Pending, without
from omnigraph.write.receipt import CommitCounts, other_request
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rules.changes import TableChange, chunked, column
from omnigraph.write.rules.validator import validate
from omnigraph.write.spill import memory_budget
from omnigraph.write.statements import DeleteStep, InsertStep, Step, UpdateStep, read_statements

QUERY, NODES, EDGES, REQUEST = "query", "affected_nodes", "affected_edges", "request"
"""Names of labels of the commit: the query, the counts, and the request digest if there is an idempotency key. If the
request is repeated, its receipt is built from these labels."""

_ENDS = {"from": "src", "to": "dst"}


@dataclass(frozen=True, slots=True)
class MutationReceipt(CommitCounts):
    """The result of a mutation.

    Attributes:
        affected_nodes: number of nodes that statements wrote or deleted. A node counts once for each statement.
        affected_edges: number of edges that statements wrote or deleted, including those deleted with their nodes.
        commit: the commit; None if no entity matched.
    """

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor: str | None
    commit: Commit | None

    def to_json(self) -> dict[str, Any]:
        """The receipt as a JSON object, which is the same in all interfaces."""
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor,
            "commit": None if self.commit is None else commit_json(self.commit),
        }


def staged_receipt(branch: str, query_name: str, actor: str | None, prepared: Prepared) -> MutationReceipt:
    """The receipt of a mutation whose changes are not committed yet."""
    labels = dict(prepared.labels)
    written = bool(prepared.writes)
    nodes, edges = (int(labels[name]) if written else 0 for name in (NODES, EDGES))
    return MutationReceipt(branch, query_name, nodes, edges, actor, None)


def receipt(
    branch: str, query_name: str, actor: str | None, commit: Commit | None, digest: str | None = None
) -> MutationReceipt:
    """The receipt of the commit that this request made, either now or when the request was first sent.

    Args:
        branch: the target branch.
        query_name: the name of the query.
        actor: the actor of the request.
        commit: the commit; None when nothing changed.
        digest: the digest of the request; None when it has no idempotency key.

    Raises:
        InputError: another request has already used the idempotency key.
    """
    if commit is None:
        return MutationReceipt(branch, query_name, 0, 0, actor, None)
    labels = dict(commit.labels)
    if commit.writer != WriterKind.MUTATION or QUERY not in labels:
        raise other_request(commit, f"a write of kind {commit.writer}")
    if labels[QUERY] != query_name:
        raise other_request(commit, f"the query '{labels[QUERY]}'")
    if labels.get(REQUEST) != digest:
        raise other_request(commit, f"the query '{query_name}' with another text or other parameters")
    return MutationReceipt(branch, query_name, int(labels[NODES]), int(labels[EDGES]), commit.actor, commit)


class Mutation:
    """One request to run a mutation. If another commit is published first, it is prepared again on the new snapshot.

    Args:
        accepted: the accepted schema.
        query: the compiled query.
        params: the parameters as the caller gave them.
        now: the time of the request in milliseconds.
        embedder: creates the client of the embedding model. Called only if a text has to be embedded.
        blobs: the directories that external blobs may come from.
        digest: the digest of the request, to store in the commit; None to store none.
    """

    def __init__(
        self,
        accepted: AcceptedSchema,
        query: ir.Query,
        params: Mapping[str, object],
        now: int,
        embedder: Callable[[], Embedder],
        blobs: BlobPolicy,
        digest: str | None = None,
    ) -> None:
        assert isinstance(query.body, ir.Write)
        self.accepted = accepted
        self.query = query
        self._write = query.body
        self._params = params
        self._now = now
        self._embedder = embedder
        self._blobs = blobs
        self._digest = digest
        self._tally = Tally()
        self._read: tuple[Request, tuple[Step, ...]] | None = None

    def prepare(self, snapshot: State) -> Prepared:
        """Run the statements and validate their changes against a snapshot. Returns the writes.

        Raises:
            ParameterError: a parameter is missing or has the wrong type.
            BadRowsError: a value does not fit its property.
            ConstraintError: a constraint is violated.
            ResourceLimitError: the rows that an update matches exceed the memory budget.
            KeyConflictError: an entity must be new but exists.
        """
        request, steps = self.read()
        execution = _Execution(self.accepted, request, snapshot, self._embedder, self._tally)
        for step in steps:
            execution.run(step)
        counts = execution.affected
        labels = [(QUERY, self.query.name), (NODES, str(counts[TypeKind.NODE])), (EDGES, str(counts[TypeKind.EDGE]))]
        if self._digest is not None:
            labels.append((REQUEST, self._digest))
        return Prepared(execution.writes(self._blobs), tuple(labels), matched=self.matched)

    def read(self) -> tuple[Request, tuple[Step, ...]]:
        """Convert the statements and compute their vectors. This does not read the graph, and is done once.

        Raises:
            ParameterError: a parameter is missing or has the wrong type.
            BadRowsError: a value does not fit its property.
            EmbeddingError: a text cannot be embedded.
        """
        if self._read is None:
            request = Request(bind(self.query.params, self._params), self._now)
            steps = read_statements(self.accepted, self._write, request, self._embedder, self._tally)
            self._read = request, steps
        return self._read

    def matched(self, snapshot: Snapshot) -> list[tuple[str, pa.Array]]:
        """For each update and delete, the type key and the ids of the stored entities that its condition matches.

        Call it after `prepare`.
        """
        assert self._read is not None
        request, steps = self._read
        execution = _Execution(self.accepted, request, snapshot, self._embedder, self._tally)
        return [
            (type_key(step.kind, step.name), execution.stored_matches(step.kind, step.name, step.where))
            for step in steps
            if isinstance(step, UpdateStep | DeleteStep)
        ]


class _Execution:
    """Runs a mutation over one snapshot."""

    def __init__(
        self,
        accepted: AcceptedSchema,
        request: Request,
        snapshot: State,
        embedder: Callable[[], Embedder],
        tally: Tally,
    ) -> None:
        self.tally = tally
        self.accepted = accepted
        self.request = request
        self.snapshot = snapshot
        self.embedder = embedder
        self.affected = {TypeKind.NODE: 0, TypeKind.EDGE: 0}
        self._problems = Problems()
        self._builders: dict[tuple[TypeKind, str], RowBuilder] = {}
        self._pending: dict[tuple[TypeKind, str], Pending] = {}
        self._looked_up: dict[tuple[TypeKind, str], pa.Table] = {}
        """The stored rows of the last lookup of an update."""
        self._budget = memory_budget(None)

    def builder(self, kind: TypeKind, name: str) -> RowBuilder:
        if (kind, name) not in self._builders:
            made = RowBuilder(
                self.accepted, kind, name, self.request.now, self._problems, self.embedder, tally=self.tally
            )
            self._builders[kind, name] = made
        return self._builders[kind, name]

    def pending(self, kind: TypeKind, name: str) -> Pending:
        if (kind, name) not in self._pending:
            self._pending[kind, name] = Pending(self.builder(kind, name).schema)
        return self._pending[kind, name]

    def run(self, step: Step) -> None:
        match step:
            case InsertStep() if step.rows is None:
                self._merge(step)
            case InsertStep():
                self._put(step)
            case UpdateStep():
                self._update(step)
            case DeleteStep():
                self._delete(step)

    def _put(self, step: InsertStep) -> None:
        pending = self.pending(step.kind, step.name)
        if step.mode is ir.InsertMode.CREATE and not step.fresh:
            pending.create(step.ids)
        pending.put(step.rows, fresh=step.fresh)
        self.affected[step.kind] += len(step.ids)

    def _merge(self, step: InsertStep) -> None:
        """Update the entities that exist, and create the others."""
        found = self._entities(step.kind, step.name, step.ids)
        place = pc.index_in(step.ids, value_set=column(found, "id"))
        pending = self.pending(step.kind, step.name)
        pending.put(_with_columns(found.take(place.drop_null()), _rows_of(step.columns, place.is_valid())))
        self._create_merged(step, np.flatnonzero(place.is_null().to_numpy(zero_copy_only=False)))
        self.affected[step.kind] += len(step.ids)

    def _create_merged(self, step: InsertStep, missing: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Create the entities that merge statements did not find, with the values of the last statement about each."""
        if len(missing) == 0:
            return
        ids = step.ids.take(pa.array(missing)).dictionary_encode()
        codes = ids.indices.to_numpy()
        first, last = (np.empty(len(ids.dictionary), np.int64) for _ in range(2))
        first[codes[::-1]] = missing[::-1]
        last[codes] = missing  # numpy keeps the last value for a repeated index
        columns = {name: values.take(pa.array(last)) for name, values in step.columns.items()}
        origin = Origin(step.origin.records[first], step.origin.place)
        self.pending(step.kind, step.name).put(self.builder(step.kind, step.name).build(columns, origin))
        self._problems.check()

    def _update(self, step: UpdateStep) -> None:
        stored, rows = self._matches(step.kind, step.name, step.where, whole=True)
        pending = self.pending(step.kind, step.name)
        if len(stored):
            rows = pa.concat_tables([self._stored(step.kind, step.name, stored), rows])
            pending.replaces_stored = True
        every = pa.repeat(pa.scalar(0), rows.num_rows)
        pending.put(_with_columns(rows, {name: values.take(every) for name, values in step.columns.items()}))
        self._check_memory(type_key(step.kind, step.name))
        self.affected[step.kind] += rows.num_rows

    def _delete(self, step: DeleteStep) -> None:
        stored, _ = self._matches(step.kind, step.name, step.where)
        self.affected[step.kind] += self.pending(step.kind, step.name).remove(stored)
        for name in step.cascades if len(stored) else ():
            edge = self.accepted.catalog.edges[name]
            for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
                if node == step.name:
                    incident = self.snapshot.lookup(edge_key(name), end, chunked(stored), columns=["id"])
                    removed = self.pending(TypeKind.EDGE, name).remove(column(incident, "id"))
                    self.affected[TypeKind.EDGE] += removed

    def _matches(self, kind: TypeKind, name: str, where: ir.Expr, *, whole: bool = False) -> tuple[pa.Array, pa.Table]:
        """The matches of a condition: the ids of stored entities without pending changes, and matching pending rows.

        With `whole`, the whole stored rows are needed next.
        """
        pending = self.pending(kind, name)
        stored = self.stored_matches(kind, name, where, whole=whole)
        hits = without(stored, pa.concat_arrays([pending.ids, pending.deleted]))
        rows = pending.rows
        return hits, rows.filter(holds(where, table_rows(rows.select(_columns(where))), self.request))

    def stored_matches(self, kind: TypeKind, name: str, where: ir.Expr, *, whole: bool = False) -> pa.Array:
        """The ids of stored entities that a condition matches. Ignores pending changes."""
        columns, key = _columns(where), _text_key(self.builder(kind, name))
        ids = implied_ids(where, self.request, key=key)
        if ids is not None:
            if whole:  # one lookup for the condition and for the rows
                columns = list(dict.fromkeys([*columns, *self._plain_columns(kind, name)]))
            stored = self.snapshot.lookup(type_key(kind, name), "id", chunked(ids.unique()), columns=columns)
            if whole:
                self._looked_up[kind, name] = stored
        else:
            implied = prefilter(where, self.request, key=key)
            stored = self.snapshot.scan(type_key(kind, name), columns=columns, filter=implied)
        return column(stored.filter(holds(where, table_rows(stored), self.request)), "id")

    def _check_memory(self, key: str) -> None:
        """Check the memory budget: all rows to write are in memory at once."""
        held = sum(pending.rows.nbytes for pending in self._pending.values())
        if held > self._budget:
            hint = f"match fewer entities at a time, or raise {LOAD_MEMORY.name}"
            raise ResourceLimitError(f"bytes of the rows written to {key}", self._budget, held, hint=hint)

    def _entities(self, kind: TypeKind, name: str, ids: pa.Array) -> pa.Table:
        """The current rows of some entities: the pending row if there is one, else the stored row."""
        pending = self.pending(kind, name)
        pending_rows = pending.rows.filter(pc.is_in(pending.rows["id"], value_set=ids))
        wanted = without(ids, column(pending_rows, "id"))
        if len(wanted) == 0:
            return pending_rows
        stored = self._stored(kind, name, wanted)
        pending.replaces_stored = pending.replaces_stored or stored.num_rows > 0
        return pa.concat_tables([stored, pending_rows])

    def _stored(self, kind: TypeKind, name: str, ids: pa.Array) -> pa.Table:
        """The rows of some stored entities. Blobs are not read; the rows refer to the stored content."""
        schema = self.builder(kind, name).schema
        rows = self._looked_up.get((kind, name))
        if rows is not None and pc.all(pc.is_in(ids, value_set=column(rows, "id"))).as_py():
            rows = rows.filter(pc.is_in(rows["id"], value_set=ids))
        else:
            plain = self._plain_columns(kind, name)
            rows = self.snapshot.lookup(type_key(kind, name), "id", chunked(ids.unique()), columns=plain)
        columns = [unchanged_cells(rows.num_rows) if is_blob(field.type) else rows[field.name] for field in schema]
        return pa.table(columns, schema=schema)

    def _plain_columns(self, kind: TypeKind, name: str) -> list[str]:
        return [field.name for field in self.builder(kind, name).schema if not is_blob(field.type)]

    def writes(self, blobs: BlobPolicy) -> Sequence[TableWrite]:
        """The writes, one per changed table.

        Raises:
            ConstraintError: a constraint is violated.
            ExternalBlobPolicyError: a blob comes from a source that is not allowed.
            ExternalBlobSourceError: a blob cannot be read from its source.
            KeyConflictError: an entity must be new but exists.
        """
        changes = {}
        for (kind, name), pending in sorted(self._pending.items()):
            if pending.rows.num_rows or len(pending.deleted):
                change = TableChange(kind, name, pending.rows, pending.deleted, fresh=len(pending.maybe_stored) == 0)
                changes[change.key] = change
        validate(self.accepted, changes, self.snapshot)
        changes = admit(changes, blobs, keep_references=False)
        return [self._table_write(change) for change in changes.values()]

    def _table_write(self, change: TableChange) -> TableWrite:
        pending = self._pending[change.kind, change.name]
        if len(pending.deleted):
            return DeleteIds(change.key, pending.deleted)
        maybe_stored = pending.maybe_stored
        new = len(maybe_stored) == 0 or self.snapshot.is_without(change.key, chunked(maybe_stored))
        stored = pa.array([], pa.utf8())
        if not new and pending.must_be_new:  # in other cases, the upsert looks up the stored rows itself
            found = self.snapshot.lookup(change.key, "id", chunked(maybe_stored), columns=["id"])
            stored = column(found, "id")
            new = len(stored) == 0
        taken = pending.conflicts(stored)
        if len(taken):
            raise KeyConflictError(change.key, pc.min(taken).as_py())
        append = new and not pending.replaces_stored
        made = self.tally.models.get(change.name, {}) if change.kind is TypeKind.NODE else {}
        models = with_models(self.snapshot.models(change.key), made)
        operation = Append if append else Upsert
        return operation(change.key, change.rows, models=models)


def _rows_of(columns: Mapping[str, pa.Array], mask: pa.Array) -> dict[str, pa.Array]:
    return {name: values.filter(mask) for name, values in columns.items()}


def _with_columns(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    """Rows with some columns replaced."""
    for name, values in columns.items():
        place = rows.schema.get_field_index(name if name in rows.column_names else _ENDS[name])
        rows = rows.set_column(place, rows.schema.field(place), values)
    return rows


def _columns(where: ir.Expr) -> list[str]:
    """The columns that a condition reads, and the id."""
    names = {"id"}
    for part in walk(where):
        if isinstance(part, ir.Prop):
            names.add(part.name)
        elif isinstance(part, ir.Ident):
            names.add(_ENDS.get(part.role.value, part.role.value))
    return sorted(names)


def _text_key(builder: RowBuilder) -> str | None:
    """The key property, if it is a single String. Its value is the id, so conditions on it become lookups by id."""
    if builder.key_order is None or len(builder.key_order) != 1:
        return None
    prop = builder.type.properties.get(builder.key_order[0])
    return prop.name if prop is not None and prop.type == ir.STRING else None

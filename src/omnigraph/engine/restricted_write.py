"""Writes of a restricted session: prepared on the visible graph, then checked and completed on the whole graph.

The statements of a mutation and the rows of a load meet only visible rows, so their results and errors are those of the
visible graph. The resulting table writes are then applied to the whole graph. A write that collides with something
hidden has one error, which does not say with what.
"""

# See docs/decisions/0314-a-restricted-write-is-prepared-twice.md

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import now_micros
from omnigraph.commit.table_writes import Append, DeleteIds, Insert, Overwrite, TableWrite, Upsert
from omnigraph.commit.write_request import Prepare, Prepared
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.session import Session
from omnigraph.errors import AccessDeniedError, ConstraintError, KeyConflictError
from omnigraph.evaluate import Request, holds, table_rows
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.type_key import TypeKey, edge_key
from omnigraph.merge.equality import identical
from omnigraph.restricted.row_scope import Rows, RowScope
from omnigraph.restricted.store import RestrictedStore
from omnigraph.storage.blobs import is_blob, row_schema, unchanged_cells
from omnigraph.write.rows.builder import default_value
from omnigraph.write.rules.changes import TableChange, chunked
from omnigraph.write.rules.validator import validate

_ID = "id"
_WHY = "it concerns rows or properties that the actor may not see or change"
_NO_IDS = pa.array([], pa.utf8())


@dataclass(frozen=True, slots=True)
class PrepareRestricted:
    """Run another preparation on the visible graph, and turn its writes into writes of the whole graph.

    Attributes:
        session: the restricted session.
        prepare: the preparation. It gets restricted states.
    """

    session: Session
    prepare: Prepare

    def __call__(self, view: Manifest) -> Prepared:
        session, store = self.session, self.session.store
        assert session.whole is not None
        assert isinstance(store, RestrictedStore)
        prepared = self.prepare(store.restricted(view))
        if not isinstance(prepared, Prepared):
            prepared = Prepared(prepared)
        accepted = session.whole.schemas.of(view)
        shown = Snapshot(session.store, store.restricted(view))
        whole = Snapshot(session.whole.store, view)
        work = _WholeWrites(session, accepted, session.changeable(view, accepted), whole, shown)
        return replace(prepared, writes=work.of(prepared.writes), matched=None)


class _WholeWrites:
    """Turns writes of the visible graph into writes of the whole graph.

    Args:
        session: the restricted session.
        accepted: the whole schema.
        scope: the rows and properties that the actor may change.
        whole: the whole graph.
        shown: the visible graph.
    """

    def __init__(
        self, session: Session, accepted: AcceptedSchema, scope: RowScope, whole: Snapshot, shown: Snapshot
    ) -> None:
        self._session = session
        self._accepted = accepted
        self._scope = scope
        self._whole = whole
        self._shown = shown

    def of(self, writes: Sequence[TableWrite]) -> list[TableWrite]:
        """The writes of the whole graph.

        Raises:
            AccessDeniedError: a write collides with something hidden, or the actor may not change a row.
            KeyConflictError: a new entity exists already, and is visible.
        """
        made = [self._write(write) for write in writes]
        changes = {write.key: self._change(write) for write in made}
        self._check_cascades(changes)
        try:
            validate(self._accepted, changes, self._whole)
        except ConstraintError:
            # The visible graph allows the write, so the constraint concerns hidden rows.
            raise self._denied() from None
        return made

    def _denied(self) -> AccessDeniedError:
        why, session, branch = _WHY, self._session, self._whole.branch
        if session.access is not None:
            return session.access.denied(Action.CHANGE, why, branch=branch)
        return AccessDeniedError(session.actor, Action.CHANGE.value, branch=branch, hint=why)

    def _change(self, write: TableWrite) -> TableChange:
        kind, name = TypeKey.parse(write.key)
        if isinstance(write, DeleteIds):
            schema = row_schema(arrow_schema(self._accepted, kind, name))
            return TableChange(kind, name, schema.empty_table(), write.ids)
        assert isinstance(write, Append | Insert | Upsert | Overwrite)
        return TableChange(kind, name, write.rows, _NO_IDS, replaced=isinstance(write, Overwrite))

    def _write(self, write: TableWrite) -> TableWrite:
        match write:
            case DeleteIds():
                self._check_rows(write.key, self._stored(write.key, write.ids))
                return write
            case Overwrite():
                self._check_open(write.key)
                self._check_rows(write.key, write.rows)
                return write
            case Append() | Insert() | Upsert():
                return self._rows(write)
        raise self._denied()

    def _check_open(self, key: str) -> None:
        """Check that all rows of a type are visible and may be changed, because all of them are replaced."""
        pin = self._shown.tables[key]
        if not pin.ref.is_whole or self._scope.rows_of(key) is not Rows.ALL or self._scope.masked(key):
            raise self._denied()

    def _rows(self, write: Append | Insert | Upsert) -> TableWrite:
        key, ids = write.key, write.rows[_ID].combine_chunks()
        stored = self._stored(key, ids)
        known = stored[_ID].combine_chunks()
        if len(known):
            seen = self._shown.lookup(key, _ID, chunked(known), columns=[_ID])[_ID]
            if len(seen) < len(known):
                raise self._denied()
            if not isinstance(write, Upsert):
                raise KeyConflictError(key, pc.min(seen).as_py())
            self._check_rows(key, stored)
        rows = self._completed(key, write.rows, stored)
        self._check_rows(key, rows)
        self._check_masked(rows, stored, self._scope.masked(key).intersection(write.rows.column_names))
        models = self._whole.models(key) if write.models is None else self._models(write)
        return replace(write, rows=rows, models=models)

    def _models(self, write: TableWrite) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
        """The embedding models of the write, with those of hidden vectors."""
        own = dict(write.models or ())
        return tuple(sorted((dict(self._whole.models(write.key)) | own).items()))

    def _stored(self, key: str, ids: pa.Array) -> pa.Table:
        """The stored rows with some ids, without blobs."""
        kind, name = TypeKey.parse(key)
        plain = [field.name for field in arrow_schema(self._accepted, kind, name) if not is_blob(field.type)]
        return self._whole.lookup(key, _ID, chunked(ids.unique()), columns=plain)

    def _completed(self, key: str, rows: pa.Table, stored: pa.Table) -> pa.Table:
        """The rows with the hidden properties: as stored, and the default or null for new rows.

        A hidden vector whose text is another one becomes null, until `embed` computes it.
        """
        kind, name = TypeKey.parse(key)
        schema = row_schema(arrow_schema(self._accepted, kind, name))
        place = pc.index_in(rows[_ID].combine_chunks(), value_set=stored[_ID].combine_chunks())
        properties = self._accepted.catalog.declared(kind, name).properties
        columns = []
        for field in schema:
            if field.name in rows.column_names:
                columns.append(rows[field.name].combine_chunks())
            elif is_blob(field.type):
                columns.append(_cells(place.is_null()))
            else:
                columns.append(self._hidden(properties[field.name], rows, stored, place))
        made = pa.table(columns, schema=schema)
        if any(not prop.type.nullable and made[prop.name].null_count for prop in properties.values()):
            raise self._denied()
        return made

    def _hidden(self, prop: Property, rows: pa.Table, stored: pa.Table, place: pa.Array) -> pa.Array:
        """The values of a hidden property for rows, given the place of each among the stored rows; null if new."""
        values = stored[prop.name].combine_chunks().take(place)
        if prop.embed is not None and prop.embed.source in rows.column_names:
            source = prop.embed.source
            same = identical(rows[source].combine_chunks(), stored[source].combine_chunks().take(place))
            return values.take(pa.array(np.arange(len(values)), mask=~same))
        if prop.default is None or place.null_count == 0:
            return values
        default = default_value(prop, now_micros() // 1000)
        both = pa.concat_arrays([values, pa.array([default.as_py()], values.type)])
        return both.take(pc.if_else(place.is_null(), len(values), pa.array(np.arange(len(values)))))

    def _check_rows(self, key: str, rows: pa.Table) -> None:
        """Check that the actor may change rows of a type that have these values."""
        allowed = self._scope.rows_of(key)
        if allowed is Rows.HIDDEN:
            raise self._denied()
        if isinstance(allowed, Rows) or rows.num_rows == 0:
            return
        request = Request(self._scope.params, 0)
        plain = rows.select([field.name for field in rows.schema if not is_blob(field.type)])
        if not pc.all(holds(allowed, table_rows(plain, TypeKey.parse(key).name), request)).as_py():
            raise self._denied()

    def _check_masked(self, rows: pa.Table, stored: pa.Table, names: Collection[str]) -> None:
        """Check that properties that the actor sees, but may not change, stay as they are; null for new rows."""
        place = pc.index_in(rows[_ID].combine_chunks(), value_set=stored[_ID].combine_chunks())
        for name in names:
            column = rows[name].combine_chunks()
            if is_blob(column.type):
                if not column.equals(_cells(place.is_null())):
                    raise self._denied()
            elif not identical(column, stored[name].combine_chunks().take(place)).all():
                raise self._denied()

    def _check_cascades(self, changes: dict[str, TableChange]) -> None:
        """Check that deleted nodes have no edges that the write does not delete."""
        for change in changes.values():
            if change.kind is not TypeKind.NODE or len(change.deleted) == 0:
                continue
            for edge in self._accepted.catalog.edges_of(change.name):
                deleted = changes[edge_key(edge.name)].deleted if edge_key(edge.name) in changes else _NO_IDS
                for end, node in (("src", edge.from_type), ("dst", edge.to_type)):
                    if node == change.name:
                        self._check_deleted(edge_key(edge.name), end, change.deleted, deleted)

    def _check_deleted(self, key: str, end: str, nodes: pa.Array, deleted: pa.Array) -> None:
        found = self._whole.lookup(key, end, chunked(nodes), columns=[_ID])[_ID]
        if not pc.all(pc.is_in(found, value_set=deleted)).as_py() and len(found):
            raise self._denied()


def _cells(is_new: pa.Array) -> pa.Array:
    """Blob cells: null for new rows, and cells that keep the stored blob for others."""
    kept = unchanged_cells(len(is_new))
    places = np.arange(len(is_new))
    return kept.take(pa.array(places, mask=is_new.to_numpy(zero_copy_only=False)))

"""Aligns states with different schemas: converts all rows that a merge reads to the types and columns of the target.

Types and properties are matched by their stable ids, not by their names. Numbers are converted to the type of the
target, and enum values get the names that they have in the target. A column that a version does not have is read as
null. Then `fill_lacking` fills it: a property that a side does not have counts as unchanged on that side. If the merge
takes a row of the source, `with_target_values` keeps the values of the target in the properties that the source lacks.
"""

# See docs/decisions/0195-a-merge-uses-the-schema-of-its-target.md

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache, partial
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, Models, TableId, TablePin, models_of
from omnigraph.commit.read_set import pins
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import MergeSchemaError
from omnigraph.lang.arrow import PROPERTY_ID, arrow_schema
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.enum_values import EnumValues, Renaming, renaming
from omnigraph.merge.equality import identical
from omnigraph.storage.blobs import CELL, row_schema, stored_blobs
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.builder import default_value
from omnigraph.write.rows.renamed_values import renamed_values
from omnigraph.write.rules.constraints import value_rules


class Filled(Protocol):
    """How a schema change filled a new property in the existing rows.

    Attributes:
        value: the value; None for null.
        text: for vectors that are computed from a text, the property with the text.
    """

    @property
    def value(self) -> pa.Scalar | None: ...

    @property
    def text(self) -> str | None: ...


class Schemas(Protocol):
    """Returns the schema of a state of the graph."""

    def of(self, view: Manifest) -> AcceptedSchema:
        """The accepted schema of a state."""
        ...

    def version_at(self, snapshot: Snapshot) -> tuple[str, AcceptedSchema]:
        """The source text and the accepted schema of a snapshot, which may be at an older commit of its branch."""
        ...

    def filled(self, view: Manifest, table: TableId, name: str, number: int) -> Filled | None:
        """How a schema change before a state filled a new property; None if it cannot be known."""
        ...


State = tuple[Manifest, AcceptedSchema]
"""A state of the graph with its schema."""

Lacking = tuple[frozenset[str], frozenset[str], frozenset[str]]
"""The columns that the base, the source and the target do not have."""

IsChanged = Callable[[str, TableRef, TableRef], bool]
"""Whether the second version of a table has rows that the first does not have. Args: the type key, the versions."""

_NOTHING: frozenset[str] = frozenset()
_SCAN_ROWS = 1 << 16
"""Number of rows that a scan reads at a time."""


@dataclass(frozen=True, slots=True)
class Fill:
    """The values of columns that one side of a merge does not have.

    Attributes:
        embedded: for each column of computed vectors, the column with the text that they are computed from.
        filled: how a schema change filled a column; None if it cannot be known. It is only called if the source lacks
            the column and has deleted an entity.
        value: the value of a column in entities that only this side has; None for null. It is only called if there are
            such entities.
    """

    embedded: Mapping[str, str] = field(default_factory=dict)
    filled: Callable[[str], Filled | None] = lambda _: None
    value: Callable[[str], pa.Scalar | None] = lambda _: None

    def known(self, names: Collection[str]) -> Fill:
        """A copy with the values of some columns, which can be sent to tasks on other machines."""
        return replace(
            self,
            filled={name: self.filled(name) for name in names}.get,
            value={name: self.value(name) for name in names}.get,
        )


def fill_lacking(
    sides: tuple[pa.Table, pa.Table, pa.Table], lacking: Lacking, fill: Fill
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Fill the columns that some sides do not have.

    A side that lacks a column gets the values of the base, so the column counts as unchanged. If the base also lacks
    the column, the side gets the values of the other side. If the source lacks it, too, and has deleted an entity, the
    base gets the value that the schema change filled in: if the target has another value, it has changed the entity. If
    only the base lacks a column, the base gets the values on which both sides agree; `undecided_ids` returns the other
    rows. A vector is copied only from a side in which the text that it was computed from is the same.

    Args:
        sides: the rows of the base, the source and the target, with the same columns and unique ids.
        lacking: the columns that each side lacks.
        fill: the values for entities that no other side has.
    """
    base, source, target = (side.combine_chunks() for side in sides)
    for name in _texts_first(lacking[0] | lacking[1] | lacking[2], fill):
        base_lacks, source_lacks, target_lacks = (name in some for some in lacking)
        if base_lacks and not source_lacks and not target_lacks:
            base = _with(base, name, _copied(base, name, [source, target], fill))
            continue
        if base_lacks:
            base = _with(base, name, _copied(base, name, [source if target_lacks else target], fill))
            if source_lacks and not target_lacks:
                base = _with_filled(base, name, _only_in(target, source), fill)
        if source_lacks:
            others = [base, target] if base_lacks or not target_lacks else [base]
            source = _with(source, name, _copied(source, name, others, fill))
        if target_lacks:
            target = _with(target, name, _copied(target, name, [base, source], fill))
    return base, source, target


def with_target_values(source: pa.Table, target: pa.Table, lacking: frozenset[str], fill: Fill) -> pa.Table:
    """The rows of the source as a merge takes them: the target keeps its values in columns that the source lacks.

    Entities that the target does not have are not changed. A vector of the target is taken only if its text is the
    same as in the row of the source.

    Args:
        source: completed rows of the source (see `fill_lacking`).
        target: completed rows of the target, with the same columns.
        lacking: the columns that only the source lacks.
        fill: the texts that vectors are computed from.
    """
    for name in _texts_first(lacking, fill):
        source = _with(source, name, _copied(source, name, [target, source], fill))
    return source


def undecided_ids(sides: tuple[pa.Table, pa.Table, pa.Table], lacking: Lacking, fill: Fill) -> pa.Array:
    """The ids of rows whose value in the base matters, and is unknown, because the base lacks the column.

    If only the base lacks it, the base is a state of a third branch with another schema. If both sides have an entity
    with the same value, the value of the base does not matter. If one side has deleted the entity, the other may have
    changed the value. If the source lacks the column, too, only the entities that it has deleted matter, and only if
    the value that the schema change filled in is unknown.

    Args:
        sides: the rows of the base, the source and the target, with the same columns and unique ids.
        lacking: the columns that each side lacks.
        fill: the values that schema changes filled in.
    """
    base, source, target = (side.combine_chunks() for side in sides)
    columns = sorted(lacking[0] - lacking[1] - lacking[2])
    ids = _array(base, "id")
    if len(ids) == 0:
        return ids
    deleted = ids.filter(pc.is_in(ids, value_set=_only_in(target, source)))
    if len(deleted) and any(fill.filled(name) is None for name in sorted((lacking[0] & lacking[1]) - lacking[2])):
        unknown = deleted
    else:
        unknown = ids.slice(0, 0)
    if not columns:
        return unknown
    at_source, at_target = (pc.index_in(ids, value_set=_array(side, "id")) for side in (source, target))
    in_source, in_target = (at.is_valid().to_numpy(zero_copy_only=False) for at in (at_source, at_target))
    undecided = in_source ^ in_target
    both = np.flatnonzero(in_source & in_target)
    places = [at.take(pa.array(both)) for at in (at_source, at_target)]
    for name in columns:
        values = [_array(side, name).take(at) for side, at in zip((source, target), places, strict=True)]
        undecided[both] |= ~identical(*values)
    return pa.concat_arrays([ids.filter(pa.array(undecided)), unknown]).unique()


def _texts_first(names: frozenset[str], fill: Fill) -> list[str]:
    """The columns in the order in which they are filled: a vector is copied only if its text is the same."""
    return sorted(names, key=lambda name: (name in fill.embedded, name))


def _copied(rows: pa.Table, name: str, others: Sequence[pa.Table], fill: Fill) -> pa.Array:
    """Values of a column. Each comes from the first of `others` that has the entity; else it is `Fill.value`.

    A vector comes from the first that has the entity with the same text; if the texts differ, it is null.
    """
    kind = rows.schema.field(name).type
    values = pa.nulls(rows.num_rows, kind)
    missing = np.ones(rows.num_rows, bool)
    alone = np.ones(rows.num_rows, bool)
    text = fill.embedded.get(name)
    for other in others:
        found = pc.index_in(rows["id"].combine_chunks(), value_set=other["id"].combine_chunks())
        taken = missing & found.is_valid().to_numpy(zero_copy_only=False)
        alone &= ~taken
        chosen = np.flatnonzero(taken)
        if len(chosen) == 0:
            continue
        places = found.take(pa.array(chosen))
        copies = _array(other, name).take(places)
        if text is not None and text in rows.column_names:
            same = identical(_array(rows, text).take(pa.array(chosen)), _array(other, text).take(places))
            copies = copies.take(pa.array(np.arange(len(copies)), mask=~same))
            taken[chosen[~same]] = False
        order = np.arange(rows.num_rows)
        order[chosen] = rows.num_rows + np.arange(len(chosen))
        values = pa.concat_arrays([values, copies]).take(pa.array(order))
        missing &= ~taken
    value = fill.value(name) if alone.any() else None
    if value is None:
        return values
    places = np.where(alone, rows.num_rows, np.arange(rows.num_rows))
    return pa.concat_arrays([values, pa.repeat(value, 1).cast(kind)]).take(pa.array(places))


def _only_in(one: pa.Table, other: pa.Table) -> pa.Array:
    """The ids of entities that the first table has and the second does not have."""
    ids = _array(one, "id")
    return ids.filter(pc.invert(pc.is_in(ids, value_set=_array(other, "id"))))


def _with_filled(rows: pa.Table, name: str, ids: pa.Array, fill: Fill) -> pa.Table:
    """Rows in which those with the given ids have the value that the schema change filled in, if it is known."""
    chosen = pc.is_in(_array(rows, "id"), value_set=ids)
    filled = fill.filled(name) if chosen.true_count else None
    if filled is None or filled.text is not None:
        return rows
    kind = rows.schema.field(name).type
    value = pa.scalar(None, kind) if filled.value is None else filled.value.cast(kind)
    places = np.where(chosen.to_numpy(zero_copy_only=False), rows.num_rows, np.arange(rows.num_rows))
    values = pa.concat_arrays([_array(rows, name), pa.repeat(value, 1)]).take(pa.array(places))
    return _with(rows, name, values)


def _array(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Converts the rows of one table version to the columns of the target.

    Attributes:
        where: the name of the type, for messages.
        schema: the columns of the target.
        stored: the name of the stored column for each column of the target that this version has.
        renames: for each column, the conversion of enum values.
        narrowed: the columns whose values may not fit the type of the target.
    """

    where: str
    schema: pa.Schema
    stored: Mapping[str, str]
    renames: Mapping[str, Renaming]
    narrowed: frozenset[str] = _NOTHING

    @property
    def may_refuse(self) -> bool:
        """Whether the conversion refuses some values."""
        return bool(self.narrowed) or any(change.refused for change in self.renames.values())

    @property
    def lacking(self) -> frozenset[str]:
        return frozenset(self.schema.names) - self.stored.keys()

    def read(self, columns: Sequence[str]) -> list[str]:
        """The names of the stored columns for some columns of the target. Columns that Lance adds keep their names."""
        known = set(self.schema.names)
        return [self.stored.get(name, name) for name in columns if name in self.stored or name not in known]

    def converted(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Convert stored rows to the given columns of the target."""
        known = set(self.schema.names)
        arrays = []
        for name in columns:
            if name in self.stored:
                arrays.append(self._values(name, rows[self.stored[name]]))
            elif name in known:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, self.schema.field(name).type)]))
            else:
                arrays.append(rows[name])
        return pa.table(arrays, names=list(columns))

    def _values(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind = self.schema.field(name).type
        if name in self.renames:
            chunks = [self._renamed(name, chunk) for chunk in column.chunks]
            column = pa.chunked_array(chunks, column.type)
        if column.type == kind or isinstance(kind, pa.ExtensionType) or pa.types.is_struct(kind):
            return column
        if name not in self.narrowed:
            return column.cast(kind)
        try:
            converted = column.cast(kind)
            if converted.cast(column.type).equals(column):
                return converted
        except pa.ArrowInvalid:
            pass
        raise MergeSchemaError(
            f"values of {self.where}.{name} do not fit the type of this property in the target",
            hint="the target has an older schema: update it first with 'omnigraph branch update'",
        )

    def _renamed(self, name: str, values: pa.Array) -> pa.Array:
        change = self.renames[name]
        items = pc.list_flatten(values) if pa.types.is_list(values.type) else values
        wrong = items.filter(pc.is_in(items, value_set=pa.array(change.refused, items.type)))
        if len(wrong):
            raise MergeSchemaError(
                f"'{wrong[0].as_py()}' of {self.where}.{name} means another enum value in the schema of the target",
                hint="enum values were renamed; set the property to another value on the source, and try again",
            )
        return renamed_values(values, change.pairs) if change.pairs else values


@dataclass(frozen=True, slots=True)
class AlignedView:
    """One table version, read with the columns of the target. Provides the read methods of `TableView` for a merge.

    The conversion is made when rows are read, because it needs the stored columns: the version may not exist.
    """

    _view: TableView
    _convert: Callable[[], Conversion]

    @property
    def _conversion(self) -> Conversion:
        return self._convert()

    def schema(self) -> pa.Schema:
        return self._conversion.schema

    def lookup(self, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        stored = self._conversion.stored.get(by, by)
        rows = self._view.lookup(stored, values, columns=self._conversion.read(columns))
        return self._conversion.converted(rows, columns)

    def read_fragments(
        self, numbers: Sequence[int], *, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        read = self._conversion.read(columns)
        for batch in self._view.read_fragments(numbers, columns=read, batch_rows=batch_rows):
            yield from self._conversion.converted(pa.Table.from_batches([batch]), columns).to_batches()

    def take_rows(self, row_ids: pa.Array, *, columns: Sequence[str]) -> pa.Table:
        # A version may lack all of the columns. Lance needs at least one column to read.
        rows = self._view.take_rows(row_ids, columns=self._conversion.read(columns) or ["id"])
        return self._conversion.converted(rows, columns)

    def rows_of(self, row_ids: pa.Array, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self._view.rows_of(row_ids, columns=self._conversion.read(columns)):
            yield from self._conversion.converted(pa.Table.from_batches([batch]), columns).to_batches()

    def content(self, rows: pa.Table, largest: int | None = None) -> Iterator[pa.Table]:
        stored = self._conversion.stored
        names = rows.column_names
        lacking = [name for name in stored_blobs(self._conversion.schema) if name in names and name not in stored]
        with_stored_names = rows.rename_columns([stored.get(name, name) for name in names])
        for part in self._view.content(with_stored_names, largest):
            part = part.rename_columns(names)
            for name in lacking:
                part = part.set_column(names.index(name), name, pa.nulls(part.num_rows, CELL))
            yield part

    def exists(self) -> bool:
        return self._view.exists()

    def fingerprint(self) -> str:
        return self._view.fingerprint()

    def fragments(self) -> list[Fragment]:
        return self._view.fragments()

    def fragment_digests(self) -> tuple[str, ...]:
        return self._view.fragment_digests()


class AlignedTables:
    """The tables of the graph, read with the columns of the target.

    Args:
        tables: the table storage.
        target: the state that rows are merged into.
        accepted: the schema of the target.
        others: the other states with their schemas.
    """

    def __init__(
        self,
        tables: TableStorage,
        target: Manifest,
        accepted: AcceptedSchema,
        others: Sequence[tuple[Manifest, AcceptedSchema]],
    ) -> None:
        self.stored = tables
        self._tables = tables
        self._enums = _enums_of(accepted)
        self._stored_enums = _enums_by_version([(target, accepted), *others])
        self._keys = {pin.ref.path: key for key, pin in pins(target).items()}
        self._schemas = {pin.ref.path: tables.at(pin.ref).schema() for pin in pins(target).values()}
        self._conversions: dict[TableRef, Conversion] = {}

    def include(self, view: Manifest, accepted: AcceptedSchema) -> None:
        """Add another state, with its schema."""
        for ref, enums in _enums_by_version([(view, accepted)]).items():
            self._stored_enums.setdefault(ref, enums)

    def at(self, ref: TableRef) -> AlignedView:
        return AlignedView(self._tables.at(ref), partial(self.conversion, ref))

    def lacking(self, ref: TableRef) -> frozenset[str]:
        """The columns of the target that a version does not have."""
        return self.conversion(ref).lacking

    def left_out(self, ref: TableRef) -> list[str]:
        """The columns of a stored version that the target does not have."""
        used = set(self.conversion(ref).stored.values())
        return [name for name in self._tables.at(ref).schema().names if name not in used]

    def models(self, pin: TablePin) -> Models:
        """The embedding models recorded in a table version, by the property names of the target."""
        names = {stored: name for name, stored in self.conversion(pin.ref).stored.items()}
        return models_of(
            {
                names[name]: [(model, names.get(text, text)) for model, text in pairs]
                for name, pairs in pin.models
                if name in names
            }
        )

    def conversion(self, ref: TableRef) -> Conversion:
        """The conversion of the rows of a version. Can be sent to tasks on other machines."""
        found = self._conversions.get(ref)
        if found is None:
            found = self._conversions[ref] = self._made(ref)
        return found

    def _made(self, ref: TableRef) -> Conversion:
        kind, name = TypeKey.parse(self._keys[ref.path])
        schema, stored = self._schemas[ref.path], self._tables.at(ref).schema()
        by_identity = {_identity(member): member.name for member in stored}
        columns = {member.name: by_identity[_identity(member)] for member in schema if _identity(member) in by_identity}
        renames: dict[str, Renaming] = {}
        before = self._stored_enums[ref]
        for number, (column, values) in self._enums.get((kind, name), {}).items():
            if column in columns and number in before and (change := renaming(before[number][1], values)):
                renames[column] = change
        narrowed = (new for new, old in columns.items() if not _fits(stored.field(old).type, schema.field(new).type))
        return Conversion(name, schema, columns, renames, frozenset(narrowed))


def _fits(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether all values of a stored type fit the type of the target. False if this is not known."""
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _fits(old.value_type, new.value_type)
    if old == new or isinstance(new, pa.ExtensionType) or pa.types.is_struct(new):
        return True
    kinds = (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating)
    return any(kind(old) and kind(new) for kind in kinds) and bool(old.bit_width <= new.bit_width)


_Enums = Mapping[int, tuple[str, EnumValues]]
"""The name and the values of enum and String properties, by the stable number of the property."""


def _enums_of(accepted: AcceptedSchema) -> dict[tuple[TypeKind, str], _Enums]:
    """The enum and String properties of all types."""
    found: dict[tuple[TypeKind, str], _Enums] = {}
    for key, identity in accepted.identities.items():
        if key[0] is not TypeKind.INTERFACE:
            found[key] = {
                identity.properties[prop.name]: (prop.name, values)
                for prop in accepted.catalog.declared(*key).properties.values()
                if (values := EnumValues(prop.type, identity.enum(prop.name))).is_text
            }
    return found


def _enums_by_version(states: Sequence[tuple[Manifest, AcceptedSchema]]) -> dict[TableRef, _Enums]:
    """The enum and String properties of table versions.

    Several states can have the same version. Then no row has a value that means something else in one of them: a
    rename of a stored value writes a new version, and only a value that no row has can be removed.
    """
    found: dict[TableRef, _Enums] = {}
    for view, accepted in states:
        enums = _enums_of(accepted)
        for key, pin in pins(view).items():
            found.setdefault(pin.ref, enums[TypeKey.parse(key)])
    return found


def stored_tables(tables: TableStorage) -> TableStorage:
    """The table storage itself, also if `tables` is that of an alignment."""
    given: object = tables
    return given.stored if isinstance(given, AlignedTables) else tables


def _identity(member: pa.Field) -> str:
    """The stable number of a property; the name if the column is not a property."""
    metadata = member.metadata or {}
    number = metadata.get(PROPERTY_ID.encode())
    return member.name if number is None else f"#{number.decode()}"


def alignment_of(
    store: Store, schemas: Schemas, target: Manifest, others: Sequence[Manifest], now: int
) -> Alignment | None:
    """The alignment of other states to the schema of the target; None if all have the same schema.

    Args:
        store: the graph.
        schemas: the schemas of states.
        target: the target.
        others: the other states.
        now: the value of `now()` in defaults, in milliseconds.
    """
    if all(view.schema_hash == target.schema_hash for view in others):
        return None
    states = [(view, schemas.version_at(Snapshot(store, view))[1]) for view in others]

    return Alignment(store.tables, target, schemas.of(target), states, now, schemas.filled)


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """The rows of an earlier state for constraint checks, read with the columns of the target.

    Attributes:
        tables: the aligned tables.
        view: the earlier state, with types named as in the target.
        accepted: the schema of the target.
    """

    tables: AlignedTables
    view: Manifest
    accepted: AcceptedSchema

    def scan(self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        pin = pins(self.view).get(key)
        if pin is None:
            return self._none(key, columns)
        table = self.tables.at(pin.ref)
        names = list(columns or table.schema().names)
        numbers = [part.number for part in table.fragments()]
        schema = pa.schema([table.schema().field(name) for name in names])
        rows = pa.Table.from_batches(table.read_fragments(numbers, columns=names, batch_rows=_SCAN_ROWS), schema)
        return rows if filter is None else rows.filter(filter)

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        pin = pins(self.view).get(key)
        if pin is None or by in self.tables.lacking(pin.ref):
            return self._none(key, columns)
        return self.tables.at(pin.ref).lookup(by, values, columns=columns)

    def _none(self, key: str, columns: Sequence[str] | None) -> pa.Table:
        """No rows: the earlier state does not have the type, or none of its rows has a value in the column."""
        schema = row_schema(arrow_schema(self.accepted, *TypeKey.parse(key)))
        return pa.schema([schema.field(name) for name in columns or schema.names]).empty_table()


class Alignment:
    """Aligns the states of one merge to the schema of its target.

    Args:
        tables: the table storage.
        target: the state that rows are merged into.
        accepted: the schema of the target.
        others: the other states with their schemas.
        now: the value of `now()` in defaults, in milliseconds.
        filled: how a schema change before a state filled a new property (see `Schemas.filled`).
    """

    def __init__(
        self,
        tables: TableStorage,
        target: Manifest,
        accepted: AcceptedSchema,
        others: Sequence[tuple[Manifest, AcceptedSchema]],
        now: int,
        filled: Callable[[Manifest, TableId, str, int], Filled | None],
    ) -> None:
        self._filled_at = filled
        self._filled = lru_cache(maxsize=None)(partial(filled, target))
        self._states = {view.head.id: (view, schema) for view, schema in [(target, accepted), *others]}
        self._target = target
        self._accepted = accepted
        self._now = now
        self._keys = {pin.id: key for key, pin in pins(target).items()}
        self._aligned = AlignedTables(tables, target, accepted, others)

    @property
    def tables(self) -> TableStorage:
        """The table storage for the merge, with the read methods that a merge needs."""
        return cast(TableStorage, self._aligned)

    def rows(self, view: Manifest) -> AlignedRows:
        """The rows of an aligned state, for constraint checks."""
        return AlignedRows(self._aligned, view, self._accepted)

    def include(self, view: Manifest, accepted: AcceptedSchema) -> None:
        """Add another state, so that its tables can be read."""
        self._states.setdefault(view.head.id, (view, accepted))
        self._aligned.include(view, accepted)

    def state(self, view: Manifest) -> State:
        """The original of an aligned state, with its schema."""
        return self._states[view.head.id]

    def left_out_columns(self, ref: TableRef) -> list[str]:
        """The stored columns of a version that the target does not have."""
        return self._aligned.left_out(ref)

    def filled_before(self, view: Manifest, table: TableId, name: str, number: int) -> Filled | None:
        """How a schema change before a state filled a new property; None if it cannot be known."""
        return self._filled_at(view, table, name, number)

    def view(self, view: Manifest) -> Manifest:
        """A state with types named as in the target. Types that the target does not have are left out."""
        tables = {self._keys[pin.id]: replace(pin, key=self._keys[pin.id]) for pin in self._known(view)}
        return replace(view, tables=dict(sorted(tables.items())))

    def _known(self, view: Manifest) -> list[TablePin]:
        return [pin for pin in pins(view).values() if pin.id in self._keys]

    def models(self, pin: TablePin) -> Models:
        """The embedding models recorded for a table of the source, by the property names of the target."""
        return self._aligned.models(pin)

    def lacking(self, *refs: TableRef) -> Lacking:
        """The columns that the base, the source and the target do not have."""
        base, source, target = (self._aligned.lacking(ref) for ref in refs)
        return base, source, target

    def fill(self, key: str) -> Fill:
        """The values for columns that a side lacks."""
        kind, name = TypeKey.parse(key)
        declared = self._accepted.catalog.declared(kind, name)
        table = self._target.tables[key].id
        numbers = self._accepted.identity(kind, name).properties

        def filled(column: str) -> Filled | None:
            return self._filled(table, column, numbers[column])

        def value(column: str) -> pa.Scalar | None:
            # A later delete is compared with the value that the schema change filled in. So it comes before the present
            # default, unless the schema no longer allows it.
            known = filled(column)
            if known is not None and known.value is not None and _is_allowed(declared, column, known.value):
                return known.value
            prop = declared.properties[column]
            return None if prop.default is None or prop.type.nullable else default_value(prop, self._now)

        embedded = {prop.name: prop.embed.source for prop in declared.properties.values() if prop.embed is not None}
        return Fill(embedded, filled, value)

    def lacks(self, key: str, ref: TableRef) -> list[str]:
        """The properties of a version of a table that the target does not have."""
        now = set(self._aligned.at(ref).schema().names)
        name = TypeKey.parse(key).name
        return [
            f"{name}.{column}{_ANOTHER_PROPERTY if column in now else ''}" for column in self._aligned.left_out(ref)
        ]

    def left_out(self, base: Manifest | None, source: Manifest, name: str, is_changed: IsChanged) -> list[str]:
        """The types and properties of the source that the target does not have, and that the source has changed.

        Args:
            base: the base; None if it is unknown.
            source: the state that is merged.
            name: its name in messages.
            is_changed: whether the source has inserted or updated rows of a table.

        Raises:
            MergeSchemaError: the target has dropped a type, and the source has inserted or updated entities of it.
        """
        before = {} if base is None else {pin.id: pin.ref for pin in pins(base).values()}
        found = []
        for key, pin in sorted(pins(source).items()):
            if before.get(pin.id) == pin.ref:
                continue
            if pin.id in self._keys:
                found += self.lacks(key, pin.ref)
            elif self._is_newer(pin.id) or (base is not None and pin.id not in before and not source.owns(pin)):
                # Either the target has an older schema; or the base has dropped the type, too, and the source has only
                # kept the rows from before.
                found.append(TypeKey.parse(key).name)
            elif pin.row_count and (pin.id not in before or is_changed(key, before[pin.id], pin.ref)):
                raise MergeSchemaError(
                    f"'{name}' has changed entities of {TypeKey.parse(key).name}, which '{self._target.branch}' has "
                    "dropped",
                    [key],
                    hint=f"delete them on '{source.branch}' first, or add the type again and load their rows"
                    if name == source.branch
                    else "add the type again, and load the rows of an export of that commit",
                )
        return found

    def _is_newer(self, identity: TableId) -> bool:
        """Whether a type is newer than the schema of the target: its number is larger, and numbers are never reused."""
        return identity.type_id >= self._accepted.next_id or identity.incarnation >= self._accepted.next_id


def _is_allowed(declared: NodeType | EdgeType, column: str, value: pa.Scalar) -> bool:
    """Whether the rules of a type allow a value."""
    rules = (rule for rule in value_rules(declared) if rule.property == column)
    return not any(rule.violates(pa.repeat(value, 1))[0].as_py() for rule in rules)


_ANOTHER_PROPERTY = " (another property has this name now)"

NO_LACKING: Lacking = (_NOTHING, _NOTHING, _NOTHING)

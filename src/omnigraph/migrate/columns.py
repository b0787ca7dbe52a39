"""The columns of a table after a schema change: where the values of each column come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Protocol

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, check_model, embed_column
from omnigraph.lang.arrow import arrow_schema, arrow_type
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.migrate import Plan
from omnigraph.lang.schema.migrate.steps import RenameEnumValue
from omnigraph.lang.schema.type_key import type_key
from omnigraph.storage.column_changes import NewValues, has_columns
from omnigraph.storage.table_view import TableView
from omnigraph.write.rows.builder import default_value
from omnigraph.write.rows.renamed_values import count_renamed, renamed_values


class Source(Protocol):
    """The values of one column after a schema change."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The stored columns that the values are computed from."""
        ...

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """The values for stored rows."""
        ...


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """The values of a stored column, unchanged."""

    name: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.name,)

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(self.name)


@dataclass(frozen=True, slots=True)
class NullColumn:
    """Null in every row."""

    type: pa.DataType

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.nulls(rows.num_rows, self.type)


@dataclass(frozen=True, slots=True)
class ConstantColumn:
    """The same value in every row: the default of a new property."""

    value: pa.Scalar

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.repeat(self.value, rows.num_rows)


@dataclass(frozen=True, slots=True)
class CastColumn:
    """Values of another column in a wider number type. Lists keep their items."""

    of: Source
    type: pa.DataType

    @property
    def reads(self) -> tuple[str, ...]:
        return self.of.reads

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return self.of.values(rows).cast(self.type)


@dataclass(frozen=True, slots=True)
class RenamedValues:
    """Values of an enum column, with renamed values replaced. `renames` has (old, new) pairs."""

    of: Source
    renames: tuple[tuple[str, str], ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return self.of.reads

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return renamed_values(self.of.values(rows), self.renames)


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """Vectors that a model computes from the texts of another column."""

    of: Source
    target: Property
    owner: str
    embedder: Embedder

    @property
    def reads(self) -> tuple[str, ...]:
        return self.of.reads

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        return embed_column(self.embedder, self.of.values(rows), self.target, self.owner)


@dataclass(frozen=True, slots=True)
class TypeColumns:
    """The columns of one type after a schema change.

    Attributes:
        kind: node or edge.
        name: the new name of the type.
        former: the name of the type before the change.
        schema: the columns after the change.
        sources: for each column, where its values come from.
        former_names: for each property that already existed, its name before the change, by its new name.
        embedded: properties whose vectors are computed for stored rows, with the model and the source property.
    """

    kind: TypeKind
    name: str
    former: str
    schema: pa.Schema
    sources: Mapping[str, Source]
    former_names: Mapping[str, str]
    embedded: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The type key after the change."""
        return type_key(self.kind, self.name)

    @property
    def former_key(self) -> str:
        """The type key before the change."""
        return type_key(self.kind, self.former)

    @property
    def written(self) -> tuple[str, ...]:
        """The columns whose values have to be written."""
        return tuple(name for name, source in self.sources.items() if not isinstance(source, StoredColumn | NullColumn))

    def new_values(self) -> NewValues | None:
        """The values to write; None if no column has new values."""
        names = self.written
        return NewValues(names, self.reads(names), _Compute(tuple(self.sources[n] for n in names))) if names else None

    def count_updates(self) -> CountRenamed | None:
        """Counts the rows with renamed enum values; None if no values are renamed."""
        found = [one for one in self.sources.values() if isinstance(one, RenamedValues)]
        return CountRenamed(tuple((one.reads[0], one.renames) for one in found)) if found else None

    def reads(self, names: Sequence[str]) -> tuple[str, ...]:
        """The stored columns that some columns are computed from."""
        return tuple(dict.fromkeys(column for name in names for column in self.sources[name].reads))

    def changes(self, stored: pa.Schema) -> bool:
        """Whether the stored table has to change."""
        return bool(self.written) or not has_columns(stored, self.schema)


@dataclass(frozen=True, slots=True)
class _Compute:
    """Computes several columns. It is a class and not a closure, so that it can be sent to tasks on other machines."""

    sources: tuple[Source, ...]

    def __call__(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [source.values(rows) for source in self.sources]


@dataclass(frozen=True, slots=True)
class CountRenamed:
    """Counts the rows of a table with renamed enum values. `columns` has stored columns with (old, new) pairs."""

    columns: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]

    def __call__(self, table: TableView) -> int:
        batches = table.batches(columns=[name for name, _ in self.columns])
        return sum(
            count_renamed([(batch.column(name), renames) for name, renames in self.columns]) for batch in batches
        )


@dataclass(frozen=True, slots=True)
class Values:
    """The values that a schema change computes.

    Attributes:
        now: the time of the change in milliseconds, for `now()`.
        embedder: returns the client of the embedding model. Called only if vectors have to be computed.
        rows: the number of stored entities of each type, by type key before the change.
    """

    now: int
    embedder: Callable[[], Embedder]
    rows: Mapping[str, int]


def columns_after(
    before: AcceptedSchema, after: AcceptedSchema, names: Mapping[tuple[TypeKind, str], str], plan: Plan, values: Values
) -> list[TypeColumns]:
    """The columns of all types that exist before and after a schema change, by kind and new name.

    Args:
        before: the accepted schema.
        after: the new schema, with the identities of the old one.
        names: the former name of each type that already existed.
        plan: the steps.
        values: the values to compute.
    """
    renames = _enum_renames(plan)
    found = []
    for (kind, name), former in sorted(names.items()):
        if kind is TypeKind.INTERFACE:
            continue
        found.append(_type_columns(before, after, kind, name, former, renames, values))
    return found


def _enum_renames(plan: Plan) -> dict[tuple[TypeKind, str, str], tuple[tuple[str, str], ...]]:
    found: dict[tuple[TypeKind, str, str], tuple[tuple[str, str], ...]] = {}
    for step in plan.steps:
        if isinstance(step, RenameEnumValue):
            key = step.type_kind, step.type_name, step.property_name
            found[key] = (*found.get(key, ()), (step.from_, step.to))
    return found


def _type_columns(
    before: AcceptedSchema,
    after: AcceptedSchema,
    kind: TypeKind,
    name: str,
    former: str,
    renames: Mapping[tuple[TypeKind, str, str], tuple[tuple[str, str], ...]],
    values: Values,
) -> TypeColumns:
    numbers = {number: prop for prop, number in before.identity(kind, former).properties.items()}
    declared, stored = after.catalog.declared(kind, name), before.catalog.declared(kind, former)
    former_names = {
        prop: numbers[number] for prop, number in after.identity(kind, name).properties.items() if number in numbers
    }
    schema = arrow_schema(after, kind, name)
    ends = [column for column in schema.names if column not in declared.properties]
    sources: dict[str, Source] = {column: StoredColumn(column) for column in ends}
    late: list[Property] = []
    for prop in declared.properties.values():
        old = former_names.get(prop.name)
        if old is not None:
            sources[prop.name] = _kept(prop, stored.properties[old], renames.get((kind, name, prop.name), ()))
        elif prop.embed is not None and values.rows[type_key(kind, former)]:
            late.append(prop)
        elif prop.default is not None and not prop.type.nullable:
            sources[prop.name] = ConstantColumn(default_value(prop, values.now))
        else:
            sources[prop.name] = NullColumn(arrow_type(prop.type))
    embedded: dict[str, tuple[str, str]] = {}
    for prop in late:
        assert prop.embed is not None
        embedder = values.embedder()
        check_model(embedder, prop, name)
        sources[prop.name] = VectorColumn(sources[prop.embed.source], prop, name, embedder)
        embedded[prop.name] = (embedder.name, prop.embed.source)
    ordered = {column: sources[column] for column in schema.names}
    return TypeColumns(kind, name, former, schema, ordered, former_names, embedded)


def _kept(prop: Property, old: Property, renames: tuple[tuple[str, str], ...]) -> Source:
    source: Source = StoredColumn(old.name)
    if renames:
        source = RenamedValues(source, renames)
    if arrow_type(prop.type) != arrow_type(old.type):
        source = CastColumn(source, arrow_type(prop.type))
    return source

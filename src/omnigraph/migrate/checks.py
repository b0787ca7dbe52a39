"""Checks stored rows against a new schema, before the schema change is applied.

Only steps of tier *validated* have to read rows. The rows are read with the names, types and values that they will have
after the change, and checked by the same rules as in `verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import TablePin
from omnigraph.dataclass import dataclass
from omnigraph.errors import SchemaDataError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import Check, Range, Unique
from omnigraph.lang.schema.migrate import Plan
from omnigraph.lang.schema.migrate.steps import (
    AddConstraint,
    ChangeCardinality,
    ChangeConstraint,
    ChangeNullability,
    ChangePropertyType,
    NarrowEnum,
    Step,
    Tier,
)
from omnigraph.migrate.columns import Source, TypeColumns
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rules.search import Search
from omnigraph.write.rules.verify import Verification
from omnigraph.write.rules.violations import Violations


@dataclass(frozen=True, slots=True)
class MigratedColumns:
    """Columns of a stored table, as they will be after a schema change. Can be sent to tasks on other machines.

    Attributes:
        ref: the stored table.
        reads: the stored columns that the values are computed from.
        schema: the columns after the change.
        sources: for each column, where its values come from.
    """

    ref: TableRef
    reads: tuple[str, ...]
    schema: pa.Schema
    sources: tuple[Source, ...]

    def converted(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Stored rows as they will be after the change."""
        return pa.record_batch([_without_content(one.values(stored)) for one in self.sources], schema=self.schema)


@dataclass(frozen=True, slots=True)
class MigratedRows:
    """The stored rows as they will be after a schema change. New types have no rows.

    Attributes:
        tables: the table storage.
        pins: the stored tables, by type key before the change.
        columns: the columns of each type, by type key after the change.
        checkpoint: called for each batch. It raises an error to stop the work.
    """

    tables: TableStorage
    pins: Mapping[str, TablePin]
    columns: Mapping[str, TypeColumns]
    checkpoint: Callable[[], None] = lambda: None

    def pin(self, key: str) -> TablePin | None:
        """The stored table of a type; None for a new type. Adds the whole table to the read set of the write."""
        after = self.columns.get(key)
        return None if after is None else self.pins[after.former_key]

    def migrated(self, key: str, columns: Sequence[str]) -> MigratedColumns:
        """Columns of a type that is not new, by their new names."""
        after = self.columns[key]
        # Some checks look for nulls, so the columns are nullable here.
        schema = pa.schema([after.schema.field(name).with_nullable(True) for name in columns])
        reads = after.reads(columns) or ("id",)
        sources = tuple(after.sources[name] for name in columns)
        return MigratedColumns(self.pins[after.former_key].ref, reads, schema, sources)

    def empty(self, key: str, columns: Sequence[str]) -> pa.Table:
        """No rows, with columns of a type."""
        if key not in self.columns:
            return pa.schema([(name, pa.utf8()) for name in columns]).empty_table()
        read = self.migrated(key, columns)
        stored = self.tables.at(read.ref).schema()
        none = pa.RecordBatch.from_pylist([], pa.schema([stored.field(name) for name in read.reads]))
        return pa.Table.from_batches([read.converted(none)])

    def batches(self, key: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Stream columns of a type, by their new names."""
        after = self.columns.get(key)
        if after is None:
            return pa.RecordBatchReader.from_batches(self.empty(key, columns or ["id"]).schema, [])
        read = self.migrated(key, after.schema.names if columns is None else columns)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self.tables.at(read.ref).batches(columns=list(read.reads)):
                self.checkpoint()
                yield read.converted(batch)

        return pa.RecordBatchReader.from_batches(read.schema, batches())


def _without_content(values: pa.Array) -> pa.Array:
    """Replace the descriptors of blobs by empty values. No check reads the content of a blob."""
    if not pa.types.is_struct(values.type):
        return values
    return pc.if_else(values.is_valid(), pa.scalar(b"", pa.large_binary()), pa.scalar(None, pa.large_binary()))


def check_rows(after: AcceptedSchema, plan: Plan, search: Search) -> None:
    """Check the stored rows against a new schema.

    Args:
        after: the new schema.
        plan: the steps. Only steps of tier *validated* are checked.
        search: searches the stored rows.

    Raises:
        SchemaDataError: rows do not fit the new schema. The error has the first violations, and the number of all.
    """
    found = Violations()
    check = Verification(after, search, found)
    done: set[tuple[object, ...]] = set()
    for step in plan.steps:
        if step.tier is Tier.VALIDATED:
            _check_step(check, after, step, done)
    if found.total:
        raise SchemaDataError(tuple(found.first), found.total)


def _check_step(check: Verification, after: AcceptedSchema, step: Step, done: set[tuple[object, ...]]) -> None:
    match step:
        case ChangeNullability():
            check.required(step.type_kind, after.catalog.declared(step.type_kind, step.type_name), step.property_name)
        case NarrowEnum() | ChangePropertyType():
            _check_values(check, after, step.type_kind, step.type_name, step.property_name, done)
        case AddConstraint(constraint=Unique(fields)):
            check.uniques(step.type_kind, after.catalog.declared(step.type_kind, step.type_name), [fields])
        case AddConstraint(constraint=Range(name) | Check(name)) | ChangeConstraint(to=Range(name) | Check(name)):
            _check_values(check, after, step.type_kind, step.type_name, name, done)
        case ChangeCardinality() if (step.type_name, "card") not in done:
            done.add((step.type_name, "card"))
            check.cardinalities(after.catalog.edges[step.type_name])


def _check_values(
    check: Verification,
    after: AcceptedSchema,
    kind: TypeKind,
    owner: str,
    name: str,
    done: set[tuple[object, ...]],
) -> None:
    """Check all value rules of a property. If it was already checked, this does nothing."""
    if (kind, owner, name) not in done:
        done.add((kind, owner, name))
        check.values(kind, after.catalog.declared(kind, owner), [name])

"""Column changes of a table: one staged transaction adds, drops, renames, retypes and refills columns.

Columns are matched by the property number in their field metadata, so a renamed column keeps its Lance field, its data
and its indexes. A change without new values only replaces the schema of the table (Lance's `Project`). New values are
written to one additional data file per fragment (Lance's `Merge`); all other data files stay. A column with new
values gets a new field number. With the old number, Lance would read the old files with the new type.
"""

# See docs/decisions/0190-columns-change-in-one-transaction.md

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import DataFile, FragmentMetadata, LanceFragment
from lance.schema import LanceSchema
from lance.udf import batch_udf

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError
from omnigraph.lang.arrow import PROPERTY_ID
from omnigraph.storage.blobs import stored_schema
from omnigraph.storage.lance_manifest import encoded, encoded_number, fields
from omnigraph.storage.staged import Staged, staged
from omnigraph.storage.table_view import TableView

_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6
"""Protobuf field numbers in Lance's message for a column."""

_NO_PARENT = 2**64 - 1
_TEMPORARY = "0new"
"""Prefix of the names of new columns while they are written. No property name starts with a digit."""

BATCH_BYTES = 32 << 20
"""Approximate bytes of the rows that are computed at once."""

_LEAST_ROWS, _MOST_ROWS = 16, 32_768


@dataclass(frozen=True, slots=True)
class NewValues:
    """Values of columns that are computed from the stored rows.

    Attributes:
        names: the columns that get the values, by their names after the change.
        reads: the columns to read, by their stored names. Without any, the values are the same in all rows.
        compute: computes the columns in `names` from a batch with the columns in `reads`.
    """

    names: tuple[str, ...]
    reads: tuple[str, ...]
    compute: Callable[[pa.RecordBatch], Sequence[pa.Array]]


@dataclass(frozen=True, slots=True)
class _Field:
    """A top-level field of a Lance schema: its protobuf message, then the messages of its nested fields."""

    messages: tuple[bytes, ...]

    @property
    def numbers(self) -> set[int]:
        """Its field number, and those of its nested fields. Protobuf omits the number 0."""
        return {_members(message).get(_ID, 0) for message in self.messages}


def property_number(field: pa.Field) -> str | None:
    """The number of the property in a column; None for `id`, `src` and `dst`."""
    found = (field.metadata or {}).get(PROPERTY_ID.encode())
    return None if found is None else found.decode()


def former_columns(stored: pa.Schema, wanted: pa.Schema) -> dict[str, str]:
    """The stored name of every wanted column that exists, by its name in `wanted`."""
    numbers = {number: field.name for field in stored if (number := property_number(field)) is not None}
    plain = {field.name for field in stored if property_number(field) is None}
    found: dict[str, str] = {}
    for field in wanted:
        number = property_number(field)
        if number is None and field.name in plain:
            found[field.name] = field.name
        elif number is not None and number in numbers:
            found[field.name] = numbers[number]
    return found


def has_columns(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether a table has exactly the wanted columns: names, order, types, nullability and property numbers."""
    target = stored_schema(wanted)
    return [_signature(field) for field in stored] == [_signature(field) for field in target]


def _signature(field: pa.Field) -> tuple[str, pa.DataType, bool, str | None]:
    return field.name, field.type, field.nullable, property_number(field)


def stage_columns(
    table: TableView, schema: pa.Schema, values: NewValues | None = None, written: Sequence[str] | None = None
) -> Staged:
    """Stage new columns for a table. The rows, their order and their row ids stay.

    Args:
        table: the version to change.
        schema: the columns after the change, with plain bytes for blobs. Columns are matched by property number. A new
            column without values is null in all rows.
        values: the columns whose values change.
        written: results of `write_columns` in other processes for all fragments; None to write the values here.

    Raises:
        CorruptionError: Lance assigned other field numbers than expected, a required column has a null value, or a
            column that needs new values has none.
    """
    dataset = table.dataset
    target = stored_schema(schema)
    parts = dataset.get_fragments()
    if values is not None and parts:
        if written is None:
            written = write_columns(table, schema, values, [part.fragment_id for part in parts])
        fragments = _with_files(parts, written)
    else:
        fragments = []
    computed = () if values is None else values.names
    if parts:
        _check_values(dataset, target, computed)
    root, base = table.datasets.root, table.ref
    project = LanceOperation.Project(_schema(dataset, target, computed))
    if not fragments:
        return staged(root, base, Transaction(base.version, project))
    merge = LanceOperation.Merge(fragments, _schema(dataset, target, computed, keep_nullability=True))
    known = {file.path for part in parts for file in part.metadata.files}
    made = staged(root, base, Transaction(base.version, merge), known=known)
    if not _nullability_changes(dataset, target, computed):
        return made
    # A `Merge` cannot change the nullability of the other columns, so a second commit changes it.
    after = base.at(base.version + 1)
    return replace(made, then=staged(root, after, Transaction(after.version, project)))


def write_columns(table: TableView, schema: pa.Schema, values: NewValues, numbers: Sequence[int]) -> tuple[str, ...]:
    """Write the new values of some fragments, in any process. Returns the input of `stage_columns`.

    Args:
        table: the version to change.
        schema: the columns after the change, as for `stage_columns`.
        values: the columns whose values change.
        numbers: the fragments.
    """
    dataset = table.dataset
    target = stored_schema(schema)
    wanted = [target.field(name) for name in values.names]
    output = pa.schema([field.with_name(f"{_TEMPORARY}{i}") for i, field in enumerate(wanted)])
    expected = set().union(*(field.numbers for field in _new_fields(dataset, target, values.names).values()))
    compute = _Compute(values, output, wanted)
    found: list[str] = []
    with table.datasets.reporting(table.ref, write=True):
        for number in numbers:
            fragment = dataset.get_fragment(number)
            assert fragment is not None
            *others, made = _merged(fragment, compute).files
            if others != fragment.metadata.files or not set(made.fields) <= expected:
                raise CorruptionError(
                    f"Lance assigned unexpected field numbers {made.fields} to new columns of {table.ref.path}",
                    hint="this release does not support this version of Lance; nothing has changed",
                )
            # The rest of a fragment is known, and its row ids can be large.
            found.append(json.dumps({"fragment": number, "file": asdict(made)}))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Compute:
    """Computes the new columns of a batch, with their temporary names."""

    values: NewValues
    output: pa.Schema
    wanted: Sequence[pa.Field]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = self.values.compute(batch)
        for array, field in zip(arrays, self.wanted, strict=True):
            if array.null_count and not field.nullable:
                raise CorruptionError(
                    f"the required column {field.name} would get null values", hint="nothing has changed"
                )
        return pa.record_batch(list(arrays), schema=self.output)


def _merged(fragment: LanceFragment, compute: _Compute) -> FragmentMetadata:
    """Write the new columns of a fragment to an additional data file."""
    reads, batch_rows = list(compute.values.reads), _batch_rows(fragment)
    if not reads:
        made, _ = fragment.merge_columns(_repeated(compute, fragment.count_rows(), batch_rows), batch_size=batch_rows)
        return made
    failed: list[Exception] = []

    @batch_udf(output_schema=compute.output)
    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return compute(batch)
        except Exception as error:
            failed.append(error)
            raise

    try:
        made, _ = fragment.merge_columns(noted, columns=reads, batch_size=batch_rows)
    except Exception:
        if failed:
            raise failed[0] from None  # raise the original error: Lance has converted it to text
        raise
    return made


def _repeated(compute: _Compute, rows: int, batch_rows: int) -> pa.RecordBatchReader:
    """The values of columns that have the same value in all rows. No stored column is read."""
    batch = compute(pa.record_batch({"row": pa.nulls(batch_rows)}))
    full, rest = divmod(rows, batch_rows)
    return pa.RecordBatchReader.from_batches(compute.output, [*[batch] * full, batch.slice(0, rest)])


def _batch_rows(fragment: LanceFragment) -> int:
    made = fragment.metadata
    size = sum(file.file_size_bytes or 0 for file in made.files)
    per_row = max(size // max(made.physical_rows, 1), 1)
    return min(max(BATCH_BYTES // per_row, _LEAST_ROWS), _MOST_ROWS)


def _check_values(dataset: LanceDataset, target: pa.Schema, computed: Sequence[str]) -> None:
    """Check that no column loses values: a column of another type, or a new required one, needs new values.

    Lance would commit a schema without these values, and later reads would fail or return nulls.
    """
    former = former_columns(dataset.schema, target)
    for field in target:
        if field.name in computed:
            continue
        old = dataset.schema.field(former[field.name]) if field.name in former else None
        if field.nullable if old is None else old.type == field.type:
            continue
        raise CorruptionError(f"the column {field.name} needs values in all rows", hint="nothing has changed")


def _with_files(parts: Sequence[LanceFragment], written: Sequence[str]) -> list[FragmentMetadata]:
    """The fragments with the files of their new columns."""
    files: dict[int, DataFile] = {}
    for text in written:
        member = json.loads(text)
        of_file = member["file"]
        files[member["fragment"]] = DataFile(of_file.pop("_path"), **of_file)
    if files.keys() != {part.fragment_id for part in parts} or len(files) != len(written):
        raise CorruptionError("the new columns do not cover all fragments of the table", hint="nothing has changed")
    return [replace(part.metadata, files=[*part.metadata.files, files[part.fragment_id]]) for part in parts]


# The Lance schema is built as protobuf messages: the Lance API has no other way to set field numbers.


def _nullability_changes(dataset: LanceDataset, target: pa.Schema, computed: Sequence[str]) -> bool:
    former = former_columns(dataset.schema, target)
    return any(
        dataset.schema.field(former[field.name]).nullable != field.nullable
        for field in target
        if field.name in former and field.name not in computed
    )


def _schema(
    dataset: LanceDataset, target: pa.Schema, computed: Sequence[str], *, keep_nullability: bool = False
) -> LanceSchema:
    """The Lance schema after the change. Existing fields keep their numbers, and new fields get unused numbers."""
    metadata, stored = _top_level(dataset.lance_schema)
    former = former_columns(dataset.schema, target)
    new = _new_fields(dataset, target, computed)
    messages: list[bytes] = []
    for field in target:
        if field.name in new:
            messages += new[field.name].messages
        else:
            old = stored[former[field.name]].messages
            before = dataset.schema.field(former[field.name]).nullable
            nullable = before if keep_nullability else field.nullable
            messages += [_renamed(old[0], field.name, nullable), *old[1:]]
    schema: LanceSchema = LanceSchema._from_protos(metadata, *messages)
    return schema


def _new_fields(dataset: LanceDataset, target: pa.Schema, computed: Sequence[str]) -> dict[str, _Field]:
    """The fields with new numbers: first the columns with new values, in order, then new columns without values."""
    _, stored = _top_level(dataset.lance_schema)
    former = former_columns(dataset.schema, target)
    empty = [
        field.name
        for field in target
        if field.name not in computed
        and (field.name not in former or dataset.schema.field(former[field.name]).type != field.type)
    ]
    in_schema = max((max(field.numbers) for field in stored.values()), default=-1)
    in_files = (n for part in dataset.get_fragments() for file in part.metadata.files for n in file.fields)
    next_number = max([in_schema, *in_files]) + 1
    found: dict[str, _Field] = {}
    for name in (*computed, *empty):
        _, fresh = _top_level(LanceSchema.from_pyarrow(pa.schema([target.field(name)])))
        found[name] = _Field(tuple(_renumbered(message, next_number) for message in fresh[name].messages))
        next_number = max(found[name].numbers) + 1
    return found


def _top_level(schema: LanceSchema) -> tuple[str, dict[str, _Field]]:
    """The metadata of a schema, and its top-level fields by name."""
    parts: Any = schema.__reduce__()
    metadata, *messages = parts[1]
    found: dict[str, list[bytes]] = {}
    current: list[bytes] = []
    for message in messages:
        if _members(message).get(_PARENT, 0) == _NO_PARENT:
            current = found.setdefault(_name(message), [])
        current.append(message)
    return metadata, {name: _Field(tuple(parts)) for name, parts in found.items()}


def _members(message: bytes) -> Mapping[int, int]:
    return {number: value for number, value, _, _ in fields(message) if isinstance(value, int)}


def _name(message: bytes) -> str:
    return next(
        value.decode() for number, value, _, _ in fields(message) if number == _NAME and not isinstance(value, int)
    )


def _renamed(message: bytes, name: str, nullable: bool) -> bytes:
    kept = b"".join(message[a:b] for number, _, a, b in fields(message) if number not in (_NAME, _NULLABLE))
    return encoded(_NAME, name.encode()) + kept + (encoded_number(_NULLABLE, 1) if nullable else b"")


def _renumbered(message: bytes, first: int) -> bytes:
    """The message of a field with numbers from `first` on. In `message` they start at 0."""
    members = _members(message)
    kept = b"".join(message[a:b] for number, _, a, b in fields(message) if number not in (_ID, _PARENT))
    parent = members.get(_PARENT, 0)
    above = _NO_PARENT if parent == _NO_PARENT else parent + first
    return kept + encoded_number(_ID, members.get(_ID, 0) + first) + encoded_number(_PARENT, above)

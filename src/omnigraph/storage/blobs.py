"""How Blob columns lie in a table: Lance's blob layout on disk, plain bytes above it."""

from __future__ import annotations

import lance
import pyarrow as pa


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that a table is created with: every column of bytes becomes a Lance blob column."""
    fields = []
    for field in schema:
        if pa.types.is_large_binary(field.type):
            blob = lance.blob_field(field.name, nullable=field.nullable)
            metadata = {**(blob.metadata or {}), **(field.metadata or {})}
            fields.append(blob.with_metadata(metadata))
        else:
            fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)


def stored_columns(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """Rows in the layout of a table: columns in its order, bytes as managed blobs."""
    columns = []
    for field in stored:
        column = rows[field.name]
        if pa.types.is_large_binary(column.type):
            column = pa.chunked_array([_managed(chunk, field.type) for chunk in column.chunks], type=field.type)
        columns.append(column)
    return pa.table(columns, schema=stored)


def _managed(data: pa.Array, kind: pa.DataType) -> pa.Array:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    arrays = [
        data if member.name == "data" else pa.nulls(len(data), member.type)
        for member in (storage.field(i) for i in range(storage.num_fields))
    ]
    struct = pa.StructArray.from_arrays(
        arrays, fields=[storage.field(i) for i in range(storage.num_fields)], mask=data.is_null()
    )
    return pa.ExtensionArray.from_storage(kind, struct) if isinstance(kind, pa.BaseExtensionType) else struct

"""The change of a type by a merge, as input of the validator."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.compare import Compared
from omnigraph.merge.three_way import checked_columns
from omnigraph.storage.blobs import row_schema
from omnigraph.write.rules.changes import TableChange


def change_of(accepted: AcceptedSchema, compared: Compared) -> TableChange:
    """The change of one type: the rows and deleted ids, and the columns that are needed to check constraints."""
    kind, name = TypeKey.parse(compared.versions.key)
    declared = row_schema(arrow_schema(accepted, kind, name))
    names = checked_columns(accepted, compared.versions.key)
    fields = [field for field in declared if field.name in names]
    rows = pa.table([compared.rows[field.name] for field in fields], schema=pa.schema(fields))
    return TableChange(kind, name, rows, compared.deleted, stranding=True)

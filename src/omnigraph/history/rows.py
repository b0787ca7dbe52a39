"""One entity in one version of its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.lang.arrow import PROPERTY_ID, readable
from omnigraph.storage.blobs import BlobInfo, blob_info, stored_blobs
from omnigraph.storage.table_view import TableView

_BLOB_CHUNK = 4 << 20
_LAST_WRITTEN = "_row_last_updated_at_version"
_ROW_ID = "_rowid"


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity in a table version.

    Attributes:
        values: its values by property, with the metadata of blobs.
        identities: the stable id of each property that has one. A rename does not change it.
        written: the table version that wrote the row last.
    """

    values: Mapping[str, Any]
    identities: Mapping[str, str]
    written: int
    _row_id: int
    _table: TableView

    def by_identity(self) -> dict[str, str]:
        """The name of each property, by its stable id, or by its name if it has none."""
        return {self.identities.get(name, name): name for name in self.values}

    def same(self, name: str, other: EntityRow, other_name: str) -> bool:
        """Whether a property has the same value in another version of the entity."""
        here, there = self.values[name], other.values[other_name]
        if isinstance(here, BlobInfo) and isinstance(there, BlobInfo):
            return here == there and (here.size is None or self._same_bytes(name, other, other_name, here.size))
        return same_value(here, there)

    def named_as(self, other: EntityRow) -> dict[str, Any]:
        """The values, with renamed properties under the name that they have in another version."""
        names = other.by_identity()
        found = {name: value for name, value in self.values.items() if self.identities.get(name, name) not in names}
        kept = {names[i]: self.values[name] for i, name in self.by_identity().items() if i in names}
        return found | kept

    def _same_bytes(self, name: str, other: EntityRow, other_name: str, size: int) -> bool:
        for start in range(0, size, _BLOB_CHUNK):
            end = min(start + _BLOB_CHUNK, size)
            left = self._table.read_blob(name, self._row_id, start, end)
            if left != other._table.read_blob(other_name, other._row_id, start, end):
                return False
        return True


def read_row(table: TableView, entity_id: str) -> EntityRow | None:
    """Look up one entity; None if it does not exist.

    Raises:
        VersionReclaimedError: the table version does not exist.
    """
    schema = table.schema()
    found = table.find(entity_id, columns=[*schema.names, _LAST_WRITTEN, _ROW_ID])
    if found.num_rows == 0:
        return None
    row = found.slice(0, 1).combine_chunks()
    values: dict[str, Any] = {name: readable(row[name].combine_chunks())[0].as_py() for name in schema.names}
    for name in stored_blobs(schema):
        values[name] = blob_info(row[name][0].as_py())
    return EntityRow(values, property_ids(schema), row[_LAST_WRITTEN][0].as_py(), row[_ROW_ID][0].as_py(), table)


def property_ids(schema: pa.Schema) -> dict[str, str]:
    """The stable id of each property that has one, by its name."""
    return {field.name: identity for field in schema if (identity := _identity(field)) is not None}


def _identity(field: pa.Field) -> str | None:
    found = (field.metadata or {}).get(PROPERTY_ID.encode())
    return None if found is None else found.decode()


def same_value(here: object, there: object) -> bool:
    """Whether two values are the same. In contrast to `==`, NaN is the same as NaN, and 0.0 is not the same as -0.0.

    >>> same_value([float("nan"), 1.0], [float("nan"), 1.0])
    True
    """
    if isinstance(here, float) and isinstance(there, float):
        if math.isnan(here) or math.isnan(there):
            return math.isnan(here) and math.isnan(there)
        return here == there and math.copysign(1.0, here) == math.copysign(1.0, there)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(same_value, here, there))
    return type(here) is type(there) and here == there


def changed_properties(before: EntityRow | None, after: EntityRow | None) -> tuple[str, ...]:
    """The properties whose values differ, by their name in the later version, or in the earlier one if it is missing.

    A property that one version lacks counts as null there.
    """
    if before is None or after is None:
        found = after or before
        assert found is not None
        return tuple(name for name, value in found.values.items() if value is not None)
    older, newer = before.by_identity(), after.by_identity()
    changed = [
        name
        for identity, name in newer.items()
        if (not after.same(name, before, older[identity]) if identity in older else after.values[name] is not None)
    ]
    lost = (name for identity, name in older.items() if _is_lost(identity, name, newer, before))
    return tuple(dict.fromkeys((*changed, *lost)))


def new_values(before: EntityRow | None, after: EntityRow | None) -> tuple[str, ...]:
    """The properties of the later version whose values differ, or that the earlier version lacks."""
    if before is None or after is None:
        return () if after is None else tuple(after.values)
    older = before.by_identity()
    names = after.by_identity().items()
    return tuple(name for i, name in names if i not in older or not after.same(name, before, older[i]))


def _is_lost(identity: str, name: str, newer: Mapping[str, str], before: EntityRow) -> bool:
    return identity not in newer and before.values[name] is not None

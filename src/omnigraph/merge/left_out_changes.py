"""Entities that the target has deleted, and that the source has changed only in columns that the target lacks.

The merge does not compare these columns. Without this check, the entity would count as unchanged in the source, and
stay deleted. As the target then has the commit of the source as an ancestor, a merge in the other direction would
delete the entity with its changes.
"""

# See docs/decisions/0195-a-merge-uses-the-schema-of-its-target.md

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.commit.read_set import pins
from omnigraph.errors import MergeSchemaError
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.equality import identical
from omnigraph.merge.schema_alignment import AlignedTables, Alignment, State, stored_tables
from omnigraph.merge.sides import Columns, lookup_rows
from omnigraph.merge.touched import MAX_LOOKUP_IDS
from omnigraph.storage.row_pairs import ID, changed_rows, shared_names
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

_NONE = pa.array([], pa.utf8())


def changed_left_out(
    alignment: Alignment, base: tuple[Manifest, TablePin], source: tuple[Manifest, TablePin], target: TableRef
) -> pa.Array:
    """The ids of entities of the base that the target has deleted, and the source has changed in left out columns.

    If the base lacks a column, its values are those that the schema change filled in. If they are unknown, the entity
    counts as changed. A vector that was computed from a text counts as unchanged.

    Args:
        alignment: the alignment to the schema of the target.
        base: the base, and its table.
        source: the state that is merged, and its table.
        target: the table of the target.
    """
    before, after = base[1].ref, source[1].ref
    names = alignment.left_out_columns(after)
    tables = stored_tables(alignment.tables)
    if not names or before in (after, target):
        return _NONE
    deleted = _deleted(tables, before, target)
    if len(deleted) == 0:
        return _NONE
    found = [_NONE]
    compared = _LeftOut(tables, alignment, alignment.state(base[0]), alignment.state(source[0]), source[1])
    for first in range(0, len(deleted), MAX_LOOKUP_IDS):
        found.append(compared.changed(before, deleted.slice(first, MAX_LOOKUP_IDS), names))
    return pa.concat_arrays(found)


def _deleted(tables: TableStorage, before: TableRef, after: TableRef) -> pa.Array:
    """The ids of the rows that only the first of two versions has."""
    names = shared_names(*(tables.at(ref).schema() for ref in (before, after)))
    found = changed_rows(tables, before, after, names)
    if found is None:
        old, new = (tables.at(ref).scan(columns=[ID])[ID] for ref in (before, after))
    else:
        old, new = found.before[ID], found.after[ID]
    gone = old.filter(pc.invert(pc.is_in(old, value_set=new)))
    ids: pa.Array = gone.combine_chunks()
    return ids


class _LeftOut:
    """Compares the left out columns of some entities in the base and the source.

    Args:
        tables: the table storage.
        alignment: the alignment to the schema of the target.
        base: the base with its schema.
        source: the source with its schema.
        pin: the table of the source.
    """

    def __init__(self, tables: TableStorage, alignment: Alignment, base: State, source: State, pin: TablePin) -> None:
        self._tables = tables
        self._alignment = alignment
        self._source = source
        self._pin = pin
        (key,) = (key for key, one in pins(source[0]).items() if one.id == pin.id)
        self._numbers = source[1].identity(*TypeKey.parse(key)).properties
        # The rows of the base are read with the columns of the source.
        self._aligned = AlignedTables(tables, *source, [base])

    def changed(self, before: TableRef, ids: pa.Array, names: list[str]) -> pa.Array:
        stored = self._tables.at(self._pin.ref).schema()
        columns = Columns.of(stored).only(names)
        new = lookup_rows(self._tables, self._pin.ref, ids, columns)
        try:
            old = lookup_rows(cast(TableStorage, self._aligned), before, new[ID].combine_chunks(), columns)
        except MergeSchemaError:  # the source has an older schema than the base, and a value does not fit it
            both: pa.Array = new[ID].combine_chunks()
            return both
        new = new.take(pc.index_in(old[ID], value_set=new[ID]))
        lacking = self._aligned.lacking(before)
        changed = np.zeros(new.num_rows, bool)
        for name in names:
            values = new[name].combine_chunks()
            if name not in lacking:
                changed |= ~identical(old[name].combine_chunks(), values)
                continue
            filled = self._alignment.filled_before(self._source[0], self._pin.id, name, self._numbers[name])
            if filled is None:
                changed[:] = True
            elif filled.text is None:
                value = pa.scalar(None, values.type) if filled.value is None else filled.value.cast(values.type)
                changed |= ~identical(pa.repeat(value, len(values)), values)
        found: pa.Array = old[ID].combine_chunks().filter(pa.array(changed))
        return found

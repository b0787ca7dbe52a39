"""The inputs of all constraint checks: the changes that a write makes to each type, and the committed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import type_key


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one type.

    Attributes:
        rows: new and changed entities with their final values, one per id.
        deleted: ids of deleted entities.
        replaced: whether all entities that are not in `rows` are deleted.
        fresh: whether every id in `rows` was generated for this write, so no stored entity has it.
        stranding: whether deleted nodes may still have stored edges. Then the check looks for such edges.
        wrong: for each rule about single values, the input records that break it. Given only if records were dropped,
            because a later record has the same id: the rules apply to them, too.
    """

    kind: TypeKind
    name: str
    rows: pa.Table
    deleted: pa.Array
    replaced: bool = False
    fresh: bool = False
    stranding: bool = False
    wrong: tuple[pa.Table, ...] | None = None

    @property
    def key(self) -> str:
        return type_key(self.kind, self.name)

    @property
    def superseded(self) -> pa.ChunkedArray:
        """The ids whose committed rows are replaced or deleted by the write."""
        written = [] if self.fresh else self.rows["id"].chunks
        return pa.chunked_array([*written, self.deleted], pa.utf8())


class Committed(Protocol):
    """The committed rows before the write."""

    def scan(
        self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.Table: ...

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The entities of a type whose column `by` has one of the values. The cost depends on the number of values."""
        ...


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, for small tables."""
    return table[name].combine_chunks()


def chunked(values: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values], values.type)


def surviving(
    committed: Committed,
    change: TableChange | None,
    key: str,
    columns: Sequence[str],
    by: str,
    values: pa.Array | pa.ChunkedArray,
) -> pa.Table:
    """The committed rows of a type that a write does not change, and whose column `by` has one of the values."""
    wanted = list(dict.fromkeys([*columns, "id"]))
    replaced = change is not None and change.replaced
    distinct = pa.array([], values.type) if replaced else values.unique()
    rows = committed.lookup(key, by, chunked(distinct), columns=wanted)
    superseded = None if change is None or replaced else change.superseded
    if rows.num_rows == 0 or superseded is None or len(superseded) == 0:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=superseded)))

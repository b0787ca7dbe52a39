"""What a write does to each type, and what is there before it: the two things that constraints are checked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import type_key


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one type.

    Attributes:
        rows: new and changed entities with their final values, one per id.
        deleted: ids of entities that go.
        replaced: whether everything that is not in `rows` goes.
        fresh: whether every id in `rows` was made for this write, so that nothing stored can have it.
        stranding: whether nodes may go that stored edges lead to. A write that takes those along need not look.
    """

    kind: TypeKind
    name: str
    rows: pa.Table
    deleted: pa.Array
    replaced: bool = False
    fresh: bool = False
    stranding: bool = False

    @property
    def key(self) -> str:
        return type_key(self.kind, self.name)

    @property
    def superseded(self) -> pa.ChunkedArray:
        """Ids whose committed rows no longer count, as far as there can be any."""
        own = [] if self.fresh else self.rows["id"].chunks
        return pa.chunked_array([*own, self.deleted], pa.utf8())


class Committed(Protocol):
    """What is stored before the write."""

    def scan(
        self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.Table: ...

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        """The entities of a type whose column `by` has one of some values. The cost follows the values."""
        ...


def column(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece: for tables that are known to be small."""
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
    """Committed rows of a type that a write leaves alone and whose column `by` has one of some values."""
    wanted = list(dict.fromkeys([*columns, "id"]))
    gone = change is not None and change.replaced
    distinct = pa.array([], values.type) if gone else values.unique()
    rows = committed.lookup(key, by, chunked(distinct), columns=wanted)
    superseded = None if change is None or gone else change.superseded
    if rows.num_rows == 0 or superseded is None or len(superseded) == 0:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=superseded)))

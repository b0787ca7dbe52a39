"""What a write does to each type, and what is there before it: the two things that constraints are checked on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema import TypeKind

_LOOKED_UP = 20_000
"""Up to so many values, matching rows are looked up; above it, reading the column once is cheaper."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The change of one type.

    Attributes:
        rows: new and changed entities with their final values, one per id.
        deleted: ids of entities that go.
        replaced: whether everything that is not in `rows` goes.
    """

    kind: TypeKind
    name: str
    rows: pa.Table
    deleted: pa.Array
    replaced: bool = False

    @property
    def key(self) -> str:
        return f"{self.kind.value}:{self.name}"

    @property
    def superseded(self) -> pa.Array:
        """Ids whose committed rows no longer count."""
        return pa.concat_arrays([column(self.rows, "id"), self.deleted])


class Committed(Protocol):
    """What is stored before the write."""

    def scan(
        self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None
    ) -> pa.Table: ...


def column(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    return table[name].combine_chunks()


def surviving(
    committed: Committed, change: TableChange | None, key: str, columns: Sequence[str], by: str, values: pa.Array
) -> pa.Table:
    """Committed rows of a type that a write leaves alone and whose column `by` has one of some values."""
    wanted = list(dict.fromkeys([*columns, "id"]))
    if change is not None and change.replaced:
        return committed.scan(key, columns=wanted, filter=pc.scalar(False))
    values = values.unique()
    if len(values) <= _LOOKED_UP:
        rows = committed.scan(key, columns=wanted, filter=pc.field(by).isin(values))
    else:
        rows = committed.scan(key, columns=wanted)
        rows = rows.filter(pc.is_in(rows[by], value_set=values))
    if change is None:
        return rows
    return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=change.superseded)))

"""The read set of a write: what preparing it looked at, and whether later commits have changed any of it.

Preparing gets a view that takes notes. Reads by value (`lookup`) and by condition (`scan` with a filter) are noted as
such, so that a row that was changed meanwhile matters only if it matches one of them, before or after the change. That
covers what was not found, too: a row that has come since matches the values that were looked for. Whatever else
touches a table counts as having read all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.tables import TableStorage

SCHEMA = "schema"
"""What a conflict names when it is about the schema."""

_ID = "id"
_MOST_IDS = 1_000_000
"""With more changed rows than this, a table that was read counts as changed."""

_MOST_ROWS = 20_000
"""The same where the rows themselves have to be looked at, and not only their ids."""

_MOST_BYTES = 64 << 20
"""Of a table in which more bytes of values were looked for, everything counts as read: the values are not kept."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Something of the read set that changed.

    Attributes:
        member: the type key of a table, or `schema`.
        expected: its version when it was read.
        actual: its version now; None when it is gone.
    """

    member: str
    expected: object
    actual: object


@dataclass(slots=True)
class ReadSet:
    """What was read.

    Attributes:
        whole: tables of which everything counts as read.
        lookups: type key, column and values.
        filters: type key and condition.
    """

    whole: set[str] = field(default_factory=set)
    lookups: list[tuple[str, str, pa.ChunkedArray]] = field(default_factory=list)
    filters: list[tuple[str, pc.Expression]] = field(default_factory=list)

    def add_lookup(self, key: str, by: str, values: pa.ChunkedArray, *, kept: bool = False) -> None:
        """Note that rows were looked for by the values of a column.

        Args:
            key: the table.
            by: the column.
            values: the values.
            kept: whether somebody keeps the values in any case, so that noting them takes no memory.
        """
        if kept or values.nbytes <= _MOST_BYTES:
            self.lookups.append((key, by, values))
        else:
            self.whole.add(key)

    def add_filter(self, key: str, condition: pc.Expression | None) -> None:
        """Note that the rows were read for which a condition holds; without one, all of them."""
        if condition is None:
            self.whole.add(key)
        else:
            self.filters.append((key, condition))

    @property
    def keys(self) -> set[str]:
        return self.whole | {key for key, _, _ in self.lookups} | {key for key, _ in self.filters}

    def moved(self, tables: TableStorage, before: Manifest, after: Manifest) -> Moved | None:
        """The first thing of the read set that differs between two states of a branch, if there is one."""
        if before.schema_hash != after.schema_hash:
            return Moved(SCHEMA, before.schema_hash, after.schema_hash)
        for key in sorted(self.keys):
            old, new = before.tables.get(key), after.tables.get(key)
            if old is None or new is None:
                if old is not new:
                    return Moved(key, old and old.ref.version, new and new.ref.version)
            elif old.ref != new.ref and (old.id != new.id or self._matters(tables, old, new)):
                return Moved(key, old.ref.version, new.ref.version)
        return None

    def _matters(self, tables: TableStorage, old: TablePin, new: TablePin) -> bool:
        """Whether a row that differs between two versions is one of those that were read."""
        key = old.key
        ids = changed_ids(tables, old, new, 0 if key in self.whole else _MOST_IDS)
        if ids is None:
            return True
        if len(ids) == 0:
            return False
        by_column: dict[str, list[pa.ChunkedArray]] = {}
        for _, by, values in (noted for noted in self.lookups if noted[0] == key):
            if by == _ID:
                if pc.any(pc.is_in(ids, value_set=values)).as_py():
                    return True
            else:
                by_column.setdefault(by, []).append(values)
        filters = [condition for noted, condition in self.filters if noted == key]
        if not by_column and not filters:
            return False
        if len(ids) > _MOST_ROWS:
            return True
        for ref in (old.ref, new.ref):
            rows = tables.at(ref).lookup(_ID, pa.chunked_array([ids]), columns=[_ID, *by_column])
            for by, several in by_column.items():
                if any(pc.any(pc.is_in(rows[by], value_set=_like(values, rows[by]))).as_py() for values in several):
                    return True
            changed = pc.field(_ID).isin(ids)
            if any(tables.at(ref).scan(columns=[_ID], filter=condition & changed).num_rows for condition in filters):
                return True
        return False


def _like(values: pa.ChunkedArray, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return values if values.type == column.type else values.cast(column.type)


def changed_ids(tables: TableStorage, old: TablePin, new: TablePin, most: int = _MOST_IDS) -> pa.Array | None:
    """The ids of the rows that may differ between two versions of a table.

    None when there are more than `most`, or when nobody can say because a version is gone.
    """
    found: list[pa.Array] = [pa.array([], pa.utf8())]
    count = 0
    try:
        for ids in tables.at(new.ref).touched_since(old.ref):
            count += len(ids)
            if count > most:
                return None
            found.append(ids)
    except VersionReclaimedError:
        return None
    return pa.concat_arrays(found).unique()


class NotedTables(Mapping[str, TablePin]):
    """The tables of a view, with notes of what is read. Taking a pin out of it counts as reading the whole table."""

    def __init__(self, tables: Mapping[str, TablePin], reads: ReadSet) -> None:
        self._tables = tables
        self.reads = reads

    def __getitem__(self, key: str) -> TablePin:
        self.reads.whole.add(key)
        return self._tables[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, key: object) -> bool:
        return key in self._tables


def noting(view: Manifest) -> tuple[Manifest, ReadSet]:
    """A view that notes what is read of it, and the notes."""
    reads = ReadSet()
    return replace(view, tables=NotedTables(view.tables, reads)), reads


def unnoted(view: Manifest) -> Manifest:
    """The view without notes: for reads whose result the write does not depend on."""
    return replace(view, tables=pins(view)) if isinstance(view.tables, NotedTables) else view


def pins(view: Manifest) -> Mapping[str, TablePin]:
    """The tables of a view, without notes: for reads that are noted otherwise."""
    return view.tables._tables if isinstance(view.tables, NotedTables) else view.tables


def reads_of(view: Manifest) -> ReadSet:
    """Where reads of a view are noted; for a view that takes no notes, they go nowhere."""
    return view.tables.reads if isinstance(view.tables, NotedTables) else ReadSet()

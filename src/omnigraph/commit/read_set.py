"""The read set of a write: the rows that it depends on, and whether later commits changed them.

A write is prepared on a manifest object that tracks reads. A lookup adds its values, a filtered scan its condition, and
any other read the whole table. A changed row conflicts only if it matches a value or a condition, before or after the
change. So a row that appears later conflicts, too, if the write looked for it and did not find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.dataclass import dataclass
from omnigraph.errors import VersionReclaimedError
from omnigraph.storage.tables import TableStorage

SCHEMA = "schema"
"""The value of `ReadConflict.member` if the schema has changed."""

_ID = "id"
_MOST_IDS = 1_000_000
"""If more rows of a table than this changed, every write that read the table conflicts."""

_MOST_ROWS = 20_000
"""If more rows of a table than this changed, conditions and lookups are not evaluated: they count as a conflict."""

_MOST_BYTES = 64 << 20
"""If the values of a lookup have more bytes than this, the whole table is added to the read set instead."""


@dataclass(frozen=True, slots=True)
class ReadConflict:
    """A conflict: a table or the schema in the read set has changed.

    Attributes:
        member: the type key of a table, or `schema`.
        expected: its version when it was read.
        actual: its version now; None if it was removed.
    """

    member: str
    expected: object
    actual: object


@dataclass(slots=True)
class ReadSet:
    """The rows that a write depends on.

    Attributes:
        whole: type keys of tables that were read as a whole.
        lookups: lookups by value: type key, column and values.
        filters: scans: type key and condition.
    """

    whole: set[str] = field(default_factory=set)
    lookups: list[tuple[str, str, pa.ChunkedArray]] = field(default_factory=list)
    filters: list[tuple[str, pc.Expression]] = field(default_factory=list)

    def add_lookup(self, key: str, by: str, values: pa.ChunkedArray) -> None:
        """Add a lookup by the values of a column.

        Args:
            key: the table.
            by: the column.
            values: the values.
        """
        if values.nbytes <= _MOST_BYTES:
            self.lookups.append((key, by, values))
        else:
            self.whole.add(key)

    def add_filter(self, key: str, condition: pc.Expression | None) -> None:
        """Add a scan with a condition; None adds the whole table."""
        if condition is None:
            self.whole.add(key)
        else:
            self.filters.append((key, condition))

    @property
    def keys(self) -> set[str]:
        return self.whole | {key for key, _, _ in self.lookups} | {key for key, _ in self.filters}

    @property
    def keys_by_content(self) -> set[str]:
        """The tables that were read by other columns than the id, but not as a whole."""
        return {key for key, by, _ in self.lookups if by != _ID} | {key for key, _ in self.filters}

    def add(self, other: ReadSet) -> None:
        """Add another read set."""
        self.whole |= other.whole
        self.lookups += other.lookups
        self.filters += other.filters

    def has_one_of(self, key: str, ids: pa.Array, images: Iterable[pa.Table]) -> bool:
        """Whether one of some changed rows is in the read set.

        Args:
            key: the table.
            ids: the ids of the rows.
            images: the rows before and after their change, where they exist, for a table in `keys_by_content`.
        """
        if key in self.whole:
            return True
        lookups = [(by, values) for read, by, values in self.lookups if read == key]
        if any(by == _ID and pc.any(pc.is_in(ids, value_set=values)).as_py() for by, values in lookups):
            return True
        filters = [condition for read, condition in self.filters if read == key]
        for rows in images:
            for by, values in lookups:
                if by != _ID and pc.any(pc.is_in(rows[by], value_set=_like(values, rows[by]))).as_py():
                    return True
            if any(rows.filter(condition).num_rows for condition in filters):
                return True
        return False

    def find_conflict(self, tables: TableStorage, before: Manifest, after: Manifest) -> ReadConflict | None:
        """The first conflict between two states of a branch; None if nothing in the read set changed."""
        if before.schema_hash != after.schema_hash:
            return ReadConflict(SCHEMA, before.schema_hash, after.schema_hash)
        for key in sorted(self.keys):
            old, new = before.tables.get(key), after.tables.get(key)
            if old is None or new is None:
                if old is not new:
                    return ReadConflict(key, old and old.ref.version, new and new.ref.version)
            elif old.ref != new.ref and (old.id != new.id or self._conflicts(tables, old, new)):
                return ReadConflict(key, old.ref.version, new.ref.version)
        return None

    def _conflicts(self, tables: TableStorage, old: TablePin, new: TablePin) -> bool:
        """Whether a row that differs between two versions is in the read set."""
        key = old.key
        ids = changed_ids(tables, old, new, 0 if key in self.whole else _MOST_IDS)
        if ids is None:
            return True
        if len(ids) == 0:
            return False
        by_column: dict[str, list[pa.ChunkedArray]] = {}
        for _, by, values in (lookup for lookup in self.lookups if lookup[0] == key):
            if by == _ID:
                if pc.any(pc.is_in(ids, value_set=values)).as_py():
                    return True
            else:
                by_column.setdefault(by, []).append(values)
        filters = [condition for scanned, condition in self.filters if scanned == key]
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
    """Ids of the rows that may differ between two versions of a table.

    Returns:
        None if there are more than `most`, or a version was removed.
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


class TrackedTables(Mapping[str, TablePin]):
    """The tables of a manifest that tracks reads. Access to a pin adds the whole table to the read set."""

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


def tracked(view: Manifest) -> tuple[Manifest, ReadSet]:
    """A manifest that tracks reads, and its read set."""
    reads = ReadSet()
    return replace(view, tables=TrackedTables(view.tables, reads)), reads


def untracked(view: Manifest) -> Manifest:
    """The manifest without the tracking of reads, for reads whose result the write does not depend on."""
    return replace(view, tables=pins(view)) if isinstance(view.tables, TrackedTables) else view


def pins(view: Manifest) -> Mapping[str, TablePin]:
    """The tables of a manifest, without tracking: for reads that add their own condition to the read set."""
    return view.tables._tables if isinstance(view.tables, TrackedTables) else view.tables


def reads_of(view: Manifest) -> ReadSet:
    """The read set of a manifest. If the manifest does not track reads, returns a new, unused read set."""
    return view.tables.reads if isinstance(view.tables, TrackedTables) else ReadSet()

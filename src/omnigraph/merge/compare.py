"""Compares one table in this process: at once, or in hash partitions of its ids that fit the memory budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, Models
from omnigraph.commit.table_writes import Change, TableWrite
from omnigraph.dataclass import dataclass
from omnigraph.merge.choices import RESOLVED_DELETE_SCHEMA, Choice, Resolved
from omnigraph.merge.classify import DIFFERS, UNDECIDED, VERDICT, Verdict, compared
from omnigraph.merge.located_rows import LocatedRows
from omnigraph.merge.property_level import compare_rows
from omnigraph.merge.sides import TakenRows, Versions, differing_fragments, fragment_rows
from omnigraph.storage.row_changes import KnownRows
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rows.hashing import digests
from omnigraph.write.spill import DEFAULT_BUDGET, Spool

MAX_CONFLICTS = 10_000
"""Maximum number of conflicts that a merge describes. The others are only counted."""

_NONE = pa.array([], pa.utf8())
_TEXT_BYTES, _LIST_BYTES = 64, 256
"""Approximate size of a text and of a list in bytes."""

_MEMORY_RATIO = 8
"""The memory budget divided by the size of the rows of a partition. The comparison makes several copies of them."""

Sides = tuple[pa.Table, pa.Table, pa.Table]
"""Rows of the base, the source and the target."""

CONFLICT_SCHEMA = pa.schema(
    [("id", pa.utf8()), (VERDICT, pa.int8()), (DIFFERS, pa.list_(pa.int16())), (UNDECIDED, pa.bool_())]
)
"""The columns of the rows that describe conflicts."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The changes of a merge to one table.

    Attributes:
        versions: the three versions of the table.
        rows: the rows to write to the target: rows of the source, or rows with properties of both sides.
        inserted: number of those rows that the target does not have.
        deleted: the ids of the rows to delete.
        conflict_rows: the conflicts without a choice, sorted by id; the first 10,000, or all (see `Versions`).
        conflicts: the number of conflicts without a choice.
        resolved: the number of resolved conflicts.
        named: the entities with resolved conflicts for which the caller chose a side individually.
        resolved_deletes: the resolved conflicts in which one side deleted the row.
        known: the row ids of compared rows in the target, so that a write does not search them.
    """

    versions: Versions
    rows: pa.Table
    inserted: int = 0
    deleted: pa.Array = field(default_factory=lambda: _NONE)
    conflict_rows: pa.Table = field(default_factory=CONFLICT_SCHEMA.empty_table)
    conflicts: int = 0
    resolved: int = 0
    named: pa.Array = field(default_factory=lambda: _NONE)
    resolved_deletes: pa.Table = field(default_factory=RESOLVED_DELETE_SCHEMA.empty_table)
    known: KnownRows | None = None

    @property
    def updated(self) -> int:
        return int(self.rows.num_rows) - self.inserted

    @property
    def is_empty(self) -> bool:
        """Whether the table does not change."""
        return self.rows.num_rows == 0 and len(self.deleted) == 0

    def source(self, tables: TableStorage, names: list[str]) -> TakenRows:
        """The rows to write to the target, as the input of a write."""
        versions = self.versions
        # Blobs that the source lacks or did not change come from the target.
        mixed = versions.groups is not None or any(versions.lacking)
        other = versions.target if mixed else None
        base = versions.base if any(versions.lacking) else None
        return TakenRows(tables, versions.source, self.rows, versions.columns, tuple(names), other, base)

    def differing(self, places: list[int]) -> list[str]:
        """The names of some of the compared columns, given by their indexes."""
        names = compared(self.versions.schema.empty_table())
        return [names[place] for place in places]

    def joined(self, other: Compared) -> Compared:
        """The combination of this comparison with a comparison of other ids of the same table."""
        conflict_rows = pa.concat_tables([self.conflict_rows, other.conflict_rows]).sort_by("id")
        return replace(
            self._with(other.rows, other.inserted),
            deleted=pa.concat_arrays([self.deleted, other.deleted]).sort(),
            conflict_rows=conflict_rows if self.versions.complete else conflict_rows.slice(0, MAX_CONFLICTS),
            conflicts=self.conflicts + other.conflicts,
            resolved=self.resolved + other.resolved,
            named=pa.concat_arrays([self.named, other.named]),
            resolved_deletes=pa.concat_tables([self.resolved_deletes, other.resolved_deletes]),
        )

    def _with(self, rows: pa.Table, inserted: int) -> Compared:
        """A copy with more rows to write. `inserted` is the number of those that the target does not have."""
        return replace(self, rows=pa.concat_tables([self.rows, rows]), inserted=self.inserted + inserted)

    def with_more(self, rows: pa.Table, inserted: int) -> Compared:
        """A copy with more rows to write. `inserted` is the number of those that the target does not have."""
        return self._with(rows, inserted)

    def whole_rows(self, ids: pa.Array) -> pa.Table:
        """Those of the rows to write that have these ids, with all columns."""
        return self.rows.filter(pc.is_in(self.rows["id"], value_set=ids))

    # Methods that apply a resolved conflict

    def without_rows(self, ids: pa.Array, *, inserted: int) -> Compared:
        """A copy without the rows with these ids. `inserted` is the number of those that the target does not have."""
        kept = self.rows.filter(pc.invert(pc.is_in(self.rows["id"], value_set=ids)))
        return replace(self, rows=kept, inserted=self.inserted - inserted)

    def with_values(self, rows: pa.Table) -> Compared:
        """A copy with other values of the rows to write. The target has all rows whose values differ."""
        return replace(self, rows=rows)

    def with_rows(self, rows: pa.Table) -> Compared:
        """A copy with more rows to write. The target has none of them."""
        return self._with(rows, rows.num_rows)

    def without_deleted(self, ids: pa.Array) -> Compared:
        return replace(self, deleted=self.deleted.filter(pc.invert(pc.is_in(self.deleted, value_set=ids))))

    def with_deleted(self, ids: pa.Array) -> Compared:
        return replace(self, deleted=pa.concat_arrays([self.deleted, ids]).unique())


class Comparer(Protocol):
    """Compares tables and writes the results, in this process or on Spark."""

    @property
    def engine(self) -> str:
        """Where the rows were compared: `local` or `spark`."""
        ...

    def aligned(self, tables: TableStorage) -> Comparer:
        """A comparer that reads the tables of an alignment, because the versions have different schemas."""
        ...

    def compare(self, versions: Versions, choice: Choice, checked: Sequence[str]) -> Compared:
        """Compare one table.

        Args:
            versions: the three versions of the table.
            choice: the choices for conflicts.
            checked: the columns that are needed to check constraints on the rows to write.
        """
        ...

    def writes(self, changes: Sequence[tuple[Compared, Models]], target: Manifest) -> list[TableWrite]:
        """The writes for the changes of tables.

        Args:
            changes: the changes of each table, with the embedding models that computed its vectors.
            target: the state of the target that the changes apply to.
        """
        ...


class Collected:
    """Collects the comparisons of the partitions of a table.

    Args:
        versions: the three versions of the table.
        budget: bytes of rows that stay in memory. Further rows are written to temporary files.
        columns: the columns of the rows to write; by default all.
    """

    def __init__(self, versions: Versions, budget: int, columns: Sequence[str] | None = None) -> None:
        self._versions = versions
        names = versions.schema.names if columns is None else columns
        self._schema = pa.schema([versions.schema.field(name) for name in names])
        self._spool = Spool(budget)
        self._inserted = 0
        self._deleted: list[pa.Array] = [_NONE]
        self._conflict_rows = CONFLICT_SCHEMA.empty_table()
        self._conflicts = 0
        self._resolved = 0
        self._named: list[pa.Array] = [_NONE]
        self._resolved_deletes: list[pa.Table] = [RESOLVED_DELETE_SCHEMA.empty_table()]

    def add(self, found: Resolved, conflicts: int | None = None) -> None:
        """Add the comparison of a partition. Pass the number of `conflicts` if `found` does not list all of them."""
        done, conflict_rows = found.done, found.conflict_rows
        verdicts = done[VERDICT].to_numpy()
        deleted = pa.array(verdicts == Verdict.DELETE)
        rows = plain(done, self._schema).filter(pc.invert(deleted))
        self._inserted += int(np.count_nonzero(verdicts == Verdict.INSERT))
        if rows.num_rows:
            self._spool.add("rows", rows)
        self._deleted.append(done["id"].filter(deleted).combine_chunks())
        self._conflicts += conflict_rows.num_rows if conflicts is None else conflicts
        both = pa.concat_tables(
            [self._conflict_rows, conflict_rows.select(CONFLICT_SCHEMA.names).cast(CONFLICT_SCHEMA)]
        ).sort_by("id")
        self._conflict_rows = both if self._versions.complete else both.slice(0, MAX_CONFLICTS)
        self._resolved += found.count
        self._named.append(found.named)
        self._resolved_deletes.append(found.resolved_deletes)

    def delete(self, ids: pa.Array) -> None:
        """Add ids of rows to delete."""
        self._deleted.append(ids)

    def compared(self) -> Compared:
        rows = self._spool.take("rows") if self._spool.keys else self._schema.empty_table()
        return Compared(
            self._versions,
            rows,
            self._inserted,
            pa.concat_arrays(self._deleted).sort(),
            self._conflict_rows,
            self._conflicts,
            self._resolved,
            pa.concat_arrays(self._named),
            pa.concat_tables(self._resolved_deletes),
        )


class LocalComparer:
    """Compares tables in this process.

    Args:
        tables: the table storage.
        budget: bytes of rows that stay in memory.
        only: the ids of the entities to compare, by type key; None for all entities.
    """

    def __init__(
        self, tables: TableStorage, budget: int = DEFAULT_BUDGET, only: Mapping[str, pa.Array] | None = None
    ) -> None:
        self._tables = tables
        self._budget = budget
        self._only = only
        self.parts = 0
        """The number of partitions that were compared."""

    @property
    def engine(self) -> str:
        return "local"

    def aligned(self, tables: TableStorage) -> LocalComparer:
        return LocalComparer(tables, self._budget, self._only)

    def compare(self, versions: Versions, choice: Choice, checked: Sequence[str]) -> Compared:
        located = LocatedRows.find(self._tables, versions)
        collected = Collected(versions, self._budget)
        for sides in self._scanned(versions) if located is None else self._taken(located):
            self.parts += 1
            collected.add(compare_sides(versions, self._chosen(versions.key, sides), choice))
        found = collected.compared()
        return found if located is None else replace(found, known=located.known(self._tables))

    def _chosen(self, key: str, sides: Sides) -> Sides:
        """The rows of the entities to compare."""
        if self._only is None:
            return sides
        ids = self._only.get(key, _NONE)
        base, source, target = (rows.filter(pc.is_in(rows["id"], value_set=ids)) for rows in sides)
        return base, source, target

    def writes(self, changes: Sequence[tuple[Compared, Models]], target: Manifest) -> list[TableWrite]:
        return [rows_write(self._tables, compared, target, models) for compared, models in changes]

    def _taken(self, located: LocatedRows) -> Iterator[Sides]:
        """The located rows of the three versions, in partitions by id: rows with the same id are in one partition."""
        tables, schema = self._tables, located.versions.schema
        parts = self._parts(len(located), schema)
        spool = Spool(self._budget // 2)
        reads = (located.base_rows(tables), located.source_rows(tables), located.target_rows(tables))
        for side, read in enumerate(reads):
            for table in read:
                for part, rows in _cut(plain(table, schema), parts):
                    spool.add(_name(part, side), rows)
        moved = located.moved_ids
        for part in range(parts):
            base, source, target = (self._take(spool, _name(part, side), schema) for side in range(len(reads)))
            if located.shares_rows:
                target = _with_shared(base, target, moved)
            yield base, source, target

    def _scanned(self, versions: Versions) -> Iterator[Sides]:
        """The rows of fragments that are not in all three versions, in partitions."""
        numbers = dict(zip(versions.all, differing_fragments(self._tables, versions), strict=True))
        parts = self._parts(self._rows(numbers), versions.schema)
        spool = Spool(self._budget // 2)
        for side, (ref, some) in enumerate(numbers.items()):
            for table in fragment_rows(self._tables, ref, some, versions.columns, None):
                for part, rows in _cut(plain(table, versions.schema), parts):
                    spool.add(_name(part, side), rows)
        sides = {ref: side for side, ref in enumerate(numbers)}
        for part in range(parts):
            taken = {ref: self._take(spool, _name(part, side), versions.schema) for ref, side in sides.items()}
            yield taken[versions.base], taken[versions.source], taken[versions.target]

    def _parts(self, count: int, schema: pa.Schema) -> int:
        """The number of partitions for so many rows."""
        return int(max(1, -(-3 * count * _width(schema) * _MEMORY_RATIO // self._budget)))

    def _rows(self, numbers: dict[TableRef, tuple[int, ...]]) -> int:
        """Count the rows in the given fragments of each version, and return the largest count."""
        counts = []
        for ref, some in numbers.items():
            chosen = set(some)
            counts.append(sum(part.rows for part in self._tables.at(ref).fragments() if part.number in chosen))
        return max(counts)

    def _take(self, spool: Spool, name: str, schema: pa.Schema) -> pa.Table:
        return spool.take(name) if name in spool.keys else schema.empty_table()


def compare_sides(versions: Versions, sides: Sides, choice: Choice) -> Resolved:
    """Compare rows of the three versions, in this process or in a task. All rows of an id are among them."""
    base, source, target = versions.completed(*map(versions.without_separate_ids, sides))
    undecided = versions.undecided(base, source, target)
    if len(undecided):
        base = base.filter(pc.invert(pc.is_in(base["id"], value_set=undecided)))
    rows = base, source, target
    taken = versions.taken(source, target)
    unknown, exclusive = versions.unknown, versions.exclusive
    return compare_rows(*rows, choice, versions.groups, undecided, unknown=unknown, taken=taken, exclusive=exclusive)


def rows_write(tables: TableStorage, compared: Compared, target: Manifest, models: Models) -> TableWrite:
    """The write of a change whose rows are in the memory of this process."""
    key = compared.versions.key
    source = compared.source(tables, tables.at(target.tables[key].ref).schema().names)
    return Change(key, source, compared.deleted, known=compared.known, models=models)


def _with_shared(base: pa.Table, others: pa.Table, moved: pa.Array) -> pa.Table:
    """The rows of the target: `others`, and the rows of the base that are not in `moved`, which are the same."""
    if len(moved) == 0:
        return base
    return pa.concat_tables([base.filter(pc.invert(pc.is_in(base["id"], value_set=moved))), others])


def _name(part: int, side: int) -> str:
    return f"{part:06d}/{side}"


def plain(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table([rows[name] for name in schema.names], schema=schema)


def _cut(rows: pa.Table, parts: int) -> Iterator[tuple[int, pa.Table]]:
    """Partition rows by the hash of their ids."""
    if parts == 1:
        yield 0, rows
        return
    places = (digests([rows["id"]]) % np.uint64(parts)).astype(np.int64)
    order = np.argsort(places, kind="stable")
    bounds = np.searchsorted(places[order], np.arange(parts + 1))
    ordered = rows.take(pa.array(order))
    for part in range(parts):
        if bounds[part] < bounds[part + 1]:
            yield part, ordered.slice(bounds[part], bounds[part + 1] - bounds[part])


def _width(schema: pa.Schema) -> int:
    """The approximate size of a row in bytes."""
    return sum(_size(field.type) for field in schema)


def _size(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _size(kind.value_type)
    if pa.types.is_list(kind):
        return _LIST_BYTES
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _TEXT_BYTES

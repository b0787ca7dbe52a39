"""Node and edge tables with numbered entities, so that queries are matched with integers instead of ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import BudgetExceededError
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.schema.type_key import TypeKey, edge_key, node_key
from omnigraph.read.budget.budget import checkpoint, memory_of_read, note_read
from omnigraph.read.columns.cache import ColumnCache, Sized, Slot
from omnigraph.read.columns.id_index import IdIndex, find_all, id_index
from omnigraph.read.columns.numbering import Numbering
from omnigraph.read.columns.numbers import NOTHING, Mask, Numbers, as_row_ids
from omnigraph.storage.indexes import Coverage, IndexSpec

_ROW_ID = "_rowid"
SMALL_TABLE_ROWS = 10_000
"""If a table has at most this number of entities, its columns are always read as a whole."""

LOOKUP_COST_ROWS = 40_000
"""Fixed cost of a lookup of single values in the table. The unit is the cost of scanning one row of a column."""

LOOKUP_COST_ROWS_PER_VALUE = 50
"""Additional cost of each value that a lookup reads. The unit is the cost of scanning one row of a column."""

INDEX_SEARCH_COST_ROWS = 20_000
"""Fixed cost of an index search. The unit is the cost of scanning one row of a column."""

MAX_IDS_BY_SCAN = 16
"""If at most this number of ids is looked up, each id is found by a scan of the id column."""

HASH_TABLE_COST_SCANS = 25
"""Cost of building a hash table of all ids. The unit is the cost of one scan of the id column."""

ID_INDEX_COST_SCANS = 50
"""Cost of building an id index. The unit is the cost of one scan of the id column."""

_MAX_ARRAY_BYTES = 2**31 - 1
"""Limit of one Arrow array: bytes for texts, elements for lists."""

_COLUMN_MEMORY_HINT = (
    "the query needs the values of a whole property in memory: make the query more selective, give it a larger "
    "memory budget, or raise OMNIGRAPH_CACHE_MEMORY"
)
_ARRAY_SIZE_HINT = (
    "the values that a query needs of one property may not exceed 2 GiB: make the query more selective, with a "
    "condition on the key, the id or an indexed property"
)

_ID_INDEX, _ID_ORDER = "index of ids", "order of ids"


class EntityTable:
    """The entities of one type at one table version, numbered from 0 to `slots` - 1. Columns are read on first use.

    Args:
        snapshot: the snapshot to read.
        key: the type key.
        cache: caches columns.

    Attributes:
        count: number of entities.
        is_node: whether the entities are nodes; else edges.
    """

    def __init__(self, snapshot: Snapshot, key: str, cache: ColumnCache) -> None:
        pin = snapshot.pin(key)
        self.key = key
        parsed = TypeKey.parse(key)
        self.type_name = parsed.name
        self.is_node = parsed.kind is TypeKind.NODE
        self.ref = pin.ref
        self.count = pin.row_count
        self._snapshot = snapshot
        self._cache = cache
        self._covered: dict[IndexSpec, Coverage] = {}
        self._wide: dict[str, bool] = {}

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether the version of this table is also the version in another snapshot of the same graph."""
        pin = snapshot.tables.get(self.key)
        return pin is not None and pin.ref == self.ref

    @cached_property
    def schema(self) -> pa.Schema:
        return self._snapshot.table(self.key).schema()

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.schema.names)

    @cached_property
    def fingerprint(self) -> str:
        """Hash that identifies the data of this table version."""
        return self._snapshot.table(self.key).fingerprint()

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the fragments of the table."""
        return self._snapshot.table(self.key).fragment_digests()

    @cached_property
    def place(self) -> str:
        """Location of the table."""
        return self._snapshot.place(self.key)

    def earlier_fingerprint(self, version: int) -> str | None:
        """Fingerprint of an earlier version of this table; None if that version cannot be read."""
        return self._snapshot.earlier_fingerprint(self.key, version)

    @cached_property
    def indexed(self) -> frozenset[str]:
        """Columns with a scalar index."""
        return self._snapshot.table(self.key).indexed_columns()

    # Numbers

    @cached_property
    def numbering(self) -> Numbering:
        with self.slot(_ROW_ID) as slot:
            found: Numbering | None = slot.value
            return slot.keep(Numbering.of(self._read_row_ids())) if found is None else found

    def release(self) -> None:
        """Drop the references of this object to its arrays. The arrays may still be in the cache."""
        for name in ("numbering", "_everything"):
            self.__dict__.pop(name, None)

    def _read_row_ids(self) -> Numbers:
        found: Numbers = self.read([_ROW_ID])[_ROW_ID].to_numpy().view(np.int64)
        return found

    @property
    def slots(self) -> int:
        """The entity numbers are 0 to `slots` - 1. Some of them may be unused."""
        return self.numbering.slots

    @property
    def live(self) -> Mask | None:
        """Mask of the entity numbers that are in use; None if all are in use."""
        return self.numbering.live

    @cached_property
    def _everything(self) -> Numbers:
        found: Numbers = np.arange(self.slots) if self.live is None else np.flatnonzero(self.live)
        found.flags.writeable = False
        return found

    def all_numbers(self) -> Numbers:
        """Numbers of all entities, ascending. The array must not be modified."""
        return self._everything

    def row_ids(self, numbers: Numbers) -> Numbers:
        """Row ids of entities, by their numbers."""
        known = self.numbering
        return known.base + numbers if known.row_ids is None else known.row_ids[numbers]

    def numbers(self, row_ids: Numbers) -> Numbers:
        """Numbers of existing entities, by their row ids."""
        known = self.numbering
        if known.row_ids is None:
            return row_ids - known.base
        found: Numbers = np.searchsorted(known.row_ids, row_ids).astype(np.int64)
        return found

    # Values

    def batches(self, columns: Sequence[str], *, after: int = 0) -> pa.RecordBatchReader:
        """Stream columns of all entities in table order.

        Args:
            columns: the columns.
            after: number of fragments to skip at the start of the table.
        """
        return self._snapshot.batches(self.key, columns=columns, after=after)

    def read(self, columns: Sequence[str], *, after: int = 0) -> pa.Table:
        """Read the same columns as `batches` into one Arrow table. The read can time out or be cancelled meanwhile."""
        return _all_of(self.batches(columns, after=after))

    def rows(self, row_ids: Numbers, columns: Sequence[str]) -> pa.Table:
        """Read columns of the existing entities with these row ids."""
        return _count_read(self._snapshot.table(self.key).take_rows(as_row_ids(row_ids), columns=columns))

    def having(self, name: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Read columns of the entities whose value in column `name` is one of `values`, in any order."""
        return _count_read(self._snapshot.lookup(self.key, name, pa.chunked_array([values]), columns=columns))

    def has_column(self, name: str) -> bool:
        return name in self.names

    def is_comparable(self, name: str) -> bool:
        """Whether the table has the column and its values can be compared. Blobs cannot be compared."""
        return self.has_column(name) and _is_plain(self.schema.field(name).type)

    def is_wide(self, name: str) -> bool:
        """Whether the values of a column are texts or lists, and not single numbers."""
        if name not in self._wide:
            self._wide[name] = self.is_comparable(name) and _is_wide(self.schema.field(name).type)
        return self._wide[name]

    def _name(self, column: str) -> tuple[str, object, str]:
        # The version is part of the key, because renaming a property changes the column name but not the files.
        return (self.fingerprint, self.ref, column)

    def is_cached(self, name: str) -> bool:
        """Whether a column (given by its name) or a derived value (given by its label) is cached."""
        return self._cache.holds(self._name(name))

    def column(self, name: str) -> pa.Array:
        """The values of a column, indexed by entity number; null for unused numbers. The column is cached."""
        if self.count == 0:
            return pa.array([], self.schema.field(name).type)
        with self.slot(name) as slot:
            return slot.keep(self._read(name)) if slot.value is None else slot.value

    def _read(self, name: str) -> pa.Array:
        self._expect(name, max(self._least_size(name), self._cache.outsized(self._name(name))))
        values = self._read_all(name)
        positions = self.numbering.positions
        if positions is None:
            return values
        return as_one_array(values.take(pa.array(positions, mask=positions == NOTHING)))

    def _read_all(self, name: str) -> pa.Array:
        """Read the values of a column, in table order."""
        batches = self.batches([name])
        found, size = [], 0
        for batch in batches:
            checkpoint()
            found.append(batch.column(0))
            size += batch.nbytes
            self._expect(name, size)
        values = _count_read(pa.chunked_array(found, batches.schema.field(0).type))
        try:
            return as_one_array(values)
        except BudgetExceededError:
            self._cache.note_outsized(self._name(name), size)
            raise

    def _expect(self, name: str, size: int) -> None:
        """Check that a column of `size` bytes fits the cache or the memory budget of the read.

        Raises:
            BudgetExceededError: the column fits neither.
        """
        most = memory_of_read()
        if most is not None and size > most and not self.fits(size):
            self._cache.note_outsized(self._name(name), size)
            raise BudgetExceededError("bytes", max(most, self._cache.limit), size, hint=_COLUMN_MEMORY_HINT)

    def _least_size(self, name: str) -> int:
        """Lower bound of the bytes of a column, computed from its data type."""
        return self.count * _least_width(self.schema.field(name).type)

    def whole(self, name: str) -> pa.Array:
        """The values of a column, indexed by entity number. The column is not added to the cache."""
        return self.column(name) if self.count == 0 or self.is_cached(name) else self._read(name)

    def should_defer(self, label: str, cost: int) -> bool:
        """Whether a read should work without a derived value this time; see `ColumnCache.should_defer`.

        Args:
            label: label of the derived value.
            cost: cost of working without the value. The unit is the cost of scanning one row of a column.
        """
        return self._cache.should_defer(self._name(label), cost, self.count)

    def covered_by(self, spec: IndexSpec) -> bool:
        """Whether an index covers all entities."""
        return self._coverage(spec).built and self.uncovered_by(spec) == 0

    def uncovered_by(self, spec: IndexSpec) -> int:
        """Number of entities that an index does not cover.

        If the index does not exist, this is the number of all entities.
        """
        found = self._coverage(spec)
        return found.uncovered if found.built else self.count

    def _coverage(self, spec: IndexSpec) -> Coverage:
        if spec not in self._covered:
            (self._covered[spec],) = self._snapshot.table(self.key).index_coverage([spec])
        return self._covered[spec]

    def matching(self, name: str, words: str, *, phrase: bool, every_word: bool) -> Numbers:
        """Find entities by the words of a text property, with an index that covers the table.

        Args:
            name: the property.
            words: the words to search for.
            phrase: whether the text has to contain the words as a phrase.
            every_word: whether the text has to contain every word; else one word is enough.
        """
        found = _count_read(
            self._snapshot.matching(self.key, name, words, phrase=phrase, every_word=every_word)
        ).to_numpy()
        return self.numbers(found.astype(np.int64))

    def fits(self, size: int) -> bool:
        """Whether a value of `size` bytes can be cached."""
        return self._cache.fits(size)

    @cached_property
    def vector_metrics(self) -> dict[str, str]:
        """Columns with a vector index, and the metric of each."""
        return self._snapshot.table(self.key).vector_metrics()

    def nearest(self, name: str, vector: Sequence[float], count: int, metric: str, probes: int, refine: int) -> Numbers:
        """Entities whose vectors are nearest to a vector, found with an approximate index."""
        found = _count_read(
            self._snapshot.nearest(self.key, name, vector, count, metric=metric, probes=probes, refine=refine)
        ).to_numpy()
        return self.numbers(found.astype(np.int64))

    def slot(self, label: str, family: str | None = None) -> Slot:
        """The cache entry of a column (given by its name) or of a derived value (given by its label).

        Args:
            label: the name or label.
            family: the same for all versions of the value; by default the label.
        """
        return self._cache.slot(self._name(label), (self.place, self.ref.branch, family or label))

    def find_latest(self, label: str) -> object:
        """The value that `keep_latest` cached under a label. It may belong to another version of the table."""
        return self._cache.find(("latest", label))

    def keep_latest(self, label: str, made: Sized) -> None:
        """Cache a value under a label for all versions of the table. It replaces the earlier value with this label."""
        self._cache.keep(("latest", label), made)

    def id_ranks(self) -> Numbers:
        """Position of each entity in id order, indexed by entity number."""
        with self.slot(_ID_ORDER) as slot:
            found: Numbers | None = slot.value
            return slot.keep(_places_in_order(self.whole("id"))) if found is None else found

    @property
    def has_id_ranks(self) -> bool:
        """Whether the result of `id_ranks` is cached."""
        return self.is_cached(_ID_ORDER)

    def take(self, name: str, numbers: Numbers) -> pa.Array:
        """Values of a column for the given entity numbers; null for `NOTHING`.

        If a few values of a large table are needed, only those are read, by row id. After enough such lookups, the
        whole column is read and cached.
        """
        if self._asks(name, len(numbers)):
            return self._ask(name, numbers)
        try:
            column = self.column(name)
        except BudgetExceededError:
            if not self._asks(name, len(numbers)):  # `column` recorded that the column is too large
                raise
            return self._ask(name, numbers)
        if len(numbers) == 1 and numbers[0] != NOTHING:
            return pa.repeat(column[int(numbers[0])], 1)  # a copy of one value costs less than `take`
        everything = self.__dict__.get("_everything")
        if everything is None or len(numbers) == 0:
            return column.take(places(numbers))
        if numbers is everything and len(numbers) == len(column):
            return column
        if numbers.base is everything and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1:
            return column.slice(int(numbers[0]), len(numbers))  # a contiguous range
        return column.take(places(numbers))

    def _asks(self, name: str, count: int) -> bool:
        """Whether to look up `count` single values in the table, instead of reading the whole column."""
        if self.count <= SMALL_TABLE_ROWS or self.is_cached(name) or not self.is_comparable(name):
            return False
        return self._cache.should_defer(self._name(name), _lookup_cost(count), self.count, self._least_size(name))

    def are_few(self, count: int) -> bool:
        """Whether looking up `count` single values costs less than reading the whole column."""
        return _lookup_cost(count) <= self.count

    def _ask(self, name: str, numbers: Numbers) -> pa.Array:
        there = numbers != NOTHING
        if not there.any():
            return pa.nulls(len(numbers), self.schema.field(name).type)
        found = as_one_array(self.rows(self.row_ids(numbers[there]), [name])[name])
        if there.all():
            return found
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def scan(self, condition: pc.Expression, columns: frozenset[str]) -> Numbers | None:
        """Find the entities that satisfy a condition, with an index search.

        Returns None if reading the whole columns costs less than further searches (see `ColumnCache.should_defer`).
        """
        deferred = [
            self._cache.should_defer(self._name(name), INDEX_SEARCH_COST_ROWS + self.count // 16, self.count)
            for name in columns
        ]
        if not all(deferred):
            return None
        rows = _count_read(self._snapshot.scan(self.key, columns=[_ROW_ID], filter=condition))
        found = self.numbers(rows[_ROW_ID].to_numpy().astype(np.int64))
        found.sort()
        return found

    def find(self, ids: pa.Array) -> Numbers:
        """Numbers of the entities with these ids; `NOTHING` for unknown ids.

        If the id column is not cached and the ids are few, they are looked up in the table.
        """
        if self.count == 0 or len(ids) == 0:
            return np.full(len(ids), NOTHING, np.int64)
        if self._looks_up(len(ids)):
            return self._look_up(ids)
        try:
            return self._find_in_memory(ids)
        except BudgetExceededError:
            if not self._looks_up(len(ids)):  # the attempt recorded that the ids do not fit memory
                raise
            return self._look_up(ids)

    def row_of(self, id_: str, names: Sequence[str]) -> pa.Table | None:
        """Columns of the entity with an id, read with one request. The table is empty if there is no such entity.

        None if the ids are in memory, or if reading all ids costs less than further requests.
        """
        if self.is_cached("id") or self.is_cached(_ID_INDEX) or not all(map(self.is_comparable, names)):
            return None
        if not self._asks("id", len(names) if "id" in self.indexed else self._lookup_values(len(names))):
            return None
        return self.having("id", pa.array([id_]), list(dict.fromkeys(names)))

    def _find_in_memory(self, ids: pa.Array) -> Numbers:
        index = self._id_index(len(ids))
        if index is not None:
            return index.find(ids)
        stored = self.column("id")
        if len(ids) <= MAX_IDS_BY_SCAN:
            # For a few ids, one scan per id is faster than building a hash table of all ids.
            return np.array([NOTHING if i is None else pc.index(stored, i).as_py() for i in ids.to_pylist()], np.int64)
        return find_all(stored, ids)

    def index_of_ids(self) -> IdIndex:
        """An index of all ids. Use it to look up about as many ids as there are entities."""
        with self.slot(_ID_INDEX) as slot:
            found: IdIndex | None = slot.value
            return slot.keep(id_index(self.whole("id"))) if found is None else found

    def _id_index(self, wanted: int) -> IdIndex | None:
        """An index of all ids; None while building it costs more than all lookups so far, including this one."""
        name = self._name(_ID_INDEX)
        cost = self.count * (wanted if wanted <= MAX_IDS_BY_SCAN else HASH_TABLE_COST_SCANS)
        if not self._cache.holds(name) and self._cache.should_defer(name, cost, ID_INDEX_COST_SCANS * self.count):
            return None
        return self.index_of_ids()

    def _looks_up(self, count: int) -> bool:
        if "id" in self.indexed:
            return self._asks("id", count)
        # Without an index, a lookup scans all ids of the table and does not cache them.
        return (
            not self.is_cached("id")
            and self.count > 100 * SMALL_TABLE_ROWS
            and self._asks("id", self._lookup_values(count))
        )

    def _lookup_values(self, count: int) -> int:
        """The number of indexed values whose lookup costs as much as that of `count` values without an index."""
        return count + self.count // LOOKUP_COST_ROWS_PER_VALUE // 4

    def _look_up(self, ids: pa.Array) -> Numbers:
        wanted = pa.chunked_array([ids.drop_null()])
        found = _count_read(self._snapshot.lookup(self.key, "id", wanted, columns=["id", _ROW_ID]))
        at = pc.index_in(ids, value_set=as_one_array(found["id"]))
        if at.null_count == len(at):
            return np.full(len(ids), NOTHING, np.int64)
        numbers = self.numbers(found[_ROW_ID].to_numpy().astype(np.int64))
        there = at.is_valid().to_numpy(zero_copy_only=False)
        return np.where(there, numbers[at.fill_null(0).to_numpy(zero_copy_only=False)], NOTHING)


class EntityTables:
    """The entity tables of one snapshot, created on first use.

    Args:
        snapshot: the snapshot to read.
        cache: caches columns.
        others: entity tables of another snapshot of the same graph. Tables with equal versions are shared with it.
    """

    def __init__(self, snapshot: Snapshot, cache: ColumnCache, others: EntityTables | None = None) -> None:
        self.snapshot = snapshot
        self.cache = cache
        known = {} if others is None else dict(others._made)
        self._made: dict[str, EntityTable] = {key: table for key, table in known.items() if table.is_of(snapshot)}
        self._lock = Lock()

    def nodes(self, name: str) -> EntityTable:
        return self._of(node_key(name))

    def edges(self, name: str) -> EntityTable:
        return self._of(edge_key(name))

    def release(self, others: EntityTables) -> None:
        """Call `EntityTable.release` for all tables that are not shared with `others`."""
        with self._lock:
            for key, table in self._made.items():
                if others._made.get(key) is not table:
                    table.release()

    def _of(self, key: str) -> EntityTable:
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.setdefault(key, EntityTable(self.snapshot, key, self.cache))
        return found


def places(numbers: Numbers) -> pa.Array:
    """Entity numbers as indices for the Arrow function `take`: `NOTHING` becomes null."""
    missing = numbers == NOTHING
    return pa.array(numbers, mask=missing) if missing.any() else pa.array(numbers)


def _places_in_order(ids: pa.Array) -> Numbers:
    places = np.empty(len(ids), np.int64)
    places[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return places


def _all_of(batches: pa.RecordBatchReader) -> pa.Table:
    """Collect a stream of batches into a table. The read can time out or be cancelled between two batches."""
    found = []
    for batch in batches:
        checkpoint()
        found.append(batch)
    return _count_read(pa.Table.from_batches(found, batches.schema))


Found = TypeVar("Found", bound=Sized)


def _count_read(found: Found) -> Found:
    """Count the bytes of data that was read from a table. Returns the data."""
    note_read(found.nbytes)
    return found


def as_one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of an Arrow array into one.

    Raises:
        BudgetExceededError: the values exceed the size limit of one array.
    """
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    try:
        return values.combine_chunks()
    except pa.ArrowInvalid as error:
        if values.nbytes <= _MAX_ARRAY_BYTES:
            raise
        raise BudgetExceededError("bytes", _MAX_ARRAY_BYTES, values.nbytes, hint=_ARRAY_SIZE_HINT) from error


def _lookup_cost(count: int) -> int:
    return LOOKUP_COST_ROWS + LOOKUP_COST_ROWS_PER_VALUE * count


def _least_width(kind: pa.DataType) -> int:
    """Lower bound of the bytes of one value, computed from its data type."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _least_width(kind.value_type)
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0  # a value of variable length can be empty


def _is_wide(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_plain(kind: pa.DataType) -> bool:
    return not (isinstance(kind, pa.BaseExtensionType) or pa.types.is_struct(kind) or pa.types.is_large_binary(kind))

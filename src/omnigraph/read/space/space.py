"""Tables as integers: the entities of a type at one version, numbered so that a match is arithmetic.

An entity's number is its stable row id, counted from the least one: it survives updates and compaction, so what is
computed from numbers stays true while only values change. Deleted entities leave holes. Where there are many more
holes than entities, the entities are numbered without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import BudgetExceededError
from omnigraph.read.budget import checkpoint, memory_of_read, note_read
from omnigraph.read.space.cache import ColumnCache, Sized
from omnigraph.read.space.id_index import IdIndex, find_all, id_index
from omnigraph.read.space.numbers import NOTHING, Integers, Mask, Numbers
from omnigraph.storage.indexes import Coverage, IndexSpec

__all__ = [
    "NOTHING",
    "ColumnCache",
    "Integers",
    "Mask",
    "Numbering",
    "Numbers",
    "Space",
    "Spaces",
    "one_piece",
    "places",
]

Made = TypeVar("Made", bound=Sized)

_ROW_ID = "_rowid"
_SPARSE = 4
"""With more slots per entity than this, holes are left out."""

_SMALL = 10_000
"""The columns of a table with no more entities than this are read whole."""

_ASKING = 10_000
_TAKING = 50
"""Asking the table for values costs as much as reading so many from a whole column, and each value so many more."""

_SCANNING = 20_000
"""The same for a search in an index."""

_FEW = 16
_PREPARING = 25
"""Preparing a table of all ids costs as much as looking through all of them so often."""

_INDEXING = 50
"""Making an index of all ids costs as much as looking through all of them so often."""

_MOST_IN_ONE = 2**31 - 1
"""How many bytes of texts, or values of lists, one array has room for."""

_ROOM_FOR_COLUMNS = (
    "the values of a whole property are needed: make the query more selective, give it a larger budget of memory, "
    "or raise OMNIGRAPH_CACHE_MEMORY"
)
_ROOM_IN_ONE = (
    "the values of one property are looked at together, up to 2 GiB: make the query more selective by key, id or an "
    "indexed property"
)

_ID_INDEX, _ID_ORDER = "index of ids", "order of ids"


@dataclass(frozen=True, slots=True)
class Numbering:
    """How the entities of a version are numbered.

    Attributes:
        slots: how many numbers there are, holes included.
        base: the row id of the number 0, where holes are kept.
        row_ids: the row ids by number, where holes are left out.
        positions: where the entity of each number lies in the table, `NOTHING` in holes; None when entities lie in the
            order of their numbers, without holes.
        live: which numbers are entities; None when all are.
    """

    slots: int
    base: int
    row_ids: Numbers | None
    positions: Numbers | None
    live: Mask | None

    @staticmethod
    def keeps_holes(slots: int, count: int) -> bool:
        """Whether so many entities with row ids so far apart are numbered by row id."""
        return slots <= _SPARSE * count

    @classmethod
    def of(cls, row_ids: Numbers) -> Numbering:
        """The numbering of entities that have these row ids, in the order in which they lie in the table."""
        count = len(row_ids)
        if count == 0:
            return cls(0, 0, None, None, None)
        base, last = int(row_ids.min()), int(row_ids.max())
        slots = last - base + 1
        if not cls.keeps_holes(slots, count):
            order: Numbers = np.argsort(row_ids, kind="stable")
            lie_in_order = np.array_equal(order, np.arange(count))
            return cls(count, 0, row_ids[order], None if lie_in_order else order, None)
        if slots == count and bool((row_ids[1:] > row_ids[:-1]).all()):
            return cls(slots, base, None, None, None)
        positions = np.full(slots, NOTHING, np.int64)
        positions[row_ids - base] = np.arange(count)
        return cls(slots, base, None, positions, None if slots == count else positions != NOTHING)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.row_ids, self.positions, self.live) if part is not None)


class Space:
    """The entities of one type at one version, as the numbers from 0 to `slots`.

    Nothing is read before it is asked for.

    Args:
        snapshot: what is read.
        key: the type key.
        cache: keeps columns.

    Attributes:
        count: how many entities there are.
    """

    def __init__(self, snapshot: Snapshot, key: str, cache: ColumnCache) -> None:
        pin = snapshot.pin(key)
        self.key = key
        self.type_name = key.partition(":")[2]
        self.ref = pin.ref
        self.count = pin.row_count
        self._snapshot = snapshot
        self._cache = cache
        self._covered: dict[IndexSpec, Coverage] = {}

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot of the same graph has this version of the table."""
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
        """A name for the entities and their values."""
        return self._snapshot.table(self.key).fingerprint()

    @property
    def parts(self) -> tuple[str, ...]:
        """Names for the parts of the table."""
        return self._snapshot.table(self.key).fragment_digests()

    @property
    def place(self) -> str:
        """Where the table is."""
        return self._snapshot.place(self.key)

    def earlier_fingerprint(self, version: int) -> str | None:
        """The fingerprint of an earlier version, on the way to this one; None when that cannot be read."""
        return self._snapshot.earlier_fingerprint(self.key, version)

    @cached_property
    def indexed(self) -> frozenset[str]:
        """The columns whose values can be looked up."""
        return self._snapshot.table(self.key).indexed_columns()

    # Numbers

    @cached_property
    def numbering(self) -> Numbering:
        return self._cache.get(self._name(_ROW_ID), lambda: Numbering.of(self._read_row_ids()))

    def let_go(self) -> None:
        """Hold no array any more but those that the cache has room for."""
        for name in ("numbering", "_everything"):
            self.__dict__.pop(name, None)

    def _read_row_ids(self) -> Numbers:
        found: Numbers = self.read([_ROW_ID])[_ROW_ID].to_numpy().view(np.int64)
        return found

    @property
    def slots(self) -> int:
        """How many numbers there are, holes included."""
        return self.numbering.slots

    @property
    def live(self) -> Mask | None:
        """Which numbers are entities; None when all are."""
        return self.numbering.live

    @cached_property
    def _everything(self) -> Numbers:
        found: Numbers = np.arange(self.slots) if self.live is None else np.flatnonzero(self.live)
        found.flags.writeable = False
        return found

    def everything(self) -> Numbers:
        """The numbers of all entities, in order. Not to be written to."""
        return self._everything

    def row_ids(self, numbers: Numbers) -> Numbers:
        """The row ids of entities."""
        known = self.numbering
        return known.base + numbers if known.row_ids is None else known.row_ids[numbers]

    def numbers(self, row_ids: Numbers) -> Numbers:
        """The numbers of entities that are there, by row id."""
        known = self.numbering
        if known.row_ids is None:
            return row_ids - known.base
        found: Numbers = np.searchsorted(known.row_ids, row_ids).astype(np.int64)
        return found

    # Values

    def batches(self, columns: Sequence[str], *, after: int = 0) -> pa.RecordBatchReader:
        """Columns of all entities as a stream, in the order in which they lie in the table.

        Args:
            columns: the columns.
            after: how many parts of the table to leave out at the beginning.
        """
        return self._snapshot.batches(self.key, columns=columns, after=after)

    def read(self, columns: Sequence[str], *, after: int = 0) -> pa.Table:
        """The same as a table; the read that waits for it can be stopped meanwhile."""
        return _all_of(self.batches(columns, after=after))

    def rows(self, row_ids: Numbers, columns: Sequence[str]) -> pa.Table:
        """Columns of entities that are there, by row id."""
        return _noted(self._snapshot.table(self.key).take_rows(pa.array(row_ids, pa.uint64()), columns=columns))

    def having(self, name: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Columns of the entities that have one of some values in a column, in no order."""
        return _noted(self._snapshot.lookup(self.key, name, pa.chunked_array([values]), columns=columns))

    def declares(self, name: str) -> bool:
        return name in self.names

    def holds_plain(self, name: str) -> bool:
        """Whether a column has values that can be looked up and compared: a blob has none."""
        return self.declares(name) and _is_plain(self.schema.field(name).type)

    def _name(self, column: str) -> tuple[str, object, str]:
        # The version too: a column may get another name without that its files change.
        return (self.fingerprint, self.ref, column)

    def has(self, name: str) -> bool:
        """Whether a column is in memory."""
        return self._cache.holds(self._name(name))

    def column(self, name: str) -> pa.Array:
        """A column by number; null in holes."""
        if self.count == 0:
            return pa.array([], self.schema.field(name).type)
        return self._cache.get(self._name(name), lambda: self._read(name))

    def _read(self, name: str) -> pa.Array:
        self._expect(name, max(self._least_size(name), self._cache.outsized(self._name(name))))
        values = self._read_all(name)
        positions = self.numbering.positions
        if positions is None:
            return values
        return one_piece(values.take(pa.array(positions, mask=positions == NOTHING)))

    def _read_all(self, name: str) -> pa.Array:
        """A column as it lies in the table."""
        batches = self.batches([name])
        found, size = [], 0
        for batch in batches:
            checkpoint()
            found.append(batch.column(0))
            size += batch.nbytes
            self._expect(name, size)
        values = _noted(pa.chunked_array(found, batches.schema.field(0).type))
        try:
            return one_piece(values)
        except BudgetExceededError:
            self._cache.note_outsized(self._name(name), size)
            raise

    def _expect(self, name: str, size: int) -> None:
        """Look ahead: whether a column of so many bytes may be read whole, be it for the cache or for one read alone.

        Raises:
            BudgetExceededError: it has room in neither.
        """
        most = memory_of_read()
        if most is not None and size > most and not self.fits(size):
            self._cache.note_outsized(self._name(name), size)
            raise BudgetExceededError("bytes", max(most, self._cache.limit), size, hint=_ROOM_FOR_COLUMNS)

    def _least_size(self, name: str) -> int:
        """How many bytes a column has at least: what its type says."""
        return self.count * _least_width(self.schema.field(name).type)

    def whole(self, name: str) -> pa.Array:
        """A column by number, for once: it need not stay in memory."""
        return self.column(name) if self.count == 0 or self.has(name) else self._read(name)

    def derived(self, label: str, name: str, make: Callable[[pa.Array], Made]) -> Made:
        """Something that is made of a column. It is kept under a label, while the column itself need not be."""
        return self.kept(label, lambda: make(self.whole(name)))

    def rents(self, label: str, rent: int) -> bool:
        """Whether to do once more without what would be kept under a label, at a cost in rows, instead of making it."""
        return self._cache.rents(self._name(label), rent, self.count)

    def covered_by(self, spec: IndexSpec) -> bool:
        """Whether an index covers all entities."""
        return self._coverage(spec).built and self.uncovered_by(spec) == 0

    def uncovered_by(self, spec: IndexSpec) -> int:
        """How many entities an index does not cover; all where there is none."""
        found = self._coverage(spec)
        return found.uncovered if found.built else self.count

    def _coverage(self, spec: IndexSpec) -> Coverage:
        if spec not in self._covered:
            (self._covered[spec],) = self._snapshot.table(self.key).index_coverage([spec])
        return self._covered[spec]

    def matching(self, name: str, words: str, *, phrase: bool, every_word: bool) -> Numbers:
        """Entities whose texts have some or every word, or the phrase, by an index that covers all."""
        found = _noted(self._snapshot.matching(self.key, name, words, phrase=phrase, every_word=every_word)).to_numpy()
        return self.numbers(found.astype(np.int64))

    def fits(self, size: int) -> bool:
        """Whether something of so many bytes can stay in memory."""
        return self._cache.fits(size)

    @cached_property
    def vector_metrics(self) -> dict[str, str]:
        """The columns that have an index of vectors, and the metric of each."""
        return self._snapshot.table(self.key).vector_metrics()

    def nearest(self, name: str, vector: Sequence[float], count: int, metric: str, probes: int, refine: int) -> Numbers:
        """Entities whose vectors are nearest, by an index: some may be missed."""
        found = _noted(
            self._snapshot.nearest(self.key, name, vector, count, metric=metric, probes=probes, refine=refine)
        ).to_numpy()
        return self.numbers(found.astype(np.int64))

    def kept(self, label: str, make: Callable[[], Made]) -> Made:
        """Something that is made of the values of entities, and stays in memory under a label."""
        return self._cache.get(self._name(label), make)

    def find_latest(self, label: str) -> object:
        """What `keep_latest` kept last under a label, for whatever version of a table."""
        return self._cache.find(("latest", label))

    def keep_latest(self, label: str, made: Sized) -> None:
        """Keep something for other versions of the table to go on from, in the place of what was kept before."""
        self._cache.keep(("latest", label), made)

    def id_order(self) -> Numbers:
        """The place of each entity in the order of ids."""
        return self.derived(_ID_ORDER, "id", _places_in_order)

    @property
    def knows_id_order(self) -> bool:
        """Whether that is in memory."""
        return self.has(_ID_ORDER)

    def take(self, name: str, numbers: Numbers) -> pa.Array:
        """Values of some entities; null for `NOTHING`.

        A few values of a large table are asked for by row id. Who asks often enough gets the whole column into memory.
        """
        if self._asks(name, len(numbers)):
            return self._ask(name, numbers)
        try:
            column = self.column(name)
        except BudgetExceededError:
            if not self._asks(name, len(numbers)):  # now it is known to be too large
                raise
            return self._ask(name, numbers)
        everything = self.__dict__.get("_everything")
        if everything is None or len(numbers) == 0:
            return column.take(places(numbers))
        if numbers is everything and len(numbers) == len(column):
            return column
        if numbers.base is everything and int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1:
            return column.slice(int(numbers[0]), len(numbers))  # a stretch of them
        return column.take(places(numbers))

    def _asks(self, name: str, count: int) -> bool:
        """Whether to ask the table for some values."""
        if self.count <= _SMALL or self.has(name) or not self.holds_plain(name):
            return False
        return self._cache.rents(self._name(name), _price(count), self.count, self._least_size(name))

    def are_few(self, count: int) -> bool:
        """Whether to ask for so many values costs less than to read all."""
        return _price(count) <= self.count

    def _ask(self, name: str, numbers: Numbers) -> pa.Array:
        there = numbers != NOTHING
        if not there.any():
            return pa.nulls(len(numbers), self.schema.field(name).type)
        found = one_piece(self.rows(self.row_ids(numbers[there]), [name])[name])
        if there.all():
            return found
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def scan(self, condition: pc.Expression, columns: frozenset[str]) -> Numbers | None:
        """The entities for which a condition on some columns may hold; None when it is time to read those columns."""
        rents = [self._cache.rents(self._name(name), _SCANNING + self.count // 16, self.count) for name in columns]
        if not all(rents):
            return None
        rows = _noted(self._snapshot.scan(self.key, columns=[_ROW_ID], filter=condition))
        found = self.numbers(rows[_ROW_ID].to_numpy().astype(np.int64))
        found.sort()
        return found

    def find(self, ids: pa.Array) -> Numbers:
        """The numbers of entities by id; `NOTHING` for those that do not exist.

        A few ids are looked up in the table while its ids are not in memory.
        """
        if self.count == 0 or len(ids) == 0:
            return np.full(len(ids), NOTHING, np.int64)
        if self._looks_up(len(ids)):
            return self._look_up(ids)
        try:
            return self._find_in_memory(ids)
        except BudgetExceededError:
            if not self._looks_up(len(ids)):  # now ids are known to be too many
                raise
            return self._look_up(ids)

    def _find_in_memory(self, ids: pa.Array) -> Numbers:
        index = self._id_index(len(ids))
        if index is not None:
            return index.find(ids)
        stored = self.column("id")
        if len(ids) <= _FEW:
            # Asking for each is quicker than preparing a table of all ids.
            return np.array([NOTHING if i is None else pc.index(stored, i).as_py() for i in ids.to_pylist()], np.int64)
        return find_all(stored, ids)

    def index_of_ids(self) -> IdIndex:
        """An index of all ids, for about as many ids as there are entities."""
        return self.derived(_ID_INDEX, "id", id_index)

    def _id_index(self, wanted: int) -> IdIndex | None:
        """An index of all ids, once enough ids were looked for."""
        name = self._name(_ID_INDEX)
        rent = self.count * (wanted if wanted <= _FEW else _PREPARING)
        if not self._cache.holds(name) and self._cache.rents(name, rent, _INDEXING * self.count):
            return None
        return self.derived(_ID_INDEX, "id", id_index)

    def _looks_up(self, count: int) -> bool:
        if "id" in self.indexed:
            return self._asks("id", count)
        # Without an index, looking up reads all ids, and throws them away again.
        return not self.has("id") and self.count > 100 * _SMALL and self._asks("id", count + self.count // _TAKING // 4)

    def _look_up(self, ids: pa.Array) -> Numbers:
        wanted = pa.chunked_array([ids.drop_null()])
        found = _noted(self._snapshot.lookup(self.key, "id", wanted, columns=["id", _ROW_ID]))
        at = pc.index_in(ids, value_set=one_piece(found["id"]))
        if at.null_count == len(at):
            return np.full(len(ids), NOTHING, np.int64)
        numbers = self.numbers(found[_ROW_ID].to_numpy().astype(np.int64))
        there = at.is_valid().to_numpy(zero_copy_only=False)
        return np.where(there, numbers[at.fill_null(0).to_numpy(zero_copy_only=False)], NOTHING)


class Spaces:
    """The spaces of one snapshot, each made when it is first asked for.

    Args:
        snapshot: what is read.
        cache: keeps columns.
        others: of other snapshots of the graph: a table that has the same version there has the same space.
    """

    def __init__(self, snapshot: Snapshot, cache: ColumnCache, others: Spaces | None = None) -> None:
        self.snapshot = snapshot
        self.cache = cache
        known = {} if others is None else dict(others._made)
        self._made: dict[str, Space] = {key: space for key, space in known.items() if space.is_of(snapshot)}
        self._lock = Lock()

    def nodes(self, name: str) -> Space:
        return self._of(f"node:{name}")

    def edges(self, name: str) -> Space:
        return self._of(f"edge:{name}")

    def let_go(self, others: Spaces) -> None:
        """Hold nothing large any more for spaces that others do not have."""
        with self._lock:
            for key, space in self._made.items():
                if others._made.get(key) is not space:
                    space.let_go()

    def _of(self, key: str) -> Space:
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.setdefault(key, Space(self.snapshot, key, self.cache))
        return found


def places(numbers: Numbers) -> pa.Array:
    """Numbers as places to take values from: nothing gives null."""
    missing = numbers == NOTHING
    return pa.array(numbers, mask=missing) if missing.any() else pa.array(numbers)


def _places_in_order(ids: pa.Array) -> Numbers:
    places = np.empty(len(ids), np.int64)
    places[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return places


def _all_of(batches: pa.RecordBatchReader) -> pa.Table:
    """A stream as a table; the read that waits for it can be stopped meanwhile."""
    found = []
    for batch in batches:
        checkpoint()
        found.append(batch)
    return _noted(pa.Table.from_batches(found, batches.schema))


Found = TypeVar("Found", bound=Sized)


def _noted(found: Found) -> Found:
    """What a table gave, once it is noted that it did."""
    note_read(found.nbytes)
    return found


def one_piece(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values as one array.

    Raises:
        BudgetExceededError: they are texts, bytes or lists with more in them than one array has room for.
    """
    if not isinstance(values, pa.ChunkedArray):
        return values
    if values.num_chunks == 1:
        return values.chunk(0)
    try:
        return values.combine_chunks()
    except pa.ArrowInvalid as error:
        if values.nbytes <= _MOST_IN_ONE:
            raise
        raise BudgetExceededError("bytes", _MOST_IN_ONE, values.nbytes, hint=_ROOM_IN_ONE) from error


def _price(count: int) -> int:
    return _ASKING + _TAKING * count


def _least_width(kind: pa.DataType) -> int:
    """How many bytes a value of a type has at least."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _least_width(kind.value_type)
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0  # as many as it needs


def _is_plain(kind: pa.DataType) -> bool:
    return not (isinstance(kind, pa.BaseExtensionType) or pa.types.is_struct(kind) or pa.types.is_large_binary(kind))

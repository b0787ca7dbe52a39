"""The difference between two states of the graph: counts, and the changed rows of each type as Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.changes.added_properties import AddedProperties
from omnigraph.changes.aligned_types import GraphState, TypePair, TypeState, aligned_types
from omnigraph.changes.candidates import candidates
from omnigraph.changes.change_json import END_NAMES, changed_names, net_changes
from omnigraph.changes.count_changes import count_changes
from omnigraph.changes.row_images import OPS, ChangedRows, ChangeOp, changes_of
from omnigraph.changes.schema_differences import schema_changes
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.work_records import WorkKind, reading_if_long
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut, shown
from omnigraph.lang.arrow import arrow_type, readable
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.types import Scalar
from omnigraph.read.export.json_text import one_text
from omnigraph.read.export.ordered import MEMORY_BYTES
from omnigraph.storage.blobs import CELL
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """Numbers of inserts, updates and deletes."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0

    @property
    def total(self) -> int:
        return self.inserts + self.updates + self.deletes

    def __add__(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(self.inserts + other.inserts, self.updates + other.updates, self.deletes + other.deletes)


@dataclass(frozen=True, slots=True)
class DiffStat:
    """The numbers of changes between two states.

    Attributes:
        types: the numbers of changes of each changed type, by type key: first edge types, then node types, by name.
    """

    types: tuple[tuple[str, ChangeCounts], ...]

    @property
    def total(self) -> ChangeCounts:
        return sum((counts for _, counts in self.types), ChangeCounts())

    @property
    def inserts(self) -> int:
        return self.total.inserts

    @property
    def updates(self) -> int:
        return self.total.updates

    @property
    def deletes(self) -> int:
        return self.total.deletes

    @property
    def types_affected(self) -> int:
        return len(self.types)

    def to_json(self) -> dict[str, int]:
        found = self.total
        return {
            "inserts": found.inserts,
            "updates": found.updates,
            "deletes": found.deletes,
            "types_affected": self.types_affected,
        }


@dataclass(frozen=True, slots=True)
class DiffFilter:
    """The changes to report.

    Attributes:
        types: names or keys of types, in either state; None for all.
        ids: ids of entities; None for all.
        ops: kinds of changes; None for all.
    """

    types: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    ops: tuple[ChangeOp, ...] | None = None

    @classmethod
    def given(
        cls,
        types: str | Sequence[str] | None,
        ids: str | Sequence[str] | None,
        ops: str | Sequence[ChangeOp | str] | None,
    ) -> DiffFilter:
        """Parse the arguments of a caller.

        Raises:
            InputError: an operation does not exist, or an id or a type is not a text.
        """
        return cls(_texts("types", types), _texts("ids", ids), parse_ops(ops))


def parse_ops(ops: str | Sequence[ChangeOp | str] | None) -> tuple[ChangeOp, ...] | None:
    """Parse kinds of changes.

    Raises:
        InputError: one of them does not exist.
    """
    found = []
    given = listed("ops", ops)
    if given is None:
        return None
    for op in given:
        try:
            found.append(ChangeOp(op))
        except ValueError:
            raise InputError(f"{shown(op)} is not a kind of change", hint="use insert, update or delete") from None
    return tuple(dict.fromkeys(found))


def listed(what: str, given: object) -> tuple[Any, ...] | None:
    """The items of an argument that is one text or several.

    Raises:
        InputError: it is neither a text nor a collection.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise InputError(f"{what}: {shown(given)} is neither a text nor a list of texts")
    return tuple(given)


def _texts(what: str, given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    found = listed(what, given)
    for one in found or ():
        if not isinstance(one, str):
            raise InputError(f"{what}: {shown(one)} is not a text", hint="an id is a text, even if the key is a number")
    return found


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads tables for the comparison of states.

    Attributes:
        tables: the table storage.
        records: creates work records, which protect the table versions of a long read from cleanup.
        known: a cache of the candidates (rows that may differ) of recent comparisons, for the next pages of a feed.
    """

    tables: TableStorage
    records: ObjectStore
    known: LruCache[pa.Table]

    def candidates(self, pair: TypePair) -> pa.Table:
        """The rows that may differ, from the cache if possible."""
        refs = [(state.pin.ref, tuple(state.columns)) for state in (pair.before, pair.after) if state is not None]
        key = (pair.before is None, *refs, tuple((one.before, one.after, one.is_computed) for one in pair.compared))
        return self._cached(key, lambda: candidates(self.tables, pair))

    def _cached(self, key: Hashable, compare: Callable[[], pa.Table]) -> pa.Table:
        """The candidates of a comparison, from the cache if possible."""
        found = self.known.get(key)
        if found is None:
            found = compare()
            self.known.put(key, found, found.nbytes)
        return found

    def kept(self, refs: Sequence[TableRef]) -> AbstractContextManager[None]:
        """Protect table versions from cleanup while the code of a `with` block runs."""
        return reading_if_long(self.records, WorkKind.DIFF, refs)


class TypeDiff:
    """The changes of one type. Rows are read when they are needed.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`, in the second state.
        name: the name of the type in the second state.
        old_name: its name in the first state; None if the type does not exist there.
        is_dropped: whether the type exists only in the first state.
    """

    def __init__(
        self, reading: Reading, pair: TypePair, chosen: DiffFilter, budget: int, added: AddedProperties
    ) -> None:
        self._reading = reading
        self._tables = reading.tables
        self._states = pair
        self._added = added
        self._filter = chosen
        self._budget = budget
        self.key = pair.newest.key
        self.kind = pair.newest.kind
        self.name = pair.newest.name
        self.old_name = None if pair.before is None else pair.before.name
        self.is_dropped = pair.after is None

    def __repr__(self) -> str:
        return f"<TypeDiff {self.key}>"

    @property
    def label(self) -> str:
        """The type for people: its kind and name, its old name after a rename, and whether it was dropped."""
        renamed = f" (was {self.old_name})" if self.old_name not in (None, self.name) else ""
        return f"{self.kind.value} {self.name}{renamed}{' (dropped)' if self.is_dropped else ''}"

    @property
    def is_same_version(self) -> bool:
        """Whether both states have the same version of the table."""
        return self._states.is_same_version

    @property
    def old_names(self) -> dict[str, str]:
        """The names in the first state of the properties that both states have, by their names in the second state."""
        return {column.after: column.before for column in self._pair.compared if column.before is not None}

    @property
    def filled(self) -> dict[str, Any]:
        """The properties that only the second state has, with the values that a schema change has filled in.

        The first state counts as having these values.
        """
        values = {column.after: column.added.value for column in self._pair.compared if column.added is not None}
        return {
            name: None if value is None else readable(pa.array([value]))[0].as_py() for name, value in values.items()
        }

    @cached_property
    def _pair(self) -> TypePair:
        """The type in both states, with the values of added properties. They are looked up only if they are needed."""
        return self._added.completed(self._states)

    @cached_property
    def _candidates(self) -> pa.Table:
        if self._filter.ids is None:
            return self._reading.candidates(self._pair)
        return candidates(self._tables, self._pair, pa.array(self._filter.ids, pa.utf8()))

    def rows(self, *, content: bool = False) -> Iterator[ChangedRows]:
        """The changes in their stored form, sorted by id.

        Args:
            content: whether to read the content of blobs. If not, the rows have descriptors that refer to it.
        """
        wanted = [OPS.index(op) for op in self._filter.ops or OPS]
        refs = [state.pin.ref for state in (self._pair.before, self._pair.after) if state is not None]
        with self._reading.kept(refs):
            for found in changes_of(self._tables, self._pair, self._candidates, budget=self._budget):
                chosen = found.filter(np.isin(found.ops, wanted))
                if len(chosen):
                    yield from chosen.with_content(self._tables) if content else [chosen]

    @cached_property
    def counts(self) -> ChangeCounts:
        """The numbers of changes."""
        pair = self._pair
        if pair.is_same_version:
            return ChangeCounts()
        if self._filter.ids is None and (pair.before is None or pair.after is None):
            rows = pair.newest.pin.row_count
            found = (rows, 0, 0) if pair.before is None else (0, 0, rows)
        else:
            refs = [state.pin.ref for state in (pair.before, pair.after) if state is not None]
            with self._reading.kept(refs):
                found = count_changes(self._tables, pair, self._candidates)
        chosen = self._filter.ops or OPS
        return ChangeCounts(*(number if op in chosen else 0 for op, number in zip(OPS, found, strict=True)))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All changes, sorted by id, as Arrow batches.

        The columns are `op` (`insert`, `update` or `delete`), `id`, `changed` (the names of the changed properties of
        an update), and the rows `before` and `after`; null if there is no such row.
        """
        names = pa.array([op.value for op in OPS])
        for found in self.rows(content=True):
            columns = {"op": names.take(pa.array(found.ops)), "id": found.ids, "changed": changed_names(found)}
            sides = (
                (self._pair.before, found.before, ChangeOp.INSERT),
                (self._pair.after, found.after, ChangeOp.DELETE),
            )
            for name, (state, rows, without) in zip(("before", "after"), sides, strict=True):
                absent = pa.array(found.ops == OPS.index(without))
                columns[name] = _structs(rows, state, absent)
            yield pa.record_batch(columns)

    def json_changes(self, limit: int | None = None) -> Iterator[str]:
        """The changes as JSON texts, sorted by id; at most `limit` of them."""
        for texts in self._json_texts(limit):
            yield from texts.to_pylist()

    def _json_texts(self, limit: int | None = None) -> Iterator[pa.Array]:
        """The changes as `json_changes` returns them, in arrays of several."""
        count = 0
        for found in self.rows(content=True):
            part = found if limit is None else found.filter(np.arange(len(found)) < limit - count)
            yield net_changes(part)
            count += len(part)
            if limit is not None and count >= limit:
                return

    def inserted(self) -> pa.Table:
        """The new rows: `id`, for edges `from` and `to`, and the properties."""
        return self._table(ChangeOp.INSERT, self._pair.after)

    def deleted(self) -> pa.Table:
        """The removed rows, with the properties of the first state."""
        return self._table(ChangeOp.DELETE, self._pair.before)

    def updated(self) -> pa.Table:
        """The changed rows: `id`, `changed` (names of the changed properties), and the rows `before` and `after`."""
        fields = [pa.field("id", pa.utf8()), pa.field("changed", pa.list_(pa.utf8()))]
        for name, state in (("before", self._pair.before), ("after", self._pair.after)):
            fields.append(pa.field(name, pa.struct(list(image_schema(state)) if state is not None else [])))
        schema = pa.schema(fields)
        if self._pair.before is None or self._pair.after is None:
            return schema.empty_table()
        parts = []
        for found in self.rows(content=True):
            chosen = found.of(ChangeOp.UPDATE)
            if len(chosen):
                columns = [chosen.ids, changed_names(chosen)]
                for state, rows in ((self._pair.before, chosen.before), (self._pair.after, chosen.after)):
                    columns.append(_structs(rows, state, None))
                parts.append(pa.table(columns, schema=schema))
        return pa.concat_tables(parts) if parts else schema.empty_table()

    def _table(self, op: ChangeOp, state: TypeState | None) -> pa.Table:
        if state is None:
            return pa.schema([("id", pa.utf8())]).empty_table()
        parts = []
        for found in self.rows(content=True):
            chosen = found.of(op)
            if len(chosen):
                parts.append(image_table(chosen.after if op is ChangeOp.INSERT else chosen.before, state))
        return pa.concat_tables(parts) if parts else image_schema(state).empty_table()


def image_schema(state: TypeState) -> pa.Schema:
    """The columns of rows in results: `id`, for edges `from` and `to`, and the properties."""
    fields = [pa.field(END_NAMES.get(name, name), pa.utf8()) for name in state.columns if name not in state.types]
    for name, type_ in state.types.items():
        plain = CELL if type_.scalar is Scalar.BLOB else readable(pa.nulls(0, arrow_type(type_))).type
        fields.append(pa.field(name, plain))
    return pa.schema(fields)


def image_table(rows: pa.Table, state: TypeState) -> pa.Table:
    """Convert stored rows to the form of results: ends of edges are `from` and `to`, a `DateTime` is a timestamp."""
    return pa.table([readable(rows[name].combine_chunks()) for name in state.columns], schema=image_schema(state))


def _structs(rows: pa.Table, state: TypeState | None, absent: pa.Array | None) -> pa.Array:
    if state is None:
        return pa.nulls(rows.num_rows, pa.struct([]))
    table = image_table(rows, state)
    arrays = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(table.schema), mask=absent)


class Diff:
    """The difference between two states. Rows are read when they are needed, and only rows that may differ.

    Iterates over the types that may have changes: first edge types, then node types, each sorted by name.

    Attributes:
        before: the first state.
        after: the second state.
        schema: the differences between the schemas. A row is not changed only because a property was added or dropped.
    """

    def __init__(
        self,
        reading: Reading,
        before: GraphState,
        after: GraphState,
        chosen: DiffFilter,
        added: AddedProperties,
        *,
        budget: int = MEMORY_BYTES,
    ) -> None:
        self.before = before
        self.after = after
        pairs = aligned_types(before, after)
        keys = _chosen_keys(pairs, chosen.types)
        self._types = [
            TypeDiff(reading, pair, chosen, budget, added) for pair in pairs if keys is None or pair.newest.key in keys
        ]
        self.schema = tuple(
            change
            for change in schema_changes(before.accepted, after.accepted)
            if keys is None or f"{change.kind}:{change.type_name}" in keys
        )

    def __repr__(self) -> str:
        return f"<Diff {self.before.manifest.head.id} {self.after.manifest.head.id}>"

    def __iter__(self) -> Iterator[TypeDiff]:
        return (one for one in self._types if not one.is_same_version)

    def __getitem__(self, name: str) -> TypeDiff:
        """The changes of one type, by its name or key in either state.

        Raises:
            InputError: there is no such type, or several types have the name: a node type and an edge type, or
                different types of the two states.
        """
        if not isinstance(name, str):
            raise InputError(f"{shown(name)} is not the name of a type")
        found = [
            one for one in self._types if name in (one.name, one.key, one.old_name, f"{one.kind.value}:{one.old_name}")
        ]
        if len(found) > 1:
            both = len({one.kind for one in found}) > 1
            raise InputError(
                f"'{cut(name)}' is the name of several types: {', '.join(one.label for one in found)}",
                hint=f"use node:{name} or edge:{name}" if both else "iterate over the diff to read each of them",
            )
        if not found:
            known = [one.name for one in self._types]
            raise InputError(f"there is no type '{cut(name)}'", hint=did_you_mean(name, known))
        return found[0]

    def stat(self) -> DiffStat:
        """The numbers of changes of each type that has changes.

        If a dropped type and another type of the second state have the same key, that of the dropped type ends with
        `(dropped)`.
        """
        changed = [one for one in self if one.counts.total]
        kept = {one.key for one in self._types if not one.is_dropped}
        return DiffStat(
            tuple(
                (f"{one.key} (dropped)" if one.is_dropped and one.key in kept else one.key, one.counts)
                for one in changed
            )
        )

    def to_json(self, limit: int | None = None) -> dict[str, Any]:
        """The diff as a JSON value. With a limit, it has only the first changes, but the numbers count all changes."""
        found: dict[str, Any] = orjson.loads(b"".join(self.json_chunks(limit)))
        return found

    def json_chunks(self, limit: int | None = None) -> Iterator[bytes]:
        """The diff as one JSON document, in chunks, so that it need not fit in memory.

        The numbers of changes come last, because they are known only after all rows were compared.

        Args:
            limit: the maximum number of changes in the document; by default all.
        """
        before, after = self.before.manifest, self.after.manifest
        head = {
            "from_graph_manifest_version": before.version,
            "to_graph_manifest_version": after.version,
            "from_graph_commit_id": before.head.id,
            "to_graph_commit_id": after.head.id,
            "graph_branch": None if after.branch == MAIN else after.branch,
            "schema": [change.to_json() for change in self.schema],
        }
        yield orjson.dumps(head)[:-1] + b',"changes":['
        written = 0
        for one in self:
            if limit is None or written < limit:
                for texts in one._json_texts(None if limit is None else limit - written):
                    if len(texts):
                        yield (b",\n" if written else b"\n") + one_text(texts, ",\n")
                        written += len(texts)
        stat = self.stat()
        truncated = orjson.dumps(stat.total.total > written)
        yield b'],"stats":' + orjson.dumps(stat.to_json()) + b',"truncated":' + truncated + b"}"

    @property
    def is_empty(self) -> bool:
        """Whether the states have the same rows and the same schema."""
        return not self.schema and not any(one.counts.total for one in self)


def _chosen_keys(pairs: Sequence[TypePair], names: Collection[str] | None) -> set[str] | None:
    """The keys of chosen types.

    Raises:
        InputError: a type does not exist in either state.
    """
    if names is None:
        return None
    keys: dict[str, set[str]] = {}
    for pair in pairs:
        for state in (pair.before, pair.after):
            if state is not None:
                keys.setdefault(state.name, set()).add(pair.newest.key)
                keys.setdefault(state.key, set()).add(pair.newest.key)
    for name in names:
        if name not in keys:
            raise InputError(f"there is no type '{cut(name)}'", hint=did_you_mean(name, list(keys)))
    return set().union(*(keys[name] for name in names)) if names else set()

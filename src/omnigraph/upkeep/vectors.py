"""Updates the vectors of `@embed` properties when their texts or the model change.

Vectors that are up to date stay. For each property of each type, either all vectors are computed or only the missing
ones. The table records the model of its vectors, so a change of the model is detected.
"""

# See docs/decisions/0122-a-table-knows-its-models.md

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Models, TablePin, commit_json, with_models
from omnigraph.dataclass import dataclass
from omnigraph.embed import Embedder, Tally, check_model, embed_column
from omnigraph.errors import InputError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.schema.type_key import node_key
from omnigraph.storage.blobs import is_blob, row_schema, unchanged_cells
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

BATCH_ROWS = 4096
"""Number of rows per batch."""

ROW_ID = "_rowid"
_ID = "id"


class Which(StrEnum):
    """The vectors to compute."""

    STALE = "stale"
    """Missing vectors, and all vectors of a property whose model or source text changed."""
    MISSING = "missing"
    """Missing vectors."""
    ALL = "all"
    """All vectors."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of the vectors of a type.

    Attributes:
        rows: entities that were examined.
        changed: entities that get a new vector.
        right: entities whose vectors are up to date.
        computed: vectors that the model computed, one per text.
        cached: vectors from the cache.
    """

    rows: int = 0
    changed: int = 0
    right: int = 0
    computed: int = 0
    cached: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class EmbeddedType:
    """The result for the vectors of a type.

    Attributes:
        type_name: the type.
        properties: its vector properties that were examined.
        unknown: the properties without a recorded model. Their vectors stay, unless `all` is requested.
        counts: numbers of examined rows, changed and unchanged vectors, and computed and cached texts.
    """

    type_name: str
    properties: tuple[str, ...]
    unknown: tuple[str, ...]
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self.counts, name) for name in Counts.__slots__}
        members = {"type": self.type_name, "properties": list(self.properties), "unknown": list(self.unknown)}
        return members | counts


@dataclass(frozen=True, slots=True)
class EmbedReceipt:
    """The result of embedding.

    Attributes:
        branch: the branch.
        model: the model.
        which: the vectors that were requested.
        types: the results by type, in name order.
        commit: the commit; None if all vectors were up to date, or if `check` was requested.
    """

    branch: str
    model: str
    which: Which
    types: tuple[EmbeddedType, ...]
    commit: Commit | None

    @property
    def total(self) -> Counts:
        """The counts of all types."""
        return sum((each.counts for each in self.types), Counts())

    def to_json(self) -> dict[str, Any]:
        """The receipt as the JSON object that all user interfaces return."""
        return {
            "branch": self.branch,
            "model": self.model,
            "which": self.which.value,
            "types": [each.to_json() for each in self.types],
            "commit": None if self.commit is None else commit_json(self.commit),
        }


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """The progress of embedding.

    Attributes:
        type_name: the current type.
        rows: entities that were examined, of all types.
        total: entities to examine; None if it is not known.
        counts: the counts so far.
    """

    type_name: str
    rows: int
    total: int | None
    counts: Counts


@dataclass(frozen=True, slots=True)
class EmbedPlan:
    """The vector properties of a type to update.

    Attributes:
        declared: the type.
        properties: the properties.
        every: properties for which all vectors are computed. For the others, only missing vectors are computed.
        unknown: properties without a recorded model.
        embedder: the embedder.
    """

    declared: NodeType
    properties: tuple[Property, ...]
    every: frozenset[str]
    unknown: tuple[str, ...]
    embedder: Embedder

    @property
    def key(self) -> str:
        return node_key(self.declared.name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(prop.name for prop in self.properties)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Vector properties. Only rows in which one of them is null are read. Empty if all rows have to be read."""
        return () if self.every else self.names

    def done(self, counts: Counts, pin: TablePin) -> EmbeddedType:
        """The result, from the counts of the rows that were read."""
        if not self.every:
            counts += Counts(rows=pin.row_count - counts.rows, right=pin.row_count - counts.rows)
        unknown = tuple(name for name in self.unknown if name not in self.every and counts.right)
        return EmbeddedType(self.declared.name, self.names, unknown, counts)

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        texts = [_source(prop) for prop in self.properties]
        return list(dict.fromkeys([_ID, *texts, *self.names, ROW_ID]))

    def models(self, before: Models) -> Models:
        """The embedding models that are recorded for the table after the update."""
        computed = {prop.name: (self.embedder.name, _source(prop)) for prop in self.properties}
        return with_models(tuple(pair for pair in before if pair[0] not in self.every), computed)


def plan_embedding(
    catalog: Catalog,
    pins: Mapping[str, TablePin],
    embedder: Embedder,
    which: Which,
    types: Sequence[str] = (),
    properties: Sequence[str] = (),
) -> list[EmbedPlan]:
    """The properties to update, by type in name order.

    Raises:
        InputError: there is no such type or property, or it has no `@embed`.
        EmbeddingModelError: the schema records another model than the configured one.
    """
    embedded = {
        name: [prop for prop in node.properties.values() if prop.embed is not None]
        for name, node in sorted(catalog.nodes.items())
    }
    _check_names(embedded, types, properties)
    plans = []
    for name, found in embedded.items():
        some = tuple(prop for prop in found if not properties or prop.name in properties)
        if not some or (types and name not in types):
            continue
        for prop in some:
            check_model(embedder, prop, name)
        recorded = dict(pins[node_key(name)].models)
        unknown = tuple(prop.name for prop in some if prop.name not in recorded)
        every = {
            prop.name
            for prop in some
            if which is Which.ALL
            or (
                which is Which.STALE
                and recorded.get(prop.name, _own_models(prop, embedder)) != _own_models(prop, embedder)
            )
        }
        plans.append(EmbedPlan(catalog.nodes[name], some, frozenset(every), unknown, embedder))
    return plans


def _own_models(prop: Property, embedder: Embedder) -> tuple[tuple[str, str], ...]:
    """The entry that records this embedder and the text property as the source of all vectors of a property."""
    return ((embedder.name, _source(prop)),)


def _check_names(embedded: Mapping[str, Sequence[Property]], types: Sequence[str], properties: Sequence[str]) -> None:
    for name in types:
        if not embedded.get(name):
            having = [known for known, found in embedded.items() if found]
            what = "has no computed vector" if name in embedded else "is not a node type"
            raise InputError(f"'{name}' {what}", hint=did_you_mean(name, having) or _having("types", having))
    among = sorted({prop.name for name, found in embedded.items() if not types or name in types for prop in found})
    for name in properties:
        if name not in among:
            hint = did_you_mean(name, among) or _having("properties", among)
            raise InputError(f"'{name}' is not a computed vector", hint=hint)


def _having(what: str, names: Sequence[str]) -> str:
    return f"{what} with @embed: {', '.join(names)}" if names else "no property of the schema has @embed"


def _source(prop: Property) -> str:
    assert prop.embed is not None
    return prop.embed.source


# Computing


def new_vectors(plan: EmbedPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table | None, Counts]]:
    """Compute new vectors, batch by batch: ids, row ids and vectors of the rows that change, and the counts.

    Raises:
        EmbeddingError: vectors cannot be computed.
    """
    tally = Tally()
    computed = found = 0
    for batch in batches:
        rows, right = _new_vectors(plan, pa.Table.from_batches([batch]), tally)
        changed = 0 if rows is None else rows.num_rows
        counts = Counts(batch.num_rows, changed, right, tally.computed - computed, tally.found - found)
        computed, found = tally.computed, tally.found
        yield rows, counts


def _new_vectors(plan: EmbedPlan, rows: pa.Table, tally: Tally) -> tuple[pa.Table | None, int]:
    """The rows that change, with their new vectors, and the number of rows whose vectors are up to date."""
    differ = np.zeros(rows.num_rows, bool)
    has_vector = np.zeros(rows.num_rows, bool)
    columns: dict[str, pa.Array] = {}
    for prop in plan.properties:
        stored = rows[prop.name].combine_chunks()
        texts = rows[_source(prop)].combine_chunks()
        if prop.name not in plan.every:
            texts = pc.if_else(stored.is_null(), texts, None)
        computed = embed_column(plan.embedder, texts, prop, plan.declared.name, tally)
        wanted = computed.is_valid().to_numpy(zero_copy_only=False)
        other = wanted & ~_same(stored, computed)
        columns[prop.name] = pc.if_else(pa.array(other), computed, stored)
        differ |= other
        has_vector |= wanted | stored.is_valid().to_numpy(zero_copy_only=False)
    right = int((has_vector & ~differ).sum())
    if not differ.any():
        return None, right
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows.select([_ID, ROW_ID, *plan.names]).filter(pa.array(differ)), right


def _same(left: pa.Array, right: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mask of the equal vectors of two columns."""
    size = left.type.list_size
    both = (left.is_valid().to_numpy(zero_copy_only=False)) & (right.is_valid().to_numpy(zero_copy_only=False))
    same = both.copy()
    places = pa.array(np.flatnonzero(both))
    one, other = (side.take(places).flatten().to_numpy(zero_copy_only=False) for side in (left, right))
    same[both] = (one.reshape(-1, size) == other.reshape(-1, size)).all(axis=1)
    return np.asarray(same, bool)


# Writing


@dataclass(frozen=True, slots=True)
class Revision:
    """Complete rows with their new vectors. The other columns are read from the table.

    Attributes:
        tables: the table storage.
        ref: the version that the vectors were computed from.
        schema: the columns of rows.
        parts: returns ids, row ids and vectors, as tables.
    """

    tables: TableStorage
    ref: TableRef
    schema: pa.Schema
    parts: Callable[[], Iterator[pa.Table]]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for part in self.parts():
            for start in range(0, part.num_rows, BATCH_ROWS):
                rows = part.slice(start, BATCH_ROWS).combine_chunks()
                if columns is not None and set(columns) <= {*rows.column_names}:
                    yield from rows.select(list(columns)).to_batches()
                    continue
                whole = self._whole(rows)
                yield from (whole if columns is None else whole.select(list(columns))).combine_chunks().to_batches()

    def _whole(self, rows: pa.Table) -> pa.Table:
        plain = [f.name for f in self.schema if f.name not in rows.column_names and not is_blob(f.type)]
        others = rows
        if plain:
            others = self.tables.at(self.ref).take_rows(rows[ROW_ID].combine_chunks(), columns=plain)
        columns: list[Any] = []
        for field in self.schema:
            if field.name in rows.column_names:
                columns.append(rows[field.name].cast(field.type))
            elif is_blob(field.type):
                columns.append(unchanged_cells(rows.num_rows))
            else:
                columns.append(others[field.name].cast(field.type))
        return pa.table(columns, schema=self.schema)


def revision(
    tables: TableStorage, ref: TableRef, schema: pa.Schema, parts: Callable[[], Iterator[pa.Table]]
) -> Revision:
    """The new rows of a table. `schema` has the columns of the table, with plain bytes for blobs."""
    return Revision(tables, ref, row_schema(schema), parts)

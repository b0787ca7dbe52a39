"""Bringing the vectors of `@embed` properties up to date with their texts and with the model.

Nothing is changed that is right already. What is computed is decided for each property of each type: every vector, or
only those that are missing. The table says which model made its vectors, so that a change of model is noticed.
"""

# See docs/decisions/0122-a-table-knows-its-models.md

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Models, TablePin, commit_json, with_models
from omnigraph.embed import Embedder, Tally, check_model, embed_column
from omnigraph.errors import InputError
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import Catalog
from omnigraph.lang.schema.catalog import NodeType, Property
from omnigraph.lang.schema.type_key import node_key
from omnigraph.storage.blobs import is_blob, kept, row_schema
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage

BATCH_ROWS = 4096
"""How many rows are looked at at a time."""

ROW_ID = "_rowid"
_ID = "id"


class Which(StrEnum):
    """Vectors to compute."""

    STALE = "stale"
    """Those that are missing, and all of a property that another model made, or that were made from other texts."""
    MISSING = "missing"
    """Those that are missing."""
    ALL = "all"
    """All, whatever made them."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What there was to do about the vectors of a type.

    Attributes:
        rows: entities that were looked at.
        changed: entities that get another vector.
        right: entities whose vectors are what they should be.
        computed: vectors that the model was asked for, one for each text.
        cached: vectors that were there from before.
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
    """What was done about the vectors of a type.

    Attributes:
        type_name: the type.
        properties: its vectors that were looked at.
        unknown: those of them of which nobody recorded what made them; unless all are asked for, they stay.
        counts: how much it was.
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
    """What was done about vectors.

    Attributes:
        branch: where.
        model: what they are computed with.
        which: what was asked for.
        types: by type, in name order.
        commit: the commit; None when everything was right, or when nothing was to be written.
    """

    branch: str
    model: str
    which: Which
    types: tuple[EmbeddedType, ...]
    commit: Commit | None

    @property
    def total(self) -> Counts:
        """How much it was altogether."""
        return sum((each.counts for each in self.types), Counts())

    def to_json(self) -> dict[str, Any]:
        """The receipt as every surface gives it."""
        return {
            "branch": self.branch,
            "model": self.model,
            "which": self.which.value,
            "types": [each.to_json() for each in self.types],
            "commit": None if self.commit is None else commit_json(self.commit),
        }


@dataclass(frozen=True, slots=True)
class EmbedProgress:
    """How far the work on vectors has come.

    Attributes:
        type_name: the type that is looked at.
        rows: entities that were looked at, of all types.
        total: entities that there are to look at.
        counts: how much it was so far.
    """

    type_name: str
    rows: int
    total: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Chosen:
    """The vectors of a type that are looked at.

    Attributes:
        declared: the type.
        properties: which.
        every: those of which every vector is computed; of the others those that are missing.
        unknown: those of which nobody recorded what made them.
        embedder: what computes them.
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
        """The properties of which a row has to lack one to be looked at; none when every row is."""
        return () if self.every else self.names

    def done(self, counts: Counts, pin: TablePin) -> EmbeddedType:
        """What was done, given what was done about the rows that were looked at."""
        if not self.every:
            counts += Counts(rows=pin.row_count - counts.rows, right=pin.row_count - counts.rows)
        unknown = tuple(name for name in self.unknown if name not in self.every and counts.right)
        return EmbeddedType(self.declared.name, self.names, unknown, counts)

    @property
    def columns(self) -> list[str]:
        """What has to be read."""
        texts = [_source(prop) for prop in self.properties]
        return list(dict.fromkeys([_ID, *texts, *self.names, ROW_ID]))

    def models(self, before: Models) -> Models:
        """What is recorded about the table afterwards."""
        made = {prop.name: (self.embedder.name, _source(prop)) for prop in self.properties}
        return with_models(tuple(pair for pair in before if pair[0] not in self.every), made)


def choose(
    catalog: Catalog,
    pins: Mapping[str, TablePin],
    embedder: Embedder,
    which: Which,
    types: Sequence[str] = (),
    properties: Sequence[str] = (),
) -> list[Chosen]:
    """What is looked at, by type in name order.

    Raises:
        InputError: there is no such type or property, or it is not computed.
        EmbeddingModelError: the schema records another model than the one that is configured.
    """
    embedded = {
        name: [prop for prop in node.properties.values() if prop.embed is not None]
        for name, node in sorted(catalog.nodes.items())
    }
    _check_names(embedded, types, properties)
    chosen = []
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
            or (which is Which.STALE and recorded.get(prop.name, _mine(prop, embedder)) != _mine(prop, embedder))
        }
        chosen.append(Chosen(catalog.nodes[name], some, frozenset(every), unknown, embedder))
    return chosen


def _mine(prop: Property, embedder: Embedder) -> tuple[tuple[str, str], ...]:
    """What is recorded about a property all of whose vectors this embedder computed."""
    return ((embedder.name, _source(prop)),)


def _check_names(embedded: Mapping[str, Sequence[Property]], types: Sequence[str], properties: Sequence[str]) -> None:
    for name in types:
        if not embedded.get(name):
            having = [known for known, found in embedded.items() if found]
            what = "has no vector that is computed" if name in embedded else "is not a node type"
            raise InputError(f"'{name}' {what}", hint=did_you_mean(name, having) or _having("types", having))
    among = sorted({prop.name for name, found in embedded.items() if not types or name in types for prop in found})
    for name in properties:
        if name not in among:
            hint = did_you_mean(name, among) or _having("properties", among)
            raise InputError(f"'{name}' is not a vector that is computed", hint=hint)


def _having(what: str, names: Sequence[str]) -> str:
    return f"{what} with @embed: {', '.join(names)}" if names else "no property of the schema has @embed"


def _source(prop: Property) -> str:
    assert prop.embed is not None
    return prop.embed.source


# Computing


def revised(chosen: Chosen, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table | None, Counts]]:
    """What becomes of rows, batch by batch: ids, row ids and vectors of those that change, and how much it was.

    Raises:
        EmbeddingError: vectors cannot be computed.
    """
    tally = Tally()
    computed = found = 0
    for batch in batches:
        rows, right = _revised(chosen, pa.Table.from_batches([batch]), tally)
        changed = 0 if rows is None else rows.num_rows
        counts = Counts(batch.num_rows, changed, right, tally.computed - computed, tally.found - found)
        computed, found = tally.computed, tally.found
        yield rows, counts


def _revised(chosen: Chosen, rows: pa.Table, tally: Tally) -> tuple[pa.Table | None, int]:
    """The rows that change, with their new vectors, and how many have all the vectors that they should have."""
    differ = np.zeros(rows.num_rows, bool)
    asked = np.zeros(rows.num_rows, bool)
    columns: dict[str, pa.Array] = {}
    for prop in chosen.properties:
        stored = rows[prop.name].combine_chunks()
        texts = rows[_source(prop)].combine_chunks()
        if prop.name not in chosen.every:
            texts = pc.if_else(stored.is_null(), texts, None)
        made = embed_column(chosen.embedder, texts, prop, chosen.declared.name, tally)
        wanted = made.is_valid().to_numpy(zero_copy_only=False)
        other = wanted & ~_same(stored, made)
        columns[prop.name] = pc.if_else(pa.array(other), made, stored)
        differ |= other
        asked |= wanted | stored.is_valid().to_numpy(zero_copy_only=False)
    right = int((asked & ~differ).sum())
    if not differ.any():
        return None, right
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows.select([_ID, ROW_ID, *chosen.names]).filter(pa.array(differ)), right


def _same(left: pa.Array, right: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Where two columns have the same vectors, number by number."""
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
    """Whole rows with their new vectors: what is not a vector is read from the table.

    Attributes:
        tables: where the table is.
        ref: the version that the vectors were computed from.
        schema: the columns of rows.
        parts: ids, row ids and vectors, a table at a time.
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
        made: list[Any] = []
        for field in self.schema:
            if field.name in rows.column_names:
                made.append(rows[field.name].cast(field.type))
            elif is_blob(field.type):
                made.append(kept(rows.num_rows))
            else:
                made.append(others[field.name].cast(field.type))
        return pa.table(made, schema=self.schema)


def revision(
    tables: TableStorage, ref: TableRef, schema: pa.Schema, parts: Callable[[], Iterator[pa.Table]]
) -> Revision:
    """The rows that a table gets. `schema` is that of its values."""
    return Revision(tables, ref, row_schema(schema), parts)

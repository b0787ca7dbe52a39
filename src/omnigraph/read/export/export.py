"""Export a snapshot as NDJSON, CSV, Parquet or Arrow, in a deterministic order.

Edges come before nodes, types are sorted by name, entities by id. So two exports of the same content are identical,
independent of the order in which the content was written.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.lang.arrow import arrow_type, readable
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.type_key import type_key
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.csv_text import csv_cells, csv_rows, first_with_nul
from omnigraph.read.export.json_text import ASIDE, joined, json_text, literal, quoted
from omnigraph.read.export.ordered import MEMORY_BYTES, in_order
from omnigraph.storage.blobs import CELL, MAX_MATERIALIZED_BYTES, has_no_content

_ROW_ID = "_rowid"
_ENDS = (("from", "src"), ("to", "dst"))
_TEXT = ValueType(Scalar.STRING)
BLOB_CHUNK_BYTES = 3 * 1024 * 1024
"""Bytes of a large blob that are read at a time. A multiple of three, so that base64 chunks can be concatenated."""


def exported(
    snapshot: Snapshot,
    accepted: AcceptedSchema,
    types: str | Sequence[str] | None = None,
    budget: int = MEMORY_BYTES,
    *,
    blobs: bool = True,
) -> list[TypeExport]:
    """The types of an export, in the order in which they are written.

    Args:
        snapshot: the snapshot to export.
        accepted: the schema of the snapshot.
        types: one or several type names; all types by default. If a node type and an edge type have the same name,
            both are exported.
        budget: approximate number of bytes of rows that are in memory at a time.
        blobs: whether to export properties of type Blob.

    Raises:
        InputError: a type does not exist.
    """
    catalog = accepted.catalog
    types = [types] if isinstance(types, str) else types
    for name in types or ():
        if name not in catalog.nodes and name not in catalog.edges:
            raise InputError(
                f"there is no type '{cut(name)}'", hint=did_you_mean(name, [*catalog.nodes, *catalog.edges])
            )
    chosen = set(types) if types is not None else {*catalog.nodes, *catalog.edges}
    edges = [TypeExport(snapshot, TypeKind.EDGE, edge, budget, blobs=blobs) for edge in catalog.edges.values()]
    nodes = [TypeExport(snapshot, TypeKind.NODE, node, budget, blobs=blobs) for node in catalog.nodes.values()]
    return [part for part in (*edges, *nodes) if part.name in chosen]


class TypeExport:
    """One type of an export.

    Attributes:
        key: the type key, `node:<Type>` or `edge:<Type>`.
        pin: the table version that is exported.
        count: number of entities.
        types: value types of its properties, by property name.
        schema: its columns in Parquet and Arrow files: `id`, for edges `from` and `to`, then the properties by name.
    """

    def __init__(
        self, snapshot: Snapshot, kind: TypeKind, declared: NodeType | EdgeType, budget: int, *, blobs: bool = True
    ) -> None:
        self.kind = kind
        self.name = declared.name
        self.key = type_key(kind, declared.name)
        self.pin = snapshot.pin(self.key)
        self.count = self.pin.row_count
        self._snapshot = snapshot
        self._budget = budget
        self._ends = _ENDS if kind is TypeKind.EDGE else ()
        of_all = {name: prop.type for name, prop in declared.properties.items()}
        self.types = {name: kind for name, kind in of_all.items() if blobs or kind.scalar is not Scalar.BLOB}
        self._blobs = [name for name, type_ in self.types.items() if type_.scalar is Scalar.BLOB]
        self.schema = pa.schema(
            [
                *(pa.field(name, pa.utf8(), nullable=False) for name in ("id", *(name for name, _ in self._ends))),
                *(pa.field(name, _file_type(type_), nullable=type_.nullable) for name, type_ in self.types.items()),
            ]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All entities, sorted by id, as Arrow batches with the columns of `schema`."""
        sources = dict(self._ends)
        for rows in self._rows():
            columns = [readable(_whole(rows, sources.get(field.name, field.name))) for field in self.schema]
            yield pa.record_batch(columns, schema=self.schema)

    def lines(self) -> Iterator[bytes]:
        """All entities, sorted by id, as NDJSON text in parts of any length."""
        for rows in self._rows(largest=MAX_MATERIALIZED_BYTES):
            yield from self._with_large_blobs(self._text(rows), rows)

    def csv(self) -> Iterator[bytes]:
        """All entities, sorted by id, as the text of a CSV file in parts of any length. The header comes first.

        Raises:
            InputError: a text contains a NUL character.
        """
        names = [field.name for field in self.schema]
        yield f"{','.join(names)}\n".encode()
        for rows in self._rows(largest=MAX_MATERIALIZED_BYTES):
            yield from self._with_large_blobs(self._csv_text(rows, names), rows)

    def _csv_text(self, rows: pa.Table, names: list[str]) -> bytes:
        sources, cells = dict(self._ends), []
        for name in names:
            column, type_ = _whole(rows, sources.get(name, name)), self.types.get(name, _TEXT)
            row = first_with_nul(column) if type_.is_plain_scalar and type_.scalar is Scalar.STRING else None
            if row is not None:
                entity_id = rows["id"][row].as_py()
                raise InputError(
                    f"{self.name}.{name} of '{cut(entity_id)}' contains a NUL character, and a CSV file cannot",
                    hint="export as ndjson, parquet or arrow",
                )
            cells.append(csv_cells(column, type_))
        return bytes(csv_rows(cells).buffers()[2])

    def _with_large_blobs(self, text: bytes, rows: pa.Table) -> Iterator[bytes]:
        """The text of rows, with the content of large blobs in place of the placeholders."""
        aside = self._left_out_blobs(rows)
        if not aside:
            yield text
            return
        first, *rest = text.split(ASIDE.encode())
        yield first
        for (column, entity_id), between in zip(aside, rest, strict=True):
            yield from self._encoded(column, entity_id)
            yield between

    def _rows(self, largest: int | None = None) -> Iterator[pa.Table]:
        """All entities, sorted by id. Content of blobs with more than `largest` bytes is left out."""
        columns = ("id", *(end for _, end in self._ends), *self.types)
        if not self._blobs:
            yield from in_order(_Stored(self._snapshot, self.key, columns), self._budget)
            return
        for rows in in_order(_Stored(self._snapshot, self.key, (*columns, _ROW_ID)), self._budget):
            yield from self._snapshot.table(self.key).content(rows, largest=largest)

    def _text(self, rows: pa.Table) -> bytes:
        return bytes(lines_of(rows, self.kind, self.name, self.types).buffers()[2])

    def _left_out_blobs(self, rows: pa.Table) -> list[tuple[str, str]]:
        """Property and entity id of each blob whose content was left out, in the order of the text."""
        left_out = []
        for place, name in enumerate(self._blobs):
            found = has_no_content(_whole(rows, name))
            ids = _whole(rows, "id").filter(found).to_pylist()
            left_out += [(entity_id, place, name) for entity_id in ids]
        return [(name, entity_id) for entity_id, _, name in sorted(left_out)]

    def _encoded(self, column: str, entity_id: str) -> Iterator[bytes]:
        """Content of one blob in base64, in chunks."""
        stored = self._snapshot.blob(self.key, column, entity_id)
        assert stored is not None
        assert stored.info is not None
        size = stored.info.size or 0
        for start in range(0, size, BLOB_CHUNK_BYTES):
            data = self._snapshot.table(self.key).read_blob(
                column, stored.row_id, start, min(start + BLOB_CHUNK_BYTES, size)
            )
            yield binascii.b2a_base64(data, newline=False)


def lines_of(rows: pa.Table, kind: TypeKind, name: str, types: Mapping[str, ValueType]) -> pa.Array:
    """Entities as NDJSON, one line each, with the newline.

    Args:
        rows: the entities, with blob content.
        kind: whether the entities are nodes or edges.
        name: name of their type.
        types: value types of the properties, by property name, in the order of the output.
    """
    ends = _ENDS if kind is TypeKind.EDGE else ()
    parts: list[pa.Array | str] = [f'{{"{"edge" if ends else "type"}":{literal(name)}']
    for end, column in ends:
        parts += [f',"{end}":', quoted(_whole(rows, column))]
    parts += [',"data":{"id":', quoted(_whole(rows, "id"))]
    for prop, type_ in types.items():
        parts += [f",{literal(prop)}:", json_text(_whole(rows, prop), type_)]
    return joined(*parts, "}}\n")


@dataclass(frozen=True, slots=True)
class _Stored:
    """The rows of one type. They can be read more than once."""

    snapshot: Snapshot
    key: str
    columns: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.snapshot.pin(self.key).row_count

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        yield from self.snapshot.batches(self.key, columns=list(columns or self.columns))


def _whole(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _file_type(type_: ValueType) -> pa.DataType:
    """Arrow type of a column in a Parquet or Arrow file."""
    return CELL if type_.scalar is Scalar.BLOB else readable(pa.nulls(0, arrow_type(type_))).type

"""NDJSON envelopes: read in blocks, a type at a time, exactly.

The usual block is sorted into types by a regular expression over its lines and parsed by Arrow's JSON reader, which is
strict where we are: duplicate members, unknown members, wrong types and numbers out of range are errors. A block in
which anything is unusual is read again value by value, to say what is wrong and where.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.envelopes import EnvelopeReader, Found, nullable_defaults
from omnigraph.write.problems import Problems
from omnigraph.write.rows import Origin, RawRows

BLOCK_BYTES = 16 * 1024 * 1024

_HEAD = r'^\s*\{\s*"(?P<kind>type|edge)"\s*:\s*"(?P<name>[A-Za-z0-9_]+)"\s*[,}]'
_UNUSUAL = r'"data"\s*:\s*null'


def read_ndjson(
    chunks: Iterable[bytes], accepted: AcceptedSchema, problems: Problems, name: str = ""
) -> Iterator[RawRows]:
    """The rows of an NDJSON stream, type by type within each block.

    Args:
        chunks: the bytes, cut anywhere.
        accepted: the schema in force.
        problems: collects what cannot be read.
        name: the file, as problems call it.
    """
    reader = _Blocks(accepted, problems, f"{name}, " if name else "")
    for block in _whole_lines(chunks):
        yield from reader.read(block)
    yield from reader.finish()


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The stream in blocks that end with a line."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size < BLOCK_BYTES:
            continue
        block = b"".join(held)
        end = block.rfind(b"\n") + 1
        if end == 0:
            held, size = [block], len(block)
            continue
        yield block[:end]
        held, size = [block[end:]], len(block) - end
    if size:
        yield b"".join(held)


class _Blocks:
    """Reads one block after another, counting lines."""

    def __init__(self, accepted: AcceptedSchema, problems: Problems, prefix: str) -> None:
        self.accepted = accepted
        self.envelopes = EnvelopeReader(accepted, problems, prefix)
        self.prefix = prefix
        self.line = 1

    def read(self, block: bytes) -> Iterator[RawRows]:
        if self.envelopes.within_value:
            yield from self._one_by_one(block)
            return
        lines = _lines(block)
        rows = self._by_type(lines)
        if rows is None:
            yield from self._one_by_one(block)
            return
        self.line += len(lines)
        yield from rows

    def finish(self) -> Iterator[RawRows]:
        yield from self._tables(self.envelopes.finish())

    def _one_by_one(self, block: bytes) -> Iterator[RawRows]:
        found = self.envelopes.read(block, self.line)
        self.line += block.count(b"\n") + (not block.endswith(b"\n"))
        yield from self._tables(found)

    def _tables(self, found: Iterable[Found]) -> Iterator[RawRows]:
        for kind, name, columns, absent, lines in found:
            yield RawRows(kind, name, columns, absent, self._origin(np.array(lines, np.int64)))

    def _origin(self, lines: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Origin:
        return Origin(lines, lambda record: f"{self.prefix}line {record}")

    def _by_type(self, lines: pa.Array) -> list[RawRows] | None:
        """The fast way; None when something in the block needs a closer look."""
        try:
            texts = lines.cast(pa.utf8())
        except pa.ArrowInvalid:
            return None
        blank = pc.match_substring_regex(texts, r"^\s*$")
        heads = pc.extract_regex(texts, _HEAD)
        if (
            pc.any(pc.and_(heads.is_null(), pc.invert(blank))).as_py()
            or pc.any(pc.match_substring_regex(texts, _UNUSUAL)).as_py()
        ):
            return None
        numbers = np.arange(self.line, self.line + len(lines), dtype=np.int64)
        kinds, names = pc.struct_field(heads, 0), pc.struct_field(heads, 1)
        out: list[RawRows] = []
        for pair in pc.unique(pc.binary_join_element_wise(kinds, names, ":")).drop_null().to_pylist():
            word, _, name = pair.partition(":")
            declared = self._declared(word, name)
            if declared is None:
                return None
            mask = pc.and_(pc.equal(kinds, word), pc.equal(names, name)).fill_null(False)
            columns = _parse(lines.filter(mask), word, declared)
            if columns is None:
                return None
            kind = TypeKind.NODE if word == "type" else TypeKind.EDGE
            picked = numbers[mask.to_numpy(zero_copy_only=False)]
            # Without a written null in the text, what is null was not there.
            absent = {name: columns[name].is_null() for name in nullable_defaults(declared)}
            out.append(RawRows(kind, declared.name, columns, absent, self._origin(picked)))
        return out

    def _declared(self, word: str, name: str) -> NodeType | EdgeType | None:
        catalog = self.accepted.catalog
        return catalog.nodes.get(name) if word == "type" else catalog.edge_by_word(name)


def _lines(block: bytes) -> pa.Array:
    """The lines of a block, each with its line break, without copying them."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == 10) + 1
    if len(ends) == 0 or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )


def _parse(lines: pa.Array, word: str, declared: NodeType | EdgeType) -> dict[str, pa.Array] | None:
    """The columns of lines that all hold one type, or None when the strict reader finds anything wrong."""
    data = lines.buffers()[2]
    start, end = lines.buffers()[1], len(lines)
    offsets = np.frombuffer(start, np.int64)[lines.offset : lines.offset + end + 1]
    text = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if nullable_defaults(declared) and b"null" in bytes(text):
        return None  # here a written null and a missing value differ, and Arrow does not tell them apart
    for times_as_text in (True, False):
        fields = [pa.field("id", pa.utf8())]
        fields += [pa.field(p.name, _json_type(p.type, times_as_text)) for p in declared.properties.values()]
        members = [pa.field(word, pa.utf8()), pa.field("data", pa.struct(fields))]
        if word == "edge":
            members += [pa.field("from", pa.utf8()), pa.field("to", pa.utf8())]
        try:
            table = pj.read_json(
                io.BytesIO(text),
                read_options=pj.ReadOptions(use_threads=True, block_size=max(len(text) // 2 + 1, 1 << 20)),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema(members), unexpected_field_behavior="error", newlines_in_values=False
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            continue
        if table.num_rows != end:
            return None  # more than one value on a line
        struct = table["data"].combine_chunks()
        columns = {f.name: column for f, column in zip(fields, struct.flatten(), strict=True)}
        columns = {name: c for name, c in columns.items() if name != "id" or c.null_count < len(c)}
        if word == "edge":
            columns |= {"from": table["from"].combine_chunks(), "to": table["to"].combine_chunks()}
        return columns
    return None


_JSON_TYPES = {
    Scalar.STRING: pa.utf8(),
    Scalar.BLOB: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.VECTOR: pa.list_(pa.float32()),
}


def _json_type(kind: ValueType, times_as_text: bool) -> pa.DataType:
    """What the JSON of a value is read as. Dates come as text or as numbers."""
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        item = pa.utf8() if times_as_text else pa.int64()
    else:
        item = _JSON_TYPES[kind.scalar]
    return pa.list_(item) if kind.list else item

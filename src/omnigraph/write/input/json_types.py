"""Reads JSON records in bulk, one type at a time, with Arrow's JSON reader.

Arrow's reader is as strict as `EnvelopeReader`: duplicate members, unknown members, wrong types and numbers out of
range are errors. `EnvelopeReader` reads the records that Arrow would read in another way.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.write.input.envelopes import nullable_defaults
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import json_type

_MAX_HEADS = 512
_HEAD = re.compile(rb'\{[ \t\r\n]*"(type|edge)"[ \t\r\n]*:[ \t\r\n]*"([A-Za-z0-9_]+)"[ \t\r\n]*[,}]')
_NULL_DATA = r'"data"\s*:\s*null'

_Codes = np.ndarray[tuple[int], np.dtype[np.int32]]
_Type = tuple[str, NodeType | EdgeType]
"""The member that names a type, `type` or `edge`, and the type."""


class TypeReader:
    """Reads records in bulk. Caches the prefixes by which it recognises types, such as `{"type": "Person",`.

    Args:
        accepted: the accepted schema.
    """

    def __init__(self, accepted: AcceptedSchema) -> None:
        self.catalog = accepted.catalog
        self._heads: dict[bytes, _Type] = {}
        self._times_as_text: dict[tuple[str, str], bool] = {}

    def rows(self, texts: pa.Array, origin: Origin) -> list[RawRows] | None:
        """The rows of records by type; None if some record has to be read by `EnvelopeReader`.

        Args:
            texts: the records, contiguous in one buffer.
            origin: the location of each record.
        """
        if len(texts) == 0:
            return []
        try:
            texts.cast(pa.large_utf8())
        except pa.ArrowInvalid:
            return None
        sorted_out = self._types_of(texts)
        if sorted_out is None:
            return None
        types, codes = sorted_out
        out: list[RawRows] = []
        for code, (word, declared) in types.items():
            mask = codes == code
            texts_of_type = texts if mask.all() else texts.filter(pa.array(mask))
            parsed = self._parse(texts_of_type, word, declared)
            if parsed is None:
                return None
            kind = TypeKind.NODE if word == "type" else TypeKind.EDGE
            out.append(RawRows(kind, declared.name, *parsed, Origin(origin.records[mask], origin.place)))
        return out

    def _types_of(self, texts: pa.Array) -> tuple[dict[int, _Type], _Codes] | None:
        """The types of records by their prefixes, in order of appearance, and the type code of each record."""
        codes = np.full(len(texts), -1, np.int32)
        numbers: dict[tuple[str, str], int] = {}
        for head in list(self._heads):
            self._mark(texts, head, codes, numbers)
        while len(unknown := np.flatnonzero(codes < 0)):
            match = _HEAD.match(texts[int(unknown[0])].as_py())
            if match is None or len(self._heads) >= _MAX_HEADS:
                return None
            word, name = match[1].decode(), match[2].decode()
            declared = self.catalog.nodes.get(name) if word == "type" else self.catalog.edge_by_word(name)
            if declared is None:
                return None
            self._heads[match[0]] = (word, declared)
            self._mark(texts, match[0], codes, numbers)
        by_number = {number: pair for pair, number in numbers.items()}
        known = {(word, declared.name): (word, declared) for word, declared in self._heads.values()}
        order = codes[np.sort(np.unique(codes, return_index=True)[1])]
        return {code: known[by_number[code]] for code in order.tolist()}, codes

    def _mark(self, texts: pa.Array, head: bytes, codes: _Codes, numbers: dict[tuple[str, str], int]) -> None:
        """Set the type code of the records that begin with a prefix."""
        word, declared = self._heads[head]
        code = numbers.setdefault((word, declared.name), len(numbers))
        codes[pc.starts_with(texts, head).to_numpy(zero_copy_only=False)] = code

    def _parse(
        self, texts: pa.Array, word: str, declared: NodeType | EdgeType
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]] | None:
        """The columns of records of one type, and the masks of absent values; None if Arrow finds an error."""
        offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
        text = texts.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        key = (word, declared.name)
        likely = self._times_as_text.get(key, True)
        for times_as_text in (likely, not likely):
            table = _read(text, word, declared, times_as_text)
            if table is not None:
                self._times_as_text[key] = times_as_text
                break
        else:
            return None
        if table.num_rows != len(texts):
            return None  # more than one value in a record
        struct = table["data"].combine_chunks()
        if (
            struct.null_count
            and pc.any(
                pc.match_substring_regex(texts.filter(struct.is_null()).cast(pa.large_utf8()), _NULL_DATA)
            ).as_py()
        ):
            return None
        columns = dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))
        if not all(map(_is_json, columns.values())):
            return None
        columns = {name: c for name, c in columns.items() if name != "id" or c.null_count < len(c)}
        if word == "edge":
            columns |= {end: table[end].combine_chunks() for end in ("from", "to")}
        absent = {}
        for name in nullable_defaults(declared):
            missing = _absent(texts, name, columns[name])
            if missing is None:
                return None
            absent[name] = missing
        return columns, absent


def _is_json(values: pa.Array) -> bool:
    """Whether all numbers are valid JSON. Arrow also reads NaN and Infinity."""
    if pa.types.is_list(values.type):
        values = values.flatten()
    return not pa.types.is_floating(values.type) or pc.all(pc.is_finite(values)).as_py() is not False


def _absent(texts: pa.Array, name: str, values: pa.Array) -> pa.Array | None:
    """Mask of the records that lack a member; an explicit null is not absent. None if the text search cannot decide."""
    missing = values.is_null()
    if values.null_count == 0:
        return missing
    lines = texts.filter(missing).cast(pa.large_utf8())
    if pc.any(pc.match_substring(lines, "\\u")).as_py():
        return None  # the text search would not find a name with a unicode escape
    written = pc.match_substring_regex(lines, rf'"{name}"\s*:\s*null')
    absent = missing.to_numpy(zero_copy_only=False).copy()
    absent[absent] = ~written.to_numpy(zero_copy_only=False)
    return pa.array(absent)


def _read(text: pa.Buffer, word: str, declared: NodeType | EdgeType, times_as_text: bool) -> pa.Table | None:
    fields = [pa.field("id", pa.utf8())]
    fields += [pa.field(p.name, json_type(p.type, times_as_text)) for p in declared.properties.values()]
    members = [pa.field(word, pa.utf8()), pa.field("data", pa.struct(fields))]
    if word == "edge":
        members += [pa.field("from", pa.utf8()), pa.field("to", pa.utf8())]
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=True, block_size=max(len(text) // 2 + 1, 1 << 20)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(members), unexpected_field_behavior="error", newlines_in_values=False
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None

"""Reads NDJSON to infer types: records of a graph (`{"type": …, "data": …}`), or plain objects, one table per file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.errors import InputError, cut
from omnigraph.write.input.framing import frame
from omnigraph.write.input.ndjson import MAX_RECORD_BYTES

_LARGE = float(2**63)
_BLOCK_BYTES = 16 * 1024 * 1024
_HEAD = r'^\s*\{\s*"(?P<word>type|edge)"\s*:\s*"(?P<name>[A-Za-z0-9_]+)"\s*[,}]'
_BOM = b"\xef\xbb\xbf"

RecordType = tuple[str, str]
"""The member that names the type of a record, `type` or `edge`, and the name."""

Parsed = tuple[RecordType | None, pa.RecordBatch]
"""The type of some records, and their members as columns: for records of a graph, those of `data`, and `from` and `to`.
Plain objects have no type."""


def read_records(chunks: Iterable[bytes], name: str) -> Iterator[Parsed]:
    """The records of an NDJSON file, as tables.

    Raises:
        InputError: a record is not a JSON object, or a member has values of different types.
    """
    of_graph: bool | None = None
    for texts in _blocks(chunks, name):
        if of_graph is None:
            of_graph = _is_envelope(texts[0].as_py(), name)
        if not of_graph:
            yield None, _parsed(texts, name)
            continue
        for kind, mask in _types(texts, name):
            table = _parsed(texts if mask.all() else texts.filter(pa.array(mask)), name)
            yield kind, _members(table, kind, name)


def _blocks(chunks: Iterable[bytes], name: str) -> Iterator[pa.Array]:
    """The records, in arrays of contiguous texts without line breaks inside of a record.

    Raises:
        InputError: a record is too large, or the last one is not complete.
    """
    parts: list[bytes] = []
    size, wanted = 0, _BLOCK_BYTES
    for chunk in chunks:
        parts.append(chunk if parts or size else chunk.removeprefix(_BOM))
        size += len(chunk)
        if size < wanted:
            continue
        held = b"".join(parts)
        end = held.rfind(b"\n") + 1
        framed = frame(held[:end]) if end else None
        if framed is not None and len(framed.records):
            yield framed.records.texts(0, len(framed.records))
            held = held[framed.rest :]
        elif len(held) > MAX_RECORD_BYTES:
            hint = f"write one object per line: jq -c '.[]' {name}" if held.lstrip().startswith(b"[") else None
            raise InputError(f"{name}: a record has more than {MAX_RECORD_BYTES:,} bytes", hint=hint)
        # An incomplete record is read again only when there are as many new bytes.
        parts, size, wanted = [held], len(held), max(_BLOCK_BYTES, min(2 * len(held), MAX_RECORD_BYTES + 1))
    held = b"".join(parts)
    if held.strip():
        framed = frame(held)
        if len(framed.records):
            yield framed.records.texts(0, len(framed.records))
        if framed.rest < len(held):
            raise InputError(f"{name}: the last record is not complete", hint="a record is one JSON object")


def _is_envelope(record: bytes, name: str) -> bool:
    found = _object(record, name)
    if isinstance(found.get("type"), str) and found.keys() <= {"type", "data"}:
        return isinstance(found.get("data", {}), dict)
    return isinstance(found.get("edge"), str) and {"from", "to"} <= found.keys()


def _object(record: bytes, name: str) -> dict[str, object]:
    try:
        found = orjson.loads(record)
    except ValueError as error:
        raise InputError(f"{name}: a record is not JSON: {error}: {cut(record.decode(errors='replace'), 60)}") from None
    if not isinstance(found, dict):
        hint = f"write one object per line: jq -c '.[]' {name}" if isinstance(found, list) else None
        text = cut(record.decode(errors="replace"), 60)
        raise InputError(f"{name}: a record is not a JSON object: {text}", hint=hint)
    return found


def _types(texts: pa.Array, name: str) -> Iterator[tuple[RecordType, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    """The types of the records, and the mask of the records of each."""
    heads = pc.extract_regex(texts.cast(pa.large_utf8()), _HEAD)
    words = pc.struct_field(heads, "word").cast(pa.utf8())
    names = pc.struct_field(heads, "name").cast(pa.utf8())
    labels = pc.binary_join_element_wise(words, names, ":")
    if labels.null_count:  # the type is not the first member
        missing = labels.is_null()
        labels = pc.replace_with_mask(labels, missing, _later_types(texts.filter(missing), name))
    for label in labels.unique().to_pylist():
        word, _, type_name = label.partition(":")
        yield (word, type_name), pc.equal(labels, label).to_numpy(zero_copy_only=False)


_TYPE_MEMBERS = pa.schema([("edge", pa.utf8()), ("type", pa.utf8())])


def _later_types(texts: pa.Array, name: str) -> pa.Array:
    """The types of records that have other members before their type.

    Raises:
        InputError: a record is not a JSON object, or names no type.
    """
    try:
        found = pj.read_json(
            pa.BufferReader(_joined(texts)),
            read_options=pj.ReadOptions(block_size=max(texts.nbytes, 1 << 20)),
            parse_options=pj.ParseOptions(
                explicit_schema=_TYPE_MEMBERS, newlines_in_values=False, unexpected_field_behavior="ignore"
            ),
        ).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = None
    if found is not None and found.num_rows == len(texts):
        edges, types = (pc.binary_join_element_wise(f"{one}:", found[one], "") for one in ("edge", "type"))
        labels = pc.coalesce(edges, types).combine_chunks()
        if not labels.null_count:
            return labels
    for text in texts:  # one of them is wrong
        record = _object(text.as_py(), name)
        if not isinstance(record.get("edge" if "edge" in record else "type"), str):
            raise InputError(
                f"{name}: a record names no type: {cut(text.as_py().decode(errors='replace'), 60)}",
                hint='the first record of the file has one, so all need "type" or "edge"',
            )
    raise InputError(f"{name}: the types of the records cannot be read", hint="begin each record with its type")


def _joined(texts: pa.Array) -> pa.Buffer:
    """The bytes of contiguous records, without copying them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return texts.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _parsed(texts: pa.Array, name: str) -> pa.RecordBatch:
    """The members of records as columns.

    Texts stay texts, also if they look like times. Whole numbers beyond the largest I64 stay exact if they fit U64.
    """
    text = _joined(texts)
    table = _read(text, None, name)
    plain = _without_times(pa.struct(table.schema))
    kind = _with_large_numbers(plain, table, lambda kind: _fits(text, kind, name))
    if kind != pa.struct(table.schema):
        table = _read(text, pa.schema(list(kind)), name)
    (batch,) = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    return batch


def _read(text: pa.Buffer, schema: pa.Schema | None, name: str) -> pa.Table:
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=max(len(text) + 1, 1 << 20)),
            parse_options=pj.ParseOptions(explicit_schema=schema, newlines_in_values=False),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = re.sub(r"^JSON parse error: ", "", str(error))
        raise InputError(
            f"{name}: no type can be inferred: {cut(reason)}",
            hint="every member needs values of one type; correct the records, or write the schema by hand",
        ) from None


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with texts in place of timestamps, which Arrow infers from texts."""
    if pa.types.is_timestamp(kind):
        return pa.utf8()
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_without_times(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return kind


def _fits(text: pa.Buffer, kind: pa.DataType, name: str) -> bool:
    try:
        _read(text, pa.schema(list(kind)), name)
    except InputError:
        return False
    return True


def _with_large_numbers(kind: pa.DataType, table: pa.Table, fits: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The type with U64 for the members whose values are whole numbers beyond the largest I64."""
    columns = {(name,): table[name] for name in table.schema.names}
    for name, column in list(columns.items()):
        if pa.types.is_struct(column.type):
            columns |= {(*name, field.name): pc.struct_field(column, field.name) for field in column.type}
    for name, column in columns.items():
        if pa.types.is_floating(column.type) and (pc.max(column).as_py() or 0) >= _LARGE:
            changed = _with_type(kind, name, pa.uint64())
            kind = changed if fits(changed) else kind
    return kind


def _with_type(struct: pa.DataType, name: tuple[str, ...], kind: pa.DataType) -> pa.DataType:
    """A struct with another type for one of its members."""
    if not name:
        return kind
    return pa.struct([f.with_type(_with_type(f.type, name[1:], kind)) if f.name == name[0] else f for f in struct])


def _members(batch: pa.RecordBatch, kind: RecordType, name: str) -> pa.RecordBatch:
    """The columns of records of a graph."""
    columns: dict[str, pa.Array] = {}
    if "data" in batch.schema.names:
        data = batch["data"]
        if pa.types.is_struct(data.type):
            columns = dict(zip((field.name for field in data.type), data.flatten(), strict=True))
    if kind[0] == "edge":
        for end in ("from", "to"):
            if end not in batch.schema.names:
                raise InputError(f"{name}: records of the edge {kind[1]} have no '{end}'")
            columns[f"={end}"] = batch[end]
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_pydict(columns)


def composite(id_text: str) -> list[str] | None:
    """The members of an id that is built from several key properties; None if it is another text."""
    if not id_text.startswith("["):
        return None
    try:
        found = json.loads(id_text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else None

"""Reads NDJSON files of plain objects, which a mapping describes as a table: the members of an object are its columns.

A block is parsed by Arrow's JSON reader, each member with the type of its property. A block with errors is parsed
object by object, for exact error messages.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from omnigraph.errors import InputError, Problem, ResourceLimitError, cut
from omnigraph.write.input.framing import Numbers, Records, frame
from omnigraph.write.input.mapped_columns import MappedColumns
from omnigraph.write.rows.convert import convert
from omnigraph.write.rows.problems import Leniency, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import Fault, JsonNumber, column, json_integer, json_type, without_gaps

BLOCK_BYTES = 16 * 1024 * 1024
MAX_RECORD_BYTES = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_TEXT = pa.utf8()


def read_objects(
    chunks: Iterable[bytes],
    columns: MappedColumns,
    problems: Problems,
    name: str,
    first: int = 1,
    line: int = 1,
) -> Generator[RawRows, None, int]:
    """The rows of plain objects.

    Args:
        chunks: the bytes of the file. A chunk may end anywhere, even inside of an object.
        columns: builds rows from the members.
        problems: collects values that cannot be read.
        name: the name of the file in error messages.
        first: the position of the first line of the file in the whole input.
        line: the number of the first line of the bytes.

    Returns:
        The number of the line after the last one.

    Raises:
        ResourceLimitError: an object is too large.
    """
    reader = _Reader(columns, problems, name, first, line)
    for block in _blocks(chunks, name, reader):
        yield from reader.read(block)
    return reader.line


def _blocks(chunks: Iterable[bytes], name: str, reader: _Reader) -> Iterator[bytes]:
    """Whole lines in blocks. An object that a block does not contain whole belongs to the next one."""
    held, begins = b"", reader.line == 1
    for chunk in chunks:
        held += chunk.removeprefix(_BOM) if begins else chunk
        begins = False
        if len(held) < BLOCK_BYTES:
            continue
        end = held.rfind(b"\n") + 1
        rest = frame(held[:end]).rest if end else 0
        if rest:
            yield held[:rest]
            held = held[rest:]
        elif len(held) > MAX_RECORD_BYTES:
            place = f"{name}, line {reader.line}"
            raise ResourceLimitError("graph_batch_line_bytes", MAX_RECORD_BYTES, len(held), place=place)
    if held.strip():
        yield held


class _Reader:
    """Reads the blocks of a file in order, and counts lines."""

    def __init__(self, columns: MappedColumns, problems: Problems, name: str, first: int, line: int) -> None:
        self.line = line
        self._columns = columns
        self._problems = problems
        self._name = name
        self._first = first
        self._types = columns.member_types()
        self._seen = set(self._types)
        self._times_as_text = True
        self._begun = False

    def read(self, block: bytes) -> Iterator[RawRows]:
        framed = frame(block)
        records = framed.records
        lines = self.line + records.lines
        if framed.rest < len(block):
            at = self.line + block.count(b"\n", 0, framed.rest)
            self._refuse(at, "the object is not complete")
        self.line += block.count(b"\n") + (not block.endswith(b"\n"))
        if len(records) == 0:
            return
        if not self._begun and _is_envelope(records.bytes_of(0)) and not {"data", "edge"} & self._types.keys():
            raise InputError(
                f"the mapping describes {cut(self._name)}, but each of its records names its type; "
                "a mapping is for tables and plain objects only",
                hint="remove the file from the mapping, or use patterns that end with .csv or .parquet",
            )
        self._begun = True
        table = self._parsed(records)
        if table is not None:
            members = dict(zip(table.schema.names, table.columns, strict=True))
        else:
            members, lines = self._one_by_one(records, lines)
        for member in members:
            if member not in self._seen:
                self._seen.add(member)
                position = self._position(int(lines[0]))
                self._columns.check_names([*self._types, member], position, self._place(position))
        for member in self._types:
            members.setdefault(member, pa.nulls(len(lines), _TEXT))
        origin = Origin(self._first - 1 + lines, self._place)
        yield from self._columns.rows(members, origin, None if self._problems.coerced is None else convert)

    def _position(self, line: int) -> int:
        return self._first - 1 + line

    def _place(self, position: int) -> str:
        return f"{self._name}, line {position - self._first + 1}"

    def _refuse(self, line: int, message: str, subject: str = "input") -> None:
        position = self._position(line)
        self._problems.add(Problem(position, self._place(position), subject, message))

    def _parsed(self, records: Records) -> pa.RecordBatch | None:
        """The members as columns; None if Arrow finds an error, or would read a value in another way."""
        texts = records.texts(0, len(records))
        offsets = np.frombuffer(texts.buffers()[1], np.int64)[: len(texts) + 1]
        text = texts.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        for times_as_text in (self._times_as_text, not self._times_as_text):
            fields = {name: json_type(kind, times_as_text) for name, kind in self._types.items() if kind is not None}
            table = _read(text, fields)
            if table is None:
                continue
            times = {each.name: _TEXT for each in table.schema if pa.types.is_timestamp(each.type)}
            table = _read(text, fields | times) if times else table  # Arrow infers times from texts
            if table is None:
                continue
            floats = (c for c in table.columns if pa.types.is_floating(c.type))
            if table.num_rows == len(records) and all(np.isfinite(c.drop_null().to_numpy()).all() for c in floats):
                self._times_as_text = times_as_text
                (batch,) = table.combine_chunks().to_batches()
                return batch
        return None

    def _one_by_one(self, records: Records, lines: Numbers) -> tuple[dict[str, pa.Array], Numbers]:
        rows: list[dict[str, Any]] = []
        good: list[int] = []
        for number in range(len(records)):
            line = int(lines[number])
            try:
                found = _DECODER.decode(records.bytes_of(number).decode())
            except (ValueError, RecursionError) as error:
                self._refuse(line, f"this is not JSON: {error}")
                continue
            if not isinstance(found, dict):
                self._refuse(line, "expected an object")
                continue
            rows.append(found)
            good.append(number)
        lines = lines[good]
        return {
            name: self._member([row.get(name) for row in rows], name, lines)
            for name in dict.fromkeys(name for row in rows for name in row)
        }, lines

    def _member(self, values: list[Any], name: str, lines: Numbers) -> pa.Array:
        kind = self._types.get(name)
        if kind is None:  # a part of a text, or an unknown member
            texts = [v if v is None or isinstance(v, str) else json.dumps(v, default=str) for v in values]
            return pa.array(texts, _TEXT)

        def refuse(row: int, message: str, fault: Fault) -> None:
            line, subject = int(lines[row]), f"{self._columns.name}.{name}"
            if self._problems.coerced is not None and kind.nullable and fault is not Fault.VALUE:
                place = self._place(self._position(line))
                self._problems.coerced.add(Leniency.NULLED_VALUE, subject, place, found=repr(values[row]))
            else:
                refused.append(row)
                self._refuse(line, message, subject)

        refused: list[int] = []
        return without_gaps(column(values, kind, refuse), kind, refused)


def _read(text: pa.Buffer, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Parse objects; None if Arrow finds an error."""
    try:
        return pj.read_json(
            pa.BufferReader(text),
            pj.ReadOptions(block_size=max(len(text) + 1, 1 << 20)),
            pj.ParseOptions(explicit_schema=pa.schema(list(types.items())), newlines_in_values=False),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None


def _is_envelope(record: bytes) -> bool:
    """Whether a record is one of a graph, which names its type."""
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict):
        return False
    node = isinstance(found.get("type"), str) and isinstance(found.get("data"), dict)
    return found.keys() <= {"type", "data"} if node else isinstance(found.get("edge"), str) and "from" in found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a member occurs twice")
    return members


_DECODER = json.JSONDecoder(
    parse_float=JsonNumber, parse_int=json_integer, parse_constant=_no_constant, object_pairs_hook=_pairs
)

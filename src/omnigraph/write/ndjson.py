"""NDJSON envelopes: read in blocks, a type at a time, exactly.

The usual block is sorted into types by how its lines begin and parsed by Arrow's JSON reader, which is strict where we
are: duplicate members, unknown members, wrong types and numbers out of range are errors. Where anything is unusual the
block is cut into ever smaller parts, and only what is left is read record by record, to say what is wrong and where.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from omnigraph.errors import ResourceLimitError
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.write.envelopes import EnvelopeReader, nullable_defaults
from omnigraph.write.framing import Numbers, Records, frame, one_a_line, structural_count
from omnigraph.write.problems import SHOWN, Problems
from omnigraph.write.rows import Origin, RawRows
from omnigraph.write.values import json_type

BLOCK_BYTES = 16 * 1024 * 1024
MAX_RECORD_BYTES = 32 * 1024 * 1024
"""Longest record that is read: it bounds what one broken line can cost."""
MAX_STRUCTURAL = 131_072
"""Most braces, brackets, colons and commas in one record."""

_FEW = 64
"""So many records are read one by one, without looking for the unusual ones among them."""
_TRIES = 24
"""So often a block is cut in two to find what is unusual in it. If everything is, it is read one by one."""
_MAX_HEADS = 512
_PART = 2 * 1024 * 1024
_BLANK = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_HEAD = re.compile(rb'\{[ \t\r\n]*"(type|edge)"[ \t\r\n]*:[ \t\r\n]*"([A-Za-z0-9_]+)"[ \t\r\n]*[,}]')
_NULL_DATA = r'"data"\s*:\s*null'


def read_ndjson(
    chunks: Iterable[bytes], accepted: AcceptedSchema, problems: Problems, name: str = "", first: int = 1
) -> Generator[RawRows, None, int]:
    """The rows of an NDJSON stream, type by type within each block.

    Args:
        chunks: the bytes, cut anywhere.
        accepted: the schema in force.
        problems: collects what cannot be read. When it counts coercions, the reader is lenient.
        name: the file, as problems call it.
        first: the position of the first line in the whole input.

    Returns:
        The position behind the last line.

    Raises:
        ResourceLimitError: a record is too large.
    """
    stream = _Stream(accepted, problems, f"{name}, " if name else "", first)
    for block, last in stream.blocks(chunks):
        yield from stream.read(block, last)
    return first + stream.line - 1


class _Places:
    """What a person calls the lines of a block. The number of the record is added where it is another one.

    Behind a record that never ends, or several on a line, it is not certain any more, and left out.
    """

    def __init__(self, prefix: str, first: int, starts: Numbers, before: int, lenient: bool) -> None:
        self.prefix = prefix
        self.first = first
        self.starts = starts
        self.before = before
        self.lenient = lenient
        self.uncertain = False

    def __call__(self, position: int) -> str:
        line = position - self.first + 1
        if self.uncertain:
            return f"{self.prefix}line {line}"
        record = self.before + int(np.searchsorted(self.starts, line, "right"))
        if self.lenient:
            return f"{self.prefix}record {record}" + (f" (line {line})" if line != record else "")
        return f"{self.prefix}line {line}" + (f" (record {record})" if line != record else "")


def _parts(block: bytes) -> Iterator[bytes]:
    """A block whole, or in parts when its lines are so short that describing them takes much more room than they."""
    if block.count(b"\n") * 16 < len(block):
        yield block
        return
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + _PART) + 1 or len(block)
        yield block[start:end]
        start = end


class _Stream:
    """Reads one block after another, counting lines and records."""

    def __init__(self, accepted: AcceptedSchema, problems: Problems, prefix: str, first: int) -> None:
        self.accepted = accepted
        self.problems = problems
        self.prefix = prefix
        self.first = first
        self.line = 1
        self.records = 0
        self._held: list[bytes] = []
        self._held_line = self._depth = 0
        self._tries = self._recoveries = 0
        self._heads: dict[bytes, tuple[str, NodeType | EdgeType]] = {}
        self._times_as_text: dict[str, bool] = {}
        self._envelopes = EnvelopeReader(accepted, problems, str)

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
        """The stream in blocks that end with a line, and whether each is the last."""
        held: list[bytes] = []
        size = open_size = lines = 0
        first = True
        for chunk in chunks:
            if first and chunk:
                chunk, first = chunk.removeprefix(_BOM), False
            held.append(chunk)
            size += len(chunk)
            end = chunk.rfind(b"\n") + 1
            lines += chunk.count(b"\n")
            open_size = len(chunk) - end if end else open_size + len(chunk)
            if open_size > MAX_RECORD_BYTES:
                raise self._too_long(lines + 1, open_size)
            if size < BLOCK_BYTES or open_size == size:
                continue
            block = b"".join(held)
            yield block[: size - open_size], False
            held, size = [block[size - open_size :]], open_size
        yield b"".join(held), True

    def read(self, block: bytes, last: bool) -> Iterator[RawRows]:
        """The rows of a block, and of a record that an earlier one began."""
        if not self._held and block.strip(_BLANK):
            records = one_a_line(block)
            if records is not None:
                self._begin(records)
                self._tries = _TRIES
                rows = self._fast(records, 0, len(records))
                if rows is not None:
                    yield from rows
                    self._end(block, len(records))
                    return
        for part in _parts(block):
            yield from self._framed(part)
        if last and self._held:
            yield from self._take_held()

    def _framed(self, block: bytes) -> Iterator[RawRows]:
        """The rows of a block in which records may stretch over lines."""
        if not self._held and not block.strip(_BLANK):
            self._end(block, 0)
            return
        self._tries, self._recoveries = _TRIES, SHOWN
        framed = frame(block, self._depth)
        if self._held:
            self._held.append(block[: framed.head])
            size = sum(map(len, self._held))
            ended = framed.head < len(block) or framed.depth == 0
            if ended or size > MAX_RECORD_BYTES:
                yield from self._take_held()
            if not ended:
                self._depth = framed.depth if self._held else 0
                self._end(block, 0)
                return
        self._depth = framed.depth
        self._begin(framed.records)
        yield from self._part(framed.records, 0, len(framed.records))
        if framed.rest < len(block):
            self._held = [block[framed.rest :]]
            self._held_line = self.line + block.count(b"\n", 0, framed.rest)
        self._end(block, len(framed.records))

    def _take_held(self) -> Iterator[RawRows]:
        """The record that is held, however it ends."""
        record, self._held, self._depth = b"".join(self._held), [], 0
        self._name_places(np.array([self._held_line]))
        self._recoveries = SHOWN
        self._check_structure(record, self._held_line)
        self._take(record, self._held_line)
        self.records += 1
        yield from self._envelopes.rows()

    def _begin(self, records: Records) -> None:
        sizes = np.diff(records.offsets)
        for record in np.flatnonzero(sizes > MAX_STRUCTURAL).tolist():
            self._check_structure(records.bytes_of(record), self.line + int(records.lines[record]))
        self._name_places(self.line + records.lines)

    def _name_places(self, starts: Numbers) -> None:
        lenient = self.problems.coerced is not None
        self._places = _Places(self.prefix, self.first, starts, self.records, lenient)
        self._places.uncertain = self._envelopes.several
        self._envelopes.place = self._places

    def _check_structure(self, record: bytes, line: int) -> None:
        if len(record) > MAX_RECORD_BYTES and b"\n{" not in record:
            raise self._too_long(line, len(record))
        count = structural_count(record) if len(record) > MAX_STRUCTURAL else 0
        if count > MAX_STRUCTURAL and b"\n{" not in record:
            place = f"{self.prefix}line {line}"
            raise ResourceLimitError("graph_batch_json_structural_slots", MAX_STRUCTURAL, count, place=place)

    def _end(self, block: bytes, records: int) -> None:
        self.line += block.count(b"\n") + (not block.endswith(b"\n") and bool(block))
        self.records += records

    def _too_long(self, line: int, size: int) -> ResourceLimitError:
        return ResourceLimitError(
            "graph_batch_line_bytes",
            MAX_RECORD_BYTES,
            size,
            place=f"{self.prefix}line {line}",
            hint="nothing was written; does every record end, and is there a line break behind it?",
        )

    # ---- record by record

    def _part(self, records: Records, low: int, high: int) -> Iterator[RawRows]:
        """Some records in their order: together if that works, otherwise in two parts, or one by one."""
        few = high - low <= _FEW or self._tries <= 0
        rows = None if few else self._fast(records, low, high)
        if rows is not None:
            yield from rows
        elif few:
            for record in range(low, high):
                self._take(records.bytes_of(record), self.line + int(records.lines[record]))
            yield from self._envelopes.rows()
        else:
            self._tries -= 1
            middle = (low + high) // 2
            yield from self._part(records, low, middle)
            yield from self._part(records, middle, high)

    def _take(self, record: bytes, line: int) -> None:
        """One record. If it is broken it may have swallowed the ones behind it: they begin with a brace on a line."""
        position = self.first + line - 1
        again = record.find(b"\n{") + 1
        try:
            read = self._envelopes.take_json(record.decode(), position)
            self._places.uncertain |= self._envelopes.several
            if read:
                return
        except UnicodeDecodeError as error:
            at = position + record.count(b"\n", 0, error.start)
            self._envelopes.refuse(at, "the text is not UTF-8")
        self._recoveries -= 1
        if not again or self._recoveries <= 0:
            return
        self._places.uncertain = True
        behind, first_line = record[again:], line + record.count(b"\n", 0, again)
        framed = frame(behind)
        for i in range(len(framed.records)):
            self._take(framed.records.bytes_of(i), first_line + int(framed.records.lines[i]))
        if framed.rest < len(behind):
            self._take(behind[framed.rest :], first_line + behind.count(b"\n", 0, framed.rest))

    # ---- all of a type at once

    def _fast(self, records: Records, low: int, high: int) -> list[RawRows] | None:
        """Some records, type by type; None when something in them needs a closer look."""
        texts = records.texts(low, high)
        if high == low:
            return []
        try:
            texts.cast(pa.large_utf8())
        except pa.ArrowInvalid:
            return None
        sorted_out = self._types_of(texts)
        if sorted_out is None:
            return None
        types, codes = sorted_out
        positions = self.first - 1 + self.line + records.lines[low:high]
        out: list[RawRows] = []
        for code, (word, declared) in types.items():
            mask = codes == code
            mine = texts if mask.all() else texts.filter(pa.array(mask))
            parsed = self._parse(mine, word, declared)
            if parsed is None:
                return None
            columns, absent = parsed
            kind = TypeKind.NODE if word == "type" else TypeKind.EDGE
            out.append(RawRows(kind, declared.name, columns, absent, Origin(positions[mask], self._places)))
        return out

    def _types_of(
        self, texts: pa.Array
    ) -> tuple[dict[int, tuple[str, NodeType | EdgeType]], np.ndarray[tuple[int], np.dtype[np.int32]]] | None:
        """The types of records by the way they begin, in the order in which they appear, and which each has."""
        codes = np.full(len(texts), -1, np.int32)
        numbers: dict[tuple[str, str], int] = {}
        for head in list(self._heads):
            self._mark(texts, head, codes, numbers)
        while len(unknown := np.flatnonzero(codes < 0)):
            match = _HEAD.match(texts[int(unknown[0])].as_py())
            if match is None or len(self._heads) >= _MAX_HEADS:
                return None
            word, name = match[1].decode(), match[2].decode()
            catalog = self.accepted.catalog
            declared = catalog.nodes.get(name) if word == "type" else catalog.edge_by_word(name)
            if declared is None:
                return None
            self._heads[match[0]] = (word, declared)
            self._mark(texts, match[0], codes, numbers)
        by_number = {number: pair for pair, number in numbers.items()}
        known = {(word, declared.name): (word, declared) for word, declared in self._heads.values()}
        order = codes[np.sort(np.unique(codes, return_index=True)[1])]
        return {code: known[by_number[code]] for code in order.tolist()}, codes

    def _mark(
        self,
        texts: pa.Array,
        head: bytes,
        codes: np.ndarray[tuple[int], np.dtype[np.int32]],
        numbers: dict[tuple[str, str], int],
    ) -> None:
        word, declared = self._heads[head]
        code = numbers.setdefault((word, declared.name), len(numbers))
        codes[pc.starts_with(texts, head).to_numpy(zero_copy_only=False)] = code

    def _parse(
        self, texts: pa.Array, word: str, declared: NodeType | EdgeType
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]] | None:
        """The columns of records that all hold one type, or None when the strict reader finds anything wrong."""
        offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
        text = texts.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        key = f"{word}:{declared.name}"
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
    """Whether all numbers are JSON: Arrow also reads NaN and Infinity."""
    if pa.types.is_list(values.type):
        values = values.flatten()
    return not pa.types.is_floating(values.type) or pc.all(pc.is_finite(values)).as_py() is not False


def _absent(texts: pa.Array, name: str, values: pa.Array) -> pa.Array | None:
    """Which records have no such member, as against those with a written null. None if that is hard to tell."""
    missing = values.is_null()
    if values.null_count == 0:
        return missing
    lines = texts.filter(missing).cast(pa.large_utf8())
    if pc.any(pc.match_substring(lines, "\\u")).as_py():
        return None  # only so can a name be spelled in another way
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

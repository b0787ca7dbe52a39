"""Computes the vectors of a file of records, without a graph: JSONL in, JSONL with vectors out.

Lines that get no vector, such as edges, are copied byte for byte. In the others, only the vector changes.
"""

# See docs/decisions/0365-records-are-edited-in-place.md

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import IO, Any, NamedTuple

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.embed.cache import PORTION, Tally, embed_texts
from omnigraph.embed.embedder import Embedder, Purpose
from omnigraph.embed.record_spec import RecordSpec, RecordType, Selector
from omnigraph.errors import EmbeddingError, EmbeddingModelError, InputError, cut
from omnigraph.lang.names import did_you_mean

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Maximum length of a line. It bounds the memory for a line that never ends."""
_PART_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Mode(StrEnum):
    """Which vectors are computed."""

    FILL_MISSING = "fill_missing"
    """Those that are missing."""
    REEMBED_SELECTED = "reembed_selected"
    """Those of the records that selectors select."""
    REEMBED_ALL = "reembed_all"
    """All."""
    CLEAN = "clean"
    """None. Vectors are removed."""


@dataclass(frozen=True, slots=True)
class RecordWork:
    """The vectors to compute in a file.

    Attributes:
        spec: the types and their texts.
        mode: which vectors to compute.
        types: only records of these types; empty for all.
        selectors: only records that one of these selects; empty for all.
    """

    spec: RecordSpec
    mode: Mode
    types: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    def __post_init__(self) -> None:
        named = [*self.types, *(one.type_name for one in self.selectors if one.type_name is not None)]
        for name in named:
            if name not in self.spec.types:
                known = ", ".join(self.spec.types)
                hint = did_you_mean(name, self.spec.types) or f"the types are {known}"
                raise InputError(f"the spec has no type '{cut(name)}'", hint=hint)

    def selects(self, type_name: str, data: Mapping[str, Any]) -> bool:
        """Whether a record is selected."""
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(one.matches(type_name, data) for one in self.selectors)


@dataclass(slots=True)
class RecordCounts:
    """The result.

    Attributes:
        records: records of the file.
        selected: records that the types and the selectors select.
        embedded: records that got a vector.
        cleaned: records that lost their vector.
        misfits: records whose vector was kept, although it has another dimension than the spec.
    """

    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0
    misfits: int = 0


@dataclass(slots=True)
class _Line:
    """A line of the file.

    Attributes:
        data: the line, with its line break.
        number: its number.
        target: the property whose value changes; None to copy the line.
        text: the text of the new vector; None to remove the vector.
    """

    data: bytes
    number: int
    target: str | None = None
    text: str | None = None


def embed_records(
    source: IO[bytes],
    name: str,
    write: Callable[[bytes], object],
    work: RecordWork,
    embedder: Embedder | None,
    progress: Callable[[RecordCounts, Tally], None] | None = None,
) -> RecordCounts:
    """Copy records, and compute vectors on the way.

    Args:
        source: the records, one JSON object per line.
        name: the name of the file, for error messages.
        write: takes the lines of the result.
        work: the vectors to compute.
        embedder: computes them; None if the mode is `CLEAN`.
        progress: is called after each part of the file.

    Raises:
        InputError: a line is not a record.
        EmbeddingModelError: the spec names another model.
        EmbeddingError: vectors cannot be computed.
    """
    if embedder is not None and work.spec.model not in (None, embedder.name):
        raise EmbeddingModelError(
            f"the spec names the model '{work.spec.model}', but '{embedder.name}' is configured",
            hint="configure the model of the spec (OMNIGRAPH_EMBED_PROVIDER, OMNIGRAPH_EMBED_MODEL)",
        )
    counts, tally = RecordCounts(), Tally()
    for part in _parts(source, name):
        for line in part:
            _decide(line, name, work, counts)
        for data in _changed(part, name, work.spec.dimension, embedder, tally):
            write(data)
        if progress is not None:
            progress(counts, tally)
    return counts


def _parts(source: IO[bytes], name: str) -> Iterator[list[_Line]]:
    """The lines of a file, in parts of limited size."""
    part: list[_Line] = []
    size = number = 0
    while data := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(data) > MAX_LINE_BYTES:
            raise InputError(f"{name}, line {number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB")
        part.append(_Line(data.removeprefix(_BOM) if number == 1 else data, number))
        size += len(data)
        if len(part) == PORTION or size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _decide(line: _Line, name: str, work: RecordWork, counts: RecordCounts) -> None:
    """Decide how a line changes."""
    if not line.data.strip():
        return
    try:
        record = orjson.loads(line.data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{name}, line {line.number}: not JSON: {error.msg}") from None
    if not isinstance(record, dict):
        raise InputError(f"{name}, line {line.number}: expected a JSON object", hint="one record per line")
    counts.records += 1
    type_name, data = record.get("type"), record.get("data")
    if not isinstance(type_name, str) or "edge" in record:
        return
    known = work.spec.types.get(type_name)
    if not isinstance(data, dict):
        if known is None:
            return
        raise InputError(f"{name}, line {line.number}: 'data' is not an object", hint='{"type": …, "data": {…}}')
    if not work.selects(type_name, data):
        return
    counts.selected += 1
    if known is not None:
        _decide_vector(line, type_name, data, known, work, counts)


def _decide_vector(
    line: _Line, type_name: str, data: Mapping[str, Any], known: RecordType, work: RecordWork, counts: RecordCounts
) -> None:
    before = data.get(known.target)
    if work.mode is Mode.CLEAN:
        if known.target in data:
            line.target = known.target
            counts.cleaned += 1
    elif work.mode is not Mode.FILL_MISSING or before in (None, []):
        line.target, line.text = known.target, known.text(type_name, data)
        counts.embedded += 1
    elif isinstance(before, list) and len(before) != work.spec.dimension:
        counts.misfits += 1


def _changed(
    part: Sequence[_Line], name: str, dimension: int, embedder: Embedder | None, tally: Tally
) -> Iterator[bytes]:
    """The lines of a part, with their new vectors."""
    texts = list(dict.fromkeys(line.text for line in part if line.text is not None))
    vectors: dict[str, str] = {}
    if texts:
        assert embedder is not None, "only the mode CLEAN works without an embedder"
        try:
            rows = embed_texts(embedder, texts, dimension, Purpose.DOCUMENT, tally)
        except EmbeddingError:
            raise
        except Exception as error:
            raise EmbeddingError(f"the embedder '{embedder.name}' failed: {type(error).__name__}: {error}") from error
        vectors = {
            text: orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY).decode()
            for text, row in zip(texts, rows, strict=True)
        }
    for line in part:
        if line.target is None:
            yield line.data if line.data.endswith(b"\n") else line.data + b"\n"
            continue
        try:
            changed = _with_vector(line.data.decode(), line.target, vectors[line.text] if line.text else None)
        except _DuplicateMemberError as error:
            raise InputError(f"{name}, line {line.number}: member '{cut(str(error))}' is given twice") from None
        except RecursionError:
            raise InputError(f"{name}, line {line.number}: the JSON is nested too deeply") from None
        yield changed.encode() if changed.endswith("\n") else changed.encode() + b"\n"


# Editing of JSON text


class _Member(NamedTuple):
    """A member of an object in a JSON text: where its name and its value begin, and where the value ends."""

    name: str
    begin: int
    value: int
    end: int


class _DuplicateMemberError(Exception):
    """A member of an object is given twice."""


def _with_vector(line: str, target: str, vector: str | None) -> str:
    """Set or remove a member of `data` in the text of a record.

    Example:
        >>> _with_vector('{"type": "A", "data": {"x": 1.50, "v": []}}', "v", "[0.5]")
        '{"type": "A", "data": {"x": 1.50, "v": [0.5]}}'
        >>> _with_vector('{"type": "A", "data": {"v": [], "x": 1.50}}', "v", None)
        '{"type": "A", "data": {"x": 1.50}}'
    """
    top, _ = _members(line, line.index("{"))
    data = _find(top, "data")
    assert data is not None, "the record was parsed before"
    members, close = _members(line, data.value)
    found = _find(members, target)
    if vector is None:
        return line if found is None else _without(line, members, found)
    if found is not None:
        return line[: found.value] + vector + line[found.end :]
    at = members[-1].end if members else close
    return f"{line[:at]}{', ' if members else ''}{json.dumps(target)}: {vector}{line[at:]}"


def _without(line: str, members: Sequence[_Member], found: _Member) -> str:
    at = members.index(found)
    if at:
        return line[: members[at - 1].end] + line[found.end :]
    return line[: found.begin] + line[members[1].begin if len(members) > 1 else found.end :]


def _find(members: Sequence[_Member], name: str) -> _Member | None:
    found = [member for member in members if member.name == name]
    if len(found) > 1:
        raise _DuplicateMemberError(name)
    return found[0] if found else None


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """The members of the object that begins at a position of a valid JSON text, and the position of its end."""
    members: list[_Member] = []
    at = _after_space(text, at + 1)
    while text[at] != "}":
        begin = at
        name, at = _DECODER.raw_decode(text, at)
        value = _after_space(text, _after_space(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(name, begin, value, end))
        at = _after_space(text, end)
        if text[at] == ",":
            at = _after_space(text, at + 1)
    return members, at


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "the pattern matches the empty text"
    return found.end()

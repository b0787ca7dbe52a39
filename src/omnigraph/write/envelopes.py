"""Envelopes read value by value: slower than a block at a time, and able to say exactly what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from omnigraph.errors import Problem
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.problems import Problems

MAX_VALUE_BYTES = 64 * 1024 * 1024
"""Longest JSON value that is read. It bounds what one broken line can cost."""

Found = tuple[TypeKind, str, dict[str, pa.Array], dict[str, pa.Array], list[int]]
"""Kind and name of a type, its columns, the rows without a member where that matters, and the lines of the rows."""


def nullable_defaults(declared: NodeType | EdgeType) -> list[str]:
    """The properties for which a missing member and a written null differ."""
    return [p.name for p in declared.properties.values() if p.default is not None and p.type.nullable]


class _RefusedError(Exception):
    """Why one envelope cannot be read, and which property it is about."""

    def __init__(self, subject: str, message: str) -> None:
        super().__init__(message)
        self.subject = subject
        self.message = message


class EnvelopeReader:
    """Reads JSON values one after another; an object may stretch over several lines.

    Args:
        accepted: the schema in force.
        problems: collects what cannot be read.
        prefix: what stands before `line N` in a place.
    """

    def __init__(self, accepted: AcceptedSchema, problems: Problems, prefix: str) -> None:
        self.catalog = accepted.catalog
        self.problems = problems
        self.prefix = prefix
        self._held = ""
        self._held_line = 0
        self._decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)

    @property
    def within_value(self) -> bool:
        """Whether a value that began earlier is not complete yet."""
        return bool(self._held)

    def read(self, block: bytes, line: int) -> list[Found]:
        """The rows of a block that begins at a line."""
        rows = _Rows()
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            at = line + block.count(b"\n", 0, error.start)
            self._problem(at, "input", "is not UTF-8")
            text = block.decode(errors="replace")
        for number, part in enumerate(text.splitlines(keepends=True), line):
            self._line(part, number, rows)
        return rows.tables()

    def finish(self) -> list[Found]:
        """The end of the input: a value that is still open never ends."""
        if self._held.strip():
            self._problem(self._held_line, "input", "the JSON value that begins here has no end")
        self._held = ""
        return []

    def _line(self, part: str, number: int, rows: _Rows) -> None:
        if not self._held:
            self._held_line = number
        text = self._held + part
        self._held = ""
        position = 0
        while True:
            while position < len(text) and text[position] in " \t\r\n":
                position += 1
            if position == len(text):
                return
            try:
                value, position = self._decoder.raw_decode(text, position)
            except json.JSONDecodeError as error:
                if _incomplete(error, text) and len(text) < MAX_VALUE_BYTES:
                    self._held = text[position:]
                    return
                self._problem(self._held_line, "input", f"not JSON: {error.msg}")
                return
            except _RefusedError as error:
                self._problem(self._held_line, error.subject, error.message)
                return
            self._envelope(value, self._held_line, rows)
            self._held_line = number

    def _problem(self, line: int, subject: str, message: str) -> None:
        self.problems.add(Problem(line, f"{self.prefix}line {line}", subject, message))

    def _envelope(self, value: Any, line: int, rows: _Rows) -> None:
        try:
            kind, declared, data = self._shape(value)
            rows.add(kind, declared, _typed(declared, data), line)
        except _RefusedError as error:
            self._problem(line, error.subject, error.message)

    def _shape(self, value: Any) -> tuple[TypeKind, NodeType | EdgeType, dict[str, Any]]:
        """The envelope's type and members, with the ends of an edge among them."""
        if not isinstance(value, dict):
            raise _RefusedError("input", "expected an object with 'type' or 'edge'")
        word = "edge" if "edge" in value else "type"
        allowed = {"type", "data"} if word == "type" else {"edge", "from", "to", "data"}
        for name in value:
            if name not in allowed:
                raise _RefusedError("input", f"unknown member '{name}' of the envelope")
        if not isinstance(value.get(word), str):
            raise _RefusedError("input", "expected a 'type' or an 'edge', as a text")
        declared = self._declared(word, value[word])
        data = value.get("data", {})
        if not isinstance(data, dict):
            raise _RefusedError(declared.name, "'data' is not an object")
        if word == "type":
            return TypeKind.NODE, declared, data
        for end in ("from", "to", "src", "dst"):
            if end in data:
                raise _RefusedError(
                    f"{declared.name}.{end}", "the ends of an edge stand beside 'data', as 'from' and 'to'"
                )
        return TypeKind.EDGE, declared, data | {e: value[e] for e in ("from", "to") if e in value}

    def _declared(self, word: str, name: str) -> NodeType | EdgeType:
        found: NodeType | EdgeType | None
        found = self.catalog.nodes.get(name) if word == "type" else self.catalog.edge_by_word(name)
        if found is None:
            known = self.catalog.nodes if word == "type" else self.catalog.edges
            hint = did_you_mean(name, known)
            what = "node" if word == "type" else "edge"
            raise _RefusedError("input", f"there is no {what} type '{name}'" + (f"; {hint}" if hint else ""))
        return found


def _incomplete(error: json.JSONDecodeError, text: str) -> bool:
    """Whether more text could make a value of this."""
    return error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError("input", f"member '{twice}' is given twice")
    return members


def _constant(text: str) -> Any:
    raise _RefusedError("input", f"{text} is not JSON")


class _Rows:
    """Rows by type, in the order in which types first appear."""

    def __init__(self) -> None:
        self._found: dict[tuple[TypeKind, str], tuple[NodeType | EdgeType, list[dict[str, Any]], list[int]]] = {}

    def add(self, kind: TypeKind, declared: NodeType | EdgeType, data: dict[str, Any], line: int) -> None:
        _, rows, lines = self._found.setdefault((kind, declared.name), (declared, [], []))
        rows.append(data)
        lines.append(line)

    def tables(self) -> list[Found]:
        return [
            (kind, name, _columns(declared, rows), _absent(declared, rows), lines)
            for (kind, name), (declared, rows, lines) in self._found.items()
        ]


def _columns(declared: NodeType | EdgeType, rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    """Columns of values that all fit their property's JSON type already."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        kind = declared.properties[name].type if name in declared.properties else ValueType(Scalar.STRING)
        columns[name] = pa.array([row.get(name) for row in rows], _arrow_of(kind))
    return columns


def _absent(declared: NodeType | EdgeType, rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([name not in row for row in rows]) for name in nullable_defaults(declared)}


_ARROW = {
    Scalar.STRING: pa.utf8(),
    Scalar.BLOB: pa.utf8(),
    Scalar.BOOL: pa.bool_(),
    Scalar.DATE: pa.utf8(),
    Scalar.DATETIME: pa.utf8(),
    Scalar.F32: pa.float64(),
    Scalar.F64: pa.float64(),
    Scalar.VECTOR: pa.list_(pa.float64()),
}


def _arrow_of(kind: ValueType) -> pa.DataType:
    item = pa.int64() if kind.scalar.is_integer else _ARROW[kind.scalar]
    if kind.scalar is Scalar.U64:
        item = pa.uint64()
    return pa.list_(item) if kind.list else item


def _typed(declared: NodeType | EdgeType, data: dict[str, Any]) -> dict[str, Any]:
    """The members of an envelope, each of the JSON type that its property takes."""
    out: dict[str, Any] = {}
    for name, value in data.items():
        if name in ("id", "from", "to") and name not in declared.properties:
            kind = ValueType(Scalar.STRING)
        elif name in declared.properties:
            kind = declared.properties[name].type
        else:
            hint = did_you_mean(name, declared.properties)
            raise _RefusedError(f"{declared.name}.{name}", "there is no such property" + (f"; {hint}" if hint else ""))
        out[name] = None if value is None else _value(f"{declared.name}.{name}", value, kind)
    return out


def _value(subject: str, value: Any, kind: ValueType) -> Any:
    if kind.list or kind.is_vector:
        if not isinstance(value, list):
            raise _RefusedError(subject, f"expected a list, found {_called(value)}")
        item = ValueType(Scalar.F64) if kind.is_vector else kind.item
        if any(entry is None for entry in value):
            raise _RefusedError(subject, "an item of the list: null is not allowed")
        return [_value(subject, entry, item) for entry in value]
    return _scalar(subject, value, kind.scalar)


def _scalar(subject: str, value: Any, scalar: Scalar) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar in (Scalar.DATE, Scalar.DATETIME):
        if isinstance(value, str):
            return value
        if number and isinstance(value, int):
            return _time_text(subject, value, scalar)
        raise _RefusedError(subject, f"expected a {scalar.value} as text or a whole number, found {_called(value)}")
    if scalar.is_integer:
        if not number or isinstance(value, float):
            raise _RefusedError(subject, f"expected a whole number, found {_called(value)}")
        low, high = (0, 2**64 - 1) if scalar is Scalar.U64 else (-(2**63), 2**63 - 1)
        if not low <= value <= high:
            raise _RefusedError(subject, f"out of range for {scalar.value}")
        return value
    if scalar.is_float:
        if not number:
            raise _RefusedError(subject, f"expected a number, found {_called(value)}")
        try:
            return float(value)
        except OverflowError:
            raise _RefusedError(subject, "the number is not finite, or too large") from None
    wanted = bool if scalar is Scalar.BOOL else str
    if not isinstance(value, wanted):
        what = "true or false" if scalar is Scalar.BOOL else "a text"
        raise _RefusedError(subject, f"expected {what}, found {_called(value)}")
    return value


def _time_text(subject: str, value: int, scalar: Scalar) -> str:
    """A date given as a number, in the text form that the column shares."""
    try:
        return format_date(value) if scalar is Scalar.DATE else format_datetime(value)
    except (OverflowError, ValueError):
        raise _RefusedError(subject, f"{value} is not a {scalar.value} between the years 1 and 9999") from None


def _called(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return {str: "a text", list: "a list", dict: "an object", type(None): "null"}.get(type(value), str(type(value)))

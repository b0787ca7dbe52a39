"""Reads envelopes (input records) one by one: slower than the reader of whole blocks, but with exact error messages.

An envelope is `{"type": …, "data": {…}}` or `{"edge": …, "from": …, "to": …, "data": {…}}`, as JSON text or as a Python
mapping. The strict reader refuses unknown members and wrong types. The lenient reader ignores or converts them, and
counts how often.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import Problem, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.owner import ROW_COLUMNS
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.rows.problems import Leniency, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import (
    NO_ID,
    Fault,
    JsonNumber,
    column,
    json_integer,
    type_label,
    without_gaps,
    without_ids,
)

Place = Callable[[int], str]
"""Returns a text with the location of a record, such as its line, from its position in the input."""

RESERVED = ROW_COLUMNS | {"_tombstone"}

_ID = ValueType(Scalar.STRING, nullable=True)
_END = ValueType(Scalar.STRING)
_NO_TYPE = """expected a 'type' or an 'edge', as a text: {"type": "Person", "data": {"name": "ann"}}"""
_ENDS_OUTSIDE_DATA = "'from' and 'to' of an edge belong next to 'data', not inside it"


def nullable_defaults(declared: NodeType | EdgeType) -> list[str]:
    """The nullable properties with a default or a computed value, which replaces a missing member, but not a null."""
    filled = (p for p in declared.properties.values() if p.default is not None or p.embed is not None)
    return [p.name for p in filled if p.type.nullable]


class _RefusedError(Exception):
    """The reason why an input record (`{"type": …, "data": …}`) is refused, and the property with the error."""

    def __init__(self, message: str, subject: str = "input") -> None:
        super().__init__(message)
        self.subject = subject
        self.message = message


class EnvelopeReader:
    """Collects envelopes, and returns their rows by type.

    Args:
        accepted: the accepted schema.
        problems: collects records that cannot be read. If `problems.coerced` is set, the reader is lenient.
        place: returns a text with the location of a record, from its position in the input.

    Attributes:
        several: whether some line had more than one record.
    """

    def __init__(self, accepted: AcceptedSchema, problems: Problems, place: Place) -> None:
        self.catalog = accepted.catalog
        self.problems = problems
        self.place = place
        self.several = False
        self._duplicate_members: list[str] = []
        self._types: dict[tuple[TypeKind, str], _TypeRows] = {}
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=_constant, parse_float=JsonNumber, parse_int=json_integer
        )

    def take_json(self, text: str, position: int) -> bool:
        """Read the text of a record: one JSON value, or any number of JSON values if the reader is lenient.

        Returns:
            Whether it was valid JSON.
        """
        at = len(text) - len(text.lstrip(" \t\r\n"))
        end = len(text.rstrip(" \t\r\n"))
        while at < end:
            self._duplicate_members.clear()
            try:
                value, at = self._decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                ended = error.pos >= end or (error.msg.startswith("Unterminated") and "\n" not in text[error.pos : end])
                self.refuse(
                    position, "the JSON value that begins here has no end" if ended else f"not JSON: {error.msg}"
                )
                return False
            except RecursionError:
                self.refuse(position, "the JSON value cannot be read: it is nested too deeply")
                return False
            except _RefusedError as error:
                self.refuse(position, error.message)
                return True
            while at < end and text[at] in " \t\r\n":
                at += 1
            self.several = self.several or at < end
            if at < end and self.problems.coerced is None:
                self.refuse(position, "not JSON: the line contains more text after the record")
                return False
            self.take(value, position)
        return True

    def take(self, value: object, position: int) -> None:
        """Read one envelope."""
        try:
            kind, declared, data = self._shape(value, position)
        except _RefusedError as error:
            self.refuse(position, error.message, error.subject)
            return
        for name in self._duplicate_members:
            self._coerced(Leniency.DUPLICATE_MEMBER, f"{declared.name}.{cut(name)}", position)
        self.take_row(kind, declared, data, position)

    def take_row(self, kind: TypeKind, declared: NodeType | EdgeType, row: Mapping[str, Any], position: int) -> None:
        """Read one row of a known type. The endpoints of an edge are the members `from` and `to` of the row."""
        rows = self._types.get((kind, declared.name))
        if rows is None:
            rows = self._types[kind, declared.name] = _TypeRows(self, kind, declared)
        rows.add(row, position)

    def rows(self) -> Iterator[RawRows]:
        """The rows that were read since the last call, by type."""
        taken = list(self._types.values())
        self._types.clear()
        for rows in taken:
            yield rows.table()

    def refuse(self, position: int, message: str, subject: str = "input") -> None:
        """Report a problem of a record."""
        self.problems.add(Problem(position, self.place(position), subject, message))

    def _coerced(self, kind: Leniency, subject: str, position: int, what: str = "") -> None:
        assert self.problems.coerced is not None
        self.problems.coerced.add(kind, subject, self.place(position), found=what)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            duplicate = next(name for name, count in counts.items() if count > 1)
            if self.problems.coerced is None:
                raise _RefusedError(f"member '{cut(duplicate)}' is given twice")
            self._duplicate_members.append(duplicate)
        return members

    def _shape(self, value: object, position: int) -> tuple[TypeKind, NodeType | EdgeType, Mapping[str, Any]]:
        """The type of an envelope, and its properties, including the endpoints of an edge."""
        if not isinstance(value, Mapping):
            raise _RefusedError(f"expected an object with 'type' or 'edge', found {type_label(value)}")
        lenient = self.problems.coerced is not None
        word = "type" if "edge" not in value or (lenient and "type" in value) else "edge"
        if not isinstance(value.get(word), str):
            raise _RefusedError(_NO_TYPE)
        declared = self._declared(word, value[word], position)
        members = ("type", "data") if word == "type" else ("edge", "from", "to", "data")
        for name in value:
            if name not in members:
                if not lenient:
                    remedy = "; put it inside 'data'" if name == "id" or name in declared.properties else ""
                    raise _RefusedError(f"unknown member '{cut(str(name))}' of the envelope{remedy}")
                self._coerced(Leniency.IGNORED_MEMBER, f"{declared.name} envelope.{cut(str(name))}", position)
        data = value.get("data", {})
        if lenient and data is None:
            self._coerced(Leniency.NULLED_VALUE, f"{declared.name} envelope.data", position, "null")
            data = {}
        if not isinstance(data, Mapping):
            raise _RefusedError("'data' is not an object", declared.name)
        if word == "type":
            return TypeKind.NODE, declared, data
        inside = [end for end in ("from", "to", "src", "dst") if end in data]
        if inside:
            if not lenient:
                raise _RefusedError(_ENDS_OUTSIDE_DATA, f"{declared.name}.{inside[0]}")
            for end in inside:
                self._coerced(Leniency.IGNORED_PROPERTY, f"{declared.name}.{end}", position)
            data = {name: value for name, value in data.items() if name not in inside}
        return TypeKind.EDGE, declared, {**data, **{end: value[end] for end in ("from", "to") if end in value}}

    def _declared(self, word: str, name: str, position: int) -> NodeType | EdgeType:
        found: NodeType | EdgeType | None
        found = self.catalog.nodes.get(name) if word == "type" else self.catalog.edge_by_word(name)
        if found is None:
            known = self.catalog.nodes if word == "type" else self.catalog.edges
            hint = did_you_mean(name, known) if self.problems.keeps(position, "input") else None
            what = "node" if word == "type" else "edge"
            raise _RefusedError(f"there is no {what} type '{cut(name)}'" + (f"; {hint}" if hint else ""))
        return found


class _TypeRows:
    """Collected rows of one type."""

    def __init__(self, reader: EnvelopeReader, kind: TypeKind, declared: NodeType | EdgeType) -> None:
        self.reader = reader
        self.kind = kind
        self.declared = declared
        self.members = {"id": _ID} | {p.name: p.type for p in declared.properties.values()}
        if kind is TypeKind.EDGE:
            self.members |= {"from": _END, "to": _END}
        self.data: list[Mapping[str, Any]] = []
        self.positions: list[int] = []
        self.key = key_members(declared)
        self.refused: list[int] = []

    def add(self, data: Mapping[str, Any], position: int) -> None:
        if not data.keys() <= self.members.keys():
            for name in data:
                if name not in self.members:
                    self._unknown(name, position)
        self.data.append(data)
        self.positions.append(position)

    def _unknown(self, name: str, position: int) -> None:
        subject = f"{self.declared.name}.{cut(str(name))}"
        if self.reader.problems.coerced is not None:
            self.reader._coerced(Leniency.IGNORED_PROPERTY, subject, position)
            return
        known = self.members if self.reader.problems.keeps(position, subject) else {}
        self.reader.refuse(position, unknown_property(name, known), subject)

    def table(self) -> RawRows:
        """The collected rows, as columns."""
        columns = {
            name: self._column(name, kind)
            for name, kind in self.members.items()
            if any(name in data for data in self.data)
        }
        absent = {name: pa.array([name not in data for data in self.data]) for name in nullable_defaults(self.declared)}
        if "id" in columns:
            columns["id"] = without_ids(columns["id"], self.refused)
        origin = Origin(np.array(self.positions, np.int64), self.reader.place)
        return RawRows(self.kind, self.declared.name, columns, absent, origin)

    def _column(self, name: str, kind: ValueType) -> pa.Array:
        values = [data.get(name) for data in self.data]
        subject = f"{self.declared.name}.{name}"
        coerced = self.reader.problems.coerced
        refused: list[int] = []

        def refuse(row: int, message: str, fault: Fault) -> None:
            position = self.positions[row]
            if fault is Fault.ITEM:
                self.reader._coerced(Leniency.NULL_ITEM, subject, position, repr(values[row]))
            elif fault is Fault.TYPE and coerced is not None and kind.nullable:
                self.reader._coerced(Leniency.NULLED_VALUE, subject, position, repr(values[row]))
            else:
                is_end = fault is Fault.TYPE and self.kind is TypeKind.EDGE and name in ("from", "to")
                self.reader.refuse(position, message + NO_ID * is_end, subject)
                refused.append(row)

        converted = column(values, kind, refuse, null_items=coerced is not None)
        if name in self.key:
            self.refused += refused
        return without_gaps(converted, kind, refused)


def key_members(declared: NodeType | EdgeType) -> set[str]:
    """The key properties under their names in the input: `from` and `to` instead of `src` and `dst`."""
    written = {"src": "from", "dst": "to"}
    return {written.get(name, name) for name in declared.key or ()}


def unknown_property(name: object, known: Mapping[str, object]) -> str:
    """The message about a property that a type does not have. It suggests one of the known names, if there are any."""
    if name in RESERVED:
        return "the name is reserved"
    hint = did_you_mean(str(name), known)
    return "there is no such property" + (f"; {hint}" if hint else "")


def _constant(text: str) -> Any:
    raise _RefusedError(f"not JSON: {text} is not allowed as a number")

"""Reads the columns of a table by name: known columns become properties, unknown columns are reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.errors import Problem, cut
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.input.envelopes import key_members, unknown_property
from omnigraph.write.rows.convert import Report
from omnigraph.write.rows.problems import SHOWN, Leniency, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import Fault, with_null_items, without_gaps, without_ids


class Read(Protocol):
    """Converts a column to a type. Reports rows that do not fit."""

    def __call__(
        self, column: pa.Array, kind: ValueType, report: Report, /, *, null_items: bool = False
    ) -> pa.Array: ...


ID = ValueType(Scalar.STRING, nullable=True)
END = ValueType(Scalar.STRING)
Type = tuple[TypeKind, str]

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""Characters that separate columns in some CSV files. They cannot occur in the name of a property."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The dialect of a CSV file.

    Attributes:
        separator: the separator of cells; if None, it is found in the first rows of the file.
        quote: the quote character around cells that contain separators, quotes or line breaks; empty if there is none,
            and quotes are a part of the text.
        nulls: the texts that mean null. A quoted cell is never null.
        header: whether the first row contains the names of the columns.
        columns: the names of the columns. They replace those of the header; None takes them from the header, or
            counts them: `c1`, `c2`.
        skip: number of lines before the first row, such as comments.
    """

    separator: str | None = None
    quote: str = '"'
    nulls: tuple[str, ...] = ("", "null")
    header: bool = True
    columns: tuple[str, ...] | None = None
    skip: int = 0


class Layout(Protocol):
    """The types of the rows of a table, and how its columns become properties."""

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of the rows. A load in mode `overwrite` replaces all of them, even if the table is empty."""

    @property
    def csv(self) -> Dialect:
        """The dialect, if the table is a CSV file."""

    def columns(self, accepted: AcceptedSchema, problems: Problems) -> TableColumns:
        """The object that builds rows from the columns of the table."""


class TableColumns(Protocol):
    """Builds rows from the columns of one table."""

    @property
    def name(self) -> str:
        """The name of the rows in error messages about rows that cannot be split into cells."""

    def check_names(self, names: list[str], position: int, place: str) -> None:
        """Report unknown columns, once each."""

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> Iterator[RawRows]:
        """Build rows from columns."""


@dataclass(frozen=True, slots=True)
class OfType:
    """The layout of a table of one type whose columns have the names of the properties."""

    kind: TypeKind
    name: str

    @property
    def types(self) -> tuple[Type, ...]:
        return ((self.kind, self.name),)

    @property
    def csv(self) -> Dialect:
        return Dialect()

    def columns(self, accepted: AcceptedSchema, problems: Problems) -> Columns:
        return Columns(accepted, self.kind, self.name, problems)


def empty_rows(layout: Layout) -> Iterator[RawRows]:
    """One empty table per type of a layout. So a load in mode `overwrite` also empties the types that have no rows."""
    for kind, name in layout.types:
        yield RawRows(kind, name, {}, {}, Origin.consecutive(0))


class Columns:
    """Selects and converts the columns of one type.

    Args:
        accepted: the accepted schema.
        kind: node or edge.
        name: the type.
        problems: collects wrong values. If `problems.coerced` is set, wrong values of nullable properties become null.
    """

    def __init__(self, accepted: AcceptedSchema, kind: TypeKind, name: str, problems: Problems) -> None:
        declared: NodeType | EdgeType
        declared = accepted.catalog.declared(kind, name)
        self.kind = kind
        self.name = name
        self.problems = problems
        self.key = key_members(declared)
        self.members = {"id": ID} | {p.name: p.type for p in declared.properties.values()}
        if kind is TypeKind.EDGE:
            self.members |= {"from": END, "to": END}

    def check_names(self, names: Iterable[str], position: int, place: str) -> None:
        """Report the columns that the type does not have, once each."""
        for name in names:
            if name in self.members:
                continue
            subject = f"{self.name}.{cut(name)}"
            if self.problems.coerced is not None:
                self.problems.coerced.add(Leniency.IGNORED_PROPERTY, subject, place)
                continue
            message = unknown_property(name, self.members if self.problems.keeps(position, subject) else {})
            if separators := [each for each in _SEPARATORS if each in name]:
                marks = _SEPARATORS[separators[0]]
                message += f"; {marks} separate columns only if all rows have as many cells, or a mapping says so"
            if self.kind is TypeKind.EDGE and name in ("src", "dst"):
                message = "the columns for the ends of an edge are 'from' and 'to'"
            self.problems.add(Problem(position, place, subject, message))

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> Iterator[RawRows]:
        """The rows of the type. Columns that are not properties of the type are left out.

        Args:
            columns: the columns by name.
            origin: the location of each row.
            read: converts the columns; None leaves the conversion to the row builder.
        """
        yield RawRows(self.kind, self.name, self.converted(columns, origin, read), {}, origin)

    def converted(
        self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None
    ) -> dict[str, pa.Array]:
        """The columns that the type has, converted. `rows` describes the arguments."""
        known_columns = {name: values for name, values in columns.items() if name in self.members}
        if read is None:
            return known_columns
        without_key: list[int] = []
        for name, values in known_columns.items():
            kind = self.members[name]
            refused: list[int] = []
            report = self.report(name, kind, origin, values, refused)
            converted = read(values, kind, report, null_items=self.problems.coerced is not None)
            self._count_null_items(name, converted, origin, values)
            known_columns[name] = without_gaps(converted, kind, refused)
            if name in self.key:
                without_key += refused
        if "id" in known_columns:
            known_columns["id"] = without_ids(known_columns["id"], without_key)
        return known_columns

    def _count_null_items(self, name: str, converted: pa.Array, origin: Origin, values: pa.Array) -> None:
        """Count the null items of lists. In the input, such an item was null or had the wrong type."""
        if self.problems.coerced is None or len(rows := with_null_items(converted)) == 0:
            return
        row = int(rows[0])
        place, found = origin.place(int(origin.records[row])), repr(values[row].as_py())
        subject = origin.subject(self.name, name)
        self.problems.coerced.add(Leniency.NULL_ITEM, subject, place, len(rows), found=found)

    def report(self, name: str, kind: ValueType, origin: Origin, values: pa.Array, refused: list[int]) -> Report:
        """A function that reports rows to `problems` and adds them to `refused`."""
        subject = origin.subject(self.name, name)
        coerced = self.problems.coerced if kind.nullable else None

        def report(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
            rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if len(rows) == 0:
                return
            places = origin.records[rows[:SHOWN]].tolist()
            if coerced is not None and fault is Fault.TYPE:
                found = repr(values[int(rows[0])].as_py())
                coerced.add(Leniency.NULLED_VALUE, subject, origin.place(places[0]), len(rows), found=found)
                return
            refused.extend(rows.tolist())
            self.problems.add_all([Problem(p, origin.place(p), subject, message) for p in places], len(rows))

        return report

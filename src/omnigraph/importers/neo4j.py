"""Imports CSV files with headers for `neo4j-admin database import`: `:ID`, `:LABEL`, `:START_ID`, `:END_ID`, `:TYPE`.

The types of columns are in the header, as in `age:int` and `tags:string[]`. Files that `apoc.export.csv` writes, with
`_id`, `_labels`, `_start`, `_end` and `_type`, are read, too.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, Problem, cut
from omnigraph.importers.staged_types import StagedType, StagedTypes
from omnigraph.inference.names import property_name, table_words, tokens, type_name, unique_name
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.input.csv_rows import read_cells, sniff_separator
from omnigraph.write.input.formats import RowFile
from omnigraph.write.input.named_columns import Dialect, Read
from omnigraph.write.input.parse_text import from_text
from omnigraph.write.rows.convert import Report, convert
from omnigraph.write.rows.problems import SHOWN, Problems
from omnigraph.write.rows.raw_rows import Origin
from omnigraph.write.rows.values import Fault

_FIELD = re.compile(r"(?P<name>.*?)(?::(?P<type>[A-Za-z_]+)(?P<list>\[\])?(?:\((?P<group>[^)]*)\))?(?:\{[^}]*\})?)?")
_SCALARS = {
    "int": Scalar.I64,
    "long": Scalar.I64,
    "short": Scalar.I64,
    "byte": Scalar.I64,
    "float": Scalar.F64,
    "double": Scalar.F64,
    "boolean": Scalar.BOOL,
    "date": Scalar.DATE,
    "datetime": Scalar.DATETIME,
    "localdatetime": Scalar.DATETIME,
}
_TEXTS = ("string", "char", "time", "localtime", "duration", "point", "byte_array")
_ROLES = {"ID", "LABEL", "START_ID", "END_ID", "TYPE", "IGNORE"}
_APOC = {"_id": ":ID", "_labels": ":LABEL", "_start": ":START_ID", "_end": ":END_ID", "_type": ":TYPE"}
_HEADER_NAME = re.compile(r"[-_. ]*headers?$", re.IGNORECASE)
_ZONE_NAME = r"\[[^\]]*\]$"
_LABELS = "labels"


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a file.

    Attributes:
        name: the property; empty for a column without a property.
        role: `ID`, `LABEL`, `START_ID`, `END_ID`, `TYPE` or `IGNORE`; None for a property.
        type: the type of its values.
        group: the group of an id.
    """

    name: str
    role: str | None
    type: ValueType
    group: str = ""


@dataclass(slots=True)
class Table:
    """A file, or several with the same header.

    Attributes:
        header: the columns.
        files: the files, and whether the header is their first row.
    """

    header: list[Field]
    separator: str
    files: list[tuple[RowFile, bool]]

    def role(self, role: str) -> int | None:
        """The position of the column with a role."""
        return next((i for i, each in enumerate(self.header) if each.role == role), None)


@dataclass(slots=True)
class _Group:
    """The nodes of an id group.

    Attributes:
        types: the names of their types.
        ids: the ids, only if there are several types.
        codes: for each of them, the position of its type in `types`.
    """

    types: list[str] = field(default_factory=list)
    ids: list[pa.Array] = field(default_factory=list)
    codes: list[pa.Array] = field(default_factory=list)


_Take = Callable[["_Rows", Table, RowFile], None]


def import_neo4j(
    files: Sequence[RowFile],
    staged: StagedTypes,
    array_delimiter: str = ";",
    delimiter: str | None = None,
    quote: str = '"',
) -> None:
    """Convert the files of an export.

    Args:
        files: the CSV files. A file with a header alone describes the files whose names begin like its name, or the
            next file.
        staged: takes the types and rows.
        array_delimiter: the separator of the items of arrays and of several labels.
        delimiter: the separator of the cells; None finds it in the header.
        quote: the quote character.

    Raises:
        InputError: a file is no such CSV file.
        BadRowsError: values do not have the types of their columns.
    """
    _Import(_tables(files, delimiter, quote), staged, array_delimiter, quote).run()


def _tables(files: Sequence[RowFile], delimiter: str | None, quote: str) -> list[Table]:
    tables: list[Table] = []
    headers: list[tuple[str, Table]] = []
    for file in sorted(files, key=lambda file: _HEADER_NAME.search(file.stem) is None):
        first, alone, separator = _first_row(file, delimiter, quote)
        header = None if first is None else _header(first, file.input.name)
        if header is not None:
            table = Table(header, separator, [] if alone else [(file, True)])
            tables.append(table)
            if alone:
                headers.append((_HEADER_NAME.sub("", file.stem), table))
            continue
        described = next((table for stem, table in headers if file.stem.startswith(stem)), None)
        if described is None:
            raise InputError(
                f"{file.input.name} has no header of Neo4j: no column is named :ID, or :START_ID and :END_ID",
                hint="name the file with its header, too; for other CSV files use 'omnigraph infer'",
            )
        described.files.append((file, False))
    return tables


def _first_row(file: RowFile, delimiter: str | None, quote: str) -> tuple[list[str] | None, bool, str]:
    """The first row of a file, whether it is the only one, and the separator."""
    start = next(file.chunks(), b"").removeprefix(b"\xef\xbb\xbf")
    line, _, rest = start.partition(b"\n")
    text = line.decode(errors="replace").rstrip("\r")
    separator = delimiter or ("" if rest.strip() == b"" else sniff_separator(start, ",", quote))
    if not separator or text.count(separator) == 0:
        separator = max((",", ";", "\t", "|"), key=text.count)
    row = next(csv.reader(io.StringIO(text), delimiter=separator, quotechar=quote), None)
    return row, not rest.strip(), separator


def _header(names: Sequence[str], place: str) -> list[Field] | None:
    """The columns of a header; None if it is no header of Neo4j."""
    fields = [_field(_APOC.get(name, name), place) for name in names]
    roles = [each.role for each in fields]
    twice = next((role for role in roles if role not in (None, "IGNORE") and roles.count(role) > 1), None)
    if twice is not None:
        raise InputError(
            f"{place}: the header has several columns with :{twice}, and only one of them would be read",
            hint="join them into one column, or write :IGNORE in the header for those that are not needed",
        )
    return fields if "ID" in roles or {"START_ID", "END_ID"} <= set(roles) else None


def _field(text: str, place: str) -> Field:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise InputError(f"{place}: the column '{cut(text)}' is no column of Neo4j")
    name, word = match["name"], match["type"] or "string"
    if word.upper() in _ROLES and match["type"] is not None:
        return Field(name, word.upper(), ValueType(Scalar.STRING), match["group"] or "")
    scalar = _SCALARS.get(word.lower(), Scalar.STRING)
    if word.lower() not in _SCALARS and word.lower() not in _TEXTS:
        name = text  # a colon in the name of a column
    return Field(name, None, ValueType(scalar, nullable=True, list=match["list"] is not None))


class _Import:
    def __init__(self, tables: Sequence[Table], staged: StagedTypes, delimiter: str, quote: str) -> None:
        self._tables = tables
        self._staged = staged
        self._delimiter = delimiter
        self._quote = quote
        self._names: dict[tuple[TypeKind, str, str], str] = {}
        self._groups: dict[str, _Group] = {}
        self._problems = Problems()
        self._pairs: dict[str, set[tuple[str, str]]] = {}

    def run(self) -> None:
        nodes = [table for table in self._tables if table.role("ID") is not None]
        edges = [table for table in self._tables if table.role("START_ID") is not None]
        labelled = {table.header[table.role("ID") or 0].group for table in nodes}
        several = {group for group in labelled if self._may_have_several(nodes, group)}
        for table in nodes:
            self._read(table, lambda cells, table, file: self._nodes(cells, table, file, several))
        self._problems.check()
        for table in edges:
            self._read(table, self._count_pairs)
        for table in edges:
            self._read(table, self._edges)
        self._problems.check()

    def _may_have_several(self, nodes: Sequence[Table], group: str) -> bool:
        """Whether the ids of a group may belong to several types, so that the type of an endpoint has to be found."""
        own = [table for table in nodes if table.header[table.role("ID") or 0].group == group]
        return any(table.role("LABEL") is not None for table in own) or sum(len(table.files) for table in own) > 1

    def _read(self, table: Table, take: _Take) -> None:
        names = tuple(f"{i}" for i in range(len(table.header)))
        for file, with_header in table.files:
            dialect = Dialect(table.separator, self._quote, nulls=("",), header=with_header, columns=names)
            rows = read_cells(file.chunks(), _Cells(), self._problems, file.input.name, 1, dialect)
            for columns, origin in rows:
                take(_Rows([columns[name] for name in names], origin), table, file)

    def _nodes(self, rows: _Rows, table: Table, file: RowFile, several: set[str]) -> None:
        position = table.role("ID")
        assert position is not None
        id_field = table.header[position]
        rows = self._complete(rows, [position], table.role("START_ID"), "the node has no id")
        label_at = table.role("LABEL")
        labels = self._labels(rows, label_at, file)
        group = self._groups.setdefault(id_field.group, _Group())
        firsts = pc.list_element(labels, 0)
        many = (pc.max(pc.list_value_length(labels)).as_py() or 0) > 1
        for label in firsts.unique().to_pylist():
            mask = pc.equal(firsts, label)
            own = rows if pc.all(mask).as_py() else rows.keep(mask)
            name = self._name(TypeKind.NODE, label)
            type_ = self._staged.type(TypeKind.NODE, name, origin=f"label {label}")
            if name not in group.types:
                group.types.append(name)
            ids = own.cells[position]
            if id_field.group in several:
                group.ids.append(ids)
                group.codes.append(pa.array(np.full(len(ids), group.types.index(name), np.int32)))
            columns = self._properties(own, table, type_, file, ("id",))
            if id_field.name:
                key = property_name(_plain(id_field.name), (), ("id",))
                key = f"{name[0].lower()}{name[1:]}_id" if key == "id_" else key
                type_.declare(key, ValueType(Scalar.STRING, nullable=True), file.input.name)
                if type_.key is None and type_.rows == 0:
                    type_.key = key
                columns[key] = ids
            if type_.key is None:
                columns["id"] = ids
            if many:
                type_.declare(_LABELS, ValueType(Scalar.STRING, nullable=True, list=True), file.input.name)
                columns[_LABELS] = labels.filter(mask)
            self._staged.write(type_, columns)

    def _complete(self, rows: _Rows, positions: Sequence[int], other: int | None, message: str) -> _Rows:
        """The rows with a value in some columns. A file may have nodes and relationships: `other` belongs to those."""
        for position in positions:
            missing = rows.cells[position].is_null()
            wrong = missing if other is None else pc.and_(missing, rows.cells[other].is_null())
            found = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
            places = rows.origin.records[found[:SHOWN]].tolist()
            shown = [Problem(place, rows.origin.place(place), "input", message) for place in places]
            self._problems.add_all(shown, len(found))
            rows = rows.keep(pc.invert(missing))
        return rows if other is None or len(positions) > 1 else rows.keep(rows.cells[other].is_null())

    def _name(self, kind: TypeKind, label: str, ends: str = "") -> str:
        """The name of the type of a label or of a relationship. Different labels have different types."""
        given = self._names.get((kind, label, ends))
        if given is None:
            taken = [name for (each, _, _), name in self._names.items() if each is kind]
            given = self._names[kind, label, ends] = unique_name(f"{_type_name(label)}{ends}", taken)
        return given

    def _labels(self, rows: _Rows, position: int | None, file: RowFile) -> pa.Array:
        """The labels of each node; that of the file name if the file has none."""
        own = type_name(file.stem)
        if position is None:
            return pa.array([[own]] * len(rows.origin.records), pa.list_(pa.utf8()))
        cells = pc.replace_substring_regex(rows.cells[position].fill_null(own), r"^:", "")
        cells = pc.if_else(pc.equal(cells, ""), own, cells)
        return pc.split_pattern_regex(cells, f"[:{re.escape(self._delimiter)}]")

    def _properties(
        self, rows: _Rows, table: Table, type_: StagedType, file: RowFile, reserved: Sequence[str]
    ) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        for each, cells in zip(table.header, rows.cells, strict=True):
            if each.role is not None or not each.name:
                continue
            name = property_name(_plain(each.name), columns, reserved)
            if cells.null_count < len(cells) or (table.role("LABEL") is None and table.role("TYPE") is None):
                type_.declare(name, each.type, file.input.name)
            columns[name] = self._converted(cells, each, rows.origin, f"{type_.name}.{name}")
        return columns

    def _converted(self, cells: pa.Array, column: Field, origin: Origin, subject: str) -> pa.Array:
        def report(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
            wrong = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            places = origin.records[wrong[:SHOWN]].tolist()
            self._problems.add_all([Problem(p, origin.place(p), subject, message) for p in places], len(wrong))

        kind = column.type
        if kind.scalar is Scalar.DATETIME:
            cells = pc.replace_substring_regex(cells, _ZONE_NAME, "")
        if not kind.list:
            return _value(cells, kind, report)
        filled = pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.utf8()), cells)
        lists = pc.split_pattern(filled, self._delimiter)
        rows = np.repeat(np.arange(len(lists)), pc.list_value_length(lists).fill_null(0).to_numpy())

        def report_items(mask: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
            wrong = np.zeros(len(lists), bool)
            wrong[rows[mask.to_numpy(zero_copy_only=False)]] = True
            report(pa.array(wrong), f"an item of the list: {message}", fault)

        items = _value(lists.flatten(), kind.item, report_items)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy()
        ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(ends, items, mask=lists.is_null())

    # Edges

    def _count_pairs(self, rows: _Rows, table: Table, file: RowFile) -> None:
        """Find the pairs of node types that each type of relationships connects."""
        for _, relationship, pair in self._parts(rows, table, file):
            self._pairs.setdefault(relationship, set()).add(pair)

    def _edges(self, rows: _Rows, table: Table, file: RowFile) -> None:
        for own, relationship, pair in self._parts(rows, table, file):
            ends = f"{pair[0]}{pair[1]}" if len(self._pairs[relationship]) > 1 else ""
            name = self._name(TypeKind.EDGE, relationship, ends)
            type_ = self._staged.type(TypeKind.EDGE, name, origin=f"relationship {relationship}")
            type_.ends = pair
            columns = self._properties(own, table, type_, file, ("id", "from", "to", "src", "dst"))
            for end, role in (("from", "START_ID"), ("to", "END_ID")):
                columns[end] = own.cells[table.role(role) or 0]
            self._staged.write(type_, columns)

    def _parts(self, rows: _Rows, table: Table, file: RowFile) -> Iterator[tuple[_Rows, str, tuple[str, str]]]:
        """The rows by the type of the relationship and the types of the endpoints."""
        start, end = table.role("START_ID"), table.role("END_ID")
        assert start is not None
        assert end is not None
        rows = self._complete(rows, [start, end], table.role("ID"), "the relationship has no start or no end")
        if len(rows.origin.records) == 0:
            return
        types_at = table.role("TYPE")
        own = type_name(file.stem, plural=True)
        words = pa.array([own] * len(rows.cells[start])) if types_at is None else rows.cells[types_at].fill_null(own)
        starts, ends = (self._types_of(rows, table, position) for position in (start, end))
        labels = pc.binary_join_element_wise(words, starts, ends, "\0")
        for label in labels.unique().to_pylist():
            relationship, one, other = label.split("\0")
            yield rows.keep(pc.equal(labels, label)), relationship, (one, other)

    def _types_of(self, rows: _Rows, table: Table, position: int) -> pa.Array:
        """The type of the node at one end of each relationship."""
        ids, field_ = rows.cells[position], table.header[position]
        group = self._groups.get(field_.group)
        if group is None:
            raise InputError(f"{rows.place(0)}: there are no nodes in the id group '{cut(field_.group)}'")
        if not group.ids or len(group.types) == 1:
            return pa.array([group.types[0]] * len(ids))
        if len(group.ids) > 1:
            group.ids, group.codes = [pa.concat_arrays(group.ids)], [pa.concat_arrays(group.codes)]
        found = pc.index_in(ids, group.ids[0])
        if found.null_count:
            row = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
            raise InputError(
                f"{rows.place(row)}: there is no node with the id '{cut(ids[row].as_py())}' "
                f"({found.null_count:,} of {len(ids):,} rows here)",
                hint="name the files with all nodes",
            )
        return pa.array(group.types).take(group.codes[0].take(found))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a file: their cells by position, and their places."""

    cells: list[pa.Array]
    origin: Origin

    def keep(self, mask: pa.Array) -> _Rows:
        if pc.all(mask).as_py() is not False:
            return self
        return _Rows([column.filter(mask) for column in self.cells], self.origin.select(mask.to_numpy(False)))

    def place(self, row: int) -> str:
        return self.origin.place(int(self.origin.records[row]))


class _Cells:
    name = "input"

    def check_names(self, names: list[str], position: int, place: str) -> None:
        """The header is read already."""

    def rows(
        self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None
    ) -> Iterator[tuple[Mapping[str, pa.Array], Origin]]:
        yield columns, origin


def _value(cells: pa.Array, kind: ValueType, report: Report) -> pa.Array:
    return convert(from_text(cells, kind, report), kind, report)


def _plain(name: str) -> str:
    return " ".join(name.split())


def _type_name(label: str) -> str:
    """The name of a type from a label or the type of a relationship: `ACTED_IN` becomes `ActedIn`."""
    if re.fullmatch(r"[A-Z][A-Za-z0-9]*", label) and not (label.isupper() and len(label) > 1):
        return label
    name = "".join(word.capitalize() for word in (tokens(label) or table_words(label)))
    return name if name[:1].isalpha() else f"T{name}"

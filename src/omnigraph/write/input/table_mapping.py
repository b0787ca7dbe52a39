"""Mappings of tables whose columns do not have the names of the properties.

A mapping defines the types of the rows, the columns of the properties, and how ids are built. It is read from a file or
given as a Python dict, and checked against the schema before any data is read. With a mapping, the names of files and
columns do not need to be names of types and properties.
"""

# See docs/decisions/0110-a-mapping-names-columns.md

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from omnigraph.dataclass import dataclass
from omnigraph.errors import cut
from omnigraph.lang.documents import Value, as_document, read_document
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.files.input import label_of, text_of
from omnigraph.write.input.constants import as_column
from omnigraph.write.input.date_formats import DateFormat
from omnigraph.write.input.named_columns import END, ID, Dialect

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_ENDS = ("from", "to")


class Others(StrEnum):
    """How to treat columns that a mapping does not mention."""

    MATCH = "match"
    """Match the columns to properties of the same name; columns without a match are errors."""
    IGNORE = "ignore"
    """Leave the columns out."""
    REFUSE = "refuse"
    """Report the columns as errors."""


@dataclass(frozen=True, slots=True)
class Text:
    """A column, or a text template that contains values of columns, such as `{city}-{number}`.

    Attributes:
        parts: the template: literal texts, with column names at the odd positions.
        plain: whether it is a single column, whose values keep their type.
        format: the format of dates and times, if it is not the default.
    """

    parts: tuple[str, ...]
    plain: bool
    at: Value = field(repr=False, compare=False)
    format: DateFormat | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.parts[1::2]


@dataclass(frozen=True, slots=True)
class Constant:
    """The same value in every row."""

    at: Value

    @property
    def columns(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Key:
    """The id of a node, built from its key properties."""

    members: tuple[tuple[str, Text | Constant], ...]
    at: Value = field(repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for _, source in self.members for column in source.columns)


ValueSource = Text | Constant | Key
"""The source of the values of a property, an id or an endpoint: a column or template, a constant, or a key."""


@dataclass(frozen=True, slots=True)
class TypeRows:
    """The mapping of the rows of one type.

    Attributes:
        sources: where the values of each property, and of `id`, `from` and `to`, come from.
        ignored: columns to leave out.
        others: how to treat all other columns.
        optional: whether a row without the id, the key or an endpoint of the entity is left out instead of an error.
    """

    kind: TypeKind
    name: str
    sources: tuple[tuple[str, ValueSource], ...]
    ignored: tuple[str, ...]
    others: Others
    at: Value = field(repr=False, compare=False)
    optional: bool = False

    @property
    def mentioned(self) -> set[str]:
        """The columns that the mapping reads or ignores."""
        return {column for _, source in self.sources for column in source.columns} | set(self.ignored)


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a mapping for some tables.

    Attributes:
        patterns: patterns of the paths or names of the tables.
        csv: the dialect, if the tables are CSV files.
        column: the column that selects the type of a row; None if every row gives an entity of each type.
        when: pairs of a value of that column, and the mapping of rows with this value. If there is no such column: a
            pair for each entity of a row, with its position as the value.
    """

    patterns: tuple[str, ...]
    csv: Dialect
    column: str | None
    when: tuple[tuple[str, TypeRows], ...]
    at: Value = field(repr=False, compare=False)

    def means(self, path: str, *names: str) -> bool:
        """Whether the entry matches a table with this path or one of these names."""
        for pattern in self.patterns:
            if "/" in pattern:
                if fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}"):
                    return True
            elif any(fnmatchcase(name, pattern) for name in names):
                return True
        return False


@dataclass(frozen=True, slots=True)
class TableMapping:
    """The mapping of tables to types. The first entry that matches a table applies."""

    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, given: MappingSource, options: Mapping[str, str] | None = None) -> TableMapping:
        """Read a mapping from a file, or from a Python mapping.

        Args:
            given: the path of a YAML or JSON file, or its content as a mapping.
            options: connection options of S3.

        Raises:
            InputError: the content is not valid.
        """
        if isinstance(given, TableMapping):
            return given
        if isinstance(given, Mapping):
            return _mapping(as_document(given, "the mapping"))
        return _mapping(read_document(text_of(given, options), label_of(given)))

    def check(self, accepted: AcceptedSchema) -> None:
        """Check the mapping against a schema.

        Raises:
            InputError: a type or property does not exist, or the mapping does not fit its type.
        """
        for entry in self.entries:
            for _, rows in entry.when:
                _check(rows, accepted)


MappingSource = TableMapping | Mapping[str, object] | str | os.PathLike[str]
"""All forms in which a mapping can be given."""


# Reading


def _mapping(top: Value) -> TableMapping:
    members = top.members(("csv", "sources"))
    csv = _dialect(members["csv"], Dialect()) if "csv" in members else Dialect()
    if "sources" not in members:
        raise top.error("'sources' is missing", "write sources: with a list of tables")
    return TableMapping(tuple(_entry(value, csv) for value in members["sources"].items()))


_OF_TYPE = ("node", "edge", "id", "from", "to", "properties", "ignore", "others")
_OF_ROW = (*_OF_TYPE, "optional")


def _entry(value: Value, csv: Dialect) -> Entry:
    members = value.members(("source", "csv", "column", "when", "rows", *_OF_TYPE))
    if "source" not in members:
        raise value.error("'source' is missing", "write source: with the name of a table, or a pattern")
    patterns = tuple(each.text() for each in members["source"].texts())
    dialect = _dialect(members["csv"], csv) if "csv" in members else csv
    if "rows" in members:
        return Entry(patterns, dialect, None, _entities_of_a_row(members), value)
    if "when" not in members:
        if "column" in members:
            raise members["column"].error("'when' is missing", "write when: with an entry for each value of the column")
        return Entry(patterns, dialect, None, (("", _type_rows(value, members)),), value)
    if "column" not in members:
        raise members["when"].error("'column' is missing: the column that selects the type of a row")
    for name in ("node", "edge", "id", *_ENDS, "properties"):
        if name in members:
            raise members[name].error(f"'{name}' does not belong next to 'when'", "write it under each value in when:")
    when = members["when"].members()
    if not when:
        raise members["when"].error("it is empty")
    each = tuple((word, _type_rows(rows, rows.members(_OF_TYPE), members)) for word, rows in when.items())
    return Entry(patterns, dialect, members["column"].text(), each, value)


def _entities_of_a_row(members: Mapping[str, Value]) -> tuple[tuple[str, TypeRows], ...]:
    """The entities that every row gives."""
    for name in ("column", "when", "node", "edge", "id", *_ENDS, "properties"):
        if name in members:
            raise members[name].error(f"'{name}' does not belong next to 'rows'", "write it in each item of rows:")
    items = members["rows"].items()
    if not items:
        raise members["rows"].error("it is empty")
    return tuple((str(i), _type_rows(item, item.members(_OF_ROW), members)) for i, item in enumerate(items))


def _type_rows(value: Value, members: Mapping[str, Value], above: Mapping[str, Value] | None = None) -> TypeRows:
    if ("node" in members) == ("edge" in members):
        raise value.error("there must be exactly one type", "write node: or edge: with the name of a type")
    kind = TypeKind.NODE if "node" in members else TypeKind.EDGE
    if kind is TypeKind.NODE:
        for end in _ENDS:
            if end in members:
                raise members[end].error("a node has no 'from' and 'to'")
    source: list[tuple[str, ValueSource]] = []
    if "properties" in members:
        for name, given in members["properties"].members().items():
            if name in ("id", *(_ENDS if kind is TypeKind.EDGE else ())):
                raise given.error(f"'{name}' is not a property", "write it next to properties:, not under it")
            source.append((name, _source(given)))
    if "id" in members:
        source.append(("id", _text(members["id"])))
    for end in _ENDS:
        if end in members:
            given = members[end]
            source.append((end, _key(given) if isinstance(given.content, dict) else _text(given)))
    of_all = above or {}
    ignored = [each.text() for each in _list(members.get("ignore")) + _list(of_all.get("ignore"))]
    others = members.get("others") or of_all.get("others")
    named = members["node" if kind is TypeKind.NODE else "edge"]
    optional = "optional" in members and _flag(members["optional"])
    return TypeRows(kind, named.text(), tuple(source), tuple(ignored), _others(others), named, optional)


def _flag(value: Value) -> bool:
    if not isinstance(value.content, bool):
        raise value.error(f"expected true or false, found {value.kind}")
    return value.content


def _list(value: Value | None) -> list[Value]:
    return [] if value is None else value.texts()


def _others(value: Value | None) -> Others:
    if value is None:
        return Others.MATCH
    try:
        return Others(value.text())
    except ValueError:
        raise value.error(f"'{cut(value.text())}' is not valid here", "use match, ignore or refuse") from None


def _source(value: Value) -> Text | Constant:
    if not isinstance(value.content, dict):
        return _text(value)
    members = value.members(("value", "column", "format"))
    if "value" in members and len(members) == 1:
        return Constant(members["value"])
    if "value" in members or "column" not in members:
        hint = 'write {value: …} for the same value in every row, or {column: …, format: "%d.%m.%Y"}'
        raise value.error("it has neither a value nor a column" if members else "it is empty", hint)
    source = _text(members["column"])
    return replace(source, format=_format(members["format"])) if "format" in members else source


def _format(value: Value) -> DateFormat:
    try:
        return DateFormat.parse(value.text())
    except ValueError as error:
        problem, hint = error.args
        raise value.error(problem, hint) from None


def _key(value: Value) -> Key:
    return Key(tuple((name, _source(given)) for name, given in value.members().items()), value)


def _text(value: Value) -> Text:
    """Parse the name of a column, or a template with names in braces."""
    text = value.text()
    parts, last = [""], 0
    for match in _FIELD.finditer(text):
        parts[-1] += text[last : match.start()]
        last = match.end()
        if match[0] in ("{{", "}}"):
            parts[-1] += match[0][0]
        elif match[1] is not None:
            parts += [match[1], ""]
        else:
            hint = "write {column}, and {{ or }} for a brace itself"
            raise value.error(f"an unmatched brace in '{cut(text)}'", hint)
    parts[-1] += text[last:]
    return Text(("", parts[0], ""), True, value) if len(parts) == 1 else Text(tuple(parts), False, value)


def _dialect(value: Value, base: Dialect) -> Dialect:
    members = value.members(("separator", "quote", "null", "header", "columns", "skip"))
    separator = _character(members["separator"]) if "separator" in members else base.separator
    quote = base.quote
    if "quote" in members:
        quote = "" if members["quote"].content == "" else _character(members["quote"])
    if separator == quote:
        raise value.error("separator and quote are the same character")
    nulls = base.nulls
    if "null" in members:
        given = members["null"]
        each = given.content if isinstance(given.content, list) else [given]
        for spelling in each:
            if not isinstance(spelling.content, str):
                raise spelling.error(f"expected a text, found {spelling.kind}", 'put it in quotes: "null"')
        nulls = ("", *(str(spelling.content) for spelling in each))
    header = _flag(members["header"]) if "header" in members else base.header
    columns = base.columns
    if "columns" in members:
        columns = tuple(name.text() for name in members["columns"].texts())
        if len(set(columns)) < len(columns):
            raise members["columns"].error("it contains a name twice")
    skip = _lines(members["skip"]) if "skip" in members else base.skip
    return Dialect(separator, quote, nulls, header, columns, skip)


def _lines(value: Value) -> int:
    count = value.content
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise value.error(f"expected a number of lines, found {value.kind}")
    return count


def _character(value: Value) -> str:
    text = value.text()
    if len(text) != 1 or not text.isascii() or text in "\r\n\0":
        raise value.error(f"expected one ASCII character, found {cut(repr(text))}")
    return text


# Checks against a schema


def _check(rows: TypeRows, accepted: AcceptedSchema) -> None:
    declared = _declared(rows, accepted)
    kinds = members_of(declared)
    for name, source in rows.sources:
        if name not in kinds:
            raise source.at.error(f"{rows.name} has no property '{cut(name)}'", did_you_mean(name, kinds))
        if isinstance(source, Constant):
            as_column(source.at, kinds[name])
        _check_format(source, name, kinds[name])
        if isinstance(source, Key):
            assert isinstance(declared, EdgeType)
            _check_key(source, declared.from_type if name == "from" else declared.to_type, accepted)
    named = [name for name, _ in rows.sources]
    for end in _ENDS:
        if isinstance(declared, EdgeType) and end not in named and rows.others is not Others.MATCH:
            raise rows.at.error(f"{rows.name} is an edge, and its '{end}' is missing")


def _check_format(source: ValueSource, name: str, kind: ValueType) -> None:
    if isinstance(source, Text) and source.format and (kind.list or kind.scalar not in (Scalar.DATE, Scalar.DATETIME)):
        raise source.at.error(f"'{cut(name)}' is {kind}, and 'format' is for Date and DateTime", "leave 'format' out")


def _declared(rows: TypeRows, accepted: AcceptedSchema) -> NodeType | EdgeType:
    types: Mapping[str, NodeType | EdgeType]
    types = accepted.catalog.nodes if rows.kind is TypeKind.NODE else accepted.catalog.edges
    if rows.name not in types:
        hint = did_you_mean(rows.name, types)
        raise rows.at.error(f"there is no {rows.kind.value} type '{cut(rows.name)}'", hint)
    return types[rows.name]


def members_of(declared: NodeType | EdgeType) -> dict[str, ValueType]:
    """The names of all input values of a type (id, properties, endpoints), and their types."""
    ends = {"from": END, "to": END} if isinstance(declared, EdgeType) else {}
    return {"id": ID} | {name: prop.type for name, prop in declared.properties.items()} | ends


def _check_key(key: Key, name: str, accepted: AcceptedSchema) -> None:
    order = accepted.key_order(TypeKind.NODE, name)
    if order is None:
        raise key.at.error(f"{name} has no key", "give its id: a column, or a text with {column} in it")
    given = [member for member, _ in key.members]
    if sorted(given) != sorted(order):
        raise key.at.error(f"the key of {name} is {', '.join(order)}", "name each of them once, and nothing else")
    for member, source in key.members:
        kind = accepted.catalog.nodes[name].properties[member].type
        if isinstance(source, Constant):
            as_column(source.at, kind)
        _check_format(source, member, kind)

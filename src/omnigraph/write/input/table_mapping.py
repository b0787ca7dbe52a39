"""What tables are whose columns are not named like the properties.

A mapping says which types their rows have, what becomes of their columns, and what ids are made of. It is read from a
file (or made by a program), held against the schema before anything else is read, and then takes the place of the names
of files and columns.
"""

# See docs/decisions/0110-a-mapping-names-columns.md

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePath

from omnigraph.errors import cut
from omnigraph.lang.documents import Value, as_document, read_document
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.files.input import text_of
from omnigraph.write.input.constants import as_column
from omnigraph.write.input.date_formats import DateFormat
from omnigraph.write.input.named_columns import END, ID, Dialect

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_ENDS = ("from", "to")


class Others(StrEnum):
    """What becomes of columns that a mapping does not mention."""

    MATCH = "match"
    """They are properties of the same name; one that is none is an error."""
    IGNORE = "ignore"
    """They are left out."""
    REFUSE = "refuse"
    """They are errors."""


@dataclass(frozen=True, slots=True)
class Text:
    """A column, or a text that is put together of columns and what stands between them.

    Attributes:
        parts: what it is made of: texts, and the names of columns at the odd places.
        plain: whether it is nothing but one column, with the type that it has.
        format: how dates and times are written in it, if they are not written as usual.
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
    """The id of the node whose key has these members."""

    members: tuple[tuple[str, Text | Constant], ...]
    at: Value = field(repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for _, made in self.members for column in made.columns)


Made = Text | Constant | Key
"""What a property, an id or an end is made of."""


@dataclass(frozen=True, slots=True)
class TypeRows:
    """How rows of one type are made.

    Attributes:
        made: what they have, by property, `id`, `from` and `to`.
        ignored: columns that are left out.
        others: what becomes of all others.
    """

    kind: TypeKind
    name: str
    made: tuple[tuple[str, Made], ...]
    ignored: tuple[str, ...]
    others: Others
    at: Value = field(repr=False, compare=False)

    @property
    def mentioned(self) -> set[str]:
        """The columns that are said something about."""
        return {column for _, made in self.made for column in made.columns} | set(self.ignored)


@dataclass(frozen=True, slots=True)
class Entry:
    """What the mapping says about some tables.

    Attributes:
        patterns: the names they have.
        csv: how they are written, if that is CSV.
        column: the column that says which type a row has, if they have several.
        when: how rows are made, by what stands in that column; without one, under an empty text.
    """

    patterns: tuple[str, ...]
    csv: Dialect
    column: str | None
    when: tuple[tuple[str, TypeRows], ...]
    at: Value = field(repr=False, compare=False)

    def means(self, path: str, *names: str) -> bool:
        """Whether a table is meant that lies at a path, or goes by one of some names."""
        for pattern in self.patterns:
            if "/" in pattern:
                if fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}"):
                    return True
            elif any(fnmatchcase(name, pattern) for name in names):
                return True
        return False


@dataclass(frozen=True, slots=True)
class TableMapping:
    """What is said about tables. The first entry that means a table counts."""

    entries: tuple[Entry, ...]

    @classmethod
    def read(cls, given: MappingSource, options: Mapping[str, str] | None = None) -> TableMapping:
        """A mapping from a file, or as a program made it.

        Args:
            given: the path of a YAML or JSON file, or what would be in it.
            options: how to reach a file in S3.

        Raises:
            InputError: it says something that means nothing.
        """
        if isinstance(given, TableMapping):
            return given
        if isinstance(given, Mapping):
            return _mapping(as_document(given, "the mapping"))
        return _mapping(read_document(text_of(given, options), PurePath(os.fspath(given)).name))

    def check(self, accepted: AcceptedSchema) -> None:
        """Hold everything against a schema.

        Raises:
            InputError: a type or property is not there, or cannot be made in this way.
        """
        for entry in self.entries:
            for _, rows in entry.when:
                _check(rows, accepted)


MappingSource = TableMapping | Mapping[str, object] | str | os.PathLike[str]
"""Whatever a mapping can be given as."""


# Reading


def _mapping(top: Value) -> TableMapping:
    members = top.members(("csv", "sources"))
    csv = _dialect(members["csv"], Dialect()) if "csv" in members else Dialect()
    if "sources" not in members:
        raise top.error("it says nothing about any source", "write sources: with a list of them")
    return TableMapping(tuple(_entry(value, csv) for value in members["sources"].items()))


_OF_TYPE = ("node", "edge", "id", "from", "to", "properties", "ignore", "others")


def _entry(value: Value, csv: Dialect) -> Entry:
    members = value.members(("source", "csv", "column", "when", *_OF_TYPE))
    if "source" not in members:
        raise value.error("it does not say which tables it is about", "write source: with a name or a pattern")
    patterns = tuple(each.text() for each in members["source"].texts())
    dialect = _dialect(members["csv"], csv) if "csv" in members else csv
    if "when" not in members:
        if "column" in members:
            raise members["column"].error("it says nothing without 'when'", "say under when: what its values mean")
        return Entry(patterns, dialect, None, (("", _type_rows(value, members)),), value)
    if "column" not in members:
        raise members["when"].error("there is no 'column' that says which rows these are")
    for name in ("node", "edge", "id", *_ENDS, "properties"):
        if name in members:
            raise members[name].error(f"where there is 'when', '{name}' stands under it")
    when = members["when"].members()
    if not when:
        raise members["when"].error("it is empty")
    each = tuple((word, _type_rows(rows, rows.members(_OF_TYPE), members)) for word, rows in when.items())
    return Entry(patterns, dialect, members["column"].text(), each, value)


def _type_rows(value: Value, members: Mapping[str, Value], above: Mapping[str, Value] | None = None) -> TypeRows:
    if ("node" in members) == ("edge" in members):
        raise value.error("it says no type, or two", "write node: or edge: with the name of a type")
    kind = TypeKind.NODE if "node" in members else TypeKind.EDGE
    if kind is TypeKind.NODE:
        for end in _ENDS:
            if end in members:
                raise members[end].error("a node has no ends")
    made: list[tuple[str, Made]] = []
    if "properties" in members:
        for name, given in members["properties"].members().items():
            if name in ("id", *(_ENDS if kind is TypeKind.EDGE else ())):
                raise given.error(f"'{name}' is no property", "write it beside properties:, not under it")
            made.append((name, _made(given)))
    if "id" in members:
        made.append(("id", _text(members["id"])))
    for end in _ENDS:
        if end in members:
            given = members[end]
            made.append((end, _key(given) if isinstance(given.content, dict) else _text(given)))
    of_all = above or {}
    ignored = [each.text() for each in _list(members.get("ignore")) + _list(of_all.get("ignore"))]
    said = members.get("others") or of_all.get("others")
    named = members["node" if kind is TypeKind.NODE else "edge"]
    return TypeRows(kind, named.text(), tuple(made), tuple(ignored), _others(said), named)


def _list(value: Value | None) -> list[Value]:
    return [] if value is None else value.texts()


def _others(value: Value | None) -> Others:
    if value is None:
        return Others.MATCH
    try:
        return Others(value.text())
    except ValueError:
        raise value.error(f"'{cut(value.text())}' means nothing here", "match, ignore or refuse") from None


def _made(value: Value) -> Text | Constant:
    if not isinstance(value.content, dict):
        return _text(value)
    members = value.members(("value", "column", "format"))
    if "value" in members and len(members) == 1:
        return Constant(members["value"])
    if "value" in members or "column" not in members:
        hint = 'write {value: …} for the same value in every row, or {column: …, format: "%d.%m.%Y"}'
        raise value.error("it says neither a value nor a column" if members else "it is empty", hint)
    made = _text(members["column"])
    return replace(made, format=_format(members["format"])) if "format" in members else made


def _format(value: Value) -> DateFormat:
    try:
        return DateFormat.parse(value.text())
    except ValueError as error:
        problem, hint = error.args
        raise value.error(problem, hint) from None


def _key(value: Value) -> Key:
    return Key(tuple((name, _made(given)) for name, given in value.members().items()), value)


def _text(value: Value) -> Text:
    """A column's name; or, with names in braces, a text that is put together."""
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
            raise value.error(f"a brace without its fellow in '{cut(text)}'", hint)
    parts[-1] += text[last:]
    return Text(("", parts[0], ""), True, value) if len(parts) == 1 else Text(tuple(parts), False, value)


def _dialect(value: Value, base: Dialect) -> Dialect:
    members = value.members(("separator", "quote", "null"))
    separator = _character(members["separator"]) if "separator" in members else base.separator
    quote = _character(members["quote"]) if "quote" in members else base.quote
    if separator == quote:
        raise value.error("separator and quote are the same character")
    nulls = base.nulls
    if "null" in members:
        said = members["null"]
        each = said.content if isinstance(said.content, list) else [said]
        for spelling in each:
            if not isinstance(spelling.content, str):
                raise spelling.error(f"expected a text, found {spelling.kind}", 'put it in quotes: "null"')
        nulls = ("", *(str(spelling.content) for spelling in each))
    return Dialect(separator, quote, nulls)


def _character(value: Value) -> str:
    text = value.text()
    if len(text) != 1 or not text.isascii() or text in "\r\n\0":
        raise value.error(f"expected one character of ASCII, found {cut(repr(text))}")
    return text


# Held against a schema


def _check(rows: TypeRows, accepted: AcceptedSchema) -> None:
    declared = _declared(rows, accepted)
    kinds = members_of(declared)
    for name, made in rows.made:
        if name not in kinds:
            raise made.at.error(f"{rows.name} has no property '{cut(name)}'", did_you_mean(name, kinds))
        if isinstance(made, Constant):
            as_column(made.at, kinds[name])
        _check_format(made, name, kinds[name])
        if isinstance(made, Key):
            assert isinstance(declared, EdgeType)
            _check_key(made, declared.from_type if name == "from" else declared.to_type, accepted)
    named = [name for name, _ in rows.made]
    for end in _ENDS:
        if isinstance(declared, EdgeType) and end not in named and rows.others is not Others.MATCH:
            raise rows.at.error(f"{rows.name} is an edge, and nothing says what '{end}' is made of")


def _check_format(made: Made, name: str, kind: ValueType) -> None:
    if isinstance(made, Text) and made.format and (kind.list or kind.scalar not in (Scalar.DATE, Scalar.DATETIME)):
        raise made.at.error(f"'{cut(name)}' is {kind}, and a format is for Date and DateTime", "leave 'format' out")


def _declared(rows: TypeRows, accepted: AcceptedSchema) -> NodeType | EdgeType:
    types: Mapping[str, NodeType | EdgeType]
    types = accepted.catalog.nodes if rows.kind is TypeKind.NODE else accepted.catalog.edges
    if rows.name not in types:
        hint = did_you_mean(rows.name, types)
        raise rows.at.error(f"there is no {rows.kind.value} type '{cut(rows.name)}'", hint)
    return types[rows.name]


def members_of(declared: NodeType | EdgeType) -> dict[str, ValueType]:
    """What rows of a type have, and its types."""
    ends = {"from": END, "to": END} if isinstance(declared, EdgeType) else {}
    return {"id": ID} | {name: prop.type for name, prop in declared.properties.items()} | ends


def _check_key(key: Key, name: str, accepted: AcceptedSchema) -> None:
    order = accepted.key_order(TypeKind.NODE, name)
    if order is None:
        raise key.at.error(f"{name} has no key", "say what its id is made of: a column, or a text with {column} in it")
    said = [member for member, _ in key.members]
    if sorted(said) != sorted(order):
        raise key.at.error(f"the key of {name} is {', '.join(order)}", "name each of them once, and nothing else")
    for member, made in key.members:
        kind = accepted.catalog.nodes[name].properties[member].type
        if isinstance(made, Constant):
            as_column(made.at, kind)
        _check_format(made, member, kind)

"""Imports a directory that `EXPORT DATABASE` of Kuzu or ladybug has written.

`schema.cypher` declares the tables. The rows are in CSV or Parquet files: those that `copy.cypher` names, or the files
`nodes_TABLE.parquet` and `rels_TABLE.parquet` of ladybug.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.importers.staged_types import StagedTypes
from omnigraph.inference.names import property_name
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import MAX_VECTOR_DIM, Scalar, ValueType
from omnigraph.storage.files.input import text_of
from omnigraph.write.input.parse_text import from_text
from omnigraph.write.rows.convert import convert
from omnigraph.write.rows.values import Fault

_NAME = r"`[^`]+`|[A-Za-z_][A-Za-z0-9_]*"
_CREATE = re.compile(rf"\s*CREATE\s+(NODE|REL)\s+TABLE\s+(?:GROUP\s+)?(?:IF\s+NOT\s+EXISTS\s+)?({_NAME})\s*\(", re.I)
_COPY = re.compile(
    rf"\s*COPY\s+({_NAME})\s*(?:\(([^)]*)\))?\s+FROM\s+[\"']([^\"']+)[\"']\s*(?:\((.*)\))?\s*$", re.I | re.S
)
_OPTION = re.compile(r"(\w+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\w+)")
_PAIR = re.compile(rf"FROM\s+({_NAME})\s+TO\s+({_NAME})", re.I)
_COLUMN = re.compile(rf"({_NAME})\s+(.+)", re.S)
_KEY = re.compile(rf"PRIMARY\s+KEY\s*\(\s*({_NAME})\s*\)", re.I)
_LIST = re.compile(r"(.+?)\[(\d*)\]")
_BRACKETS = r"(?s)^\s*\[.*\]\s*$"
_PLAIN_ITEMS = r"^\[[^\[\]{}\"'\\\x00-\x1f]*\]$"
"""A list whose items need no quotes and no escapes."""

_BATCH_ROWS = 1 << 17
_DIGITS = 10
_DIMENSIONS = f"a vector has 1 to {MAX_VECTOR_DIM:,} numbers: change the type to a list, such as FLOAT[]"
_EXPORT_AGAIN = "export the database again with EXPORT DATABASE"
_SCALARS = {
    **dict.fromkeys(("INT64", "SERIAL", "INT", "INTEGER"), Scalar.I64),
    **dict.fromkeys(("INT32", "INT16", "INT8", "SMALLINT", "TINYINT"), Scalar.I32),
    **dict.fromkeys(("UINT64",), Scalar.U64),
    **dict.fromkeys(("UINT32", "UINT16", "UINT8"), Scalar.U32),
    **dict.fromkeys(("DOUBLE", "FLOAT8"), Scalar.F64),
    **dict.fromkeys(("FLOAT", "FLOAT4", "REAL"), Scalar.F32),
    **dict.fromkeys(("BOOL", "BOOLEAN"), Scalar.BOOL),
    "DATE": Scalar.DATE,
    "TIMESTAMP": Scalar.DATETIME,
    **dict.fromkeys(("TIMESTAMP_TZ", "TIMESTAMP_NS", "TIMESTAMP_MS", "TIMESTAMP_SEC"), Scalar.DATETIME),
    "BLOB": Scalar.BLOB,
}
"""The types of Kuzu that have a type here. Values of other types become texts."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its name in the export, the property, and the type of its values."""

    name: str
    property: str
    type: ValueType


@dataclass(slots=True)
class _Table:
    """A table of the export.

    Attributes:
        pairs: for a table of relationships, the node tables that it connects.
        key: for a node table, the primary key.
    """

    name: str
    is_node: bool
    columns: list[_Column]
    pairs: list[tuple[str, str]]
    key: str | None


@dataclass(frozen=True, slots=True)
class _Copy:
    """A statement that loads a file into a table."""

    table: str
    columns: list[str]
    file: str
    options: Mapping[str, str]


def import_kuzu(directory: Path, staged: StagedTypes) -> None:
    """Convert an export.

    Args:
        directory: the directory with `schema.cypher`.
        staged: takes the types and rows.

    Raises:
        InputError: the directory is no such export, or a file cannot be read.
    """
    tables = {table.name: table for table in _tables(_statements(directory / "schema.cypher"))}
    if not tables:
        raise InputError(f"{directory / 'schema.cypher'} declares no tables")
    for table in sorted(tables.values(), key=lambda table: not table.is_node):
        _declare(table, tables, staged)
    copies = directory / "copy.cypher"
    found = _copies(_statements(copies)) if copies.is_file() else list(_parquet_copies(directory, tables))
    for copy in found:
        if copy.table not in tables:
            raise InputError(f"copy.cypher loads {cut(copy.file)} into a table that schema.cypher does not declare")
        _import_file(directory, copy, tables, staged)


def _statements(path: Path) -> list[str]:
    """The statements of a file, without the semicolons."""
    try:
        text = text_of(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8", hint="export the database again") from None
    parts = re.findall(r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|[^;\"'`])+", text)
    return [part for part in parts if part.strip()]


def _plain(name: str) -> str:
    return name.strip().strip("`")


def _tables(statements: list[str]) -> Iterator[_Table]:
    for statement in statements:
        match = _CREATE.match(statement)
        if match is None:
            continue
        is_node, name = match[1].upper() == "NODE", _plain(match[2])
        columns: list[_Column] = []
        pairs: list[tuple[str, str]] = []
        key = None
        for member in _members(statement[match.end() :]):
            pair, column, primary = (pattern.fullmatch(member) for pattern in (_PAIR, _COLUMN, _KEY))
            if pair is not None and not is_node:
                pairs.append((_plain(pair[1]), _plain(pair[2])))
            elif primary is not None:
                key = _plain(primary[1])
            elif column is not None:
                reserved = ("id",) if is_node else ("id", "src", "dst", "from", "to")
                taken = [each.property for each in columns]
                prop = property_name(_plain(column[1]), taken, reserved)
                if prop == "id_":
                    prop = property_name(f"{_node_name(name).lower()}_id", taken)
                columns.append(_Column(_plain(column[1]), prop, _type(column[2], f"{name}.{_plain(column[1])}")))
        if is_node and key not in {column.name for column in columns}:
            raise InputError(f"schema.cypher: the node table {cut(name)} has no primary key", hint=_EXPORT_AGAIN)
        if not is_node and not pairs:
            raise InputError(f"schema.cypher: the table {cut(name)} connects no node tables", hint=_EXPORT_AGAIN)
        yield _Table(name, is_node, columns, pairs, key)


def _members(text: str) -> Iterator[str]:
    """The members of a declaration: the texts between commas, up to the closing parenthesis."""
    depth, start, quoted = 0, 0, False
    for at, character in enumerate(text):
        quoted ^= character == "`"
        if quoted:
            continue
        if character == ")" and depth == 0:
            yield text[start:at].strip()
            return
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1


def _type(text: str, place: str) -> ValueType:
    word = re.split(r"\s+(?:DEFAULT|PRIMARY)\b", text.strip(), flags=re.I)[0].strip().upper()
    listed = _LIST.fullmatch(word)
    if listed is None:
        scalar = Scalar.I64 if re.fullmatch(r"DECIMAL\(\d+,\s*0\)", word) else _SCALARS.get(word, Scalar.STRING)
        if word.startswith("DECIMAL") and scalar is Scalar.STRING:
            scalar = Scalar.F64
        return ValueType(scalar, nullable=True)
    item = _SCALARS.get(listed[1].strip(), Scalar.STRING)
    if listed[2] and item in (Scalar.F32, Scalar.F64):
        if len(listed[2]) > _DIGITS or not 1 <= int(listed[2]) <= MAX_VECTOR_DIM:
            raise InputError(f"schema.cypher: {cut(place)} has arrays of {cut(listed[2])} numbers", hint=_DIMENSIONS)
        return ValueType(Scalar.VECTOR, nullable=True, dim=int(listed[2]))
    return ValueType(Scalar.STRING if item is Scalar.BLOB else item, nullable=True, list=True)


def _node_name(name: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "Type"
    return cleaned[0].upper() + cleaned[1:] if cleaned[0].isalpha() else f"T{cleaned}"


def _edge_name(table: _Table, pair: tuple[str, str]) -> str:
    name = _node_name(table.name)
    return name if len(table.pairs) == 1 else f"{name}_{_node_name(pair[0])}_{_node_name(pair[1])}"


def _declare(table: _Table, tables: Mapping[str, _Table], staged: StagedTypes) -> None:
    origin = f"{'node' if table.is_node else 'relationship'} table {table.name}"
    names = [_node_name(table.name)] if table.is_node else [_edge_name(table, pair) for pair in table.pairs]
    for number, name in enumerate(names):
        kind = TypeKind.NODE if table.is_node else TypeKind.EDGE
        type_ = staged.type(kind, name, origin=origin)
        if type_.origin != origin:
            raise InputError(f"the {type_.origin} and the {origin} both become the type {name}", hint="rename one")
        type_.properties = {column.property: column.type for column in table.columns}
        if table.is_node:
            key = next((column for column in table.columns if column.name == table.key), None)
            if key is not None and key.type.is_plain_scalar and not key.type.scalar.is_float:
                type_.key = key.property
        else:
            start, end = table.pairs[number]
            for node in (start, end):
                if node not in tables:
                    raise InputError(f"{table.name} connects {cut(node)}, which is no node table")
            type_.ends = (_node_name(start), _node_name(end))


def _copies(statements: list[str]) -> list[_Copy]:
    found = []
    for statement in statements:
        match = _COPY.fullmatch(statement.strip())
        if match is not None:
            columns = [_plain(name) for name in (match[2] or "").split(",") if name.strip()]
            options = {name.lower(): _option(value) for name, value in _OPTION.findall(match[4] or "")}
            found.append(_Copy(_plain(match[1]), columns, match[3], options))
    return found


def _option(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"t": "\t"}.get(match[1], match[1]), text[1:-1]) if text[0] in "\"'" else text


def _parquet_copies(directory: Path, tables: Mapping[str, _Table]) -> Iterator[_Copy]:
    for table in tables.values():
        file = f"{'nodes' if table.is_node else 'rels'}_{table.name}.parquet"
        if not (directory / file).is_file():
            raise InputError(f"{directory} has neither copy.cypher nor {file}", hint="export the database again")
        yield _Copy(table.name, [], file, {})


def _import_file(directory: Path, copy: _Copy, tables: Mapping[str, _Table], staged: StagedTypes) -> None:
    table = tables[copy.table]
    path = directory / Path(copy.file).name
    names = copy.columns or [column.name for column in table.columns]
    if table.is_node:
        expected = names
        type_ = staged.type(TypeKind.NODE, _node_name(table.name))
        ends: tuple[_Column, ...] = ()
    else:
        expected = ["from", "to", *names]
        pair = table.pairs[0]
        if len(table.pairs) > 1:
            pair = (copy.options.get("from", ""), copy.options.get("to", ""))
            if pair not in table.pairs:
                raise InputError(f"copy.cypher does not say which nodes {cut(copy.file)} connects")
        type_ = staged.type(TypeKind.EDGE, _edge_name(table, pair))
        ends = tuple(_end(tables[node]) for node in pair)
    by_name = {column.name: column for column in table.columns}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise InputError(f"copy.cypher loads {cut(table.name)}.{cut(unknown[0])}, which schema.cypher does not declare")
    if len(set(names)) < len(names):
        raise InputError(f"copy.cypher loads a column of {cut(table.name)} twice")
    if table.is_node and table.key not in names:
        raise InputError(f"copy.cypher loads {cut(copy.file)} without the primary key of {cut(table.name)}")
    for batch, place in _batches(path, expected, copy.options):
        columns: dict[str, pa.Array] = {}
        for number, name in enumerate(expected):
            if number < len(ends):
                values = _values(batch.column(number), ends[number].type, f"{place}: {name}")
                columns[name] = _ids(values)
                continue
            column = by_name[name]
            columns[column.property] = _values(batch.column(number), column.type, f"{place}: {name}")
        if table.is_node and type_.key is None:
            columns["id"] = _ids(columns[by_name[str(table.key)].property])
        staged.write(type_, columns)


def _end(table: _Table) -> _Column:
    return next(column for column in table.columns if column.name == table.key)


def _ids(values: pa.Array) -> pa.Array:
    """The ids of nodes, from the values of their keys."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.utf8())
    if pa.types.is_date64(values.type):
        return values.view(pa.int64()).cast(pa.utf8())
    return values.cast(pa.utf8())


def _batches(path: Path, names: list[str], options: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, str]]:
    """The rows of a file, with the columns in the order of `names`.

    Raises:
        InputError: the file cannot be read, or has other columns.
    """
    try:
        if path.suffix == ".parquet":
            with pa.parquet.ParquetFile(path) as parquet:
                found = parquet.schema_arrow.names
                named = set(names) <= set(found)  # those of relationships may have other names
                if not named and len(found) != len(names):
                    raise InputError(
                        f"{path} has the columns {cut(', '.join(found), 200)}, not {cut(', '.join(names), 200)}"
                    )
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    yield batch.select(names) if named else batch, path.name
            return
        quote, escape, separator = (
            _character(options, *names) for names in (("quote", '"'), ("escape", '"'), ("delim", "delimiter", ","))
        )
        reader = pcsv.open_csv(
            path,
            pcsv.ReadOptions(
                column_names=names, skip_rows=int(options.get("header", "false").lower() in ("true", "1"))
            ),
            pcsv.ParseOptions(
                delimiter=separator,
                quote_char=quote,
                double_quote=escape == quote,
                escape_char=False if escape == quote else escape,
                newlines_in_values=True,
            ),
            pcsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.utf8()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        with reader:
            for batch in reader:
                yield batch, path.name
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _character(options: Mapping[str, str], *names: str) -> str:
    """The value of an option, which may have several names. The last of the names is the default.

    Raises:
        InputError: it is not one ASCII character.
    """
    *names_, default = names
    text = next((options[name] for name in names_ if name in options), default)
    if len(text) != 1 or not text.isascii():
        raise InputError(f"copy.cypher: {names_[0]}='{cut(text)}' is not one ASCII character")
    return text


def _values(values: pa.Array, kind: ValueType, place: str) -> pa.Array:
    """The values of a column as values of a property.

    Raises:
        InputError: a value does not have the type.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if kind.scalar is Scalar.STRING and not kind.list:
        return _texts(values)

    def report(wrong: pa.Array, message: str, fault: Fault = Fault.VALUE, /) -> None:
        rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        if len(rows):
            raise InputError(f"{place}: {message}: {cut(str(values[int(rows[0])]))} ({len(rows):,} values)")

    if pa.types.is_string(values.type):
        if kind.list or kind.is_vector:
            report(
                pc.invert(pc.match_substring_regex(values, _BRACKETS)).fill_null(False), "expected a list in brackets"
            )
            values = _json_lists(values, kind)
        elif kind.scalar is Scalar.BOOL:
            values = pc.utf8_lower(values)
        elif kind.scalar is Scalar.BLOB:
            return pa.array([None if text is None else _blob(text) for text in values.to_pylist()], pa.large_binary())
        values = from_text(values, kind, report)
    elif kind.list and kind.scalar is Scalar.STRING and not pa.types.is_string(values.type.value_type):
        return pa.array([None if v is None else [_text(item) for item in v] for v in values.to_pylist()])
    if kind.scalar is Scalar.BLOB:
        return values.cast(pa.large_binary())
    return convert(values, kind, report)


def _text(value: object) -> str:
    """A value as text; a nested one as JSON."""
    return json.dumps(value, default=str, ensure_ascii=False) if isinstance(value, list | dict | tuple) else str(value)


def _texts(values: pa.Array) -> pa.Array:
    """Values of any type as texts; those of nested types as JSON."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return values.cast(pa.utf8())
    if pa.types.is_fixed_size_binary(values.type):
        return pa.array([None if v is None else str(uuid.UUID(bytes=v)) for v in values.to_pylist()], pa.utf8())
    if pa.types.is_nested(values.type):
        return pa.array([None if v is None else _text(v) for v in values.to_pylist()], pa.utf8())
    return values.cast(pa.utf8())


def _json_lists(cells: pa.Array, kind: ValueType) -> pa.Array:
    """The texts of lists as JSON arrays. Kuzu writes their items without quotes."""
    if kind.is_vector or (kind.scalar not in (Scalar.STRING, Scalar.DATE, Scalar.DATETIME)):
        return pc.utf8_lower(cells)
    inside = pc.utf8_slice_codeunits(cells, 1, -1)
    joined = pc.binary_join_element_wise('["', pc.replace_substring(inside, ",", '","'), '"]', "")
    texts = pc.if_else(pc.equal(inside, ""), "[]", joined)
    special = pc.invert(pc.match_substring_regex(cells, _PLAIN_ITEMS)).fill_null(False)
    if not pc.any(special).as_py():
        return texts
    found = [json.dumps(_items(text)) for text in cells.filter(special).to_pylist()]
    return pc.replace_with_mask(texts, special, pa.array(found, pa.utf8()))


def _items(text: str) -> list[str]:
    """The items of a list like `[a,"b,c",[d,e]]`."""
    found, item, quote, depth = [], "", "", 0
    inside = text.strip()[1:-1]
    if not inside:
        return []
    characters = iter(inside)
    for character in characters:
        if character == "\\":
            item += next(characters, "")
        elif quote:
            quote, item = ("", item) if character == quote else (quote, item + character)
        elif character in "\"'" and not item:
            quote = character
        elif character == "," and depth == 0:
            found.append(item)
            item = ""
        else:
            depth += (character in "[{") - (character in "]}")
            item += character
    return [*found, item]


def _blob(text: str) -> bytes:
    r"""The bytes of a text like `\xAA\x00z`."""
    return re.sub(
        rb"\\x([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), text.encode("utf-8", "surrogateescape")
    )

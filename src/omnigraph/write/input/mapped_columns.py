"""Builds rows from the columns of a table according to a mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, Problem, cut
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import NodeType
from omnigraph.lang.types import ValueType
from omnigraph.write.input.constants import as_column
from omnigraph.write.input.envelopes import unknown_property
from omnigraph.write.input.named_columns import END, Columns, Dialect, Read, Type
from omnigraph.write.input.table_mapping import Constant, Entry, Key, Others, Text, TypeRows, ValueSource
from omnigraph.write.rows.convert import convert
from omnigraph.write.rows.identity import derived_ids
from omnigraph.write.rows.problems import SHOWN, Leniency, Problems
from omnigraph.write.rows.raw_rows import Origin, RawRows
from omnigraph.write.rows.values import without_gaps

_UNMENTIONED = "the mapping does not mention this column: name it under 'properties' or 'ignore'"


@dataclass(frozen=True, slots=True)
class Mapped:
    """The layout of a table (types and columns), as a mapping describes it."""

    entry: Entry

    @property
    def types(self) -> tuple[Type, ...]:
        return tuple(dict.fromkeys((rows.kind, rows.name) for _, rows in self.entry.when))

    @property
    def csv(self) -> Dialect:
        return self.entry.csv

    def columns(self, accepted: AcceptedSchema, problems: Problems) -> MappedColumns:
        return MappedColumns(self.entry, accepted, problems)


class MappedColumns:
    """Builds the rows of a table that a mapping describes.

    Args:
        entry: the entry of the mapping.
        accepted: the accepted schema.
        problems: collects wrong values. If `problems.coerced` is set, the reader is lenient.
    """

    def __init__(self, entry: Entry, accepted: AcceptedSchema, problems: Problems) -> None:
        self._entry = entry
        self._problems = problems
        self._builders = {word: _TypeBuilder(rows, accepted, problems) for word, rows in entry.when}

    @property
    def name(self) -> str:
        """The name of the type, or of all types, joined with `or`."""
        return " or ".join(dict.fromkeys(rows.name for _, rows in self._entry.when))

    def member_types(self) -> dict[str, ValueType | None]:
        """The columns that the mapping reads, with the types of their properties; None for parts of texts."""
        found: dict[str, ValueType | None] = {}
        if self._entry.column is not None:
            found[self._entry.column] = None
        for builder in self._builders.values():
            for name, kind in builder.column_types():
                known = found.get(name)
                found[name] = (kind or known) if known is None or kind is None or known == kind else None
        return found

    def check_names(self, names: list[str], position: int, place: str) -> None:
        """Report the columns that the mapping does not mention, once each.

        Raises:
            InputError: a column of the mapping is missing in the table.
        """
        self._check_missing(names, place)
        for name in names:
            if name == self._entry.column or any(builder.covers(name) for builder in self._builders.values()):
                continue
            subject = f"{self.name}.{cut(name)}"
            if self._problems.coerced is not None:
                self._problems.coerced.add(Leniency.IGNORED_PROPERTY, subject, place)
                continue
            message = self._unknown(name, suggests=self._problems.keeps(position, subject))
            self._problems.add(Problem(position, place, subject, message))

    def _check_missing(self, names: list[str], place: str) -> None:
        column = self._entry.column
        needed = [] if column is None else [(column, self._entry.at)]
        for _, rows in self._entry.when:
            needed += [(name, source.at) for _, source in rows.sources for name in source.columns]
        for name, at in needed:
            if name not in names:
                where = at.document if at.line is None else f"{at.document}, line {at.line}"
                raise InputError(
                    f"{place}: there is no column '{cut(name)}', but {where} names it", hint=did_you_mean(name, names)
                )

    def _unknown(self, name: str, *, suggests: bool) -> str:
        builders = list(self._builders.values())
        if len(builders) > 1 or builders[0].rows.others is not Others.MATCH:
            return _UNMENTIONED
        if name in builders[0].columns.members:
            return f"the mapping fills '{cut(name)}' from another column; to leave this one out, name it under 'ignore'"
        return f"{unknown_property(name, builders[0].columns.members if suggests else {})}; {_UNMENTIONED}"

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> Iterator[RawRows]:
        """Build the rows, one table per type."""
        switch = self._entry.column
        if switch is None:
            for builder in self._builders.values():
                yield builder.build(*builder.without_absent(columns, origin), read)
            return
        if switch not in columns:
            return
        words = _texts(columns[switch])
        if words is None:
            kind = columns[switch].type
            raise self._entry.at.error(
                f"the column '{cut(switch)}' selects the type of a row, but its values are of type {kind}",
                "use a column of texts, whole numbers or truth values",
            )
        unmatched = np.ones(len(words), bool)
        for word, builder in self._builders.items():
            chosen = pc.equal(words, word).fill_null(False)
            mask = chosen.to_numpy(zero_copy_only=False)
            unmatched &= ~mask
            if mask.any():
                own_columns = {name: column.filter(chosen) for name, column in columns.items() if name != switch}
                own_origin = origin.select(mask)
                self._refuse_other_columns(builder, own_columns, own_origin)
                yield builder.build(own_columns, own_origin, read)
        self._refuse_words(words, unmatched, origin)

    def _refuse_other_columns(self, builder: _TypeBuilder, columns: Mapping[str, pa.Array], origin: Origin) -> None:
        """Report values in columns that the mapping uses only for rows of other types."""
        for name, column in columns.items():
            if builder.covers(name) or not any(other.covers(name) for other in self._builders.values()):
                continue
            stray = column.is_valid().to_numpy(zero_copy_only=False)
            if not stray.any():
                continue
            subject = f"{builder.rows.name}.{cut(name)}"
            places = origin.records[stray][:SHOWN].tolist()
            if self._problems.coerced is not None:
                count = int(stray.sum())
                self._problems.coerced.add(Leniency.IGNORED_PROPERTY, subject, origin.place(places[0]), count)
                continue
            message = f"the mapping does not mention this column for rows of {builder.rows.name}"
            shown = [Problem(place, origin.place(place), subject, message) for place in places]
            self._problems.add_all(shown, int(stray.sum()))

    def _refuse_words(
        self, words: pa.Array, unmatched: np.ndarray[tuple[int], np.dtype[np.bool_]], origin: Origin
    ) -> None:
        """Report rows for which the mapping has no type. `words` are the values of the column that selects the type."""
        if not unmatched.any():
            return
        rows = np.flatnonzero(unmatched)
        known = ", ".join(map(cut, self._builders))
        shown = []
        for row in rows[:SHOWN].tolist():
            place, word = int(origin.records[row]), words[row].as_py()
            found = "nothing" if word is None else f"'{cut(word)}'"
            message = f"column '{cut(str(self._entry.column))}': expected one of {known}, found {found}"
            shown.append(Problem(place, origin.place(place), "input", message))
        self._problems.add_all(shown, len(rows))


class _TypeBuilder:
    """Builds the rows of one type."""

    def __init__(self, rows: TypeRows, accepted: AcceptedSchema, problems: Problems) -> None:
        self.rows = rows
        self.columns = Columns(accepted, rows.kind, rows.name, problems)
        self._accepted = accepted
        self._sources = dict(rows.sources)
        self._input_columns = {
            name: _column_label(source.columns) for name, source in rows.sources if _renames(name, source)
        }

    def column_types(self) -> Iterator[tuple[str, ValueType | None]]:
        """The columns that the mapping reads for this type, with the types of their properties."""
        for name, source in self._sources.items():
            if isinstance(source, Text):
                plain = source.plain and source.format is None and name in self.columns.members
                yield from ((each, self.columns.members[name] if plain else None) for each in source.columns)
            elif isinstance(source, Key):
                node = self._node_at(name)
                for member, part in source.members:
                    is_plain = isinstance(part, Text) and part.plain and part.format is None
                    kind = node.properties[member].type if is_plain else None
                    yield from ((each, kind) for each in part.columns)
        if self.rows.others is Others.MATCH:
            for name, kind in self.columns.members.items():
                if name not in self._sources and name not in self.rows.ignored and name not in self.rows.mentioned:
                    yield name, kind

    def _node_at(self, end: str) -> NodeType:
        """The node type at one end of the edges."""
        edge = self._accepted.catalog.edges[self.rows.name]
        return self._accepted.catalog.nodes[edge.from_type if end == "from" else edge.to_type]

    def without_absent(self, columns: Mapping[str, pa.Array], origin: Origin) -> tuple[Mapping[str, pa.Array], Origin]:
        """The rows without those in which an optional entity is absent: its id, key or an endpoint is null."""
        if not self.rows.optional:
            return columns, origin
        names = {"from", "to"} if self.rows.kind is TypeKind.EDGE else {"id", *self.columns.key}
        needed: set[str] = set()
        for name in names:
            if name in self._sources:
                needed.update(self._sources[name].columns)
            elif self.rows.others is Others.MATCH and name in columns:
                needed.add(name)
        absent = np.zeros(len(origin.records), bool)
        for name in needed:
            absent |= columns[name].is_null().to_numpy(zero_copy_only=False)
            if pa.types.is_string(columns[name].type):  # an empty text in a CSV file
                absent |= pc.equal(columns[name], "").fill_null(False).to_numpy(zero_copy_only=False)
        if not absent.any():
            return columns, origin
        present = pa.array(~absent)
        return {name: column.filter(present) for name, column in columns.items()}, origin.select(~absent)

    def covers(self, column: str) -> bool:
        """Whether the mapping uses or ignores a column for rows of this type. Other columns are unknown."""
        others = self.rows.others
        if column in self.rows.mentioned or others is Others.IGNORE:
            return True
        return others is Others.MATCH and column in self.columns.members and column not in self._sources

    def build(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None) -> RawRows:
        """Build rows from columns."""
        count = len(origin.records)
        origin = replace(origin, input_columns=self._input_columns)
        raw: dict[str, pa.Array] = {}
        ready: dict[str, pa.Array] = {}
        if self.rows.others is Others.MATCH:
            matching = columns.keys() - self.rows.mentioned - self._sources.keys()
            raw = {
                name: column for name, column in columns.items() if name in matching and name in self.columns.members
            }
        for name, source in self._sources.items():
            if isinstance(source, Text) and source.format is not None:
                ready |= self.columns.converted({name: self._text(source, name, columns)}, origin, source.format.read)
            elif isinstance(source, Text):
                raw[name] = self._text(source, name, columns)
            elif isinstance(source, Constant):
                ready[name] = _repeated(as_column(source.at, self.columns.members[name]), count)
            else:
                ready[name] = self._key(source, name, columns, origin, read)
        rows = self.columns.converted(raw, origin, read)
        return RawRows(self.rows.kind, self.rows.name, rows | ready, {}, origin)

    def _text(self, source: Text, name: str, columns: Mapping[str, pa.Array]) -> pa.Array:
        if source.plain:
            return columns[source.parts[1]]
        parts: list[pa.Array | pa.Scalar] = []
        for i, part in enumerate(source.parts):
            if i % 2 == 0:
                parts.append(pa.scalar(part, pa.utf8()))
                continue
            texts = _texts(columns[part])
            if texts is None:
                kind = columns[part].type
                message = f"{self.rows.name}.{name}: a column of {kind} cannot be part of a text: '{cut(part)}'"
                raise source.at.error(message, "texts can be built from texts, whole numbers and truth values")
            parts.append(texts)
        return pc.binary_join_element_wise(*parts, "")

    def _key(self, key: Key, name: str, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None) -> pa.Array:
        """The ids of the nodes at one end of the edges, built from their key properties."""
        node = self._node_at(name)
        order = self._accepted.key_order(TypeKind.NODE, node.name)
        assert order is not None
        given = dict(key.members)
        refused: list[int] = []
        members = []
        for member in order:
            source, kind = given[member], node.properties[member].type
            if isinstance(source, Constant):
                members.append((_repeated(as_column(source.at, kind), len(origin.records)), kind))
                continue
            column = self._text(source, name, columns)
            report = self.columns.report(name, END, origin, column, refused)
            reading = source.format.read if source.format is not None else read
            column = column if reading is None else reading(column, kind, report)
            members.append((convert(column, kind, report), kind))
        return without_gaps(derived_ids(members), END, refused)


def _renames(name: str, source: ValueSource) -> bool:
    return bool(source.columns) and not (isinstance(source, Text) and source.plain and source.parts[1] == name)


def _column_label(columns: Iterable[str]) -> str:
    names = [f"'{cut(name)}'" for name in dict.fromkeys(columns)]
    return f"column {names[0]}" if len(names) == 1 else f"columns {', '.join(names)}"


def _repeated(one: pa.Array, count: int) -> pa.Array:
    return one.take(pa.array(np.zeros(count, np.int64)))


def _texts(column: pa.Array) -> pa.Array | None:
    """A column of texts, whole numbers or truth values as texts; None for other types: they have several text forms."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_null(kind)
    wide = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    exact = pa.types.is_decimal(kind) and kind.scale == 0
    return column.cast(pa.utf8()) if plain or wide or exact else None

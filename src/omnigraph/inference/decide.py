"""Decides which tables are nodes and which are edges, and the types of their properties."""

# See docs/decisions/0350-a-schema-is-inferred-from-names-and-values.md

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from omnigraph.errors import InputError, cut
from omnigraph.inference.column_profile import ColumnProfile, pairs_are_unique
from omnigraph.inference.draft import Draft, EdgeDraft, End, NodeDraft, PropertyDraft
from omnigraph.inference.names import property_name, table_words, tokens, type_name, unique_name
from omnigraph.inference.relations import (
    PAIRS,
    Key,
    Reference,
    dangling,
    ends_by_name,
    is_id_name,
    key_of,
    owners_of,
    pair_key_of,
    pair_references_of,
    references_of,
)
from omnigraph.inference.table_profile import TableProfile
from omnigraph.inference.value_types import DAYS_AS_NUMBERS
from omnigraph.lang.types import Scalar, ValueType

_NODE_RESERVED = ("id",)
_EDGE_RESERVED = ("id", "src", "dst", "from", "to")
_TIME_WORDS = ("timestamp", "stamp", "ts", "time", "date", "at", "created", "updated", "modified", "epoch")
_DAY_WORDS = ("date", "day", "dob", "born")
_SECONDS = (100_000_000, 4_102_444_800)
_EDGE_KEYS = ("id", "edge_id", "rel_id", "relationship_id", "link_id")


def decide(tables: Sequence[TableProfile]) -> Draft:
    """The types of the rows of all tables."""
    return _Decisions(tables).draft


class _Decisions:
    def __init__(self, tables: Sequence[TableProfile]) -> None:
        self.draft = Draft()
        self._ends = {id(table): ends_by_name(table) for table in tables}
        self._keys: list[tuple[TableProfile, Key]] = []
        for table in tables:
            key = key_of(table)
            if key is not None and not self._is_edge_by_name(table, key):
                self._keys.append((table, key))
        self._keys = [(table, key) for table, key in self._keys if not self._is_also_reference(table, key)]
        self._single_keys = list(self._keys)
        self._nodes: dict[int, NodeDraft] = {}
        self._derived: dict[str, NodeDraft] = {}
        edges: list[tuple[TableProfile, list[Reference]]] = []
        for table in tables:
            key = next((key for owner, key in self._single_keys if owner is table), None)
            references = references_of(table, self._single_keys)
            if key is None and self._is_edge(table, references):
                edges.append((table, references))
                continue
            if key is None or not key.named:
                key = pair_key_of(table) or key if key is None else key
                if key is not None and len(key.columns) > 1:
                    self._keys.append((table, key))
            self._add_node(table, key)
        for table in tables:
            if id(table) in self._nodes:
                self._add_references(table)
        for table, references in edges:
            self._add_edge(table, references)

    # Nodes

    def _is_edge_by_name(self, table: TableProfile, key: Key) -> bool:
        ends = [column for pair in self._ends[id(table)] for column in pair]
        column = key.columns[0]
        return bool(ends) and (column in ends or not key.own or "_".join(tokens(column.name)) in _EDGE_KEYS)

    def _is_also_reference(self, table: TableProfile, key: Key) -> bool:
        """Whether a column is unique by chance: it refers to another table, and a second column does, too."""
        references = references_of(table, self._keys)
        return not key.own and len(references) > 1 and any(key.columns == each.columns for each in references)

    def _is_edge(self, table: TableProfile, references: Sequence[Reference]) -> bool:
        if self._ends[id(table)] or len(references) >= 2:
            return True
        return len(references) == 1 and self._other_end(table, references[0]) is not None

    def _other_end(self, table: TableProfile, reference: Reference) -> ColumnProfile | None:
        """A column with ids of nodes that have no table."""
        lost = dangling(table, self._single_keys)
        for column in table.columns:
            kind = column.kind(table.nulls)
            if column in reference.columns or not is_id_name(column.name) or column.name in lost:
                continue
            words = tokens(column.name)
            if len(words) > 1 and words[-1] in ("id", "key", "uuid") and column.complete() and not kind.list:
                return column
        return None

    def _add_node(self, table: TableProfile, key: Key | None) -> None:
        name = unique_name(type_name(table.stem), [node.name for node in self.draft.nodes])
        node = NodeDraft(name, table, [])
        taken: list[str] = []
        for column in table.columns:
            if self._leave_out(column, node.ignored, node.reasons):
                continue
            is_key = key is not None and column in key.columns
            prop = _property(table, column, taken, _NODE_RESERVED, own=name, key=is_key)
            node.properties.append(prop)
            taken.append(prop.name)
        if key is not None:
            node.key = tuple(node.property_of(column.name).name for column in key.columns)
            names = " and ".join(column.name for column in key.columns)
            node.reasons.insert(0, f"key {names}: {key.reason}")
        else:
            node.reasons.insert(
                0, "no key: no column has unique values and a name or place of a key; ids are generated"
            )
        for column_name, reason in dangling(table, self._single_keys).items():
            node.reasons.append(f"{column_name}: {reason}")
        self._nodes[id(table)] = node
        self.draft.nodes.append(node)

    def _leave_out(self, column: ColumnProfile, ignored: list[str], reasons: list[str]) -> bool:
        problem = column.unloadable or (
            f"no property can have values of the type {column.unsupported}" * bool(column.unsupported)
        )
        if problem:
            ignored.append(column.name)
            reasons.append(f"{column.name} is left out: {problem}")
        return bool(problem)

    # Edges

    def _add_references(self, table: TableProfile) -> None:
        """Add an edge for each reference of a table of nodes, in place of a property."""
        node = self._nodes[id(table)]
        own = End(node, node.key_columns)
        if not own.columns:
            return
        used: set[str] = set()
        pairs = pair_references_of(table, self._keys)
        for reference in [*pairs, *references_of(table, self._single_keys)]:
            target = self._nodes.get(id(reference.target))
            columns = list(reference.columns)
            if target is None or used & {column.name for column in columns}:
                continue
            used |= {column.name for column in columns}
            words = [word for column in columns for word in tokens(column.name)]
            same = target.key_columns == tuple(column.name for column in columns)
            role = [] if same else _without_id(words)
            role = role or tokens(target.name)
            role_name = "".join(map(str.capitalize, role)) if len(columns) == 1 else target.name
            name = unique_name(f"{node.name}{role_name}", [edge.name for edge in self.draft.edges])
            optional = not all(column.complete() for column in columns)
            reason = f"{' and '.join(column.name for column in columns)}: {reference.reason}"
            end = End(target, tuple(column.name for column in columns))
            edge = EdgeDraft(name, table, own, end, unique=True, optional=optional, main=False, reasons=[reason])
            self.draft.edges.append(edge)
            kept = set(node.key_columns)
            node.properties = [
                prop for prop in node.properties if prop.column in kept or prop.column not in end.columns
            ]

    def _add_edge(self, table: TableProfile, references: Sequence[Reference]) -> None:
        reasons: list[str] = []
        start, end = self._endpoints(table, references, reasons)
        ends = {*start.columns, *end.columns}
        edge = EdgeDraft(self._edge_name(table, start, end), table, start, end, reasons=reasons)
        taken: list[str] = []
        for column in table.columns:
            if column.name in ends or self._leave_out(column, edge.ignored, edge.reasons):
                continue
            if "_".join(tokens(column.name)) in _EDGE_KEYS and column.is_key:
                edge.id_column = column.name
                continue
            prop = _property(table, column, taken, _EDGE_RESERVED, own=edge.name)
            edge.properties.append(prop)
            taken.append(prop.name)
        edge.optional = not all(table.column(name).complete() for name in ends)
        if len(start.columns) == len(end.columns) == 1:
            unique = pairs_are_unique(table.column(start.columns[0]), table.column(end.columns[0]))
            edge.unique = bool(unique) and not edge.optional and edge.id_column is None
        if edge.unique:
            edge.reasons.append("key: no two rows have the same endpoints")
        elif edge.id_column is None:
            edge.reasons.append("no key: rows may have the same endpoints; a second load adds the edges again")
        if edge.optional:
            edge.reasons.append("rows without an endpoint are left out")
        self.draft.edges.append(edge)

    def _endpoints(self, table: TableProfile, references: Sequence[Reference], reasons: list[str]) -> tuple[End, End]:
        pairs = self._ends[id(table)]
        by_column = {id(reference.columns[0]): reference for reference in references}
        for first, second in pairs:
            if id(first) in by_column and id(second) in by_column:
                return self._end(by_column[id(first)], reasons), self._end(by_column[id(second)], reasons)
        if pairs:
            by_name = pairs[0]
            why = "by their names" if table.named else "they have values in common"
            reasons.append(f"endpoints {by_name[0].name} and {by_name[1].name}: {why}")
            one, other = (self._derive(table, column, reasons) for column in by_name)
            return one, other
        if len(references) >= 2:
            return self._end(references[0], reasons), self._end(references[1], reasons)
        column = self._other_end(table, references[0])
        assert column is not None
        derived, known = self._derive(table, column, reasons), self._end(references[0], reasons)
        comes_first = table.columns.index(column) < table.columns.index(references[0].columns[0])
        return (derived, known) if comes_first else (known, derived)

    def _end(self, reference: Reference, reasons: list[str]) -> End:
        columns = tuple(column.name for column in reference.columns)
        reasons.append(f"endpoint {' and '.join(columns)}: {reference.reason}")
        return End(self._nodes[id(reference.target)], columns)

    def _derive(self, table: TableProfile, column: ColumnProfile, reasons: list[str]) -> End:
        """The type of nodes that are only mentioned by edges."""
        words = _without_id([w for w in tokens(column.name) if not any(w in pair for pair in PAIRS)])
        words = words if table.named else []
        noun = "".join(map(str.capitalize, words)) or "Node"
        node = self._derived.get(noun)
        kind = column.kind(table.nulls).with_nullable(False)
        if node is None:
            name = unique_name(noun, [node.name for node in self.draft.nodes])
            prop = PropertyDraft(property_name("_".join([*words, "id"]) if words else "key", ()), kind, column.name)
            node = NodeDraft(name, table, [prop], id_column=column.name, derived=True)
            node.reasons.append("no table contains these nodes: they are the values of columns of edges")
            self._derived[noun] = node
            self.draft.nodes.append(node)
        elif node.properties and node.properties[0].kind != kind:
            node.properties = []
        reasons.append(f"endpoint {column.name}: its values are ids of {node.name}")
        if len(owners := owners_of(table, column, self._single_keys)) > 1:
            names = " and ".join(owner.name for owner in owners)
            reasons.append(f"{column.name}: its values are keys of {names}; join these tables to have one type")
        return End(node, (column.name,))

    def _edge_name(self, table: TableProfile, start: End, end: End) -> str:
        words, full = table_words(table.stem), type_name(table.stem, plural=True)
        first, last = tokens(start.node.name), tokens(end.node.name)
        if len(words) > len(first) + len(last) and words[: len(first)] == first and words[-len(last) :] == last:
            words = words[len(first) : -len(last)]
        name = "".join(map(str.capitalize, words))
        taken = [edge.name for edge in self.draft.edges]
        if not name[:1].isalpha() or name.lower() in {each.lower() for each in taken}:
            name = full
        return unique_name(name, taken)


def _without_id(words: list[str]) -> list[str]:
    return words[:-1] if words and words[-1] in ("id", "key", "uuid", "code", "no", "nr", "number") else words


def _property(
    table: TableProfile,
    column: ColumnProfile,
    taken: Collection[str],
    reserved: Collection[str],
    *,
    own: str,
    key: bool = False,
) -> PropertyDraft:
    """The property of a column."""
    kind, format, reason = _type(table, column, key=key)
    name = column.name
    if property_name(name, ()) == "id" and "id" in reserved:
        name = f"{own[0].lower()}{own[1:]}_id"
    return PropertyDraft(property_name(name, taken, reserved), kind, column.name, format, reason)


def _type(
    table: TableProfile, column: ColumnProfile, *, key: bool, formats: bool = True
) -> tuple[ValueType, str | None, str]:
    kind, format = column.kind(table.nulls), column.format(table.nulls)
    if column.inexact and kind.scalar is Scalar.F64:
        return kind, None, "whole numbers beyond 2^64: only about 16 digits of each are kept"
    if column.rows == column.nulls:
        return kind.with_nullable(True), None, "no row has a value"
    if several := column.ambiguous_formats:
        text = ValueType(Scalar.STRING, nullable=kind.nullable)
        return text, None, f"dates that could be {' or '.join(several[:2])}: set a format and the type to convert them"
    if format is not None:
        return kind, format, f"all values have the format {format}"
    if key:
        return kind, None, ""
    words = tokens(column.name) if formats else []
    if kind.scalar in (Scalar.I64, Scalar.I32) and not kind.list and column.low is not None and column.high is not None:
        numbers = [candidate.format for candidate in column.candidates]
        if DAYS_AS_NUMBERS in numbers and any(word in _DAY_WORDS for word in words):
            date = ValueType(Scalar.DATE, nullable=kind.nullable)
            return date, DAYS_AS_NUMBERS, "the numbers are dates, and so is the name"
        for unit, size in (("seconds", 1), ("milliseconds", 1000)):
            within = _SECONDS[0] * size <= column.low and column.high <= _SECONDS[1] * size
            if within and any(word in _TIME_WORDS for word in words):
                time = ValueType(Scalar.DATETIME, nullable=kind.nullable)
                return time, unit, f"the name is that of a time, and the numbers are {unit} since 1970"
    if kind.scalar is Scalar.STRING and not kind.list:
        values = column.enum_values()
        if values is not None:
            enum = replace(kind, enum_values=values)
            return enum, None, f"{len(values)} distinct values in {column.distinct.rows:,} rows"
        if column.candidates and column.candidates[0].reason:
            return kind, None, column.candidates[0].reason
        left = [text for text in column.null_texts if text not in table.nulls]
        if left and column.candidates:
            return kind, None, f"a text because of values such as '{left[0]}'"
    return kind, None, ""


def property_draft(table: TableProfile, column: ColumnProfile, *, key: bool) -> PropertyDraft:
    """The property of a member of records. It has the name of the member.

    Raises:
        InputError: no type takes all values of the member.
    """
    problem = column.unloadable or (f"values of the type {column.unsupported}" if column.unsupported else None)
    if problem is not None:
        raise InputError(
            f"{table.name}: no type fits '{cut(column.name)}' of {table.stem}: it has {problem}",
            hint="correct the records, or write the schema by hand",
        )
    kind, _, reason = _type(table, column, key=key, formats=False)
    return PropertyDraft(column.name, kind, column.name, None, reason)

"""Finds the values with which schema changes have filled new properties.

A property that only the second of two states has counts as having this value in the first state. The schema that added
the property is found among the schema changes before the second state: later schemas may have another default.
"""

# See docs/decisions/0164-a-new-property-counts-as-filled.md

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.aligned_types import AddedProperty, TypePair
from omnigraph.commit.manifest import Commit, Manifest, TableId, TablePin
from omnigraph.commit.manifest_rows import RowKind, read_commits
from omnigraph.commit.schema_files import archived_schemas
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import VersionReclaimedError
from omnigraph.lang.schema import AcceptedSchema, TypeKind, compile_schema
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.write.rows.builder import default_value
from omnigraph.write.rows.renamed_values import renamed_values

_KINDS = pa.array([RowKind.GRAPH_COMMIT.value, RowKind.ANCESTOR.value])


@dataclass(frozen=True, slots=True)
class _Version:
    """A state of the graph with its schema, and the source text of the schema."""

    state: Manifest
    text: str
    accepted: AcceptedSchema

    def pin(self, table: TableId) -> TablePin | None:
        return next((pin for pin in self.state.tables.values() if pin.id == table), None)

    def property(self, table: TableId, number: int) -> Property | None:
        """The declaration of a property; None if the state does not have it."""
        return _declared(self.accepted, table, number)

    def enum_renames(self, table: TableId, prop: Property) -> list[tuple[str, str]]:
        """The old and new names of the values of an enum property that this schema has renamed."""
        pin = self.pin(table)
        assert pin is not None
        kind, type_name = TypeKey.parse(pin.key)
        declared = compile_schema(self.text).declared(kind, type_name).properties[prop.name]
        allowed = prop.type.enum_values or ()
        return [(old, new) for new, old in declared.enum_renames if old not in allowed and new in allowed]


@dataclass(frozen=True, slots=True)
class _Origin:
    """The schema change that added a property.

    Attributes:
        current: the property in the second state.
        declared: the property as it was added.
        version: the state after the change.
        later: the later schema changes, oldest first.
        is_certain: whether no older schema change could have added it. Cleanup may have removed that state.
    """

    current: Property
    declared: Property
    version: _Version
    later: Sequence[_Version]
    is_certain: bool


class AddedProperties:
    """The properties that schema changes before a state have added.

    Args:
        store: the graph.
        version_of: returns the source text and the accepted form of the schema of a state.
        after: the state.
    """

    def __init__(
        self, store: Store, version_of: Callable[[Manifest], tuple[str, AcceptedSchema]], after: Manifest
    ) -> None:
        self._store = store
        self._version_of = version_of
        self._after = after
        self._versions: dict[int, _Version | None] = {}

    def completed(self, pair: TypePair) -> TypePair:
        """The same type with the values of the properties that only the second state has."""
        if pair.before is None or pair.after is None:
            return pair
        known = set(pair.before.numbers.values())
        names = {number: name for name, number in pair.after.numbers.items() if number not in known}
        found = [self.filled(pair.id, name, number) for number, name in names.items()]
        return replace(pair, added=tuple(one for one in found if one is not None))

    def filled(self, table: TableId, name: str, number: int) -> AddedProperty | None:
        """How a property was filled in the rows that existed when it was added; None if it cannot be known.

        Args:
            table: the type.
            name: the name of the property in the state.
            number: its stable number.
        """
        origin = self._origin(table, number)
        embed = origin.current.embed
        if embed is not None:
            return AddedProperty(name, text=embed.source)
        if origin.declared.embed is not None:
            return None
        if not origin.is_certain and not self._is_only_declaration(origin.declared, table, number):
            return None
        if origin.declared.default is None or origin.declared.type.nullable:
            return AddedProperty(name)
        if origin.declared.default.now:
            return self._filled_with_time(origin, table, name, number)
        value = default_value(origin.declared, 0)
        if origin.declared.type.enum_values:
            for version in origin.later:
                declared = version.property(table, number)
                assert declared is not None
                renames = version.enum_renames(table, declared)
                value = renamed_values(pa.array([value]), renames)[0] if renames else value
        return AddedProperty(name, value)

    def _is_only_declaration(self, declared: Property, table: TableId, number: int) -> bool:
        """Whether no schema that the graph has ever had fills a property in another way."""
        found = [_declared(schema, table, number) for schema in self._schemas]
        return all(_filling(one) == _filling(declared) for one in found if one is not None)

    def _is_younger_than_type(self, table: TableId, number: int) -> bool:
        """Whether a schema change added a property to a type that existed before. Numbers are assigned in order."""
        older = [schema for schema in self._schemas if schema.next_id <= number]
        return any(_type(schema, table) is not None for schema in older)

    def _filled_with_time(self, origin: _Origin, table: TableId, name: str, number: int) -> AddedProperty | None:
        """The time that a property was filled with, from a row of the state that added it; None if it is unknown."""
        pin = origin.version.pin(table)
        assert pin is not None
        if not origin.is_certain:
            return None
        if pin.row_count == 0 or not self._is_younger_than_type(table, number):
            return AddedProperty(name)  # no row was filled
        try:
            rows = self._store.tables.at(pin.ref).scan(columns=[origin.declared.name], limit=1)
        except VersionReclaimedError:
            return None
        return AddedProperty(name, rows.column(0).combine_chunks()[0])

    def _origin(self, table: TableId, number: int) -> _Origin:
        newest = self._version(0)
        assert newest is not None
        declared = current = newest.property(table, number)
        assert current is not None
        assert declared is not None
        found, later, is_certain = newest, [], True
        for place in range(1, len(self._commits) + 1):
            version = self._version(place)
            if version is None:
                is_certain = False
                continue
            older = version.property(table, number)
            if older is None:
                break
            later.append(found)
            found, declared, is_certain = version, older, True
        return _Origin(current, declared, found, later[::-1], is_certain)

    def _version(self, place: int) -> _Version | None:
        """The second state, then the states after earlier schema changes, newest first; None if one was removed."""
        if place not in self._versions:
            try:
                state = self._after if place == 0 else self._store.manifest_of(self._commits[place - 1])
                self._versions[place] = _Version(state, *self._version_of(state))
            except VersionReclaimedError:
                self._versions[place] = None
        return self._versions[place]

    @cached_property
    def _schemas(self) -> list[AcceptedSchema]:
        """All schemas that the graph has ever had."""
        return list(archived_schemas(self._store.objects))

    @cached_property
    def _commits(self) -> list[Commit]:
        """The schema changes before the state, newest first. All were made on `main`, so their versions order them."""
        rows = self._after.ledger.read(filter=pc.field("object_type").isin(_KINDS))
        found = {one.id: one for one in [*self._after.ledger.decoded(rows, read_commits), self._after.head]}
        changes = [one for one in found.values() if one.writer == WriterKind.SCHEMA_APPLY]
        return sorted(changes, key=lambda one: one.manifest_version, reverse=True)


def _type(schema: AcceptedSchema, table: TableId) -> tuple[TypeKind, str] | None:
    """The kind and the name of a type by its identity; None if a schema does not have it."""
    for kind, types in ((TypeKind.NODE, schema.catalog.nodes), (TypeKind.EDGE, schema.catalog.edges)):
        for name in types:
            identity = schema.identity(kind, name)
            if (identity.type_id, identity.incarnation) == (table.type_id, table.incarnation):
                return kind, name
    return None


def _declared(schema: AcceptedSchema, table: TableId, number: int) -> Property | None:
    """The declaration of a property by its identity; None if a schema does not have it."""
    found = _type(schema, table)
    if found is None:
        return None
    properties = schema.catalog.declared(*found).properties
    return next((properties[p] for p, known in schema.identity(*found).properties.items() if known == number), None)


def _filling(prop: Property) -> tuple[object, ...]:
    """The parts of a declaration that determine how a schema change fills a new property."""
    default = None if prop.type.nullable else prop.default
    return prop.embed is not None, default

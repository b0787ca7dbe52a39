"""The schema without hidden types and properties, as if they had never been declared."""

# See docs/decisions/0311-hidden-types-leave-the-schema.md

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema, TypeKind, ir_hash, parse_schema, print_schema
from omnigraph.lang.schema import ast as tree
from omnigraph.lang.schema.accepted import without_hints
from omnigraph.lang.schema.build import compile_schema
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema.identity import EnumIdentity, TypeIdentity
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.restricted.row_scope import Rows, RowScope
from omnigraph.storage.lru_cache import LruCache


@dataclass(frozen=True, slots=True)
class VisibleSchema:
    """A schema as an actor sees it.

    Attributes:
        text: its source text.
        accepted: its accepted form. Types and properties have the numbers of the whole schema.
        hash: its hash.
        scope: the scope that it was made for.
    """

    text: str
    accepted: AcceptedSchema
    hash: str
    scope: RowScope


def renumbered(accepted: AcceptedSchema) -> AcceptedSchema:
    """A visible schema for callers, with other numbers in the same order, and without the id of the graph.

    The numbers of the whole schema have gaps, which would tell how many types and properties are hidden.
    """
    known = accepted.identities.values()
    used = {number for one in known for number in (one.type_id, one.incarnation, *one.properties.values())}
    used |= {one for each in known for enum in each.enums.values() for one in enum.ids.values() if isinstance(one, int)}
    place = {number: at for at, number in enumerate(sorted(one for one in used if one is not None), 1)}
    identities = {
        key: TypeIdentity(
            place[one.type_id],
            None if one.incarnation is None else place[one.incarnation],
            {name: place[number] for name, number in one.properties.items()},
            {name: _renumbered_enum(enum, place) for name, enum in one.enums.items()},
        )
        for key, one in accepted.identities.items()
    }
    return AcceptedSchema("", len(place) + 1, accepted.catalog, identities)


def _renumbered_enum(enum: EnumIdentity, place: Mapping[int, int]) -> EnumIdentity:
    return replace(enum, ids={name: place[one] if isinstance(one, int) else one for name, one in enum.ids.items()})


_KEPT = 64
_known: LruCache[VisibleSchema] = LruCache(_KEPT)
"""Recent schemas. Actors with different conditions, but the same hidden types and properties, share one."""


def visible_schema(text: str, accepted: AcceptedSchema, scope: RowScope, schema_hash: str) -> VisibleSchema:
    """The part of a schema that a scope shows.

    An edge type with a hidden end is hidden, and so is an interface whose node types are all hidden. A property of an
    interface is hidden if a visible node type of the interface hides it; other node types keep it as their own.

    Args:
        text: the source text of the whole schema.
        accepted: the whole schema.
        scope: the scope.
        schema_hash: the hash of the whole schema.
    """
    keys = [*map(node_key, accepted.catalog.nodes), *map(edge_key, accepted.catalog.edges)]
    hidden = frozenset(key for key in keys if scope.rows_of(key) is Rows.HIDDEN)
    masked = frozenset((key, scope.masked(key)) for key in keys if scope.masked(key))
    name = schema_hash, hash(text), hidden, masked
    found = _known.get(name) or _known.put(name, _compiled(text, accepted, scope))
    return replace(found, scope=scope)


def _compiled(text: str, accepted: AcceptedSchema, scope: RowScope) -> VisibleSchema:
    parsed = parse_schema(text)
    cut = _Cut(accepted.catalog, scope, parsed)
    declarations = tuple(made for one in parsed.declarations if (made := cut.declaration(one)) is not None)
    shown = print_schema(tree.Schema(declarations)) if declarations else ""
    catalog = without_hints(compile_schema(shown, accepted=True))
    identities = _identities(accepted, catalog)
    numbers = [number for one in identities.values() for number in (one.type_id, *one.properties.values())]
    found = AcceptedSchema(accepted.domain, 1 + max(numbers, default=0), catalog, identities)
    return VisibleSchema(shown, found, ir_hash(found), scope)


def is_hidden_node(catalog: Catalog, scope: RowScope, name: str) -> bool:
    """Whether a node type is hidden. The id shows the key, so a type whose key is masked is hidden, too."""
    key = node_key(name)
    return scope.rows_of(key) is Rows.HIDDEN or _masks_key(catalog.nodes[name], scope.masked(key))


def is_hidden_edge(catalog: Catalog, scope: RowScope, name: str) -> bool:
    """Whether an edge type is hidden: by its own rule, because its key is masked, or because an end is hidden."""
    edge, key = catalog.edges[name], edge_key(name)
    return (
        scope.rows_of(key) is Rows.HIDDEN
        or _masks_key(edge, scope.masked(key))
        or any(is_hidden_node(catalog, scope, end) for end in (edge.from_type, edge.to_type))
    )


def _masks_key(declared: NodeType | EdgeType, masked: frozenset[str]) -> bool:
    return any(name in masked for name in declared.key or ())


class _Cut:
    """Removes hidden declarations from a parsed schema."""

    def __init__(self, catalog: Catalog, scope: RowScope, parsed: tree.Schema) -> None:
        self._catalog = catalog
        self._scope = scope
        self._nodes = {name for name in catalog.nodes if not is_hidden_node(catalog, scope, name)}
        self._interfaces: dict[str, frozenset[str]] = {}
        """The hidden properties of visible interfaces."""
        for name, interface in catalog.interfaces.items():
            shown = [node for node in interface.implementors if node in self._nodes]
            masked = frozenset[str]().union(*(scope.masked(node_key(node)) for node in shown))
            masked &= frozenset(interface.properties)
            if not interface.implementors or (shown and masked != frozenset(interface.properties)):
                self._interfaces[name] = masked
        self._declared = {
            (one.name.text, member.name.text): member
            for one in parsed.declarations
            if isinstance(one, tree.Interface)
            for member in one.members
        }
        """How interfaces declare their properties."""

    def declaration(self, one: tree.Declaration) -> tree.Declaration | None:
        match one:
            case tree.Interface():
                return self._interface(one)
            case tree.Node():
                return self._node(one)
            case tree.Edge():
                name = one.name.text
                if is_hidden_edge(self._catalog, self._scope, name):
                    return None
                return replace(one, members=_members(one.members, self._scope.masked(edge_key(name))))

    def _interface(self, one: tree.Interface) -> tree.Interface | None:
        masked = self._interfaces.get(one.name.text)
        if masked is None:
            return None
        members = [made for member in one.members if (made := _property(member, masked)) is not None]
        return replace(one, members=tuple(members))

    def _node(self, one: tree.Node) -> tree.Node | None:
        name = one.name.text
        if name not in self._nodes:
            return None
        masked = self._scope.masked(node_key(name))
        implements = tuple(each for each in one.implements if each.text in self._interfaces)
        declared = {member.name.text for member in one.members if isinstance(member, tree.Property)}
        # Properties that an interface loses, and that this type inherited and still shows.
        lost = {prop: each.text for each in one.implements for prop in self._lost(each.text)}
        added = [self._declared[interface, prop] for prop, interface in lost.items() if prop not in declared | masked]
        return replace(one, implements=implements, members=(*added, *_members(one.members, masked)))

    def _lost(self, interface: str) -> frozenset[str]:
        return self._interfaces.get(interface, frozenset(self._catalog.interfaces[interface].properties))


def _members(members: tuple[tree.Member, ...], masked: frozenset[str]) -> tuple[tree.Member, ...]:
    return tuple(made for one in members if (made := _member(one, masked)) is not None)


def _member(member: tree.Member, masked: frozenset[str]) -> tree.Member | None:
    match member:
        case tree.Property():
            return _property(member, masked)
        case tree.RangeConstraint() | tree.CheckConstraint():
            return None if member.property.text in masked else member
    return None if any(field.text in masked for field in member.fields) else member


def _property(member: tree.Property, masked: frozenset[str]) -> tree.Property | None:
    if member.name.text in masked:
        return None
    return replace(member, annotations=tuple(one for one in member.annotations if not _embeds_hidden(one, masked)))


def _embeds_hidden(annotation: tree.Annotation, masked: frozenset[str]) -> bool:
    """Whether an annotation computes a vector from a hidden property."""
    return annotation.name == "embed" and bool(annotation.values) and str(annotation.values[0].value) in masked


def _identities(accepted: AcceptedSchema, catalog: Catalog) -> dict[tuple[TypeKind, str], TypeIdentity]:
    found = {}
    shown = (
        (TypeKind.INTERFACE, catalog.interfaces),
        (TypeKind.NODE, catalog.nodes),
        (TypeKind.EDGE, catalog.edges),
    )
    for kind, types in shown:
        for name, declared in types.items():
            whole = accepted.identities[kind, name]
            numbers = {prop: number for prop, number in whole.properties.items() if prop in declared.properties}
            enums = {prop: identity for prop, identity in whole.enums.items() if prop in declared.properties}
            found[kind, name] = TypeIdentity(whole.type_id, whole.incarnation, numbers, enums)
    return found

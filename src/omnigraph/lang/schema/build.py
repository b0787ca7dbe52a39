"""Build the catalogue from a syntax tree: resolve names, expand interfaces, check all rules."""

# See docs/decisions/0132-younger-rules-spare-stored-schemas.md

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from omnigraph.errors import CompileError, ParseError, SourceText
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.annotations import Annotated, check_names, read_type_annotations
from omnigraph.lang.schema.canonical import sorted_constraints
from omnigraph.lang.schema.catalog import (
    Cardinality,
    Catalog,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    TypeKind,
)
from omnigraph.lang.schema.constraints import MAX_CARDINALITY, TypeConstraints
from omnigraph.lang.schema.defaults import read_default
from omnigraph.lang.schema.interfaces import expand, implemented
from omnigraph.lang.schema.owner import Owner
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.schema.properties import Source, check_embed, distinct_properties, read_property

_D = TypeVar("_D", ast.Interface, ast.Node, ast.Edge)


def compile_schema(text: str | bytes, name: str | None = None, *, accepted: bool = False) -> Catalog:
    """Compile a `.pg` text to a catalogue.

    >>> compile_schema("node Garden { code: String @key }").nodes["Garden"].key
    ('code',)

    Args:
        text: the text, or its UTF-8 bytes.
        name: the file name in errors.
        accepted: whether a graph already has this schema. If so, `NEWER_RULES` do not apply.

    Raises:
        ParseError: the text does not follow the grammar.
        CatalogError: the schema breaks a rule. The first error in the text is raised.
    """
    tree = parse_schema(text, name)
    return build_catalog(tree, tree.source, accepted=accepted)


def build_catalog(schema: ast.Schema, source: SourceText, *, accepted: bool = False) -> Catalog:
    """Build the catalogue of a parsed schema.

    Raises:
        CatalogError: the schema breaks a rule. The first error in the text is raised.
    """
    problems = Problems(source, accepted=accepted)
    catalog = _Builder(schema, problems).catalog()
    problems.raise_first()
    return catalog


def check_schema(text: str | bytes, name: str | None = None) -> list[CompileError]:
    """All errors of a `.pg` text, in source order; empty if it compiles.

    A syntax error is reported alone, because the rest of the text cannot be checked.
    """
    try:
        tree = parse_schema(text, name)
    except ParseError as error:
        return [error]
    problems = Problems(tree.source)
    _Builder(tree, problems).catalog()
    return list(problems.errors())


class _Builder:
    def __init__(self, schema: ast.Schema, problems: Problems) -> None:
        self.problems = problems
        check_names(problems, schema)
        self.interfaces = self._distinct(schema, ast.Interface, "interface")
        self.nodes = self._distinct(schema, ast.Node, "node")
        self.edges = self._distinct(schema, ast.Edge, "edge")
        self._check_edge_words()
        self.contracts = {
            name: distinct_properties(problems, Owner(TypeKind.INTERFACE, name), tree.members)
            for name, tree in self.interfaces.items()
        }

    def catalog(self) -> Catalog:
        nodes = {name: self._node(tree) for name, tree in self.nodes.items()}
        edges = {name: self._edge(tree) for name, tree in self.edges.items()}
        implementors: dict[str, list[str]] = {name: [] for name in self.interfaces}
        for node in sorted(nodes.values(), key=lambda node: node.name):
            for interface in node.implements:
                implementors[interface].append(node.name)
        interfaces = {name: self._interface(tree, tuple(implementors[name])) for name, tree in self.interfaces.items()}
        return Catalog(interfaces, nodes, edges)

    def _distinct(self, schema: ast.Schema, kind: type[_D], word: str) -> dict[str, _D]:
        found: dict[str, _D] = {}
        for declaration in schema.declarations:
            if not isinstance(declaration, kind):
                continue
            name = declaration.name
            if name.text in found:
                self.problems.report(
                    "OG-SC-001", f"{word} '{name.text}' is declared twice", name.span, hint="rename or remove one"
                )
            found.setdefault(name.text, declaration)
        return found

    def _check_edge_words(self) -> None:
        """Reject edge names that differ only in case, because traversals ignore case."""
        words: dict[str, str] = {}
        for name, tree in self.edges.items():
            other = words.setdefault(name.lower(), name)
            if other != name:
                self.problems.report(
                    "OG-SC-001",
                    f"edges '{other}' and '{name}' differ only in upper and lower case",
                    tree.name.span,
                    hint="queries could not tell them apart; rename one",
                )

    # ---- declarations ----

    def _interface(self, tree: ast.Interface, implementors: tuple[str, ...]) -> InterfaceType:
        # Annotations of interfaces are checked on the node types that implement them.
        muted = self.problems.muted()
        owner = Owner(TypeKind.INTERFACE, tree.name.text)
        properties = {}
        for name, source in sorted(self.contracts[tree.name.text].items()):
            found, annotated = read_property(muted, owner, Source(source))
            default = read_default(muted, owner, found, annotated.default, (), []) if annotated.default else None
            properties[name] = replace(found, default=default)
        return InterfaceType(tree.name.text, properties, implementors, span=tree.span)

    def _node(self, tree: ast.Node) -> NodeType:
        owner = Owner(TypeKind.NODE, tree.name.text)
        annotated = read_type_annotations(self.problems, owner, tree.annotations)
        declared = distinct_properties(self.problems, owner, tree.members)
        interfaces = implemented(self.problems, tree, self.contracts)
        sources = expand(self.problems, owner, declared, interfaces, self.contracts)
        properties, constraints = self._body(owner, sources, tree.members)
        return NodeType(
            tree.name.text,
            properties,
            constraints,
            tuple(interfaces),
            annotated.annotations,
            annotated.rename_from,
            annotated.sorted_allows,
            tree.span,
        )

    def _edge(self, tree: ast.Edge) -> EdgeType:
        owner = Owner(TypeKind.EDGE, tree.name.text)
        self._check_end(tree, tree.from_type, "begins")
        self._check_end(tree, tree.to_type, "ends")
        annotated = read_type_annotations(self.problems, owner, tree.annotations)
        declared = distinct_properties(self.problems, owner, tree.members)
        sources = {name: Source(source) for name, source in declared.items()}
        properties, constraints = self._body(owner, sources, tree.members)
        return EdgeType(
            tree.name.text,
            tree.from_type.text,
            tree.to_type.text,
            properties,
            constraints,
            self._cardinality("@card", tree.card),
            self._cardinality("@card_in", tree.card_in),
            annotated.annotations,
            annotated.rename_from,
            annotated.sorted_allows,
            tree.span,
        )

    def _check_end(self, tree: ast.Edge, end: ast.Name, verb: str) -> None:
        if end.text in self.nodes:
            return
        message = f"edge '{tree.name.text}' {verb} at '{end.text}', which is not a node type"
        if end.text in self.interfaces:
            hint = "an interface has no nodes of its own; name a node type, or declare one edge for each"
            self.problems.report("OG-SC-004", message, end.span, hint=hint)
        else:
            self.problems.report("OG-SC-004", message, end.span, unknown=(end.text, self.nodes))

    def _cardinality(self, what: str, written: ast.Cardinality | None) -> Cardinality:
        if written is None:
            return Cardinality()
        least, most = written.min, written.max
        if max(least, most or 0) > MAX_CARDINALITY:
            message = f"the bounds of {what} are at most {MAX_CARDINALITY:,}"
            self.problems.report("OG-SC-025", message, written.span, hint="leave the upper bound out for no bound")
        elif most is not None and least > most:
            message = f"the lower bound of {what} is above its upper bound"
            self.problems.report("OG-SC-025", message, written.span, hint=f"write {what}({most}..{least})")
        return Cardinality(least, most)

    # ---- bodies ----

    def _body(
        self, owner: Owner, sources: Mapping[str, Source], members: tuple[ast.Member, ...]
    ) -> tuple[dict[str, Property], tuple[Constraint, ...]]:
        properties: dict[str, Property] = {}
        annotated: dict[str, Annotated] = {}
        for name in sorted(sources):
            properties[name], annotated[name] = read_property(self.problems, owner, sources[name])
        constraints = TypeConstraints(self.problems, owner, properties)
        # In source order, so that the error about two keys is reported at the second one.
        for name, source in sources.items():
            for form in annotated[name].forms:
                constraints.add_form(_owner_of(owner, source), properties[name], form)
        for member in members:
            if not isinstance(member, ast.Property):
                constraints.add(member)
        for name, one in annotated.items():
            where = _owner_of(owner, sources[name])
            if one.embed and one.embed_at:
                check_embed(self.problems, where, properties[name], one.embed, one.embed_at, properties)
            if one.default is not None:
                default = read_default(
                    self.problems, where, properties[name], one.default, constraints.key, constraints.found
                )
                properties[name] = replace(properties[name], default=default)
        return properties, sorted_constraints(constraints.found)


def _owner_of(owner: Owner, source: Source) -> Owner:
    return replace(owner, through=source.through)

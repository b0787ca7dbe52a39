"""Schema lint: warnings about schemas that compile but are probably wrong."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.codes import all_codes
from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.diagnostics import Finding, sorted_findings
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.annotations import KNOWN_ANNOTATIONS, similar_annotation
from omnigraph.lang.schema.catalog import (
    Annotation,
    Catalog,
    EdgeType,
    Index,
    InterfaceType,
    NodeType,
    Property,
    Unique,
)
from omnigraph.lang.schema.identity import AnyType, property_label, types_of
from omnigraph.lang.schema.owner import ENDPOINTS


def lint_schema(catalog: Catalog) -> list[Finding]:
    """The lint findings of a schema, except those with an `@allow`."""
    checks = (_unconnected, _repeatable_edges, _unused_vectors, _unknown_allows, _unknown_annotations)
    return sorted_findings(finding for check in checks for finding in check(catalog))


def _tables(catalog: Catalog) -> Iterator[NodeType | EdgeType]:
    yield from catalog.nodes.values()
    yield from catalog.edges.values()


def _finding(code: str, message: str, owner: AnyType, prop: Property | None = None) -> Iterator[Finding]:
    """Yield a finding, unless its declaration has an `@allow` for it."""
    accepted = dict(owner.allows) | dict(prop.allows if prop else ())
    if code not in accepted:
        span = prop.span if prop else owner.span
        yield Finding(CODES[code].severity, code, message, owner.name, prop.name if prop else None, span=span)


def _unconnected(catalog: Catalog) -> Iterator[Finding]:
    connected = {end for edge in catalog.edges.values() for end in (edge.from_type, edge.to_type)}
    for name, node in catalog.nodes.items():
        if name not in connected:
            yield from _finding(
                "L210", f"no edge begins or ends at node '{name}'; declare one, or use a property", node
            )


def _repeatable_edges(catalog: Catalog) -> Iterator[Finding]:
    for name, edge in catalog.edges.items():
        if not _forbids_duplicates(edge):
            message = (
                f"edge '{name}' can be stored twice between the same nodes; add @key(src, dst) or @unique(src, dst)"
            )
            yield from _finding("L211", message, edge)


def _forbids_duplicates(edge: EdgeType) -> bool:
    """Whether a constraint forbids duplicate edges between two nodes."""
    if edge.key is not None or 1 in (edge.card.max, edge.card_in.max):
        return True
    return any(isinstance(c, Unique) and set(c.fields) <= set(ENDPOINTS) for c in edge.constraints)


def _unused_vectors(catalog: Catalog) -> Iterator[Finding]:
    for owner in _tables(catalog):
        indexed = {field for c in owner.constraints if isinstance(c, Index) for field in c.fields}
        for prop in owner.properties.values():
            if prop.type.is_vector and prop.embed is None and prop.name not in indexed:
                message = f"vector '{owner.name}.{prop.name}' has neither @embed nor @index"
                yield from _finding("L212", message, owner, prop)


def _unknown_allows(catalog: Catalog) -> Iterator[Finding]:
    for owner in _tables(catalog):
        targets: list[tuple[Property | None, tuple[tuple[str, str], ...]]] = [(None, owner.allows)]
        targets += [(prop, prop.allows) for prop in owner.properties.values()]
        for prop, allows in targets:
            for code, _ in allows:
                if code not in all_codes():
                    hint = did_you_mean(code, [known for known, entry in all_codes().items() if not entry.reserved])
                    message = f"@allow names '{code}', which is not a diagnostic" + (f"; {hint}" if hint else "")
                    yield from _finding("L213", message, owner, prop)


def _unknown_annotations(catalog: Catalog) -> Iterator[Finding]:
    """Unknown annotations, which are kept for other tools. An annotation with a misspelt name does not compile."""
    for (kind, name), owner in types_of(catalog):
        on_type = () if isinstance(owner, InterfaceType) else owner.annotations
        targets: list[tuple[Property | None, tuple[Annotation, ...]]] = [(None, on_type)]
        targets += [(prop, prop.annotations) for prop in owner.properties.values() if prop.declared_directly]
        for prop, written_here in targets:
            where = property_label((kind, name), prop.name) if prop else f"{kind.value} '{name}'"
            for written in sorted({annotation.name for annotation in written_here} - set(KNOWN_ANNOTATIONS)):
                near = similar_annotation(
                    written
                )  # in schemas that were accepted before a misspelt annotation was an error
                did = f"; did you mean '@{near}'?" if near else ""
                yield from _finding("L214", f"@{written} of {where} is unknown to OmniGraph{did}", owner, prop)

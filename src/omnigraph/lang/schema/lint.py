"""Schema lint: what compiles and is probably not meant."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.diagnostics import Finding, all_codes, sorted_findings
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.annotations import KNOWN_ANNOTATIONS, meant
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
from omnigraph.lang.schema.codes import CODES
from omnigraph.lang.schema.identity import AnyType, property_label, types_of
from omnigraph.lang.schema.owner import ENDPOINTS


def lint_schema(catalog: Catalog) -> list[Finding]:
    """The findings about a schema, without those that it accepts with `@allow`."""
    checks = (_unconnected, _repeatable_edges, _idle_vectors, _unknown_allows, _unknown_annotations)
    return sorted_findings(finding for check in checks for finding in check(catalog))


def _tables(catalog: Catalog) -> Iterator[NodeType | EdgeType]:
    yield from catalog.nodes.values()
    yield from catalog.edges.values()


def _finding(code: str, message: str, owner: AnyType, prop: Property | None = None) -> Iterator[Finding]:
    """One finding, or none when the declaration that it is about accepts it."""
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
        if not _is_once(edge):
            message = (
                f"edge '{name}' can be stored twice between the same nodes; add @key(src, dst) or @unique(src, dst)"
            )
            yield from _finding("L211", message, edge)


def _is_once(edge: EdgeType) -> bool:
    """Whether two nodes cannot have this edge twice."""
    if edge.key is not None or 1 in (edge.card.max, edge.card_in.max):
        return True
    return any(isinstance(c, Unique) and set(c.fields) <= set(ENDPOINTS) for c in edge.constraints)


def _idle_vectors(catalog: Catalog) -> Iterator[Finding]:
    for owner in _tables(catalog):
        indexed = {field for c in owner.constraints if isinstance(c, Index) for field in c.fields}
        for prop in owner.properties.values():
            if prop.type.is_vector and prop.embed is None and prop.name not in indexed:
                message = f"vector '{owner.name}.{prop.name}' has neither @embed nor @index: nothing fills or finds it"
                yield from _finding("L212", message, owner, prop)


def _unknown_allows(catalog: Catalog) -> Iterator[Finding]:
    for owner in _tables(catalog):
        places: list[tuple[Property | None, tuple[tuple[str, str], ...]]] = [(None, owner.allows)]
        places += [(prop, prop.allows) for prop in owner.properties.values()]
        for prop, allows in places:
            for code, _ in allows:
                if code not in all_codes():
                    hint = did_you_mean(code, [known for known, entry in all_codes().items() if not entry.reserved])
                    message = f"@allow names '{code}', which is not a diagnostic" + (f"; {hint}" if hint else "")
                    yield from _finding("L213", message, owner, prop)


def _unknown_annotations(catalog: Catalog) -> Iterator[Finding]:
    """Unknown annotations are kept for other tools. Misspelled ones do not compile."""
    for (kind, name), owner in types_of(catalog):
        on_type = () if isinstance(owner, InterfaceType) else owner.annotations
        places: list[tuple[Property | None, tuple[Annotation, ...]]] = [(None, on_type)]
        places += [(prop, prop.annotations) for prop in owner.properties.values() if prop.declared_directly]
        for prop, written_here in places:
            where = property_label((kind, name), prop.name) if prop else f"{kind.value} '{name}'"
            for written in sorted({annotation.name for annotation in written_here} - set(KNOWN_ANNOTATIONS)):
                near = meant(written)  # in a schema that was accepted when this was no error
                did = f"; did you mean '@{near}'?" if near else ""
                yield from _finding("L214", f"@{written} of {where} means nothing to OmniGraph{did}", owner, prop)

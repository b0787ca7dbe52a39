"""L206: filters and ranks that no index serves, with the declaration that would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.diagnostics import Finding, Severity
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Index, IndexKind, Key, NodeType
from omnigraph.lang.types import Scalar

_ORDERED = {ir.CompareOp.EQ, ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE}
_SUBSTRING = {ir.CompareOp.CONTAINS, ir.CompareOp.ENDS_WITH, ir.CompareOp.MATCHES}


def unserved(queries: Sequence[ir.Query], catalog: Catalog) -> list[Finding]:
    """One finding per property and kind of index, naming the queries that would use it."""
    wanted: dict[tuple[str, str, IndexKind], set[str]] = {}
    for query in queries:
        if isinstance(query.body, ir.Read):
            for need in _needs(query.body, catalog):
                wanted.setdefault(need, set()).add(query.name)
    return [
        Finding(
            Severity.INFO,
            "L206",
            f'no index serves {type_name}.{name} here; @index({name}, kind="{kind.value}") would',
            type_name,
            name,
            tuple(sorted(names)),
        )
        for (type_name, name, kind), names in wanted.items()
    ]


def _needs(read: ir.Read, catalog: Catalog) -> Iterator[tuple[str, str, IndexKind]]:
    types = _variable_types(read)
    for prop, kind in _uses(read):
        for type_name in types.get(prop.var, ()):
            owner = catalog.nodes.get(type_name) or catalog.edges.get(type_name)
            if owner is not None and prop.name in owner.properties and not _served(owner, prop, kind):
                yield type_name, prop.name, kind


def _variable_types(read: ir.Read) -> dict[str, tuple[str, ...]]:
    return {node.name: node.types for node in walk(read.match) if isinstance(node, ir.NodeVar | ir.EdgeVar)}


def _uses(read: ir.Read) -> Iterator[tuple[ir.Prop, IndexKind]]:
    """Properties that are looked up, each with the kind of index that could do it."""
    for node in walk(read):
        match node:
            case ir.TextMatch() | ir.Bm25():
                yield node.field, IndexKind.FTS
            case ir.Nearest():
                yield node.field, IndexKind.VECTOR
            case ir.Compare(left=ir.Prop() as prop, right=ir.Const() | ir.Param() | ir.Now()) if not prop.type.list:
                if node.op in _ORDERED or node.op is ir.CompareOp.STARTS_WITH:
                    yield prop, IndexKind.BTREE
                elif node.op in _SUBSTRING:
                    yield prop, IndexKind.NGRAM
            case ir.InList(value=ir.Prop() as prop, negated=False):
                yield prop, IndexKind.BTREE


def _served(owner: NodeType | EdgeType, prop: ir.Prop, kind: IndexKind) -> bool:
    for constraint in owner.constraints:
        if isinstance(constraint, Key) and constraint.fields == (prop.name,) and kind is IndexKind.BTREE:
            return True  # the id holds it
        if isinstance(constraint, Index) and constraint.fields == (prop.name,):
            built = _built(constraint.kind, prop)
            if built is kind or (kind is IndexKind.BTREE and built is IndexKind.BITMAP):
                return True
    return False


def _built(declared: IndexKind, prop: ir.Prop) -> IndexKind:
    """What `@index` builds when no kind is written."""
    if declared is not IndexKind.AUTO:
        return declared
    if prop.type.is_vector:
        return IndexKind.VECTOR
    return IndexKind.FTS if prop.type.scalar is Scalar.STRING and not prop.type.is_enum else IndexKind.BTREE

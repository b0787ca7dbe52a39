"""Lint L206: filters and ranks without an index, and the index declaration to add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.diagnostics import Finding, Severity
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Index, IndexKind, Key, NodeType
from omnigraph.lang.schema.indexes import built_kind, default_kind

_ORDERED = {ir.CompareOp.EQ, ir.CompareOp.LT, ir.CompareOp.LE, ir.CompareOp.GT, ir.CompareOp.GE}
_SUBSTRING = {ir.CompareOp.CONTAINS, ir.CompareOp.ENDS_WITH, ir.CompareOp.MATCHES}


def missing_indexes(queries: Sequence[ir.Query], catalog: Catalog) -> list[Finding]:
    """One finding per property and index kind, with the queries that would use the index."""
    wanted: dict[tuple[bool, str, str, IndexKind], set[str]] = {}
    for query in queries:
        if isinstance(query.body, ir.Read):
            for owner, prop, kind in _needs(query.body, catalog):
                need = (isinstance(owner, EdgeType), owner.name, prop.name, kind)
                wanted.setdefault(need, set()).add(query.name)
    return [
        Finding(
            Severity.INFO,
            "L206",
            f'no index supports the condition or rank on {type_name}.{name}; add @index({name}, kind="{kind.value}")',
            type_name,
            name,
            tuple(sorted(names)),
            edge=is_edge,
        )
        for (is_edge, type_name, name, kind), names in wanted.items()
    ]


_Owners = dict[str, tuple[NodeType | EdgeType, ...]]
"""The types of each visible variable of a block."""


def _needs(read: ir.Read, catalog: Catalog) -> Iterator[tuple[NodeType | EdgeType, ir.Prop, IndexKind]]:
    owners: _Owners = {}
    for part, carried in (*((stage.read, stage.carried) for stage in read.stages), (read, ())):
        yield from _block_needs(part.match, owners, catalog)
        owners |= _owners(part.match, catalog)
        yield from _uses_without_index((part.columns, part.having, part.order), owners)
        owners = {name: types for name, types in owners.items() if name in carried}


def _block_needs(
    block: ir.Block, outer: _Owners, catalog: Catalog
) -> Iterator[tuple[NodeType | EdgeType, ir.Prop, IndexKind]]:
    owners = outer | _owners(block, catalog)
    yield from _uses_without_index(block.filters, owners)
    for inner in (*block.optionals, *block.negations, *(value.block for value in block.values)):
        yield from _block_needs(inner, owners, catalog)


def _owners(block: ir.Block, catalog: Catalog) -> _Owners:
    """The variables that a block binds, also in its optional blocks."""
    owners: _Owners = {node.name: tuple(catalog.nodes[name] for name in node.types) for node in block.nodes}
    for expand in block.expands:
        if expand.edge_var is not None:
            owners[expand.edge_var.name] = tuple(catalog.edges[name] for name in expand.edge_var.types)
    for optional in block.optionals:
        owners |= _owners(optional, catalog)
    return owners


def _uses_without_index(node: object, owners: _Owners) -> Iterator[tuple[NodeType | EdgeType, ir.Prop, IndexKind]]:
    for prop, kind in _uses(node):
        for owner in owners.get(prop.var, ()):
            if prop.name in owner.properties and not _has_index(owner, prop, kind):
                yield owner, prop, kind


def _uses(root: object) -> Iterator[tuple[ir.Prop, IndexKind]]:
    """The searched properties, each with the index kind that would support the search."""
    for node in walk(root):
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


def _has_index(owner: NodeType | EdgeType, prop: ir.Prop, kind: IndexKind) -> bool:
    for constraint in owner.constraints:
        if isinstance(constraint, Key) and constraint.fields == (prop.name,):
            # A key of one property is the id, which has a BTREE index. It also has the default index of its type.
            return kind in (IndexKind.BTREE, default_kind(prop.type))
        if isinstance(constraint, Index) and constraint.fields == (prop.name,):
            built = built_kind(constraint.kind, prop.type)
            if built is kind or (kind is IndexKind.BTREE and built is IndexKind.BITMAP):
                return True
    return False

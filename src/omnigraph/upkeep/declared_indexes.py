"""The indexes that a schema declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.lang.query.ir import Analyzer
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Index, IndexKind, Key, NodeType
from omnigraph.lang.schema.indexes import built_kind
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.storage.indexes import IndexSpec, text_index

_METHODS = {"ivf_flat": "IVF_FLAT", "ivf_sq": "IVF_SQ", "ivf_pq": "IVF_PQ", "ivf_hnsw_sq": "IVF_HNSW_SQ"}
_NUMBERS = {"partitions": "num_partitions", "sub_vectors": "num_sub_vectors", "bits": "num_bits"}
_SUB_VECTOR_WIDTH = 8
"""Default width of a sub-vector in product quantization."""


@dataclass(frozen=True, slots=True)
class DeclaredIndex:
    """An index that a schema declares.

    Attributes:
        property: the property, or one of `id`, `src` and `dst`.
        problem: the reason why it can never be built; None if it can.
    """

    property: str
    kind: IndexKind
    spec: IndexSpec
    problem: str | None = None


def declared(catalog: Catalog) -> dict[str, tuple[DeclaredIndex, ...]]:
    """The indexes of each table, by type key.

    Ids and the endpoints of edges always have one. Other properties have the indexes of `@index`, and of a `@key` over
    one property. No index is built over several properties, or for `@unique`.
    """
    found = {node_key(name): _indexes(node, ("id",)) for name, node in catalog.nodes.items()}
    return found | {edge_key(name): _indexes(edge, ("id", "src", "dst")) for name, edge in catalog.edges.items()}


def _indexes(owner: NodeType | EdgeType, always: tuple[str, ...]) -> tuple[DeclaredIndex, ...]:
    btree = IndexKind.BTREE
    found = {(column, btree): DeclaredIndex(column, btree, IndexSpec(column, btree)) for column in always}
    for name, kind, options in _declarations(owner):
        # A declaration with options overrides one without.
        if (name, kind) not in found or options:
            found[name, kind] = _declared(owner, name, kind, options)
    return tuple(found.values())


def _declarations(owner: NodeType | EdgeType) -> Iterator[tuple[str, IndexKind, dict[str, str]]]:
    for constraint in owner.constraints:
        match constraint:
            case Index((name,), declared_kind, options) if name in owner.properties:
                kind = built_kind(declared_kind, owner.properties[name].type)
                if kind is not None:
                    yield name, kind, dict(options)
            case Key((name,)) if name in owner.properties:
                kind = built_kind(IndexKind.AUTO, owner.properties[name].type)
                if kind is not None:
                    yield name, kind, {}


def _declared(owner: NodeType | EdgeType, name: str, kind: IndexKind, options: dict[str, str]) -> DeclaredIndex:
    if kind is IndexKind.FTS:
        positions = options.get("positions", "true") == "true"
        return DeclaredIndex(name, kind, text_index(name, Analyzer.with_options(options), positions=positions))
    parameters: dict[str, Any] = {}
    problem = None
    if kind is IndexKind.VECTOR:
        dimension = owner.properties[name].type.dim
        assert dimension is not None
        parameters = _vector_parameters(options, dimension)
        sub_vectors = parameters.get("num_sub_vectors", 1)
        if dimension % sub_vectors:
            problem = f"{sub_vectors} sub_vectors do not divide {dimension} dimensions"
    return DeclaredIndex(name, kind, IndexSpec(name, kind, tuple(sorted(parameters.items()))), problem)


def _vector_parameters(options: dict[str, str], dimension: int) -> dict[str, Any]:
    method = options.get("method", "ivf_flat")
    parameters: dict[str, Any] = {"metric": options.get("metric", "l2"), "method": _METHODS[method]}
    parameters |= {_NUMBERS[name]: int(value) for name, value in options.items() if name in _NUMBERS}
    if method != "ivf_pq":
        parameters.pop("num_sub_vectors", None)
    elif "num_sub_vectors" not in parameters:
        widths = [width for width in range(1, _SUB_VECTOR_WIDTH + 1) if dimension % width == 0]
        parameters["num_sub_vectors"] = dimension // max(widths)
    return parameters

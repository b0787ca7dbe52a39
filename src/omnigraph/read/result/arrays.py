"""A whole graph as numpy arrays, and as `torch_geometric.data.HeteroData`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import Catalog, TypeKind
from omnigraph.lang.schema.type_key import TypeKey

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

Array = np.ndarray[Any, np.dtype[Any]]
EdgeTriple = tuple[str, str, str]
"""The type of the source, the type of the edge, and the type of the target."""


@dataclass(frozen=True, slots=True)
class GraphArrays:
    """Nodes and edges as numpy arrays.

    Numbers and booleans with nulls are floats, where null is NaN. Dates and times are `datetime64`, where null is NaT.
    Vectors are the rows of a matrix. Texts and lists are arrays of objects.

    Attributes:
        nodes: by node type, one array per property, and `id`. The position of a node is its number.
        edges: by source type, edge type and target type, one array per property, `id`, and `edge_index`: a matrix with
            two rows, the numbers of the sources and of the targets.
    """

    nodes: dict[str, dict[str, Array]]
    edges: dict[EdgeTriple, dict[str, Array]]

    def to_pyg(self) -> HeteroData:
        """The arrays as `HeteroData` of PyTorch Geometric.

        Numbers, booleans, vectors and `edge_index` become tensors; dates and times are seconds since 1970. Texts and
        lists stay Python lists. No features `x` are chosen.

        Raises:
            InputError: torch_geometric is not installed.
        """
        from omnigraph.read.result.result import wanted

        torch = wanted("torch", "pip install torch")
        data = wanted("torch_geometric", "pip install torch_geometric").data
        found = data.HeteroData()
        for type_name, columns in self.nodes.items():
            found[type_name].num_nodes = len(columns["id"])
            for name, values in columns.items():
                found[type_name][name] = _tensor(torch, values)
        for triple, columns in self.edges.items():
            for name, values in columns.items():
                found[triple][name] = _tensor(torch, values)
        return found


def _tensor(torch: Any, values: Array) -> Any:
    numbers = as_numbers(values)
    return values.tolist() if numbers is None else torch.from_numpy(numbers)


def as_numbers(values: Array) -> Array | None:
    """Values as numbers that fit into a tensor; None for texts and lists. Dates and times are seconds since 1970."""
    if values.dtype.kind == "M":
        seconds = values.astype("datetime64[ms]").astype(np.int64) / 1000.0
        return np.where(np.isnat(values), np.nan, seconds)
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:  # older releases of torch have only unsigned bytes
        return values.astype(np.int64) if values.dtype.itemsize < 8 or values.max(initial=0) < 2**63 else None
    return None if values.dtype == object else np.ascontiguousarray(values)


def graph_arrays(batches: Iterable[tuple[TypeKey, pa.RecordBatch]], catalog: Catalog) -> GraphArrays:
    """Convert the exported rows of a graph. The node types of all edges have to be among them."""
    parts: dict[TypeKey, list[pa.RecordBatch]] = {}
    for key, batch in batches:
        parts.setdefault(key, []).append(batch)
    tables = {key: pa.Table.from_batches(found) for key, found in parts.items()}
    ids = {key.name: table["id"].combine_chunks() for key, table in tables.items() if key.kind is TypeKind.NODE}
    nodes, edges = {}, {}
    for key, table in tables.items():
        if key.kind is TypeKind.NODE:
            nodes[key.name] = {name: _array(table[name]) for name in table.column_names}
            continue
        edge = catalog.edges[key.name]
        index = np.stack(
            [_positions(table["from"], ids[edge.from_type]), _positions(table["to"], ids[edge.to_type])]
        ).astype(np.int64)
        properties = {name: _array(table[name]) for name in table.column_names if name not in ("from", "to")}
        edges[edge.from_type, key.name, edge.to_type] = {"edge_index": index, **properties}
    return GraphArrays(nodes, edges)


def _positions(ends: pa.ChunkedArray, ids: pa.Array) -> Array:
    found = pc.index_in(ends, value_set=ids)
    assert found.null_count == 0, "an edge has no node"
    return np.asarray(found.to_numpy())


def _array(column: pa.ChunkedArray) -> Array:
    """A column as an array, as `GraphArrays` describes."""
    values, kind = column.combine_chunks(), column.type
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        flat = values.values.slice(values.offset * width, len(values) * width).to_numpy(zero_copy_only=False)
        matrix: Array = flat.reshape(-1, width)
        return (
            np.where(values.is_null().to_numpy(zero_copy_only=False)[:, None], np.nan, matrix)
            if values.null_count
            else matrix
        )
    if pa.types.is_boolean(kind) and values.null_count:
        values = values.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.timestamp("ms"))
    return np.asarray(values.to_numpy(zero_copy_only=False))

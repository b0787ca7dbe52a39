"""networkx graphs of results and of whole graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx
import pyarrow as pa

from omnigraph.lang.schema import Catalog, TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.read.result.network import Entities


def networkx_graph(found: Entities) -> networkx.MultiDiGraph[Any]:
    """The nodes and edges of a result."""
    drawn: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
    drawn.add_nodes_from(found.nodes.items())
    drawn.add_edges_from((source, target, key, values) for (source, target, key), values in found.edges.items())
    return drawn


def whole_networkx_graph(
    batches: Iterable[tuple[TypeKey, pa.RecordBatch]], catalog: Catalog
) -> networkx.MultiDiGraph[Any]:
    """The nodes and edges of a graph. A node is `(type, id)`, and the key of an edge is `(type, id)`, too."""
    drawn: networkx.MultiDiGraph[Any] = networkx.MultiDiGraph()
    for key, batch in batches:
        ids = batch["id"].to_pylist()
        if key.kind is TypeKind.NODE:
            drawn.add_nodes_from(zip(((key.name, one) for one in ids), _values(batch), strict=True))
            continue
        edge = catalog.edges[key.name]
        ends = zip(batch["from"].to_pylist(), batch["to"].to_pylist(), ids, _values(batch), strict=True)
        drawn.add_edges_from(
            ((edge.from_type, source), (edge.to_type, target), (key.name, one), values)
            for source, target, one, values in ends
        )
    return drawn


def _values(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The properties of the rows, without ids."""
    ids = [name for name in ("id", "from", "to") if name in batch.schema.names]
    return batch.drop_columns(ids).to_pylist() if batch.num_columns > len(ids) else [{} for _ in range(batch.num_rows)]

"""A mutation through the handle of a graph: the query, the commit and the receipt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.writer import Prepared, WriteRequest
from omnigraph.errors import InputError
from omnigraph.lang.query import ir
from omnigraph.write.mutation import Mutation, MutationReceipt, is_replayable, receipt

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


def mutate(
    graph: Graph, text: str, params: Mapping[str, object], name: str | None, request: WriteRequest
) -> MutationReceipt:
    """Carry out a mutation; `Graph.mutate` describes the arguments."""
    query = _query(graph, text, name, graph._store.capture(request.branch))
    request = replace(request, replayable=is_replayable(query))
    now = time.time_ns() // 1_000_000
    mutations: dict[str, Mutation] = {}

    def prepare(view: Manifest) -> Prepared:
        found = mutations.get(view.schema_hash)
        if found is None:
            accepted, current = graph._schema_of(view)[1], _query(graph, text, name, view)
            found = Mutation(accepted, current, params, now, lambda: graph.embedder, graph._blobs)
            mutations[view.schema_hash] = found
        return found.prepare(Snapshot(graph._store, view))

    return receipt(request.branch, query.name, graph.actor, graph.write_tables(request, prepare))


def _query(graph: Graph, text: str, name: str | None, view: Manifest) -> ir.Query:
    """A query that writes, compiled for the schema of a view.

    Raises:
        InputError: it reads.
    """
    query = graph._compiled.get(text, name, graph._schema_of(view)[1].catalog, view.schema_hash)
    if query.is_read:
        raise InputError(f"'{query.name}' is a query that reads, and only one that writes can change the graph")
    return query

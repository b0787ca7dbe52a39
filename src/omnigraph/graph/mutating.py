"""A mutation through the handle of a graph: the query, the commit and the receipt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.write_request import Prepared, WriteRequest
from omnigraph.errors import InputError
from omnigraph.evaluate import bind
from omnigraph.lang.query import ir
from omnigraph.write.fingerprint import of_query
from omnigraph.write.mutation import Mutation, MutationReceipt, receipt

if TYPE_CHECKING:
    from omnigraph.graph.graph import Graph


def mutate(
    graph: Graph,
    text: str,
    params: Mapping[str, object],
    name: str | None,
    request: WriteRequest,
    done: Callable[[Mutation], None] | None = None,
) -> MutationReceipt:
    """Carry out a mutation; `Graph.mutate` describes the arguments. `done` is told about it afterwards."""
    _check_given(text, params)
    # An interrupted writer may have changed the schema that the query is compiled for.
    query = _query(graph, text, name, recovered_view(graph._store, request.branch))
    request = replace(request, healed=True)
    keyed = request.idempotency_key is not None
    digest = of_query(text, query.name, bind(query.params, params)) if keyed else None
    now = time.time_ns() // 1_000_000
    mutations: dict[str, Mutation] = {}

    def prepare(view: Manifest) -> Prepared:
        found = mutations.get(view.schema_hash)
        if found is None:
            accepted, current = graph._schema_of(view)[1], _query(graph, text, name, view)
            found = Mutation(accepted, current, params, now, lambda: graph.embedder, graph._blobs, digest)
            mutations[view.schema_hash] = found
        return found.prepare(Snapshot(graph._store, view))

    commit = graph.write_tables(request, prepare)
    if done is not None and mutations:
        done(next(reversed(mutations.values())))
    return receipt(request.branch, query.name, graph.actor, commit, digest)


def _check_given(text: object, params: object) -> None:
    """Refuse what is no query, and parameters that have no names.

    Raises:
        InputError: it is one of these.
    """
    if not isinstance(text, str):
        raise InputError(f"a query is a text, not a {type(text).__name__}")
    if not isinstance(params, Mapping):
        raise InputError(f"parameters are a mapping of names to values, not a {type(params).__name__}")
    unnamed = next((name for name in params if not isinstance(name, str)), None)
    if unnamed is not None:
        raise InputError(f"the name of a parameter is a text, not a {type(unnamed).__name__}")


def _query(graph: Graph, text: str, name: str | None, view: Manifest) -> ir.Query:
    """A query that writes, compiled for the schema of a view.

    Raises:
        InputError: it reads.
    """
    query = graph._compiled.get(text, name, graph._schema_of(view)[1].catalog, view.schema_hash)
    if query.is_read:
        raise InputError(f"'{query.name}' is a query that reads, and only one that writes can change the graph")
    return query

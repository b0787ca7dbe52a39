"""Mutate: compile a query that writes, bind its parameters, and commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.recovery import recovered_view
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.write_request import Prepared
from omnigraph.engine.commit import write_request, write_tables
from omnigraph.engine.query_text import query_text
from omnigraph.engine.requests import MutateRequest
from omnigraph.engine.session import Session
from omnigraph.errors import InputError
from omnigraph.evaluate import bind
from omnigraph.lang.query import ir
from omnigraph.write.mutation import Mutation, MutationReceipt, receipt
from omnigraph.write.request_digest import of_query


def mutate(session: Session, request: MutateRequest, done: Callable[[Mutation], None] | None = None) -> MutationReceipt:
    """Run a query that writes as one commit.

    Args:
        session: the session.
        request: the query.
        done: a callback for the committed mutation.

    Raises:
        CompileError: the query does not compile.
        InputError: the query does not write.
        ParameterError: a parameter is missing or of the wrong type.
        ConstraintError: the result would break a constraint of the schema.
    """
    session.require_writable()
    commit_request = write_request(session, session.branch_or_default(request.branch), WriterKind.MUTATION, request)
    text, name, params = query_text(request.text), request.name, {} if request.params is None else request.params
    _check_params(params)
    # Recover before compiling: an interrupted write may change the schema.
    query = _compile(session, text, name, recovered_view(session.store, commit_request.branch))
    commit_request = replace(commit_request, healed=True)
    keyed = request.idempotency_key is not None
    digest = of_query(text, query.name, bind(query.params, params)) if keyed else None
    now = time.time_ns() // 1_000_000
    mutations: dict[str, Mutation] = {}

    def prepare(view: Manifest) -> Prepared:
        found = mutations.get(view.schema_hash)
        if found is None:
            accepted, current = session.schemas.of(view), _compile(session, text, name, view)
            found = Mutation(accepted, current, params, now, lambda: session.embedder, session.blobs, digest)
            mutations[view.schema_hash] = found
        return found.prepare(Snapshot(session.store, view))

    commit = write_tables(session, commit_request, prepare)
    if done is not None and mutations:
        done(next(reversed(mutations.values())))
    return receipt(commit_request.branch, query.name, session.actor, commit, digest)


def _check_params(params: object) -> None:
    """Check that parameters are a mapping with text keys.

    Raises:
        InputError: they are not a mapping, or a name is not a text.
    """
    if not isinstance(params, Mapping):
        raise InputError(f"parameters must be a mapping of names to values, not a {type(params).__name__}")
    unnamed = next((name for name in params if not isinstance(name, str)), None)
    if unnamed is not None:
        raise InputError(f"the name of a parameter must be a text, not a {type(unnamed).__name__}")


def _compile(session: Session, text: str, name: str | None, view: Manifest) -> ir.Query:
    """Compile a query that writes, against the schema of a branch state.

    Raises:
        InputError: the query does not write.
    """
    query = session.compiled.get(text, name, session.schemas.of(view).catalog, view.schema_hash)
    if query.is_read:
        raise InputError(f"'{query.name}' is a query that reads; mutate needs a query that writes")
    return query

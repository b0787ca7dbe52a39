"""Mutate: compile a query that writes, bind its parameters, and commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from omnigraph.commit.lineage import find_idempotent
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.write_request import WriteRequest
from omnigraph.engine.access import Action
from omnigraph.engine.commit import state_of, write_request, write_tables
from omnigraph.engine.prepare import PrepareMutation
from omnigraph.engine.query_text import query_text
from omnigraph.engine.requests import MutateRequest
from omnigraph.engine.session import Session
from omnigraph.errors import CompileError, InputError, ParameterError
from omnigraph.evaluate import bind
from omnigraph.write.mutation import MutationReceipt, receipt
from omnigraph.write.request_digest import of_query


def mutate(session: Session, request: MutateRequest) -> MutationReceipt:
    """Run a query that writes as one commit.

    Args:
        session: the session.
        request: the query.

    Raises:
        AccessDeniedError: the policy does not allow the actor to change the branch or a type.
        CompileError: the query does not compile.
        InputError: the query does not write.
        ParameterError: a parameter is missing or of the wrong type.
        ConstraintError: the result would break a constraint of the schema.
    """
    session.require_writable()
    branch = session.branch_or_default(request.branch)
    session.allow(Action.CHANGE, branch)
    commit_request = write_request(session, branch, WriterKind.MUTATION, request)
    prepare = prepare_mutation(session, request)
    # Recover before compiling: an interrupted write may change the schema.
    view = session.recovered(commit_request.branch)
    try:
        query = prepare.query(view)
        if request.idempotency_key is not None:
            prepare.digest = of_query(prepare.text, query.name, bind(query.params, prepare.params))
    except (CompileError, ParameterError):
        repeated = _repeated(session, commit_request, prepare, view)
        if repeated is None:
            raise
        return repeated
    commit_request = replace(commit_request, healed=True)
    if request.idempotency_key is None and commit_request.expect_head is None:
        # Before the turn of this write, because vectors may take long to compute. An earlier commit with the key, or
        # another head, would make this unnecessary.
        prepare.mutation(view).read()
    commit = write_tables(session, commit_request, prepare)
    return receipt(commit_request.branch, query.name, session.actor, commit, prepare.digest)


def _repeated(
    session: Session, request: WriteRequest, prepare: PrepareMutation, view: Manifest
) -> MutationReceipt | None:
    """The receipt of an earlier request, for a query that does not fit the schema any more.

    None if there is no such request, or if it cannot be compared with this one.
    """
    earlier = find_idempotent(session.stored(view), request.idempotency_key, session.actor)
    if earlier is None:
        return None
    state = Snapshot(session.store, state_of(session, earlier, view))
    try:
        query = session.compiled.get(prepare.text, prepare.name, session.schemas.at(state).catalog, state.schema_hash)
        digest = of_query(prepare.text, query.name, bind(query.params, prepare.params))
    except (CompileError, ParameterError):
        return None
    return receipt(request.branch, query.name, session.actor, earlier, digest)


def prepare_mutation(session: Session, request: MutateRequest) -> PrepareMutation:
    """The preparation of a query that writes, at the current time.

    Raises:
        InputError: the text or the parameters are of the wrong type.
    """
    text, params = query_text(request.text), {} if request.params is None else request.params
    _check_params(params)
    # A copy: the write may wait for its turn, and must be the one that its idempotency key stands for.
    return PrepareMutation(session, text, request.name, dict(params), time.time_ns() // 1_000_000)


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

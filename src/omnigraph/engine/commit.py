"""Commits: the metadata and preconditions of a request, and the schema check before a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.turns import write
from omnigraph.commit.write_request import GRAPH_HEAD, Prepare, WriteRequest
from omnigraph.engine.access import Action
from omnigraph.engine.preconditions import unchanged
from omnigraph.engine.prepare import PrepareChecked
from omnigraph.engine.requests import CommitFields, WriteFields
from omnigraph.engine.session import Session
from omnigraph.errors import (
    InputError,
    OmnigraphError,
    ReadSetChangedError,
    VersionReclaimedError,
    WriteTimeoutError,
)


def write_request(session: Session, branch: str, kind: WriterKind, request: CommitFields) -> WriteRequest:
    """The metadata and the preconditions of a commit.

    Args:
        session: the session.
        branch: the branch that gets the commit.
        kind: the kind of write, recorded in the commit.
        request: the request of the caller.

    Raises:
        InputError: the message, the labels or another field is invalid.
    """
    if request.labels is not None and not isinstance(request.labels, Mapping):
        raise InputError(f"labels are a mapping of names to texts, not a {type(request.labels).__name__}")
    made = WriteRequest(
        branch=branch,
        kind=kind,
        actor=session.actor,
        message=request.message,
        labels=tuple((request.labels or {}).items()),
        timeout=request.timeout,
        expect_head=session.expected_head(request.expect_head),
    )
    if not isinstance(request, WriteFields):
        return made
    return replace(
        made,
        unchanged=unchanged(session.commit_id(request.unchanged_since), request.reads),
        idempotency_key=request.idempotency_key,
    )


def commit_tables(session: Session, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Write to tables as one commit, without checks of values. `write_tables` documents the arguments.

    The author of the commit is the actor of the session, if there is a policy.

    Raises:
        AccessDeniedError: the policy does not allow the actor to change all rows of all types of the branch.
    """
    if session.access is not None:
        session.allow(Action.CHANGE, request.branch)
        view = session.store.capture(request.branch)
        for action in (Action.READ, Action.CHANGE):
            session.require_all_rows(action, view)
        request = replace(request, actor=session.actor)
    return write_tables(session, request, prepare)


def write_tables(session: Session, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Write to tables as one commit. Return None if nothing changed.

    Args:
        session: the session.
        request: the metadata and the preconditions. The actor of the session is the default.
        prepare: creates the table writes from the state of the branch. A retry calls it again.

    Raises:
        ReadOnlyError: the session is read-only.
        PreconditionFailedError: the head of the branch is not the expected one.
        ChangedSinceError: data that the write depends on has changed since the named commit.
        WriteTimeoutError: other writers delayed the commit past its timeout.
    """
    session.require_writable()
    if request.actor is None:
        request = replace(request, actor=session.actor)
    whole = session
    if session.whole is not None:
        from omnigraph.engine.restricted_write import PrepareRestricted

        whole = session.whole
        if request.unchanged is not None or request.schema is not None:
            session.require_whole("unchanged_since" if request.schema is None else "schema apply")
        prepare = PrepareRestricted(session, prepare)
    try:
        commit = write(whole.store, request, PrepareChecked(whole, request, prepare))
    except (ReadSetChangedError, WriteTimeoutError) as error:
        if session.whole is None:
            raise
        raise without_table(error) from None
    if request.schema is not None and request.branch == session.default_branch:
        session.schema = session.schemas.version_of(session.store.capture(session.default_branch))
    return commit


def state_of(session: Session, earlier: Commit, view: Manifest) -> Manifest:
    """The state of an earlier commit, to compare a repeated request with it: its schema may have changed since.

    Args:
        session: the session.
        earlier: the commit that has the idempotency key of the request.
        view: the newest state, which is returned if cleanup has removed that of the commit.
    """
    try:
        return session.store.manifest_of(earlier)
    except VersionReclaimedError:
        return view


def without_table(error: ReadSetChangedError | WriteTimeoutError) -> OmnigraphError:
    """The error of a concurrent write for a restricted session, without the table and its versions.

    The actor may know that the branch has a new commit, but not which types and how many versions it changed.
    """
    if isinstance(error, WriteTimeoutError):
        return WriteTimeoutError("the write was not committed before its timeout: other writers were faster")
    return ReadSetChangedError(GRAPH_HEAD, None, None)

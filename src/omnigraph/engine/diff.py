"""Diffs between two states of a graph, and states by name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from omnigraph.changes.diff import Diff, DiffFilter
from omnigraph.commit.lineage import too_short
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.snapshots import Snapshot
from omnigraph.engine.access import Action
from omnigraph.engine.chosen_types import chosen_keys
from omnigraph.engine.requests import DiffRequest
from omnigraph.engine.session import At, Session, is_time
from omnigraph.errors import NotFoundError, cut
from omnigraph.lang.names import did_you_mean


def diff(session: Session, request: DiffRequest) -> Diff:
    """The difference between two states.

    Raises:
        InputError: a type or a kind of change does not exist.
        NotFoundError: there is no such state.
        VersionReclaimedError: cleanup has removed a state.
    """
    chosen = DiffFilter.given(request.types, request.ids, request.ops)
    before, after = (snapshot_named(session, one) for one in (request.before, request.after))
    chosen = _readable(session, chosen, before.manifest, after.manifest)
    first, second = (session.graph_state(one.manifest) for one in (before, after))
    return Diff(session.reading, first, second, chosen, session.added_properties(after.manifest))


def _readable(session: Session, chosen: DiffFilter, before: Manifest, after: Manifest) -> DiffFilter:
    """The filter, limited to the types that the actor may read in both states."""
    keys = chosen_keys(session, Action.READ, chosen.types, before, after)
    if session.access is not None and before.schema_hash != after.schema_hash:
        # A diff between schemas also lists the changes of types.
        for view in (before, after):
            session.require_all_rows(Action.READ, view)
    return chosen if keys is None else replace(chosen, types=keys)


def snapshot_named(session: Session, name: At) -> Snapshot:
    """The state that a name means: a branch, or else a commit, a tag or a time of the default branch.

    Raises:
        NotFoundError: there is no such state.
    """
    if not isinstance(name, str):
        return session.readable(None, name)
    branches = session.store.shown_branches()
    if name in branches:
        return session.readable(name, None)
    try:
        return session.readable(None, name)
    except NotFoundError:
        if not is_time(name):
            raise NotFoundError(
                f"there is no branch, commit or tag '{cut(name)}'",
                hint=too_short(name) or did_you_mean(name, branches) or "a time is written as 2026-03-14T09:30:00Z",
            ) from None
    return session.readable(None, datetime.fromisoformat(name))

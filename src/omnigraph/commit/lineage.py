"""The history of a branch: its commits, newest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.manifest_rows import RowKind, read_commits
from omnigraph.commit.refs import list_tag_refs
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, NotFoundError, VersionReclaimedError, cut
from omnigraph.lang.names import did_you_mean


def commits(view: Manifest) -> Iterator[Commit]:
    """All commits on the branch, newest first. Reads each older part of the manifest when it is needed."""
    yield from reversed(view.recent)
    for index in reversed(range(len(view.ledger.parts) - 1)):
        rows = view.ledger.read_part(index)
        own = rows.filter(pc.equal(rows["object_type"], RowKind.GRAPH_COMMIT.value))
        yield from reversed(view.ledger.decoded(own, read_commits, [index]))


def find_in(view: Manifest, commit_id: str) -> Commit | None:
    """Find a commit in the history of a manifest."""
    if view.head.id == commit_id:
        return view.head
    is_commit = pc.field("object_type") == RowKind.GRAPH_COMMIT.value
    rows = view.ledger.read(filter=(pc.field("object_id") == commit_id) & is_commit)
    return next(iter(view.ledger.decoded(rows, read_commits)), None)


def find_ancestor(view: Manifest, commit_id: str) -> Commit | None:
    """Find an ancestor of a manifest's head, among its own commits and the merged commits."""
    if view.head.id == commit_id:
        return view.head
    rows = view.ledger.read(filter=pc.field("object_id") == commit_id)
    return next(iter(view.ledger.decoded(rows, read_commits)), None)


def find_commit(store: Store, commit_id: str, *, or_tag: bool = False) -> Commit:
    """Find a commit on any branch, or in the history of a tag.

    Args:
        store: the graph.
        commit_id: its id.
        or_tag: the caller accepts a tag, too. The error then suggests the nearest tag name.

    Raises:
        NotFoundError: no branch and no tag has it.
    """
    for branch in store.branch_names():
        with suppress(BranchNotFoundError):  # deleted during the search
            found = find_in(store.capture(branch), commit_id)
            if found is not None:
                return found
    for tag in list_tag_refs(store.objects).values():  # a tag keeps the history of a branch that was reset
        with suppress(BranchNotFoundError, VersionReclaimedError):
            view = store.manifest_in(tag.ledger, tag.branch, tag.manifest_version)
            found = None if view is None else find_ancestor(view, commit_id)
            if found is not None:
                return found
    hint = "it may belong to a deleted branch; 'commit list' shows the commits"
    if or_tag:
        near = did_you_mean(commit_id, list_tag_refs(store.objects))
        raise NotFoundError(f"there is no commit or tag '{cut(commit_id)}'", hint=near or hint)
    raise NotFoundError(f"there is no commit '{commit_id}'", hint=hint)


def find_idempotent(view: Manifest, key: str | None) -> Commit | None:
    """The commit with an idempotency key on this branch, if there is one.

    A key belongs to one branch: a new branch inherits commits, but not their keys. An undone commit does not
    count. The commit that undoes it has the same key and the same operation id, so it does not count, either.
    """
    if key is None:
        return None
    rows = view.ledger.read(filter=pc.field("idempotency_key") == key)
    found = [one for one in view.ledger.decoded(rows, read_commits) if one.ledger == view.ledger.branch]
    made = Counter(commit.operation_id for commit in found)
    return next((commit for commit in found if commit.operation_id is None or made[commit.operation_id] == 1), None)

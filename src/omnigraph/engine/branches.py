"""Creating, deleting and resetting branches."""

from __future__ import annotations

from omnigraph.commit import branch_reset, branches, snapshots, transaction_branches
from omnigraph.commit.branch_parents import parent_of
from omnigraph.commit.branch_reset import BranchReset, preview_reset
from omnigraph.commit.branches import Branch
from omnigraph.commit.kept_states import kept_state
from omnigraph.commit.lineage import find_ancestor, full_commit_id
from omnigraph.commit.manifest import MAIN
from omnigraph.commit.ref_names import branch_name
from omnigraph.engine.session import Session
from omnigraph.errors import ConflictError, InputError, shown


def create_branch(session: Session, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
    """Create a branch at the head of another, by default `main`, or at a commit or tag.

    Raises:
        ConflictError: a branch or a tag has the name.
    """
    session.require_writable()
    if source is not None and commit is not None:
        raise InputError(
            "give source or commit, not both: a branch starts at the head of another branch or at a commit"
        )
    store = session.store
    view = store.capture(source or MAIN) if commit is None else snapshots.at_commit(store, commit).manifest
    made = branches.create_branch(store, name, view)
    parent = made.parent if made.parent == MAIN else parent_of(store, store.branch_refs(), made)
    return Branch(made.name, parent, view.head.id, view.version)


def delete_branch(session: Session, name: str, expect_head: str | None = None, incarnation: str | None = None) -> None:
    """Delete a branch.

    Args:
        session: the session.
        name: the branch.
        expect_head: delete the branch only if this commit is its head.
        incarnation: delete only this incarnation, not a newer branch of the same name.

    Raises:
        BranchNotFoundError: there is no such branch.
        ConflictError: another branch, a tag or this session depends on the branch.
        PreconditionFailedError: the head is another commit.
    """
    session.require_writable()
    bound = session.default_branch
    if name.strip() == bound != MAIN:
        raise ConflictError(f"this handle is bound to branch '{bound}'", hint="open the graph on another branch")
    transaction_branches.reclaim(session.store)  # so that crashed transactions do not block the deletion
    if (branch := branch_name(name)) != MAIN:
        transaction_branches.check_none_on(session.store, branch, session.store.branch_identifier(branch))
    branches.delete_branch(session.store, name, session.expected_head(expect_head), incarnation)


def reset_branch(
    session: Session, name: str, to: str, *, expect_head: str | None = None, preview: bool = False
) -> BranchReset:
    """Move a branch to another commit. A tag keeps its previous head.

    Args:
        session: the session.
        name: the branch.
        to: the commit or tag.
        expect_head: reset the branch only if this commit is its head.
        preview: report the result, but write nothing.

    Raises:
        InputError: the branch is `main`.
        BranchNotFoundError: there is no such branch.
        NotFoundError: there is no such commit.
        PreconditionFailedError: the head is another commit.
        VersionReclaimedError: cleanup has removed the commit.
    """
    store = session.store
    if not preview:
        session.require_writable()
    if not isinstance(to, str):
        raise InputError(f"{shown(to)} is not a commit", hint="give the id of a commit, or a tag")
    to = full_commit_id(store, to)
    known = find_ancestor(store.capture(branch_name(name)), to)
    base = snapshots.at_commit(store, to).manifest if known is None else kept_state(store, known)
    reset = preview_reset if preview else branch_reset.reset_branch
    return reset(store, name, base, session.expected_head(expect_head))

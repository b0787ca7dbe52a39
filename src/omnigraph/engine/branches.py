"""Creating and deleting branches."""

from __future__ import annotations

from omnigraph.commit import branches, snapshots, transaction_branches
from omnigraph.commit.branches import Branch
from omnigraph.commit.manifest import MAIN
from omnigraph.engine.session import Session
from omnigraph.errors import ConflictError, InputError


def create_branch(session: Session, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
    """Create a branch at the head of another, by default `main`, or at a commit or tag.

    Raises:
        ConflictError: the name is taken.
    """
    session.require_writable()
    if source is not None and commit is not None:
        raise InputError(
            "give source or commit, not both: a branch starts at the head of another branch or at a commit"
        )
    store = session.store
    view = store.capture(source or MAIN) if commit is None else snapshots.at_commit(store, commit).manifest
    made = branches.create_branch(store, name, view)
    return Branch(made.name, made.parent, view.head.id, view.version)


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
    branches.delete_branch(session.store, name, session.commit_id(expect_head), incarnation)

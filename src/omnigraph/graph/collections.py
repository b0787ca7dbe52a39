"""The branches, commits, tags and recovery records of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from omnigraph.commit import audit, branches, lineage, snapshots, tags
from omnigraph.commit.audit import RecoveryRecord
from omnigraph.commit.branches import Branch
from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.tags import Tag
from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.session import Session
from omnigraph.errors import InputError


class Branches:
    """The branches of a graph. Iterates over them, `main` first."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.list())

    def __contains__(self, name: object) -> bool:
        return name in [branch.name for branch in self.list()]

    def list(self) -> list[Branch]:
        return branches.list_branches(self._session.store)

    def create(self, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
        """Create a branch at the head of another branch, by default `main`, or at any commit or tag.

        Raises:
            ConflictError: the name is taken.
        """
        return create_branch(self._session, name, source=source, commit=commit)

    def delete(self, name: str, *, expect_head: str | None = None) -> None:
        """Delete a branch. Commits that only this branch reaches become unreachable.

        Args:
            name: the branch.
            expect_head: delete the branch only if this commit is its head.

        Raises:
            BranchNotFoundError: there is no such branch.
            ConflictError: another branch, a tag or this handle depends on the branch.
            PreconditionFailedError: the head is another commit.
        """
        delete_branch(self._session, name, expect_head)


@dataclass(frozen=True, slots=True)
class CommitPage:
    """A page of commits, newest first, and the cursor of the next page; None for the last page."""

    commits: tuple[Commit, ...]
    cursor: str | None


class Commits:
    """The history of the graph. Iterates over the commits of the handle's branch, newest first."""

    def __init__(self, session: Session, branch: str) -> None:
        self._store = session.store
        self._branch = branch

    def __iter__(self) -> Iterator[Commit]:
        return lineage.commits(self._store.capture(self._branch))

    def get(self, commit_id: str) -> Commit:
        """A commit of any branch.

        Raises:
            NotFoundError: there is no such commit.
        """
        return lineage.find_commit(self._store, commit_id)

    def list(
        self,
        *,
        branch: str | None = None,
        actor: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> CommitPage:
        """A page of the commits that can be reached from a branch head.

        Args:
            branch: the branch; by default the handle's branch.
            actor: return only commits by this actor.
            limit: the maximum number of commits.
            cursor: the cursor of the previous page.
        """
        if limit is not None and limit < 1:
            raise InputError("limit must be at least 1")
        found = lineage.commits(self._store.capture(branch or self._branch))
        if cursor is not None:
            for commit in found:
                if commit.id == cursor:
                    break
            else:
                raise InputError("this cursor does not belong to this history", hint="start without a cursor")
        if actor is not None:
            found = (commit for commit in found if commit.actor == actor)
        if limit is None:
            return CommitPage(tuple(found), None)
        taken = tuple(islice(found, limit + 1))
        more = len(taken) > limit
        return CommitPage(taken[:limit], taken[limit - 1].id if more else None)


class Tags:
    """The tags of the graph. Iterates over them in the order of their names."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = session.store

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def list(self) -> list[Tag]:
        return tags.list_tags(self._store)

    def create(self, name: str, *, commit: str | None = None, branch: str = MAIN) -> Tag:
        """Tag a commit; by default the head of a branch. Cleanup keeps a tagged commit readable.

        Args:
            name: the name of the tag.
            commit: a commit, or another tag.
            branch: the branch whose head is tagged if no commit is given.

        Raises:
            ConflictError: the name is taken.
        """
        self._session.require_writable()
        view = self._store.capture(branch) if commit is None else snapshots.at_commit(self._store, commit).manifest
        return tags.create_tag(self._store, name, view.head)

    def delete(self, name: str) -> None:
        """Delete a tag.

        Raises:
            NotFoundError: there is no such tag.
        """
        self._session.require_writable()
        tags.delete_tag(self._store, name)


class Recovery:
    """Interrupted writes, pending and recovered."""

    def __init__(self, session: Session) -> None:
        self._store = session.store

    def list(self) -> list[RecoveryRecord]:
        """The writes that recovery has completed or undone, oldest first."""
        return audit.records(self._store.audit)

    def pending(self) -> Sequence[Sidecar]:
        """The sidecars that exist now, oldest first: interrupted writes and writes in progress."""
        return pending(self._store.objects)

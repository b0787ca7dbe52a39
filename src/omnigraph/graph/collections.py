"""What hangs off a graph: its branches, commits, tags, and the record of recoveries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from omnigraph.commit import audit, branches, lineage, snapshots, tags, transaction_branches
from omnigraph.commit.audit import RecoveryRecord
from omnigraph.commit.branches import Branch
from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.store import Store
from omnigraph.commit.tags import Tag
from omnigraph.errors import ConflictError, InputError


class Branches:
    """The branches of a graph. Iterates over them, `main` first."""

    def __init__(self, store: Store, writable: Callable[[], None], bound: str) -> None:
        self._store = store
        self._writable = writable
        self._bound = bound

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.list())

    def __contains__(self, name: object) -> bool:
        return name in [branch.name for branch in self.list()]

    def list(self) -> list[Branch]:
        return branches.list_branches(self._store)

    def create(self, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
        """Make a branch at the head of another (by default `main`), or at any commit or tag.

        Raises:
            ConflictError: the name is taken.
        """
        self._writable()
        if source is not None and commit is not None:
            raise InputError("a branch begins at a branch head or at a commit, not at both")
        if commit is not None:
            view = snapshots.at_commit(self._store, commit)._manifest
        else:
            view = self._store.capture(source or "main")
        made = branches.create_branch(self._store, name, view)
        return Branch(made.name, made.parent, view.head.id, view.version)

    def delete(self, name: str, *, expect_head: str | None = None) -> None:
        """Remove a branch. Its own commits can no longer be reached.

        Args:
            name: the branch.
            expect_head: do so only if this is its head: nothing was written to it since.

        Raises:
            BranchNotFoundError: there is no such branch.
            ConflictError: another branch, a tag or this handle depends on it.
            PreconditionFailedError: its head is another commit.
        """
        self._delete(name, expect_head)

    def _delete(self, name: str, expect_head: str | None, incarnation: str | None = None) -> None:
        """Remove a branch; with an incarnation, that one and no other of the name."""
        self._writable()
        if name.strip() == self._bound != MAIN:
            raise ConflictError(f"this handle is bound to branch '{self._bound}'", hint="open the graph on another one")
        transaction_branches.reclaim(self._store)  # a transaction that died here depends on it no more
        branches.delete_branch(self._store, name, expect_head, incarnation)


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Some commits, newest first, and where to go on; no cursor means that this is the end."""

    commits: tuple[Commit, ...]
    cursor: str | None


class Commits:
    """The history of the graph. Iterates over that of the handle's branch, newest first."""

    def __init__(self, store: Store, branch: str) -> None:
        self._store = store
        self._branch = branch

    def __iter__(self) -> Iterator[Commit]:
        return lineage.commits(self._store.capture(self._branch))

    def get(self, commit_id: str) -> Commit:
        """A commit, whichever branch it is on.

        Raises:
            NotFoundError: there is none.
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
        """A page of the commits that lead to a branch head.

        Args:
            branch: whose history; by default the handle's branch.
            actor: only commits by this actor.
            limit: at most this many.
            cursor: where an earlier page ended.
        """
        if limit is not None and limit < 1:
            raise InputError("a page has at least one commit")
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
    """Named commits. Iterates over them by name."""

    def __init__(self, store: Store, writable: Callable[[], None]) -> None:
        self._store = store
        self._writable = writable

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def list(self) -> list[Tag]:
        return tags.list_tags(self._store)

    def create(self, name: str, *, commit: str | None = None, branch: str = "main") -> Tag:
        """Name a commit; by default the head of a branch. Cleanup keeps what it needs.

        Args:
            name: what it shall be called.
            commit: a commit, or another tag.
            branch: whose head, when no commit is given.

        Raises:
            ConflictError: the name is taken.
        """
        self._writable()
        view = self._store.capture(branch) if commit is None else snapshots.at_commit(self._store, commit)._manifest
        return tags.create_tag(self._store, name, view.head)

    def delete(self, name: str) -> None:
        """Remove a tag.

        Raises:
            NotFoundError: there is no such tag.
        """
        self._writable()
        tags.delete_tag(self._store, name)


class Recovery:
    """Interrupted writes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list(self) -> list[RecoveryRecord]:
        """Those that were settled, oldest first."""
        return audit.records(self._store.audit)

    def pending(self) -> Sequence[Sidecar]:
        """Those that wait to be settled, oldest first. A writer that is at work this moment looks the same."""
        return pending(self._store.objects)

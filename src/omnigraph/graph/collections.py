"""The branches, commits, tags and recovery records of a graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Unpack

from omnigraph.commit import audit, lineage, snapshots, tags
from omnigraph.commit.audit import RecoveryRecord
from omnigraph.commit.branch_reset import BranchReset
from omnigraph.commit.branches import Branch
from omnigraph.commit.kept_states import removed_of
from omnigraph.commit.manifest import MAIN, Commit
from omnigraph.commit.sidecar import Sidecar, pending
from omnigraph.commit.tags import Tag
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.options import takes
from omnigraph.engine.request_options import BranchUpdateOptions
from omnigraph.engine.session import Session
from omnigraph.errors import InputError, shown

if TYPE_CHECKING:
    from omnigraph.merge.receipt import MergeReceipt


class Branches:
    """The branches of a graph. Iterates over them, `main` first."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __iter__(self) -> Iterator[Branch]:
        return iter(self.list())

    def __contains__(self, name: object) -> bool:
        return name in [branch.name for branch in self.list()]

    def __repr__(self) -> str:
        return f"<Branches {', '.join(branch.name for branch in self.list())}>"

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import branches_html

        return branches_html(self.list())

    def list(self) -> list[Branch]:
        from omnigraph.engine.branches import list_branches

        return list_branches(self._session)

    def create(self, name: str, *, source: str | None = None, commit: str | None = None) -> Branch:
        """Create a branch at the head of another branch, by default `main`, or at any commit or tag.

        Raises:
            ConflictError: the name is taken.
        """
        from omnigraph.engine.branches import create_branch

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
        from omnigraph.engine.branches import delete_branch

        delete_branch(self._session, name, expect_head)

    @takes(BranchUpdateOptions)
    def update(self, name: str, **options: Unpack[BranchUpdateOptions]) -> MergeReceipt:
        """Bring the schema and the rows of its parent into a branch, as one commit.

        Args:
            name: the branch.
            **options: `strategy` chooses the side that wins all conflicts: `ours` is the branch, `theirs` is the
                parent. `resolutions` chooses it for single conflicts. `level` is the merge level, `row` or
                `property`. With `preview`, nothing is written. `memory_budget` limits the memory of the comparison.
                `engine` is `auto`, `local` or `spark`. The other options are those of every write.

        Example:
            >>> import omnigraph, tempfile
            >>> graph = omnigraph.init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }")
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.schema.apply("node Person { name: String @key  age: I32? }")
            >>> graph.branches.update("draft").outcome.value
            'fast_forward'
            >>> _ = graph.mutate('query q() { insert Person { name: "ann", age: 7 } }', branch="draft")

        Raises:
            BranchNotFoundError: there is no such branch.
            InputError: the branch is `main`.
            MergeConflictsError: conflicts remain that no strategy or resolution decides. Nothing was written.
            MergeSchemaError: changes of the branch cannot be brought to the schema of the parent.
            PreconditionFailedError: the head of the branch is not the expected one.
        """
        from omnigraph.engine.branch_update import update_branch
        from omnigraph.engine.requests import BranchUpdateRequest

        return update_branch(self._session, BranchUpdateRequest(name, **options))

    def reset(self, name: str, to: str, *, expect_head: str | None = None, preview: bool = False) -> BranchReset:
        """Move a branch to another commit. Its later commits leave the branch; a tag keeps them readable.

        Args:
            name: the branch. `main` cannot be reset: use `Graph.revert` there.
            to: the commit that becomes its head, or a tag.
            expect_head: reset the branch only if this commit is its head.
            preview: report the result, but write nothing.

        Example:
            >>> import omnigraph, tempfile
            >>> graph = omnigraph.init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }")
            >>> _ = graph.branches.create("draft")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann" } }', branch="draft")
            >>> done = graph.branches.reset("draft", graph.branch("main").head.id)
            >>> done.commits_removed, graph.branch("draft").entity("Person", "ann")
            (1, None)
            >>> graph.entity("Person", "ann", at=done.tag)["name"]
            'ann'

        Raises:
            InputError: the branch is `main`.
            BranchNotFoundError: there is no such branch.
            NotFoundError: there is no such commit.
            PreconditionFailedError: the head is another commit.
            VersionReclaimedError: cleanup has removed the commit.
        """
        from omnigraph.engine.branches import reset_branch

        return reset_branch(self._session, name, to, expect_head=expect_head, preview=preview)


@dataclass(frozen=True, slots=True)
class CommitPage:
    """A page of commits, newest first.

    Attributes:
        commits: the commits.
        cursor: the cursor of the next page; None for the last page.
        removed: the ids of listed commits whose state is not kept. Their entries stay in the history.
    """

    commits: tuple[Commit, ...]
    cursor: str | None
    removed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """One line per commit, as `omnigraph commit list` prints it."""
        from omnigraph.graph.commit_rows import commit_rows
        from omnigraph.read.result.text_table import aligned

        return "\n".join(aligned(commit_rows(self.commits, self.removed)))

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import commits_html

        return commits_html(self.commits, self.removed, more=self.cursor is not None)


class Commits:
    """The history of the graph. Iterates over the commits of the handle's branch, newest first."""

    def __init__(self, session: Session, branch: str) -> None:
        self._session = session
        self._store = session.store
        self._branch = branch

    def __iter__(self) -> Iterator[Commit]:
        self._session.allow(Action.READ, self._branch)
        return map(self._session.shown_commit, lineage.commits(self._store.capture(self._branch)))

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import commits_html

        return commits_html(self)

    def get(self, commit_id: str) -> Commit:
        """A commit of any branch.

        Args:
            commit_id: its id, the beginning of its id, or a tag.

        Raises:
            NotFoundError: there is no such commit and no such tag.
        """
        self._session.allow(Action.READ)
        return self._session.shown_commit(lineage.find_commit(self._store, commit_id))

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
            actor: return only commits by this actor, and groups with a member by this actor.
            limit: the maximum number of commits.
            cursor: the cursor of the previous page.
        """
        self._session.allow(Action.READ, branch or self._branch)
        given: object = limit
        if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
            raise InputError(f"limit must be a number of at least 1, not {shown(limit)}")
        page = lineage.newest_of(
            self._store,
            branch or self._branch,
            lambda view: _page(map(self._session.shown_commit, lineage.commits(view)), actor, limit, cursor),
        )
        return replace(page, removed=removed_of(self._store, page.commits))


def _page(found: Iterator[Commit], actor: str | None, limit: int | None, cursor: str | None) -> CommitPage:
    if cursor is not None:
        for commit in found:
            if commit.id == cursor:
                break
        else:
            raise InputError("this cursor does not belong to this history", hint="start without a cursor")
    if actor is not None:
        found = (commit for commit in found if commit.is_by(actor))
    if limit is None:
        return CommitPage(tuple(found), None)
    taken = tuple(islice(found, min(limit, sys.maxsize - 1) + 1))
    more = len(taken) > limit
    return CommitPage(taken[:limit], taken[limit - 1].id if more else None)


class Tags:
    """The tags of the graph. Iterates over them in the order of their names."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = session.store

    def __iter__(self) -> Iterator[Tag]:
        return iter(self.list())

    def _repr_html_(self) -> str:
        from omnigraph.graph.notebook import tags_html

        return tags_html(self.list())

    def list(self) -> list[Tag]:
        self._session.allow(Action.READ)
        access = self._session.access
        found = tags.list_tags(self._store)
        return found if access is None else [tag for tag in found if access.knows(tag.branch)]

    def create(self, name: str, *, commit: str | None = None, branch: str = MAIN) -> Tag:
        """Tag a commit; by default the head of a branch. Cleanup keeps a tagged commit readable.

        Args:
            name: the name of the tag.
            commit: a commit, or another tag.
            branch: the branch whose head is tagged if no commit is given.

        Raises:
            ConflictError: a tag or a branch has the name.
        """
        from omnigraph.engine.branches import hiding_names

        session = self._session.unrestricted
        session.require_writable()
        if commit is None:
            session.allow(Action.BRANCH_CREATE, branch, name)
            session.require_known(branch)
            view = session.store.capture(branch)
        else:
            with session.hiding_existence(Action.BRANCH_CREATE, name):
                view = snapshots.at_commit(session.store, commit).manifest
            session.allow(Action.BRANCH_CREATE, view.branch, name, names_branch=False)
        with hiding_names(session, name):
            return tags.create_tag(session.store, name, view.head)

    def delete(self, name: str) -> None:
        """Delete a tag.

        Raises:
            NotFoundError: there is no such tag.
        """
        session = self._session.unrestricted
        session.require_writable()
        session.allow(Action.BRANCH_DELETE, target_branch=name)
        tags.delete_tag(session.store, name)


class Recovery:
    """Interrupted writes, pending and recovered."""

    def __init__(self, session: Session) -> None:
        self._session = session
        session.require_whole("recovery")
        self._store = session.store

    def list(self) -> list[RecoveryRecord]:
        """The writes that recovery has completed or undone, oldest first."""
        self._session.allow(Action.ADMIN)
        return audit.records(self._store.audit)

    def pending(self) -> Sequence[Sidecar]:
        """The sidecars that exist now, oldest first: interrupted writes and writes in progress."""
        self._session.allow(Action.ADMIN)
        return pending(self._store.objects)

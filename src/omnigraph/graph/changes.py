"""The change feed of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from omnigraph.engine.options import takes
from omnigraph.engine.request_options import ChangeOptions, CommitChangesOptions, FollowOptions, PollOptions
from omnigraph.engine.session import Session

if TYPE_CHECKING:
    from omnigraph.changes.commit_page import ChangePage
    from omnigraph.changes.feed import FeedPage
    from omnigraph.engine.changes import Baseline, Follower


class Changes:
    """The changes of commits, and the change feed of a branch."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @takes(CommitChangesOptions)
    def of(self, commit: str, **options: Unpack[CommitChangesOptions]) -> ChangePage:
        """A page of the changes of one commit since its first parent.

        Nodes come before edges, types are sorted by an internal id, entities by id. Rows that were rewritten with equal
        values are left out.

        Args:
            commit: the commit id.
            kinds: `node`, `edge`; by default both.
            types: type names; by default all.
            ops: `insert`, `update`, `delete`; by default all.
            page_token: the token of the previous page.
            limit: the maximum number of changes of the page, up to 8,192.
            max_bytes: the approximate size of the page, up to 32 MiB. It has at least one change.
            options: the keyword arguments listed above, from `kinds` to `max_bytes`.

        Raises:
            NotFoundError: there is no such commit.
            ParentlessCommitError: the commit has no parent.
            SchemaBoundaryError: the commit changes the columns of a type.
            ChangeFeedGapError: cleanup has removed a version that the changes are computed from.
            ChangeCursorError: the token does not belong to the request.
        """
        from omnigraph.engine.changes import commit_changes
        from omnigraph.engine.requests import CommitChangesRequest

        return commit_changes(self._session, CommitChangesRequest(commit=commit, **options))

    @takes(PollOptions)
    def poll(self, *, branch: str | None = None, **options: Unpack[PollOptions]) -> FeedPage:
        """A page of the change feed: the commits of a branch after a position, oldest first.

        A block contains the changes of one commit. A page that ends inside a block has a `next_page_token`. Other pages
        have a `cursor` for the next poll.

        Args:
            branch: the branch; by default the handle's branch.
            start: `now` (the default: only the cursor of the head), `beginning`, or `after:COMMIT`.
            cursor: the cursor of an earlier page. The poll continues after that page.
            page_token: continue inside the last block of the previous page.
            kinds: `node`, `edge`; by default both.
            types: type names; by default all.
            ops: `insert`, `update`, `delete`; by default all.
            limit: the maximum number of changes of the page, up to 8,192.
            max_bytes: the approximate size of the page, up to 32 MiB. It has at least one change.
            max_commits: the maximum number of commits of a poll, up to 512.
            wait: with a cursor: seconds to wait for a commit, if there is no commit after the cursor yet. Without a
                cursor, the poll returns at once.
            options: the keyword arguments listed above, from `start` to `wait`.

        Raises:
            InputError: the arguments exclude each other, or a type does not exist.
            NotFoundError: the branch, or the commit to start after, does not exist.
            ChangeCursorError: a token does not belong to the request.
            ChangeFeedGapError: cleanup has removed a version that the changes of the first commit are computed from.
            SchemaBoundaryError: the first commit of the page changes the columns of a type.
        """
        from omnigraph.engine.changes import poll
        from omnigraph.engine.requests import PollRequest

        return poll(self._session, PollRequest(branch=branch, **options))

    @takes(FollowOptions)
    def follow(
        self, *, branch: str | None = None, timeout: float | None = None, **options: Unpack[FollowOptions]
    ) -> Follower:
        """Iterate over the blocks of a branch, and wait for new commits. Works in `for` and in `async for`.

        A large block comes in several parts. Store the `cursor` of a complete block together with its changes, or the
        `page_token` of a part.

        Args:
            branch: the branch; by default the handle's branch.
            timeout: end the iteration if no commit arrives for so many seconds; by default it never ends.
            options: the keyword arguments of `poll`, except `wait`.

        Example:
            >>> import tempfile, omnigraph
            >>> graph = omnigraph.init(tempfile.mkdtemp() + "/g", "node Person { name: String @key }")
            >>> _ = graph.mutate('query q() { insert Person { name: "ann" } }')
            >>> for block in graph.changes.follow(start="beginning", timeout=0):
            ...     print([(change.op.value, change.id) for change in block.changes])
            [('insert', 'ann')]

        Raises:
            InputError: the arguments exclude each other.
        """
        from omnigraph.engine.changes import Follower
        from omnigraph.engine.requests import PollRequest

        return Follower(self._session, PollRequest(branch=branch, **options), timeout)

    @takes(ChangeOptions)
    def baseline(self, *, branch: str | None = None, **options: Unpack[ChangeOptions]) -> Baseline:
        """An export of the head of a branch, and the cursor from which the feed continues.

        Iterate over the result for the NDJSON lines. The last line has the cursor: store the entities durably before
        you store the cursor.

        Args:
            branch: the branch; by default the handle's branch.
            kinds: `node`, `edge`; by default both. Selects the exported entities and the changes after the cursor.
            types: type names; by default all. Selects the exported entities and the changes after the cursor.
            ops: `insert`, `update`, `delete`; by default all. Selects only the changes after the cursor.
            options: the keyword arguments `kinds`, `types` and `ops`.

        Raises:
            InputError: there is no such type, kind or operation.
            BranchNotFoundError: there is no such branch.
        """
        from omnigraph.engine.changes import baseline
        from omnigraph.engine.requests import BaselineRequest

        return baseline(self._session, BaselineRequest(branch=branch, **options))

"""The change feed: changes of commits, polls, an iterator that follows a branch, and baselines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import orjson

from omnigraph.changes.commit_page import ChangeFilter, ChangePage, PageLimits
from omnigraph.changes.feed import AFTER, ChangeBlock, FeedPage, Poll
from omnigraph.commit.lineage import find_commit, unknown_commit
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.snapshots import at_commit
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.chosen_types import chosen_names
from omnigraph.engine.former_names import hints_for_former_names
from omnigraph.engine.requests import BaselineRequest, ChangeFields, CommitChangesRequest, PollRequest
from omnigraph.engine.session import Session
from omnigraph.errors import (
    AccessDeniedError,
    ChangeFeedGapError,
    InputError,
    OmnigraphError,
    VersionReclaimedError,
    shown,
)
from omnigraph.read.export.export import TypeExport, exported

SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two looks at the head of a branch while a poll waits."""

FOLLOW_WAIT = 10.0
"""Seconds that one poll of an iterator waits."""

_ASYNC_WAIT = 0.5


def commit_changes(session: Session, request: CommitChangesRequest) -> ChangePage:
    """One page of the changes of a commit.

    Raises:
        NotFoundError: there is no such commit.
        ParentlessCommitError: the commit has no parent.
        SchemaBoundaryError: the commit changes the columns of a type.
        ChangeFeedGapError: cleanup has removed a version that the changes are computed from.
        ChangeCursorError: the token does not belong to the request.
    """
    limits = PageLimits(request.limit, request.max_bytes)
    chosen = _filter(request)
    commit = _commit(session, request.commit)
    if session.access is not None:
        chosen = _of_commit(session, commit, chosen, request.commit)
    return session.feed.page_of(commit, chosen, request.page_token, limits)


def _commit(session: Session, name: str) -> Commit:
    """The commit of a request. To an actor that does not read all branches, every name without one is unknown.

    Raises:
        NotFoundError: there is no such commit.
        InputError: several commits have ids with this beginning.
    """
    try:
        return find_commit(session.store, name)
    except OmnigraphError:
        if session.lists_branches or not isinstance(name, str):
            raise
        raise unknown_commit(session.store, name) from None


def _of_commit(session: Session, commit: Commit, chosen: ChangeFilter, named: str) -> ChangeFilter:
    """The filter, limited to the types that the actor may read.

    Raises:
        NotFoundError: the actor may not read the branch of the commit. The error is that of an unknown commit.
        AccessDeniedError: the actor may not read a type.
        ChangeFeedGapError: cleanup has removed the commit.
    """
    try:
        session.allow(Action.READ, commit.branch)
    except AccessDeniedError:
        raise unknown_commit(session.store, named) from None
    try:
        view = at_commit(session.store, commit.id).manifest
    except VersionReclaimedError as error:
        raise ChangeFeedGapError(commit.id) from error
    session.refuse_row_limits(Action.READ, view)
    return _readable(session, Action.READ, chosen, view)


def _readable(session: Session, action: Action, chosen: ChangeFilter, view: Manifest) -> ChangeFilter:
    """The filter, limited to the types that the actor may use. So another policy makes earlier cursors invalid."""
    names = chosen_names(session, action, chosen.types, view)
    return chosen if names is None else replace(chosen, types=tuple(sorted(names)))


def poll(session: Session, request: PollRequest) -> FeedPage:
    """One page of the change feed of a branch.

    Raises:
        InputError: the arguments exclude each other, or a type does not exist.
        NotFoundError: the branch, or the commit to start after, does not exist.
        ChangeCursorError: a token does not belong to the request.
        ChangeFeedGapError: cleanup has removed a version that the changes of the first commit are computed from.
        SchemaBoundaryError: the first commit of the page changes the columns of a type.
    """
    branch, chosen = session.branch_or_default(request.branch), _filter(request)
    if session.access is not None:
        view = session.readable(branch, None).manifest
        chosen = _readable(session, Action.READ, chosen, view)
    made = Poll(
        branch,
        _start(session, request.start),
        request.cursor,
        request.page_token,
        chosen,
        PageLimits(request.limit, request.max_bytes),
        request.max_commits,
    )
    _wait_for_news(session, made, _seconds("wait", request.wait))
    return session.feed.poll(made)


def _start(session: Session, start: str | None) -> str | None:
    """The position to start at. The beginning of a commit id is replaced by the whole id.

    Raises:
        NotFoundError: there is no such commit.
    """
    if not isinstance(start, str) or not start.startswith(AFTER):
        return start
    return f"{AFTER}{find_commit(session.store, start.removeprefix(AFTER)).id}"


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise InputError(f"{name} is a number of seconds, not {shown(value)}")
    return float(value)


def _wait_for_news(session: Session, request: Poll, seconds: float) -> None:
    """Wait until the branch has a commit after the cursor, at most for some seconds."""
    end = time.monotonic() + seconds
    pause = SHORTEST_PAUSE
    while seconds and not session.feed.has_news(request):
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(pause * 2, LONGEST_PAUSE)


def _filter(request: ChangeFields) -> ChangeFilter:
    return ChangeFilter.given(request.kinds, request.types, request.ops)


class Follower:
    """Iterates over the blocks of a branch, and waits for new commits. Works in `for` and in `async for`.

    Store the `cursor` of a block together with its changes. Pass it to continue after the block.

    Args:
        session: the session.
        request: the position to begin at, and the filters.
        timeout: end the iteration if no commit arrives for so many seconds; None waits for ever.
    """

    def __init__(self, session: Session, request: PollRequest, timeout: float | None) -> None:
        if timeout is not None:
            timeout = _seconds("timeout", timeout)
        self._session = session
        self._request = request
        self._timeout = timeout
        self._idle_since = time.monotonic()

    def __iter__(self) -> Iterator[ChangeBlock]:
        self._idle_since = time.monotonic()
        while True:
            page = poll(self._session, self._with_wait(FOLLOW_WAIT))
            self._advance(page)
            yield from page.blocks
            if not page.blocks and self._is_over():
                return

    async def __aiter__(self) -> AsyncIterator[ChangeBlock]:
        self._idle_since = time.monotonic()
        while True:
            # Each wait in the thread is short, so that a cancelled task does not keep the thread busy.
            page = await asyncio.to_thread(poll, self._session, self._with_wait(_ASYNC_WAIT))
            self._advance(page)
            for block in page.blocks:
                yield block
            if not page.blocks and self._is_over():
                return

    def _with_wait(self, seconds: float) -> PollRequest:
        if self._request.cursor is None:
            return self._request
        if self._timeout is not None:
            left = self._idle_since + self._timeout - time.monotonic()
            seconds = min(seconds, max(left, 0.0))
        return replace(self._request, wait=seconds)

    def _advance(self, page: FeedPage) -> None:
        if page.blocks:
            self._idle_since = time.monotonic()
        self._request = replace(
            self._request, start=None, cursor=page.cursor, page_token=page.next_page_token, wait=0.0
        )

    def _is_over(self) -> bool:
        return self._timeout is not None and time.monotonic() - self._idle_since >= self._timeout


@dataclass(frozen=True, slots=True)
class Baseline:
    """An export of a snapshot, and the cursor from which the change feed continues.

    Attributes:
        snapshot: the name of the snapshot.
        snapshot_commit_id: the commit of the snapshot.
        resume_cursor: the cursor after this commit. Store it after you have stored the entities of the snapshot.
    """

    session: Session
    snapshot: str
    snapshot_commit_id: str
    resume_cursor: str
    parts: tuple[TypeExport, ...]

    def lines(self) -> Iterator[bytes]:
        """The entities as NDJSON, and a last line with the cursor. The last line is missing if the export fails."""
        store = self.session.store
        refs = [part.pin.ref for part in self.parts]
        with reading(store.leases, WorkKind.EXPORT, refs):
            for part in self.parts:
                yield from part.lines()
        yield orjson.dumps({"baseline": self.to_json()}) + b"\n"

    def __iter__(self) -> Iterator[bytes]:
        return self.lines()

    def to_json(self) -> dict[str, str]:
        return {"snapshot_commit_id": self.snapshot_commit_id, "resume_cursor": self.resume_cursor}


def baseline(session: Session, request: BaselineRequest) -> Baseline:
    """A baseline of a branch: a snapshot at its head, and the cursor after it.

    Raises:
        InputError: there is no such type, kind or operation.
        BranchNotFoundError: there is no such branch.
    """
    chosen, reader, session = _filter(request), session, session.exporting
    view = session.readable(session.branch_or_default(request.branch), None, Action.EXPORT)
    chosen = _readable(session, Action.EXPORT, chosen, view.manifest)
    state = session.graph_state(view.manifest)
    with hints_for_former_names(session.store, view.manifest, chosen.types):
        chosen.check_types(state)
    parts = [
        part
        for part in exported(view, state.accepted, chosen.types)
        if chosen.kinds is None or part.kind.value in chosen.kinds
    ]
    known = view if reader is session else reader.snapshot(commit=view.commit.id)
    cursor = reader.feed.cursor_at(reader.graph_state(known.manifest), chosen)
    return Baseline(session, view.id, view.commit.id, cursor, tuple(parts))

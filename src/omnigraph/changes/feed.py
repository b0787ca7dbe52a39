"""The change feed of a branch: its commits in first-parent order, each as a block of changes.

A poll returns the commits between a position and the head that the branch had at the first page of the poll. A consumer
stores the cursor of the last page. The server stores no state of a consumer, and a cursor does not protect old versions
from cleanup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import chain, takewhile
from typing import Any

from omnigraph.changes.aligned_types import GraphState
from omnigraph.changes.commit_page import (
    ChangeCause,
    ChangeFilter,
    ChangePage,
    CommitChanges,
    EntityChange,
    PageLimits,
    check_limit,
    commit_page,
    packed,
)
from omnigraph.changes.diff import Reading
from omnigraph.changes.followed_types import (
    MAX_BYTES,
    MAX_SEALED_BYTES,
    Followed,
    check_names,
    from_member,
    resolved,
    sealed,
    to_member,
)
from omnigraph.changes.tokens import (
    Binding,
    Position,
    TokenKind,
    decode,
    digest_of,
    encode,
    position_member,
    row_member,
    text_member,
)
from omnigraph.commit.lineage import Place, commits, find_place, first_commit, head_place, places_after, places_from
from omnigraph.commit.manifest import Commit, Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    ChangeCursorError,
    ChangeFeedGapError,
    InputError,
    NotFoundError,
    ParentlessCommitError,
    SchemaBoundaryError,
    VersionReclaimedError,
    cut,
    shown,
)

DEFAULT_COMMITS, MAX_COMMITS = 128, 512
"""Default and maximum number of commits that one poll returns."""

_SAME_SCHEMA = tuple(
    kind.value
    for kind in (
        WriterKind.MUTATION,
        WriterKind.LOAD,
        WriterKind.BRANCH_MERGE,
        WriterKind.OPTIMIZE,
        WriterKind.ENSURE_INDEXES,
        WriterKind.EMBED,
    )
)
"""The kinds of writes that do not change the schema of their branch."""

NOW, BEGINNING, AFTER = "now", "beginning", "after:"


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """The changes of one commit, or a part of them.

    Attributes:
        cause: the commit.
        changes: the changes, in a fixed order.
        cursor: the position after this block; None if more changes of the commit follow.
        page_token: the token to continue after this part of the commit; None if no more changes of the commit follow.
    """

    cause: ChangeCause
    changes: tuple[EntityChange, ...]
    cursor: str | None = None
    page_token: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether this is the last part of the changes of the commit."""
        return self.cursor is not None

    def to_json(self) -> dict[str, Any]:
        return {"cause": self.cause.to_json(), "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True, slots=True)
class FeedPage:
    """One page of a poll.

    Attributes:
        blocks: the commits, oldest first.
        next_page_token: the token to continue inside the last commit; None for the last page of a poll.
        cursor: the position after the page, to store and to continue from; only for the last page of a poll.
        caught_up: whether the branch had no further commits when the poll began; only for the last page of a poll.
    """

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {"blocks": [block.to_json() for block in self.blocks]}
        optional = {"next_page_token": self.next_page_token, "cursor": self.cursor, "caught_up": self.caught_up}
        return members | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Poll:
    """The arguments of one poll. At most one of `start`, `cursor` and `page_token` is given.

    Raises:
        InputError: more than one of these three is given, or a limit is invalid.
    """

    branch: str
    start: str | None = None
    cursor: str | None = None
    page_token: str | None = None
    filter: ChangeFilter = field(default_factory=ChangeFilter)
    limits: PageLimits = field(default_factory=PageLimits)
    max_commits: int = DEFAULT_COMMITS

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.start, self.cursor, self.page_token)) > 1:
            raise InputError("give only one of start, cursor and page_token")
        check_limit("max_commits", self.max_commits, MAX_COMMITS, "change_feed_commits_per_poll")
        if self.start is not None and self.start not in (NOW, BEGINNING) and not str(self.start).startswith(AFTER):
            raise InputError(f"start: {shown(self.start)} is not a position", hint="use now, beginning or after:COMMIT")


@dataclass(frozen=True, slots=True)
class _Walk:
    """The commits of one response.

    Attributes:
        position: the commit before them: the last commit that was delivered completely.
        commits: the commits to deliver, oldest first.
        cut: the head of the branch at the first page. The poll does not return later commits.
        more: whether further commits follow up to `cut`.
        within: the last delivered change, if a part of the first commit was already delivered.
        left: the number of commits that the response may still deliver.
    """

    position: Place
    commits: tuple[Place, ...]
    cut: str
    more: bool
    within: Position | None
    left: int


class Feed:
    """Reads the change feed of a graph.

    Args:
        store: the graph.
        schema_of: adds the schema to a state.
        reading: reads the tables.
        scope: identifies the visible part of the graph; None for the whole graph. Tokens are valid for one scope.
        shown: returns a commit as the actor sees it.
    """

    def __init__(
        self,
        store: Store,
        schema_of: Callable[[Manifest], GraphState],
        reading: Reading,
        scope: str | None = None,
        shown: Callable[[Commit], Commit] = lambda commit: commit,
    ) -> None:
        self._store = store
        self._scope = scope
        self._schema_of = schema_of
        self._reading = reading
        self._shown = shown
        self._genesis: tuple[str | None] | None = None

    # Changes of one commit

    def page_of(self, commit: Commit, chosen: ChangeFilter, page_token: str | None, limits: PageLimits) -> ChangePage:
        """One page of the changes of a commit.

        Raises:
            ParentlessCommitError: the commit has no parent.
            SchemaBoundaryError: the commit changes the columns of a type.
            ChangeFeedGapError: cleanup has removed a table version that is needed to compute the changes.
            ChangeCursorError: the token does not belong to the request.
        """
        view = self._state(commit, commit)
        if commit.parent is None:
            raise ParentlessCommitError(commit.id)
        before = self._state(self._parent(commit, view.manifest), commit)
        chosen.check_types(before, view)
        try:
            changes = CommitChanges(self._reading, commit, before, view, chosen)
        except SchemaBoundaryError as error:
            raise SchemaBoundaryError(error.commit_id, error.type_name, in_feed=False) from None
        page = commit_page(changes, self._binding(view, chosen), page_token, limits)
        return replace(page, cause=ChangeCause(self._shown(commit)))

    def _parent(self, commit: Commit, view: Manifest) -> Commit:
        for found in commits(view):
            if found.id == commit.parent:
                return found
        raise ChangeFeedGapError(commit.id)

    def _state(self, commit: Commit, cause: Commit) -> GraphState:
        """The state at a commit.

        Raises:
            ChangeFeedGapError: cleanup has removed the state, so the changes of `cause` cannot be computed.
        """
        try:
            return self._schema_of(self._store.manifest_of(commit))
        except VersionReclaimedError as error:
            raise ChangeFeedGapError(cause.id) from error

    # Polls

    def poll(self, request: Poll) -> FeedPage:
        """One page of a poll.

        Raises:
            InputError: a commit does not exist on the branch, or no state of the poll has a type.
            ChangeCursorError: a token does not belong to the request.
            ChangeFeedGapError: cleanup has removed a table version that is needed for the first commit of the page.
            SchemaBoundaryError: the first commit of the page changes the columns of a type.
        """
        head = self._schema_of(self._store.capture(request.branch))
        binding = self._binding(head, request.filter, branch=True)
        token = _token(request, binding)
        walk = self._walk(request, head.manifest, token)
        chosen = self._with_ids(request, head, token, walk)
        return self._page(replace(request, filter=chosen), self._bound(binding, chosen, head), walk)

    def cursor_at(self, head: GraphState, chosen: ChangeFilter) -> str:
        """The cursor after the head of a branch.

        Raises:
            InputError: the head does not have a type.
        """
        if chosen.types is not None:
            chosen = replace(chosen, type_ids=self._resolved(chosen.types, [head]))
        binding = self._bound(self._binding(head, chosen, branch=True), chosen, head)
        return _cursor(binding, head_place(head.manifest))

    def has_news(self, request: Poll) -> bool:
        """Whether the branch has commits after the position of a request. Fast if there are none."""
        if request.cursor is None:
            return True
        view = self._store.capture(request.branch)
        binding = self._binding(self._schema_of(view), request.filter, branch=True)
        token = decode(request.cursor, TokenKind.FEED_CURSOR, binding)
        return bool(view.head.id != token.get("commit"))

    def _walk(self, request: Poll, view: Manifest, token: Mapping[str, Any] | None) -> _Walk:
        """The commits of the response. Reads only these commits if a token has the row of its commit."""
        cut_at, within, left = view.head.id, None, request.max_commits
        if token is not None and request.page_token is not None:
            cut_at, within = text_member(token, "cut"), position_member(token, "position")
            left = token.get("left", 0)
            if not isinstance(left, int) or not 1 <= left <= MAX_COMMITS:
                raise ChangeCursorError("it is damaged")
        position = self._position(request, view, token)
        if position.commit.id == cut_at:
            return _Walk(position, (), cut_at, False, within, left)
        found: list[Place] = []
        for place in places_after(view, position):
            if len(found) == left:
                self._check_cut(view, position, cut_at)
                return _Walk(position, tuple(found), cut_at, True, within, left)
            found.append(place)
            if place.commit.id == cut_at:
                return _Walk(position, tuple(found), cut_at, False, within, left)
        raise ChangeCursorError("its commits are not in the history of the branch")

    def _check_cut(self, view: Manifest, position: Place, cut_at: str) -> None:
        """Check that the last commit of a poll is in the history, after the position."""
        if cut_at != view.head.id:
            found = find_place(view, cut_at)
            if found is None or found.number <= position.number:
                raise ChangeCursorError("its commits are not in the history of the branch")

    def _position(self, request: Poll, view: Manifest, token: Mapping[str, Any] | None) -> Place:
        """The last commit before the commits of the response."""
        if token is None and request.start in (None, NOW):
            return head_place(view)
        if token is None and request.start == BEGINNING:
            oldest = next(places_from(view))
            if oldest.commit.parent is not None:  # cleanup has removed older commits from the history
                raise ChangeFeedGapError(oldest.commit.id)
            return oldest
        after = str(request.start).removeprefix(AFTER) if token is None else text_member(token, "commit")
        found = find_place(view, after, None if token is None else row_member(token))
        if found is not None:
            return found
        first = first_commit(view)
        if first.parent is not None:
            raise ChangeFeedGapError(first.id, request.cursor)
        if token is None:
            raise NotFoundError(
                f"commit {cut(after)} is not in the history of branch '{request.branch}'",
                hint="'commit list' shows the commits of a branch",
            )
        raise ChangeCursorError("its commit is not in the history of the branch")

    def _with_ids(self, request: Poll, head: GraphState, token: Mapping[str, Any] | None, walk: _Walk) -> ChangeFilter:
        """The filter of a poll with the ids of its types.

        A token has the ids. Without a token, a name is looked up in the head, then at the position, then in the commits
        between them, the newest first.

        Raises:
            InputError: none of these states has a type.
            ChangeCursorError: the cursor follows a type that was dropped, and its name belongs to another type now; or
                the token has no ids, and the state at its position does not have a type.
        """
        chosen = request.filter
        if chosen.types is None:
            return chosen
        position = walk.position.commit
        if token is None:
            return replace(chosen, type_ids=self._resolved(chosen.types, self._states(head, position)))
        ids = from_member(token, _key(self._binding(head, chosen), head))
        if ids is None:  # a token of a release that followed types by name
            cause = walk.commits[0].commit if walk.commits else position
            try:
                ids = self._resolved(chosen.types, [self._state(position, cause)])
            except InputError as error:
                raise ChangeCursorError("it does not identify the types of its filter") from error
        if request.cursor is not None:
            check_names(chosen.types, ids, head)
        return replace(chosen, type_ids=ids)

    def _states(self, head: GraphState, position: Commit) -> Iterator[GraphState]:
        """The states of a poll that may have different schemas. Leaves out states that cleanup has removed."""
        yield head
        later = takewhile(lambda commit: commit.id != position.id, commits(head.manifest))
        for commit in chain([position], (commit for commit in later if commit.writer not in _SAME_SCHEMA)):
            with suppress(ChangeFeedGapError):
                yield self._state(commit, commit)

    def _page(self, request: Poll, binding: Binding, walk: _Walk) -> FeedPage:
        blocks: list[ChangeBlock] = []
        state: GraphState | None = None
        position, within, left = walk.position, walk.within, walk.left
        changes_left, bytes_left = request.limits.changes, request.limits.bytes
        for number, place in enumerate(walk.commits):
            commit = place.commit
            if number and (changes_left < 1 or bytes_left < 1):
                return self._terminal(binding, blocks, position, caught_up=False)
            limits = PageLimits(changes_left, bytes_left)
            try:
                if not self._store.finds_commit(commit):
                    raise ChangeFeedGapError(commit.id)
                before = self._state(position.commit, commit) if state is None else state
                state = self._state(commit, commit)
                changes = CommitChanges(self._reading, commit, before, state, request.filter)
                started = any(block.changes for block in blocks)
                found, more, size = packed(changes.after(within, limits.changes + 1), limits, started=started)
            except (ChangeFeedGapError, SchemaBoundaryError) as error:
                if number:
                    return self._terminal(binding, blocks, position, caught_up=False)
                if isinstance(error, ChangeFeedGapError):
                    raise ChangeFeedGapError(commit.id, _cursor(binding, position)) from error
                raise
            if more and not found:
                return self._terminal(binding, blocks, position, caught_up=False)
            if more:
                token = encode(
                    TokenKind.FEED_PAGE,
                    binding,
                    **_members(position),
                    cut=walk.cut,
                    left=left,
                    position=found[-1].position(),
                )
                blocks.append(ChangeBlock(ChangeCause(self._shown(commit)), tuple(found), page_token=token))
                return FeedPage(tuple(blocks), next_page_token=token)
            blocks.append(ChangeBlock(ChangeCause(self._shown(commit)), tuple(found), cursor=_cursor(binding, place)))
            position, within, left = place, None, left - 1
            changes_left, bytes_left = changes_left - len(found), bytes_left - size
        return self._terminal(binding, blocks, position, caught_up=not walk.more)

    def _terminal(self, binding: Binding, blocks: list[ChangeBlock], position: Place, *, caught_up: bool) -> FeedPage:
        return FeedPage(tuple(blocks), cursor=_cursor(binding, position), caught_up=caught_up)

    def _binding(self, state: GraphState, chosen: ChangeFilter, *, branch: bool = False) -> Binding:
        view = state.manifest
        return Binding(
            digest_of(f"graph:{state.accepted.domain}"),
            self._first_commit(view),
            chosen.digest if self._scope is None else digest_of(f"{self._scope} {chosen.digest}"),
            digest_of(f"branch:{view.branch}") if branch else None,
            digest_of(f"incarnation:{view.incarnation}") if branch else None,
        )

    def _bound(self, binding: Binding, chosen: ChangeFilter, head: GraphState) -> Binding:
        """The binding of a token with the ids of the types of a filter."""
        ids = chosen.type_ids
        if ids is None:
            return binding
        return replace(
            binding, types=tuple(to_member(ids)) if self._scope is None else sealed(ids, _key(binding, head))
        )

    def _resolved(self, names: Sequence[str], states: Iterable[GraphState]) -> Followed:
        return resolved(names, states, MAX_BYTES if self._scope is None else MAX_SEALED_BYTES)

    def _first_commit(self, view: Manifest) -> str | None:
        """The first commit of the graph. It is the same for all branches."""
        if view.genesis is not None:
            return view.genesis
        if self._genesis is None:
            oldest = first_commit(view)
            self._genesis = (oldest.id if oldest.parent is None else None,)
        return self._genesis[0]


def _token(request: Poll, binding: Binding) -> Mapping[str, Any] | None:
    """The content of the cursor or page token of a request; None if it has neither."""
    if request.page_token is not None:
        return decode(request.page_token, TokenKind.FEED_PAGE, binding)
    return None if request.cursor is None else decode(request.cursor, TokenKind.FEED_CURSOR, binding)


def _key(binding: Binding, head: GraphState) -> str:
    """The key that seals the ids of types. Only the stored schema has the domain."""
    return f"types:{head.accepted.domain}:{binding.filter}"


def _cursor(binding: Binding, place: Place) -> str:
    return encode(TokenKind.FEED_CURSOR, binding, **_members(place))


def _members(place: Place) -> dict[str, Any]:
    """The members of a token for a position in the history. The row only makes the commit fast to find."""
    return {"commit": place.commit.id} | ({"row": place.row} if place.row else {})

"""Turns of the writers of one process: small writes to a branch are prepared one by one, first come, first served.

Without turns, the threads of a process prepare their writes at the same time, on the same state. All but one of them
then have to compare their reads with the commits of the others, or to start again. So more threads would commit less.

A write takes its turn before it captures a state. If several writes wait when a turn ends, they are published as one
commit, see `group`. Writes that take long to prepare, such as loads, do not take turns: they prepare beside the
others, and only wait for the lease.
"""

# See docs/decisions/0210-waiting-writers-are-committed-together.md
# See docs/decisions/0241-loads-do-not-join-groups.md

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from omnigraph.commit import attempts
from omnigraph.commit.group import MOST_MEMBERS, Group, Waiting, may_join
from omnigraph.commit.manifest import Commit
from omnigraph.commit.ref_names import branch_name
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import Store
from omnigraph.commit.write_request import Prepare, WriteRequest
from omnigraph.errors import LeaseTimeoutError, RecoveryRequiredError, WriteTimeoutError

_GATHERING = 0.25
"""Fraction of the time of a group for which the next group waits for as many members, which are just being answered."""

_LONGEST_GATHERING = 0.05
"""Maximum number of seconds that a group waits for members, also after a group that waited long for the lease."""

_PAUSE = 0.0005
"""Seconds between two looks at the queue while a group gathers."""

_own = threading.local()
"""The queues in which the current thread has its turn."""


def write(store: Store, request: WriteRequest, prepare: Prepare) -> Commit | None:
    """Run a write in its turn. Returns None if there was nothing to do.

    A write that was published together with others returns the commit as its member sees it.

    Raises:
        PreconditionFailedError: the branch head is not the expected one.
        ReadSetChangedError: another commit changed the read set, and the write must not be replayed.
        WriteTimeoutError: the write did not get its turn or the lease in time.
        RecoveryRequiredError: the write was interrupted, and its outcome is unknown.
    """
    if request.kind is not WriterKind.MUTATION:
        return attempts.write(store, request, prepare)
    request = replace(request, branch=branch_name(request.branch))
    queue = queue_of(store.objects.uri.identity, request.branch)
    if queue.is_mine:  # the preparation of another write writes, too
        return attempts.write(store, request, prepare)
    wait = store.timeouts.wait if request.timeout is None else request.timeout
    waiting = Waiting(store, request, prepare, time.monotonic() + wait, alone=not may_join(request))
    return queue.run(waiting)


class WriterQueue:
    """The writers of this process that wait for a branch, in the order of their requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_mine(self) -> bool:
        """Whether the current thread has the turn."""
        return self in _own.__dict__.get("queues", ())

    def run(self, waiting: Waiting) -> Commit | None:
        """Wait for the turn and write, or wait until a group has written."""
        self.enter(waiting)
        if waiting.has_outcome:
            if waiting.error is not None:
                raise waiting.error
            return waiting.commit
        try:
            _own.__dict__.setdefault("queues", []).append(self)
            left = max(waiting.deadline - time.monotonic(), 0.0)
            return attempts.write(waiting.store, replace(waiting.request, timeout=left), waiting.prepare)
        finally:
            _own.queues.remove(self)
            self.leave()

    def enter(self, waiting: Waiting) -> None:
        """Wait for the turn, or for the outcome.

        Raises:
            WriteTimeoutError: the turn did not come in time.
        """
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            self._waiting.append(waiting)
        try:
            if not waiting.woken.wait(max(waiting.deadline - time.monotonic(), 0.0)) and self._withdraw(waiting):
                branch = waiting.request.branch
                raise WriteTimeoutError(f"other writers of this process used branch '{branch}' until the timeout")
            waiting.woken.wait()  # a group may have begun to write it
        except WriteTimeoutError:
            raise
        except BaseException:  # the caller is interrupted; a group that has begun to write it goes on
            self._abandon(waiting)
            raise

    def _withdraw(self, waiting: Waiting) -> bool:
        """Leave the queue. Returns False if the turn has come."""
        with self._lock:
            if waiting not in self._waiting:
                return False
            self._waiting.remove(waiting)
            return True

    def _abandon(self, waiting: Waiting) -> None:
        """Leave the queue because the caller is gone, and pass on a turn that has already come."""
        with self._lock:
            waiting.is_gone = True
            has_turn = waiting.woken.is_set() and not waiting.has_outcome
        if has_turn:
            self.leave()

    def leave(self) -> None:
        """End the turn. The next one goes to the writer that has waited longest, with those that can join it."""
        members = self._next()
        if not members:
            return
        try:
            # Not the thread of a member: if that is interrupted, the others still get their outcomes.
            threading.Thread(target=self._write_groups, args=(members,), name="omnigraph group commit").start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            self._put_back(members, alone=True)
            self._next()

    def _next(self) -> list[Waiting]:
        """Take the next group out of the queue. If only one writer can go on, it gets the turn. Else the turn is free.

        Returns:
            The members of the group; empty if there is none.
        """
        with self._lock:
            while self._waiting and self._waiting[0].is_gone:
                self._waiting.popleft()
            if not self._waiting:
                self._taken = False
                return []
            members = [self._waiting.popleft()]
            while self._waiting and len(members) < MOST_MEMBERS and members[0].fits(self._waiting[0]):
                members.append(self._waiting.popleft())
            if len(members) > 1:
                return members
            members[0].woken.set()
            return []

    def _put_back(self, members: Sequence[Waiting], *, alone: bool = False) -> None:
        """Return writers to the head of the queue."""
        with self._lock:
            for member in reversed(members):
                member.alone = member.alone or alone
                self._waiting.appendleft(member)

    def _write_groups(self, members: list[Waiting]) -> None:
        """Write groups as long as several writers wait. Then pass the turn on."""
        _own.queues = [self]
        while members:
            began = time.monotonic()
            self._put_back(_write_group(members))
            took = time.monotonic() - began
            for member in members:
                if member.has_outcome:
                    member.woken.set()
            self._gather(len(members), time.monotonic() + min(took * _GATHERING, _LONGEST_GATHERING))
            members = self._next()

    def _gather(self, size: int, until: float) -> None:
        """Wait until as many writers as in the last group are back."""
        while len(self._waiting) < size and time.monotonic() < until:
            time.sleep(_PAUSE)


def _write_group(members: Sequence[Waiting]) -> list[Waiting]:
    """Write a group, and give its members their outcomes. Returns the members that are left for the next group."""
    group, first = Group(members), members[0]
    left = max(first.deadline - time.monotonic(), 0.0)
    request = WriteRequest(branch=first.request.branch, kind=WriterKind.MUTATION, timeout=left)
    try:
        commit = attempts.write(first.store, request, group)
        for member in group.chosen:
            member.decide(None if commit is None else commit.for_member(member.id))
    except LeaseTimeoutError as error:
        now = time.monotonic()
        _fail([member for member in group.undecided if member is first or member.deadline <= now], error)
    except Exception as error:
        if group.is_publishing:
            _fail(group.chosen, error)
        else:  # nothing was written: each of them finds out alone what is wrong
            for member in group.undecided:
                member.alone = True
    except BaseException as error:
        _fail(group.undecided, RecoveryRequiredError(first.id, f"the writer was ended: {error!r}"))
    return group.undecided


def _fail(members: Sequence[Waiting], error: Exception) -> None:
    for member in members:
        member.decide(error=_copy(error))


def _copy(error: Exception) -> Exception:
    """A copy of an error, because each thread adds its own traceback."""
    made = error.__class__.__new__(error.__class__)
    made.args, made.__cause__ = error.args, error.__cause__
    made.__dict__.update(copy.copy(error.__dict__))
    return made


_QUEUES: dict[tuple[str, str], WriterQueue] = {}
_REGISTRY = threading.Lock()


def queue_of(root_identity: str, branch: str) -> WriterQueue:
    """The queue of a branch. All handles of a process on one graph share it."""
    with _REGISTRY:
        return _QUEUES.setdefault((root_identity, branch), WriterQueue())

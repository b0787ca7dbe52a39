"""Turns of the writers of one process: small writes to a branch are prepared one by one, first come, first served.

Without turns, the threads of a process prepare their writes at the same time, on the same state. All but one of them
then have to compare their reads with the commits of the others, or to start again. So more threads would commit less.

A write takes its turn before it captures a state. If several writes wait when a turn ends, they are published as one
commit, see `group`. Writes that take long to prepare, such as loads, do not take turns: they prepare beside the
others, and only wait for the lease.
"""

# See docs/decisions/0210-waiting-writers-are-committed-together.md
# See docs/decisions/0255-an-interrupted-writer-ends-its-turn.md
# See docs/decisions/0241-loads-do-not-join-groups.md

from __future__ import annotations

import copy
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from omnigraph.commit import attempts
from omnigraph.commit.group import MOST_MEMBERS, Group, Waiting, may_join
from omnigraph.commit.interrupts import complete
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
        try:
            self.enter(waiting)
            if not waiting.has_outcome:
                return self._write_alone(waiting)
        finally:
            self._finish(waiting)
        if waiting.error is not None:
            raise waiting.error
        return waiting.commit

    def _write_alone(self, waiting: Waiting) -> Commit | None:
        own: list[WriterQueue] = _own.__dict__.setdefault("queues", [])
        try:
            own.append(self)
            left = max(waiting.deadline - time.monotonic(), 0.0)
            return attempts.write(waiting.store, replace(waiting.request, timeout=left), waiting.prepare)
        finally:
            own.remove(self)

    def _finish(self, waiting: Waiting) -> None:
        """Leave the queue, and end the turn of a writer. An interrupt (Ctrl-C) is raised again after that.

        A turn that does not end would stop all writers of the branch in this process. So each step can be repeated.
        """
        complete(lambda: self._abandon(waiting), lambda: self.leave(waiting))

    def enter(self, waiting: Waiting) -> None:
        """Wait for the turn, or for the outcome.

        Raises:
            WriteTimeoutError: the turn did not come in time.
        """
        with self._lock:
            if not self._taken:
                self._taken = waiting.has_turn = True
                return
            self._waiting.append(waiting)
        if not waiting.woken.wait(max(waiting.deadline - time.monotonic(), 0.0)) and self._withdraw(waiting):
            branch = waiting.request.branch
            raise WriteTimeoutError(f"other writers of this process used branch '{branch}' until the timeout")
        waiting.woken.wait()  # a group may have begun to write it

    def _withdraw(self, waiting: Waiting) -> bool:
        """Leave the queue. Returns False if the turn has come."""
        with self._lock:
            if waiting not in self._waiting:
                return False
            self._waiting.remove(waiting)
            return True

    def _abandon(self, waiting: Waiting) -> None:
        """Leave the queue, because the caller does not wait any more. A group that has begun to write it goes on."""
        with self._lock:
            waiting.is_gone = True
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def leave(self, waiting: Waiting) -> None:
        """End the turn of a writer, if it has it. The next one goes to the writer that has waited longest.

        If others can join it, they are written as a group.
        """
        if self._passed_on(waiting):
            return
        try:
            # Not the thread of a member: if that is interrupted, the others still get their outcomes.
            threading.Thread(target=self._write_groups, args=(waiting,), name="omnigraph group commit").start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            self._passed_on(waiting, alone=True)

    def _passed_on(self, waiting: Waiting, *, alone: bool = False) -> bool:
        """Free the turn of a writer, or pass it on to one other writer. False if the next turn is that of a group.

        Args:
            waiting: the writer.
            alone: whether the next writer does not form a group.
        """
        with self._lock:
            if not waiting.has_turn:
                return True
            if not self._waiting:
                self._taken = waiting.has_turn = False
                return True
            following = self._waiting[0]
            if not alone and len(self._waiting) > 1 and following.fits(self._waiting[1]):
                return False
            # If this is interrupted, it can be repeated: the assignments have no interrupt between them.
            following.woken.set()
            waiting.has_turn, following.has_turn = False, True
            self._waiting.popleft()
            return True

    def _next(self, before: Waiting | None = None) -> list[Waiting]:
        """Take the next group out of the queue. If only one writer can go on, it gets the turn. Else the turn is free.

        Args:
            before: the writer whose turn ends; None if it was the turn of a group.

        Returns:
            The members of the group; empty if there is none.
        """
        with self._lock:
            if before is not None:
                if not before.has_turn:
                    return []
                before.has_turn = False
            if not self._waiting:
                self._taken = False
                return []
            members = [self._waiting.popleft()]
            while self._waiting and len(members) < MOST_MEMBERS and members[0].fits(self._waiting[0]):
                members.append(self._waiting.popleft())
            if len(members) > 1:
                return members
            members[0].has_turn = True
            members[0].woken.set()
            return []

    def _put_back(self, members: Sequence[Waiting]) -> None:
        """Return writers to the head of the queue, except those whose callers are gone."""
        with self._lock:
            self._waiting.extendleft(member for member in reversed(members) if not member.is_gone)

    def _write_groups(self, before: Waiting) -> None:
        """Take over the turn of a writer, and write groups as long as several writers wait. Then pass the turn on."""
        _own.queues = [self]
        members = self._next(before)
        while members:
            began = time.monotonic()
            try:
                self._put_back(_write_group(members))
            except BaseException as error:  # there is no memory, for example
                self._give_up(members, error)
            took = time.monotonic() - began
            for member in members:
                if member.has_outcome:
                    member.woken.set()
            self._gather(len(members), time.monotonic() + min(took * _GATHERING, _LONGEST_GATHERING))
            members = self._next()

    def _give_up(self, members: Sequence[Waiting], error: BaseException) -> None:
        """Give an outcome to the members that have none and are not in the queue: they would wait for ever."""
        with self._lock:
            lost = [member for member in members if not member.has_outcome and member not in self._waiting]
        for member in lost:
            member.decide(error=RecoveryRequiredError(member.id, f"the writer was ended: {error!r}"))

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
    except BaseException as error:  # a panic of a native library, for example
        if group.is_publishing:
            _fail(group.chosen, RecoveryRequiredError(first.id, f"the writer was ended: {error!r}"))
        else:
            for member in group.undecided:
                member.alone = True
    return group.undecided


def _fail(members: Sequence[Waiting], error: Exception) -> None:
    for member in members:
        member.decide(error=_copy(error))


def _copy(error: Exception) -> Exception:
    """A copy of an error, because each thread adds its own traceback."""
    try:
        made = error.__class__.__new__(error.__class__)
    except TypeError:  # a class that cannot be created without arguments
        return error
    made.args, made.__cause__ = error.args, error.__cause__
    made.__dict__.update(copy.copy(error.__dict__))
    return made


_QUEUES: WeakValueDictionary[tuple[str, str], WriterQueue] = WeakValueDictionary()
"""The queues that some writer uses. Each transaction has a branch of its own, so those of all branches would add up."""
_REGISTRY = threading.Lock()


def _forget() -> None:
    """Forget all queues in a forked process: the threads that have or wait for a turn stay in the parent."""
    global _REGISTRY
    _REGISTRY = threading.Lock()
    _QUEUES.clear()
    _own.__dict__.clear()


os.register_at_fork(after_in_child=_forget)


def queue_of(root_identity: str, branch: str) -> WriterQueue:
    """The queue of a branch. All handles of a process on one graph share it."""
    with _REGISTRY:
        return _QUEUES.setdefault((root_identity, branch), WriterQueue())

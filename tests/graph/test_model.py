"""The graph agrees with a model of plain dictionaries, also after conflicts and crashes.

A random sequence of all operations: writes to several tables, branches from heads and from old commits, tags, time
travel, handles that are opened and closed, conflicting writers, and writers that crash at every failpoint. After every
step the graph must equal the model, and no acknowledged write may be lost.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.commit.graphs import Operation
from tests.graph import model
from tests.graph.model import Content, Plan, Step

import omnigraph
from omnigraph.commit.failpoints import Failpoint, FailpointError, SimulatedCrashError, armed
from omnigraph.commit.lease import LeaseRecord, Owner, lease_path
from omnigraph.commit.manifest import Commit
from omnigraph.commit.recovery import RECOVERY_ACTOR
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.table_writes import TableWrite
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import (
    BranchNotFoundError,
    ConflictError,
    KeyConflictError,
    NotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    ReadSetChangedError,
    RecoveryRequiredError,
    TransactionConflictError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph

BRANCHES = ("b", "c", "r/x", "r/y", "r")
TAGS = ("v1", "v2", "v3")
HANDLES = (0, 1)

BEFORE_THE_SIDECAR = (Failpoint.CAPTURED, Failpoint.STAGED, Failpoint.FORKED, Failpoint.LEASED)
AFTER_THE_TABLES = (Failpoint.TABLES_COMMITTED, Failpoint.BEFORE_PUBLISH)
AFTER_THE_PUBLISH = (Failpoint.PUBLISHED, Failpoint.SIDECAR_REMOVED)
IN_A_WRITE = (
    *BEFORE_THE_SIDECAR,
    Failpoint.SIDECAR_WRITTEN,
    *(Failpoint.TABLE_COMMITTED, Failpoint.TABLE_COMMITTED),  # twice, because partly moved tables need more tests
    *AFTER_THE_TABLES,
    *AFTER_THE_PUBLISH,
)
IN_RECOVERY = (
    Failpoint.RECOVERY_STARTED,
    Failpoint.RECOVERY_RESTORED,
    Failpoint.RECOVERY_PUBLISHED,
    Failpoint.RECOVERY_AUDITED,
)

_fresh = count()


@dataclass(frozen=True)
class Interrupted:
    """A write whose sidecar still exists, and its expected outcome.

    Attributes:
        content: the content of the branch after a roll-forward; None if it must be rolled back.
        published: whether it was already visible.
    """

    operation: str
    branch: str
    content: Content | None
    published: bool


class GraphMachine(RuleBasedStateMachine):
    """Random operations on graphs in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model.Graph()
        self.handles: list[Graph] = []
        self.interrupted: dict[str, Interrupted] = {}
        self.gone: list[str] = []
        self.checked: dict[tuple[str, str], Content] = {}

    def place(self) -> str:
        return f"memory://model/{uuid4().hex}"

    @initialize()
    def create(self) -> None:
        self.uri = self.place()
        graph = omnigraph.init(self.uri, model.SCHEMA)
        (genesis,) = graph.commits
        self.model.branches["main"] = model.Branch(None, 1, [_known(genesis, model.EMPTY)])
        self.handles = [graph, omnigraph.open(self.uri)]

    # ---- writing

    def plan(self, data: st.DataObject, content: Content, *, strict: bool) -> Plan:
        """Rows for some tables, with new or existing ids."""
        steps = []
        for table in data.draw(st.lists(st.sampled_from(model.TABLES), min_size=1, max_size=3, unique=True)):
            kinds = [Operation.DELETE, Operation.OVERWRITE] if strict else [Operation.APPEND, Operation.UPSERT]
            operation = data.draw(st.sampled_from([*kinds, Operation.INSERT]))
            present = sorted(content[table])
            known = data.draw(st.lists(st.sampled_from(present), max_size=3, unique=True)) if present else []
            if operation is Operation.APPEND or (operation is Operation.INSERT and not data.draw(st.booleans())):
                known = []
            new = [f"n{next(_fresh)}" for _ in range(data.draw(st.integers(0, 3)))]
            value = f"v{next(_fresh)}"
            steps.append(Step(table, operation, dict.fromkeys([*known, *new], value)))
        return Plan(tuple(steps))

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), strict=st.booleans(), between=st.integers(0, 3))
    def write(self, data: st.DataObject, handle: int, strict: bool, between: int) -> None:
        """A write. Sometimes another handle writes to the branch while it is prepared."""
        branch = data.draw(self.some_branch())
        before = self.head(branch).content
        plan = self.plan(data, before, strict=strict)
        interleaved = between == 0 and branch not in self.interrupted
        first = self.plan(data, before, strict=False) if interleaved else None
        expected = self.outcome(branch, plan, first, strict=strict)
        came_to: type | None
        try:
            made = self.send(handle, branch, plan, first, strict=strict)
            came_to = None if made is None else Commit
        except (KeyConflictError, ReadSetChangedError) as error:
            made, came_to = None, type(error)
        assert came_to is expected
        self.observe()
        if made is not None:
            assert made.parent == self.head(branch).id
            self.append(branch, made, plan.apply(self.head(branch).content))

    def outcome(self, branch: str, plan: Plan, first: Plan | None, *, strict: bool) -> type | None:
        """The expected outcome of a write: a commit, nothing, or an error."""
        view = self.after_recovery(branch)
        if plan.conflicts(view):
            return KeyConflictError
        if not plan.moved(view):
            return None
        if first is None or first.conflicts(view) or not first.moved(view):
            return Commit
        if strict and plan.looks_at(first, view):
            return ReadSetChangedError
        later = first.apply(view)
        if plan.conflicts(later):
            return KeyConflictError
        return Commit if plan.moved(later) else None

    def after_recovery(self, branch: str) -> Content:
        """The content of a branch after recovery of its interrupted write. Every write starts with recovery."""
        waiting = self.interrupted.get(branch)
        if waiting is None or waiting.published or waiting.content is None:
            return self.head(branch).content
        return waiting.content

    def send(
        self, handle: int, branch: str, plan: Plan, first: Plan | None = None, *, strict: bool, key: str | None = None
    ) -> Commit | None:
        rival = [first] if first is not None else []

        def prepare(view: object) -> Sequence[TableWrite]:
            if rival:
                self.interleave(1 - handle, branch, rival.pop())
            return plan.writes()

        request = WriteRequest(branch=branch, replayable=not strict, idempotency_key=key)
        return self.handles[handle].write_tables(request, prepare)

    def interleave(self, handle: int, branch: str, plan: Plan) -> None:
        with suppress(KeyConflictError):
            made = self.send(handle, branch, plan, strict=False)
            self.observe()
            if made is not None:
                self.append(branch, made, plan.apply(self.head(branch).content))

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def write_once(self, data: st.DataObject, handle: int) -> None:
        """The same write sent twice with one idempotency key makes one commit."""
        branch = data.draw(self.some_branch())
        plan = self.plan(data, self.head(branch).content, strict=False)
        if plan.conflicts(self.after_recovery(branch)):
            return
        key = f"key{next(_fresh)}"
        made = self.send(handle, branch, plan, strict=False, key=key)
        self.observe()
        if made is not None:
            self.append(branch, made, plan.apply(self.head(branch).content))
            assert self.send(1 - handle, branch, plan, strict=False, key=key) == made

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), between=st.integers(0, 2), fails=st.integers(0, 3))
    def transact(self, data: st.DataObject, handle: int, between: int, fails: int) -> None:
        """Several writes as one commit. Sometimes another handle writes to the branch meanwhile, or the block fails."""
        graph, branch = self.handles[handle], data.draw(self.some_branch())
        before = content = self.after_recovery(branch)
        plans: list[Plan] = []
        for _ in range(data.draw(st.integers(1, 3))):
            plan = self.plan(data, content, strict=data.draw(st.booleans()))
            if not plan.conflicts(content):
                plans.append(plan)
                content = plan.apply(content)
        rival = self.plan(data, before, strict=False) if between == 0 else None
        with suppress(TransactionConflictError, ZeroDivisionError), graph.branch(branch).transaction() as tx:
            self.observe()
            begun = self.head(branch)
            with tx._using() as opened:
                work = opened.work()  # the branch that a transaction makes when it cannot collect its changes
                for plan in plans:
                    graph.write_tables(WriteRequest(branch=work), lambda _, plan=plan: plan.writes())  # type: ignore[misc]
                    opened.collect_again()
            worked = tx.snapshot().commit.id != begun.id
            if rival is not None:
                self.interleave(1 - handle, branch, rival)
            if fails == 0:
                raise ZeroDivisionError
        now = self.head(branch)
        after = content if not worked or now == begun else model.three_way(before, content, now.content)
        assert (tx.commit is not None) is (fails != 0 and content != before and after not in (None, now.content))
        if tx.commit is not None:
            assert after is not None
            self.append(branch, tx.commit, after)

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), strict=st.booleans(), again=st.booleans())
    def write_to_a_branch_that_goes_away(self, data: st.DataObject, handle: int, strict: bool, again: bool) -> None:
        """The branch is deleted while a write to it is prepared, and sometimes created again at the same version."""
        names = [n for n in self.model.branches if not (self.model.children(n) or self.model.tagged_on(n))]
        names = [n for n in names if n != "main" and n not in self.interrupted]
        if not names:
            return
        branch = data.draw(st.sampled_from(sorted(names)))
        plan = self.plan(data, self.head(branch).content, strict=strict)
        start = data.draw(st.sampled_from(sorted(self.model.branches.keys() - {branch})))
        rival = self.handles[1 - handle]
        done: list[bool] = []

        def prepare(view: object) -> Sequence[TableWrite]:
            if not done:
                done.append(True)
                rival.branches.delete(branch)
                self.forget_branch(branch)
                if again:
                    rival.branches.create(branch, source=start)
                    self.learn_branch(branch, start, list(self.model.branches[start].history))
            return plan.writes()

        made: Commit | None = None
        with suppress(BranchNotFoundError, ReadSetChangedError, KeyConflictError):
            made = self.handles[handle].write_tables(WriteRequest(branch=branch, replayable=not strict), prepare)
        if made is not None:
            assert again
            assert not strict
            self.append(branch, made, plan.apply(self.head(branch).content))

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def write_on_a_condition(self, data: st.DataObject, handle: int) -> None:
        branch = data.draw(self.some_branch())
        with pytest.raises(PreconditionFailedError) as failed:
            self.handles[handle].write_tables(WriteRequest(branch=branch, expect_head="another"), lambda _: [])
        self.observe()
        assert failed.value.actual == self.head(branch).id

    # ---- crashes

    @rule(
        data=st.data(),
        handle=st.sampled_from(HANDLES),
        point=st.sampled_from(IN_A_WRITE),
        crash=st.booleans(),
        reached=st.integers(1, 2),
        keeps_lease=st.booleans(),
    )
    def die_in_a_write(
        self, data: st.DataObject, handle: int, point: Failpoint, crash: bool, reached: int, keeps_lease: bool
    ) -> None:
        """A write that fails or crashes at a failpoint."""
        branch = data.draw(self.some_branch())
        plan = self.plan(data, self.head(branch).content, strict=False)
        if plan.conflicts(self.after_recovery(branch)):
            return
        known = self.sidecars()
        times = reached if point is Failpoint.TABLE_COMMITTED else 1
        made: Commit | None = None
        died = False
        with armed(point, "crash" if crash else "error", reached=times):
            try:
                made = self.send(handle, branch, plan, strict=False)
            except (SimulatedCrashError, FailpointError, RecoveryRequiredError):
                died = True
        self.observe()
        left = self.sidecars() - known
        before = self.head(branch).content
        moved = plan.moved(before)
        if made is not None:
            self.append(branch, made, plan.apply(before))
        elif died and point in AFTER_THE_PUBLISH:
            self.adopt(branch, plan.apply(before))
            self.wait_for_recovery(branch, left, plan.apply(before), published=True)
        elif died and point not in BEFORE_THE_SIDECAR:
            complete = point in AFTER_THE_TABLES or (point is Failpoint.TABLE_COMMITTED and times == len(moved))
            assert crash or not complete, "the writer could have finished this itself"
            self.wait_for_recovery(branch, left, plan.apply(before) if complete else None, published=False)
            if not left:
                self.adopt_undo(branch)
        if died and crash and keeps_lease:
            self.leave_lease(handle, branch)

    def leave_lease(self, handle: int, branch: str) -> None:
        """A crashed process does not release its lease. Others see that it is dead."""
        store = self.handles[handle].session.store
        fence = LeaseRecord.load(store.leases.get(lease_path(branch)).data).fence if self.has_lease(branch) else 0
        dead = Owner(Owner.here().host, 2**22 + 1, "0")
        store.leases.put(lease_path(branch), LeaseRecord(fence + 1, dead).dump())

    def has_lease(self, branch: str) -> bool:
        return self.handles[0].session.store.leases.exists(lease_path(branch))

    def wait_for_recovery(self, branch: str, left: set[str], content: Content | None, *, published: bool) -> None:
        for operation in left:
            assert branch not in self.interrupted
            self.interrupted[branch] = Interrupted(operation, branch, content, published)

    @rule(handle=st.sampled_from(HANDLES), point=st.sampled_from(IN_RECOVERY), crash=st.booleans())
    @precondition(lambda self: self.interrupted)
    def die_in_recovery(self, handle: int, point: Failpoint, crash: bool) -> None:
        """Opening fails during recovery. The next opening starts recovery again."""
        with (
            armed(point, "crash" if crash else "error"),
            suppress(SimulatedCrashError, FailpointError),
        ):
            self.handles[handle] = omnigraph.open(self.uri)
        for branch in list(self.interrupted):
            self.progress(branch)
        self.observe()

    def progress(self, branch: str) -> None:
        """Recovery may have published before it crashed: then the outcome is visible, and the sidecar still exists."""
        waiting = self.interrupted[branch]
        if waiting.published or self.newest(branch).id == self.head(branch).id:
            return
        if waiting.content is not None:
            self.adopt(branch, waiting.content)
        else:
            self.adopt_undo(branch)
        self.interrupted[branch] = Interrupted(waiting.operation, branch, waiting.content, True)

    # ---- branches and tags

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), name=st.sampled_from(BRANCHES), die=st.booleans())
    def create_branch(self, data: st.DataObject, handle: int, name: str, die: bool) -> None:
        start: str | None = data.draw(st.sampled_from(sorted(self.model.branches)))
        commit: model.Commit | None = None
        if data.draw(st.booleans()):
            start, commit = None, data.draw(st.sampled_from(self.model.commits()))
        branches = self.handles[handle].branches
        if self.model.clash(name):
            with pytest.raises(ConflictError):
                branches.create(name, source=start, commit=commit.id if commit else None)
            return
        with dying(Failpoint.BRANCH_REF_CREATED) if die else nullcontext():
            branches.create(name, source=start, commit=commit.id if commit else None)
        if commit is None:
            assert start is not None
            history = list(self.model.branches[start].history)
        else:
            history = self.history_to(commit)
        self.learn_branch(name, start or history[-1].branch, history)

    def learn_branch(self, name: str, parent: str, history: list[model.Commit]) -> None:
        version = self.handles[0].snapshot(branch=name).manifest_version
        self.model.branches[name] = model.Branch(parent, version, history)

    def history_to(self, commit: model.Commit) -> list[model.Commit]:
        history = next(b.history for b in self.model.branches.values() if commit in b.history)
        return history[: history.index(commit) + 1]

    @rule(handle=st.sampled_from(HANDLES), name=st.sampled_from([*BRANCHES, "main"]), die=st.booleans())
    def delete_branch(self, handle: int, name: str, die: bool) -> None:
        branches = self.handles[handle].branches
        if name not in self.model.branches:
            with pytest.raises(BranchNotFoundError):
                branches.delete(name)
        elif name == "main" or self.model.children(name) or self.model.tagged_on(name):
            with pytest.raises(ConflictError):
                branches.delete(name)
        else:
            with dying(Failpoint.BRANCH_REF_DELETED) if die else nullcontext():
                branches.delete(name)
            self.interrupted.pop(name, None)
            self.forget_branch(name)
        self.observe()

    def forget_branch(self, name: str) -> None:
        removed = self.model.branches.pop(name)
        left = {commit.id for commit in self.model.commits()}
        self.gone += [commit.id for commit in removed.history if commit.id not in left]

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), name=st.sampled_from(TAGS), by_head=st.booleans())
    def create_tag(self, data: st.DataObject, handle: int, name: str, by_head: bool) -> None:
        tags = self.handles[handle].tags
        branch = data.draw(self.some_branch())
        commit = self.head(branch) if by_head else data.draw(st.sampled_from(self.model.commits()))
        if name in self.model.tags:
            with pytest.raises(ConflictError):
                tags.create(name, commit=commit.id)
            return
        made = tags.create(name, branch=branch) if by_head else tags.create(name, commit=commit.id)
        assert (made.commit_id, made.branch, made.manifest_version) == (commit.id, commit.branch, commit.version)
        self.model.tags[name] = commit

    @rule(handle=st.sampled_from(HANDLES), name=st.sampled_from(TAGS))
    def delete_tag(self, handle: int, name: str) -> None:
        tags = self.handles[handle].tags
        if self.model.tags.pop(name, None) is None:
            with pytest.raises(NotFoundError):
                tags.delete(name)
        else:
            tags.delete(name)

    # ---- time travel

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def read_a_commit(self, data: st.DataObject, handle: int) -> None:
        commit = data.draw(st.sampled_from(self.model.commits()))
        graph = self.handles[handle]
        self.check(graph.snapshot(commit=commit.id), commit)
        assert graph.commits.get(commit.id).created_at == commit.created_at

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    def read_a_version(self, data: st.DataObject, handle: int) -> None:
        name = data.draw(self.some_branch())
        branch = self.model.branches[name]
        version = data.draw(st.integers(1, branch.first_version + len(branch.history) + 1))
        graph = self.handles[handle]
        inside = [c for c in branch.history if c.branch == name and c.version == version]
        if version == branch.first_version:
            begun = next(c for c in reversed(branch.history) if c.branch != name or c.version <= version)
            self.check(graph.snapshot(branch=name, version=version), begun)
        elif inside:
            self.check(graph.snapshot(branch=name, version=version), inside[0])
        else:
            with pytest.raises((NotFoundError, VersionReclaimedError)):
                graph.snapshot(branch=name, version=version)

    @rule(data=st.data(), handle=st.sampled_from(HANDLES), shift=st.integers(-1, 1))
    def read_a_time(self, data: st.DataObject, handle: int, shift: int) -> None:
        name = data.draw(self.some_branch())
        history = self.model.branches[name].history
        micros = data.draw(st.sampled_from(history)).created_at + shift
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        due = [commit for commit in history if commit.created_at <= micros]
        if due:
            self.check(self.handles[handle].snapshot(branch=name, at=moment), due[-1])
        else:
            with pytest.raises(NotFoundError):
                self.handles[handle].snapshot(branch=name, at=moment)

    @rule(handle=st.sampled_from(HANDLES), name=st.sampled_from(TAGS))
    def read_a_tag(self, handle: int, name: str) -> None:
        graph = self.handles[handle]
        if name in self.model.tags:
            self.check(graph.snapshot(commit=name), self.model.tags[name])
        else:
            with pytest.raises(NotFoundError):
                graph.snapshot(commit=name)

    @rule(data=st.data(), handle=st.sampled_from(HANDLES))
    @precondition(lambda self: self.gone)
    def what_went_with_its_branch_is_gone(self, data: st.DataObject, handle: int) -> None:
        with pytest.raises(NotFoundError):
            self.handles[handle].commits.get(data.draw(st.sampled_from(self.gone)))

    # ---- handles

    @rule(handle=st.sampled_from(HANDLES), refresh=st.booleans())
    def open_for_writing(self, handle: int, refresh: bool) -> None:
        if refresh:
            self.handles[handle].refresh()
        else:
            self.handles[handle].close()
            self.handles[handle] = omnigraph.open(self.uri)
        assert self.sidecars() == set()
        self.observe()
        assert self.interrupted == {}

    @rule()
    def open_to_read(self) -> None:
        before = self.sidecars()
        with omnigraph.open(self.uri, read_only=True) as graph:
            for name in self.model.branches:
                self.check(graph.snapshot(branch=name), self.head(name))
            with pytest.raises(ReadOnlyError):
                graph.write_tables(WriteRequest(), lambda _: [])
        assert self.sidecars() == before

    # ---- invariants after every step

    @invariant()
    def the_graph_is_what_the_model_says(self) -> None:
        for graph in self.handles:
            assert {branch.name: branch.head for branch in graph.branches} == {
                name: branch.head.id for name, branch in self.model.branches.items()
            }
            assert {tag.name: tag.commit_id for tag in graph.tags} == {n: c.id for n, c in self.model.tags.items()}
            for name, branch in self.model.branches.items():
                view = graph.snapshot(branch=name)
                self.check_once(view, branch.head)
                found = graph.commits.list(branch=name).commits
                assert [commit.id for commit in found] == [commit.id for commit in reversed(branch.history)]
                parents = [commit.parent for commit in found]
                assert parents == [*(commit.id for commit in found[1:]), None], "history is a line"
                times = [commit.created_at for commit in found]
                assert times == sorted(set(times), reverse=True), "time goes on"

    @invariant()
    def every_sidecar_is_expected(self) -> None:
        assert self.sidecars() == {waiting.operation for waiting in self.interrupted.values()}

    def teardown(self) -> None:
        if not self.handles:
            return
        graph = omnigraph.open(self.uri)
        self.handles = [graph]
        self.observe()
        self.checked.clear()
        self.the_graph_is_what_the_model_says()
        self.every_sidecar_is_expected()
        operations = [record.operation_id for record in graph.recovery.list()]
        assert len(set(operations)) == len(operations), "one record for every settled write"

    # ---- comparing

    def check(self, view: Snapshot, commit: model.Commit) -> None:
        assert view.commit.id == commit.id
        for table in model.TABLES:
            rows = view.scan(table)
            column = rows.column_names[-1]
            found = dict(zip(rows["id"].to_pylist(), rows[column].to_pylist(), strict=True))
            assert found == commit.content[table], table
            assert rows.num_rows == len(found) == view.pin(table).row_count

    def check_once(self, view: Snapshot, commit: model.Commit) -> None:
        """Compare a head once: snapshots never change."""
        key = (view.branch, commit.id)
        if key not in self.checked:
            self.check(view, commit)
            self.checked[key] = commit.content
        assert view.commit.id == commit.id

    def sidecars(self) -> set[str]:
        return {sidecar.operation_id for sidecar in self.handles[0].recovery.pending()}

    def some_branch(self) -> st.SearchStrategy[str]:
        return st.sampled_from(sorted(self.model.branches))

    def head(self, branch: str) -> model.Commit:
        return self.model.branches[branch].head

    def newest(self, branch: str) -> Commit:
        return self.handles[0].snapshot(branch=branch).commit

    def observe(self) -> None:
        """Interrupted writes without a sidecar have been recovered, so their outcome must be visible."""
        left = self.sidecars()
        for branch, waiting in list(self.interrupted.items()):
            if waiting.operation in left:
                continue
            del self.interrupted[branch]
            if waiting.published:
                continue
            if waiting.content is not None:
                self.adopt(branch, waiting.content)
            else:
                self.adopt_undo(branch)

    def append(self, branch: str, commit: Commit, content: Content) -> None:
        self.model.branches[branch].history.append(_known(commit, content))

    def adopt(self, branch: str, content: Content) -> None:
        """A write with a lost answer must be the next commit of the branch."""
        commit = self.after(branch, self.head(branch).id)
        assert commit is not None
        self.append(branch, commit, content)

    def adopt_undo(self, branch: str) -> None:
        """A rolled-back write leaves the previous content, and a recovery commit if a table had moved."""
        commit = self.after(branch, self.head(branch).id)
        if commit is not None and commit.actor == RECOVERY_ACTOR:
            self.append(branch, commit, self.head(branch).content)

    def after(self, branch: str, commit_id: str) -> Commit | None:
        """The commit that follows a commit on a branch."""
        found = self.handles[0].commits.list(branch=branch).commits
        return next((commit for commit in found if commit.parent == commit_id), None)


class LocalGraphMachine(GraphMachine):
    """The same operations on files."""

    def place(self) -> str:
        self.directory = tempfile.mkdtemp()
        return f"{self.directory}/graph"

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if self.handles:
                shutil.rmtree(self.directory)


def _known(commit: Commit, content: Content) -> model.Commit:
    return model.Commit(commit.id, commit.branch, commit.manifest_version, commit.created_at, content)


@contextmanager
def dying(point: Failpoint) -> Iterator[None]:
    """Stop the block at a failpoint, as if the process had crashed."""
    with armed(point, "crash"), suppress(SimulatedCrashError):
        yield


def tour(machine: type[GraphMachine], *, graphs: int, steps: int, derandomize: bool | None = None) -> None:
    """Run random operations on some graphs, with a fixed seed if requested or set by the profile."""
    same = settings.default.derandomize if derandomize is None else derandomize  # type: ignore[union-attr]
    chosen = settings(max_examples=graphs, stateful_step_count=steps, derandomize=same)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.slow
def test_a_few_random_operations_in_memory_agree_with_the_model() -> None:
    tour(GraphMachine, graphs=20, steps=30, derandomize=True)


@pytest.mark.slow
def test_a_few_random_operations_on_files_agree_with_the_model() -> None:
    tour(LocalGraphMachine, graphs=6, steps=30, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [30, pytest.param(1_000, marks=pytest.mark.soak)])
def test_many_random_operations_in_memory_agree_with_the_model(graphs: int) -> None:
    tour(GraphMachine, graphs=graphs, steps=60)


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_many_random_operations_on_files_agree_with_the_model(graphs: int) -> None:
    tour(LocalGraphMachine, graphs=graphs, steps=50)

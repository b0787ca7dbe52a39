"""Consumers of change feeds for the random histories: each has a copy of a branch, and compares it with the model."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from tests.merge.repository_model import EDGE, Known, Row, Shape, State, is_boundary, same, shown

import omnigraph
from omnigraph.changes.commit_page import EntityChange
from omnigraph.errors import ChangeCursorError, ChangeFeedGapError, SchemaBoundaryError
from omnigraph.graph import Graph

if TYPE_CHECKING:
    from tests.merge.test_repository_machine import Machine

Change = tuple[str, str, str]
"""The operation, the type and the id."""


@dataclass(slots=True)
class Saved:
    """The durable state of a consumer: its copy, the cursor, and the commit at the cursor."""

    copy: State
    cursor: str | None
    at: str


@dataclass(slots=True)
class Consumer:
    """A consumer with its own copy of a branch.

    Attributes:
        together: whether it stores the copy and the cursor in one transaction. Otherwise it stores the cursor later,
            and changes are delivered again after it died.
        copy: the copy.
        applied: the last commit of which the copy has at least a part.
    """

    branch: str
    incarnation: int
    saved: Saved
    together: bool
    copy: State = field(default_factory=dict)
    applied: str = ""

    @classmethod
    def new(cls, machine: Machine, branch: str) -> Consumer:
        """A consumer that starts with the first commit, or with a baseline."""
        first = machine.line(branch)[0]
        begun = Saved(deepcopy(machine.known.commits[first].state), None, first)
        made = cls(branch, machine.incarnations.get(branch, 0), begun, machine.random.random() < 0.5)
        made.start_again(machine, baseline=machine.random.random() < 0.5)
        return made

    def start_again(self, machine: Machine, *, baseline: bool) -> None:
        if baseline:
            machine.say(f"  baseline of {self.branch}")
            self.saved = _baseline(machine, self.branch)
            self.incarnation = machine.incarnations.get(self.branch, 0)
        self.copy, self.applied = deepcopy(self.saved.copy), self.saved.at

    def die(self) -> None:
        """Forget all that is not durable."""
        if self.together:
            self.copy, self.applied = deepcopy(self.saved.copy), self.saved.at

    def read_some(self, machine: Machine) -> None:
        """Read some pages. The consumer may die after each block."""
        random = machine.random
        machine.say(f"consume {self.branch} after {self.saved.at}")
        limits = {
            "limit": random.choice((1, 2, 5, 1000)),
            "max_bytes": random.choice((1, 300, 1 << 20)),
            "max_commits": random.choice((1, 2, 100)),
        }
        self._read(machine, limits, pages=random.randrange(1, 6), dies=0.2, saves=0.5)

    def catch_up(self, machine: Machine) -> None:
        """Read until nothing is left, and compare."""
        self.die()
        while not self._read(machine, {}, pages=1000, dies=0.0, saves=1.0):
            pass
        assert self.copy == machine.known.state(self.branch)

    def _read(self, machine: Machine, limits: dict[str, int], pages: int, dies: float, saves: float) -> bool:
        """Read some pages. Returns whether nothing is left."""
        if self.saved.cursor is None and self.incarnation != machine.incarnations.get(self.branch, 0):
            # Without a cursor, the beginning of the new branch is read, and the copy is of the deleted one.
            self.start_again(machine, baseline=True)
        position = self._position()
        at, found = self.saved.at, list[EntityChange]()
        for _ in range(pages):
            try:
                page = machine.graph.changes.poll(branch=self.branch, **position, **limits)  # type: ignore[arg-type]
            except ChangeCursorError:
                assert self.incarnation != machine.incarnations.get(self.branch, 0)
                self.start_again(machine, baseline=True)
                return False
            except (ChangeFeedGapError, SchemaBoundaryError) as error:
                _check_refusal(machine, self.branch, at, error)
                self.start_again(machine, baseline=True)
                return False
            assert position.get("cursor") is None or self.incarnation == machine.incarnations.get(self.branch, 0)
            for block in page.blocks:
                commit = block.cause.commit.id
                shape = machine.known.commits[commit].shape
                found += block.changes
                line = machine.line(self.branch)
                if line.index(commit) > line.index(self.applied):
                    self.applied = commit
                for change in block.changes:
                    apply(self.copy, change, shape)
                position = {"page_token": block.page_token}
                if block.is_complete:
                    assert commit == line[line.index(at) + 1], "the commits come in order"
                    _check_changes(found, machine.known.commits[at], machine.known.commits[commit])
                    # Types without rows come and go without a change.
                    kept = {one.id: self.copy.pop(one.id, {}) for one in shape.types}
                    assert not any(self.copy.values())
                    self.copy = kept
                    if commit == self.applied:
                        assert self.copy == machine.known.commits[commit].state
                    at, found, position = commit, [], {"cursor": block.cursor}
                    if machine.random.random() < saves:
                        self.saved = Saved(deepcopy(self.copy) if self.together else self.copy, block.cursor, commit)
                if machine.random.random() < dies:
                    self.die()
                    return False
            if page.caught_up:
                assert at == machine.known.heads[self.branch]
                return True
            if page.cursor is not None:
                position = {"cursor": page.cursor}
        return False

    def _position(self) -> dict[str, str | None]:
        return {"start": "beginning"} if self.saved.cursor is None else {"cursor": self.saved.cursor}


def _check_refusal(machine: Machine, branch: str, at: str, error: Exception) -> None:
    """Check that the commit after a position is a gap or a boundary."""
    line = machine.line(branch)
    after = line[line.index(at) + 1]
    if isinstance(error, ChangeFeedGapError):
        assert machine.gone(at) or machine.gone(after)
    else:
        assert is_boundary(machine.known.commits[at], machine.known.commits[after])


def _baseline(machine: Machine, branch: str) -> Saved:
    *lines, last = b"".join(machine.graph.changes.baseline(branch=branch)).splitlines()
    position = json.loads(last)["baseline"]
    head = machine.known.heads[branch]
    assert position["snapshot_commit_id"] == head
    copy = _entities(lines, machine.known.shape(branch))
    assert copy == machine.known.state(branch)
    return Saved(copy, position["resume_cursor"], head)


def _entities(lines: list[bytes], shape: Shape) -> State:
    """Parse the entities of an export."""
    found: State = {one.id: {} for one in shape.types}
    for line in lines:
        row = json.loads(line)
        name, data = row.get("type", row.get("edge")), row["data"]
        ends = {end: row[end] for end in ("from", "to") if "edge" in row}
        _put(found, name, data["id"], data | ends, shape)
    return found


def _put(copy: State, name: str, entity: str, values: dict[str, Any], shape: Shape) -> None:
    one = shape.named(name)
    names = {column.name: column for column in one.columns}
    kept = ("id", "from", "to") if one.id == EDGE else ("k",)
    row: Row = {prop: values[prop] for prop in kept}
    assert set(values) == {"id", *kept, *names}
    copy.setdefault(one.id, {})[entity] = row | {
        column.id: column.known(values[prop]) for prop, column in names.items()
    }


def apply(copy: State, change: EntityChange, shape: Shape) -> None:
    """Apply a change to a copy. It can be applied again."""
    if change.after is None:
        copy[shape.named(change.type_name).id].pop(change.id, None)
    else:
        values = change.after["properties"] | change.after.get("endpoints", {})
        _put(copy, change.type_name, change.id, values, shape)


def _check_changes(found: list[EntityChange], before: Known, after: Known) -> None:
    """Check that a block has each change of its commit once."""
    names = {one.name: one.id for one in after.shape.types}
    changes = [(change.op.value, names[change.type_name], change.id) for change in found]
    assert len(set(changes)) == len(changes)
    assert set(changes) == _expected(shown(before.state, before.shape), shown(after.state, after.shape))


def _expected(before: State, after: State) -> set[Change]:
    found: set[Change] = set()
    for name in before.keys() | after.keys():
        old, new = before.get(name, {}), after.get(name, {})
        found |= {("insert", name, entity) for entity in new.keys() - old.keys()}
        found |= {("delete", name, entity) for entity in old.keys() - new.keys()}
        found |= {("update", name, one) for one in old.keys() & new.keys() if not same(old[one], new[one])}
    return found


# A feed from the beginning


def assert_replayed(machine: Machine) -> None:
    """Replay the feed of every branch from its beginning, one of them into an empty graph."""
    chosen = machine.random.choice(sorted(machine.known.heads))
    for branch in sorted(machine.known.heads):
        with Replica(machine, branch, in_graph=branch == chosen) as replica:
            replica.run()


class Replica:
    """A copy of a branch that follows its feed: rows in memory, and on request a graph."""

    def __init__(self, machine: Machine, branch: str, *, in_graph: bool) -> None:
        self._machine = machine
        self._branch = branch
        self._line = machine.line(branch)
        self._graph: Graph | None = None
        self._in_graph = in_graph
        self._copy: State = {}
        self._start(self._line[0])

    def __enter__(self) -> Replica:
        return self

    def __exit__(self, *_: object) -> None:
        if self._graph is not None:
            self._graph.close()

    def _start(self, commit: str) -> None:
        """Take over the state of a commit."""
        known = self._machine.known.commits[commit]
        self._at, self._shape = commit, known.shape
        self._copy = {one.id: {} for one in known.shape.types}
        if commit != self._line[0]:
            lines = b"".join(self._machine.graph.export(at=commit)).splitlines()
            self._copy = _entities(lines, known.shape)
        if self._in_graph:
            self.__exit__()
            self._graph = omnigraph.init(f"memory://replica/{uuid4().hex}", known.shape.text())
            self._load(self._copy)

    def run(self) -> None:
        known = self._machine.known
        while self._at != self._line[-1]:
            place = self._line.index(self._at)
            try:
                self._follow()
            except (ChangeFeedGapError, SchemaBoundaryError) as error:
                _check_refusal(self._machine, self._branch, self._at, error)
                assert self._line.index(self._at) >= place
                left = self._line[self._line.index(self._at) + 1 :]
                self._start(next(commit for commit in left if not self._machine.gone(commit)))
        assert self._copy == known.state(self._branch)
        if self._graph is not None:
            from tests.merge.test_repository_machine import stored

            assert stored(self._graph.snapshot(), self._shape) == self._copy
            assert self._graph.verify().ok

    def _follow(self) -> None:
        known = self._machine.known
        start = "beginning" if self._at == self._line[0] else f"after:{self._at}"
        for block in self._machine.graph.changes.follow(branch=self._branch, start=start, timeout=0):
            assert block.is_complete
            commit = block.cause.commit.id
            assert commit == self._line[self._line.index(self._at) + 1]
            _check_changes(list(block.changes), known.commits[self._at], known.commits[commit])
            self._adopt(known.commits[commit].shape)
            for change in block.changes:
                apply(self._copy, change, self._shape)
            self._write(block.changes)
            self._at = commit
            assert self._copy == known.commits[commit].state

    def _adopt(self, shape: Shape) -> None:
        """Follow renames, and types without rows."""
        if shape == self._shape:
            return
        self._copy = {one.id: self._copy.get(one.id, {}) for one in shape.types}
        if self._graph is not None:
            self._graph.schema.apply(shape.text(self._shape))
        self._shape = shape

    def _write(self, changes: tuple[EntityChange, ...]) -> None:
        """Apply a block to the graph: deletes of edges, deletes of nodes, upserts.

        A deleted node may have had a unique value that an upsert has, and edges that an upsert moves to other nodes.
        """
        if self._graph is None:
            return
        for kind in ("edge", "node"):
            for change in changes:
                if change.after is None and change.kind == kind:
                    query = f"query q($id: String) {{ delete {change.type_name} where id = $id }}"
                    self._graph.mutate(query, {"id": change.id})
        rows: State = {}
        for change in changes:
            if change.after is not None:
                apply(rows, change, self._shape)
        self._load(rows)

    def _load(self, rows: State) -> None:
        from tests.merge.test_repository_machine import tables

        found: dict[str, pa.Table] = tables(rows, self._shape)
        if found and self._graph is not None:
            self._graph.load(found, mode="merge")

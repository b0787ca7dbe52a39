"""Random histories of a whole graph agree with a model of plain dictionaries.

Branches of branches, writes with cascades, schema changes, branch updates, merges in every direction with strategies
and resolutions and by property, reverts, cherry-picks, resets, restores of single entities, deleted and recreated
names, tags, branches from commits and tags, optimize, cleanup, time travel, consumers of change feeds, and crashes.
`make soak` runs 2,000 more histories. `OMNIGRAPH_HISTORIES` sets how many run, `OMNIGRAPH_HISTORIES_FROM` the number of
the first one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.commit.matrix import (
    BRANCH_CREATION_POINTS,
    BRANCH_DELETION_POINTS,
    BRANCH_RESET_POINTS,
    CLEANUP_POINTS,
    RECOVERY_POINTS,
    TAG_POINTS,
    WRITE_POINTS,
)
from tests.merge import repository_model as model
from tests.merge.feed_consumers import Consumer, assert_replayed
from tests.merge.repository_model import (
    EDGE,
    ENDS,
    FIRST_SHAPE,
    NODES,
    Choice,
    Column,
    DroppedTypeError,
    Found,
    Known,
    MixedSchemasError,
    NarrowTypeError,
    Repository,
    Row,
    Shape,
    State,
    Type,
)

import omnigraph
from omnigraph.commit.audit import RecoveryKind
from omnigraph.commit.failpoints import Failpoint, FailpointError, SimulatedCrashError, armed
from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.errors import (
    Conflict,
    ConflictError,
    ConstraintError,
    InputError,
    MergeConflictsError,
    MergeSchemaError,
    NotFoundError,
    OmnigraphError,
    SchemaDataError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph
from omnigraph.storage import row_changes, row_pairs
from omnigraph.testing import thresholds

FIRST = int(os.environ.get("OMNIGRAPH_HISTORIES_FROM", "0"))
HISTORIES = range(FIRST, FIRST + int(os.environ.get("OMNIGRAPH_HISTORIES", "10")))
STEPS = 30
ON_DISK = 5
"""One of this many histories is stored in files, where cleanup can remove versions."""

BRANCHES = ("dev", "release", "hotfix", "topic")
CROSSING = "crossing"
TAGS = ("v1", "v2")
ARROW = {"I32": pa.int32(), "I64": pa.int64(), "String": pa.utf8(), "enum": pa.utf8()}
LARGE = 1 << 40
CRASHES = 0.08
"""The share of operations that are interrupted. They are repeated if they had no effect."""
COMMIT_POINTS = (*WRITE_POINTS, Failpoint.TABLE_PACKED)


@dataclass(frozen=True, slots=True)
class Work:
    """A merge, a revert or a cherry-pick.

    Attributes:
        target: the branch that gets the commit.
        base: the base, with the types and properties of the result.
        source: the state that is merged, with the types and properties of the result.
        onto: the state that it is merged into.
        shape: the schema of the result.
        parents: the parents of the commit.
        level: the level of merging.
        is_pick: whether it is a revert or a cherry-pick.
        restoring: whether it is a revert.
        is_update: whether it is a branch update. Then the branch is merged into its parent, and is called `ours`.
        former: for a branch update, the state and the schema of the branch.
    """

    target: str
    base: model.Base
    source: State
    onto: State
    shape: Shape
    parents: tuple[str, ...]
    level: str | None
    is_pick: bool = False
    restoring: bool = False
    is_update: bool = False
    former: tuple[State, Shape] | None = None

    def merged(self, choices: Choice, strategy: str | None) -> model.Merged:
        if self.is_update:
            choices = {entity: _OTHER[side] for entity, side in choices.items()}
            strategy = None if strategy is None else _OTHER[strategy]
        by_property = self.shape.by_property
        states = self.base, self.source, self.onto, self.shape
        return model.merged(
            *states, choices, strategy, level=self.level, by_property=by_property, restoring=self.restoring
        )

    def in_parts(self, name: str) -> bool:
        """Whether properties of a type are merged one by one."""
        return self.level == "property" or (self.level is None and name in self.shape.by_property)


@dataclass(slots=True)
class Machine:
    """A graph and its model."""

    graph: Graph
    random: Random
    on_disk: bool
    shape: Shape = FIRST_SHAPE
    known: Repository = field(default_factory=Repository)
    cleaned: bool = False
    made: dict[str, Commit] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    incarnations: dict[str, int] = field(default_factory=dict)
    """How often each branch was deleted or reset."""

    def begin(self) -> None:
        """Insert some rows, and usually create some branches."""
        self._record("main", model.empty(), self.shape)
        self.known.lost = self.lost
        state = model.empty()
        for name in NODES:
            state[name] = {entity: self._node(self.shape, name, entity) for entity in "01234"}
        for entity, row in state["A"].items():
            row["mail"] = f"m{entity}"
        ends = [(start, end) for start in "01234" for end in "01234" if (int(start) + int(end)) % 2]
        for i, (start, end) in enumerate(self.random.sample(ends, 8)):
            state[EDGE][f"e{i}"] = {"id": f"e{i}", "from": start, "to": end, "n": None}
        self.graph.load(tables(state, self.shape), mode="merge")
        self._record("main", state, self.shape, self.known.heads["main"])
        for _ in range(self.random.randrange(4)):
            self.branch()
            self.write()

    def step(self) -> None:
        acts = [
            (self.write, 40),
            (self.branch, 8),
            (self.merge, 28),
            (self.cross, 8),
            (self.revert, 10),
            (self.pick, 8),
            (self.reset, 4),
            (self.restore, 6),
            (self.delete, 4),
            (self.tag, 4),
            (self.untag, 1),
            (self.optimize, 2),
            (self.travel, 5),
            (self.cleanup, 3 if self.on_disk else 0),
            (self.change_schema, 12),
            (self.update, 9),
            (self.consume, 10),
        ]
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        act()
        self._check_some()

    def _check_some(self) -> None:
        """Check the heads and schemas of all branches, and the rows and the history of one of them."""
        assert {branch.name: branch.head for branch in self.graph.branches} == self.known.heads
        assert {tag.name: tag.commit_id for tag in self.graph.tags} == self.known.tags
        for branch in self.known.heads:
            assert _plain(self.graph.schema.show(branch=branch)) == self.known.shape(branch).text()
        self._check_branch(self._any_branch())

    def _check_branch(self, branch: str) -> None:
        assert self.read(branch=branch) == self.known.state(branch), branch
        assert self._listed(branch) == self.line(branch)[::-1]

    def check(self) -> None:
        """Check everything: all branches, their feeds from the beginning, and all states that can be read."""
        for branch in sorted(self.known.heads):
            self._check_branch(branch)
            assert self.graph.verify(branch=branch).ok
        for consumer in self.consumers:
            if consumer.branch in self.known.heads:
                consumer.catch_up(self)
        assert_replayed(self)
        # A commit of a deleted branch that was merged can only be read with a tag.
        for commit in sorted({commit for branch in self.known.heads for commit in self.line(branch)}):
            if not self.gone(commit):
                assert self.read(commit=commit) == self.known.commits[commit].state
                assert _plain(self.graph.schema.show(at=commit)) == self.known.commits[commit].shape.text()
        for tag, commit in self.known.tags.items():
            assert self.read(commit=tag) == self.known.commits[commit].state

    def say(self, what: str) -> None:
        self.done.append(what)

    def _record(self, branch: str, state: State, shape: Shape, *parents: str) -> None:
        head = self.graph.branch(branch).head
        assert head.id not in self.known.commits
        self.made[head.id] = head
        left_out: frozenset[tuple[str, str]] = frozenset()
        incomplete = None
        if len(parents) > 1:
            # A branch update takes the schema of the parent branch, and leaves out values of the branch itself.
            incomplete = parents[self.known.commits[parents[0]].shape == shape]
            names = json.loads(dict(head.labels)["merge"]).get("left_out", ())
            left_out = frozenset(self.known.commits[incomplete].shape.member(name) for name in names)
        self.known.commits[head.id] = Known(parents, state, shape, left_out, incomplete)
        self.known.heads[branch] = head.id

    def line(self, branch: str) -> list[str]:
        """The commits of a branch, oldest first: each is the first parent of the next."""
        found = [self.known.heads[branch]]
        while parents := self.known.commits[found[-1]].parents:
            found.append(parents[0])
        return found[::-1]

    def lost(self, commit: str) -> set[str]:
        """The types of a commit that cleanup has removed. Bases of merges of heads are kept, see `cleanup`."""
        return self.gone(commit) if self.cleaned else set()

    def gone(self, commit: str) -> set[str]:
        store, shape = self.graph.session.store, self.known.commits[commit].shape
        try:
            found = store.manifest_of(self.made[commit]).tables
        except VersionReclaimedError:
            return {"*", *(one.id for one in shape.types)}
        return {
            shape.named(key.partition(":")[2]).id for key, pin in found.items() if not store.tables.at(pin.ref).exists()
        }

    def _readable(self) -> set[str]:
        """The readable commits that a merge may need as a base."""
        return {commit for commit in self.known.needed() if not self.gone(commit)}

    # Crashes

    def interrupted(self, points: Sequence[Failpoint], run: Callable[[], Any]) -> bool:
        """Whether an operation was interrupted. Otherwise it was not begun. Opens the graph again."""
        if self.random.random() > CRASHES:
            return False
        point, number = self.random.choice(points), self.random.choice((1, 1, 2))
        action = self.random.choice(("crash", "crash", "error"))
        try:
            with armed(point, action, reached=number):
                run()
        except (FailpointError, SimulatedCrashError):
            self.say(f"  interrupted at {point} #{number}, {action}")
        except OmnigraphError as error:
            if action != "error":
                raise
            self.say(f"  failed at {point} #{number}: {error}")
        else:
            self.say(f"  not interrupted at {point} #{number}")
        self._reopen()
        return True

    def _reopen(self) -> None:
        uri = self.graph.uri
        self.graph.close()
        if self.random.random() < 0.3:
            point = self.random.choice(RECOVERY_POINTS)
            self.say(f"  recovery interrupted at {point}")
            try:
                with armed(point, "crash"):
                    omnigraph.open(uri).close()
            except SimulatedCrashError:
                pass
        self.graph = omnigraph.open(uri)

    def _commit(self, branch: str, run: Callable[[], Any]) -> Any:
        """Run an operation that makes a commit. Returns None if it was interrupted, and recovery completed it."""
        records = len(self.graph.recovery.list())
        if not self.interrupted(COMMIT_POINTS, run):
            return run()
        head, before = self.graph.branch(branch).head, self.known.heads[branch]
        if head.id == before:
            return run()
        new = self.graph.recovery.list()
        if len(new) == records or new[-1].kind is not RecoveryKind.ROLLED_BACK:
            return None
        self.say("  undone")
        assert (head.parent, head.merged_parent) == (before, None)
        self._record(branch, self.known.state(branch), self.known.shape(branch), before)
        self._check_branch(branch)
        return run()

    def _any_branch(self) -> str:
        return self.random.choice(sorted(self.known.heads))

    # Writing

    def write(self) -> None:
        branch = self._any_branch()
        for _ in range(self.random.randrange(1, 4)):
            self._write(branch)

    def _write(self, branch: str) -> None:
        before = self.known.state(branch)
        state = deepcopy(before)
        act = self.random.choice((self._put, self._put, self._put, self._drop_node, self._drop_node, self._drop_edges))
        do = act(state, branch)
        if do is None or model.broken(state, self.known.shape(branch)):
            return
        self._commit(branch, do)
        self._record_if_new(branch, state)
        assert self.read(branch=branch) == state

    def _record_if_new(self, branch: str, state: State) -> None:
        head = self.known.heads[branch]
        if self.graph.branch(branch).head.id != head:
            self._record(branch, state, self.known.shape(branch), head)

    def _put(self, state: State, branch: str) -> Any:
        random, shape, rows = self.random, self.known.shape(branch), {}
        for name in random.sample(self._nodes(shape), random.randrange(1, 3)):
            chosen = {str(random.randrange(5)) for _ in range(random.randrange(1, 3))}
            rows[name] = {entity: self._node(shape, name, entity) for entity in sorted(chosen)}
            state[name] |= rows[name]
        if random.random() < 0.6 and state["A"] and state["B"]:
            chosen = {f"e{random.randrange(8)}" for _ in range(random.randrange(1, 3))}
            rows[EDGE] = {entity: self._edge(shape, state, entity) for entity in sorted(chosen)}
            state[EDGE] |= rows[EDGE]
        self.say(f"put {rows} on {branch}")
        return lambda: self.graph.load(tables(rows, shape), mode="merge", branch=branch)

    def _nodes(self, shape: Shape) -> list[str]:
        return [one.id for one in shape.types if one.id != EDGE]

    def _node(self, shape: Shape, name: str, entity: str) -> Row:
        return {"k": entity, **{column.id: self._value(column, entity) for column in shape.of(name).columns}}

    def _edge(self, shape: Shape, state: State, entity: str) -> Row:
        start, end = self.random.choice(sorted(state["A"])), self.random.choice(sorted(state["B"]))
        values = {column.id: self._value(column, entity) for column in shape.of(EDGE).columns}
        return {"id": entity, "from": start, "to": end, **values}

    def _value(self, column: Column, entity: str) -> Any:
        missing = () if column.required else (None,)
        if column.id == "mail":
            return self.random.choice((None, None, "m", f"m{entity}"))
        if column.default is not None:
            return self.random.choice((column.default, 1, 2))
        if column.unique:
            own = f"m{entity}" if column.kind == "String" else 10 + int(entity)
            return self.random.choice((*missing, *missing, own))
        if column.kind in ("enum", "String"):
            known = tuple(id for id, _ in column.values) if column.kind == "enum" else ("x", "y")
            return self.random.choice((*missing, *known))
        if column.kind == "I64" and column.most is None and self.random.random() < 0.04:
            return LARGE
        return self.random.choice((*missing, *(1, 2, 3)[: column.most]))

    def _drop_node(self, state: State, branch: str) -> Any:
        shape = self.known.shape(branch)
        name = self.random.choice(self._nodes(shape))
        if not state[name]:
            return None
        entity = self.random.choice(sorted(state[name]))
        del state[name][entity]
        for end, node in ENDS.items():
            if node == name:
                state[EDGE] = {edge: row for edge, row in state[EDGE].items() if row[end] != entity}
        self.say(f"delete {name} {entity} on {branch}")
        text = f'query q() {{ delete {shape.of(name).name} where k = "{entity}" }}'
        return lambda: self.graph.mutate(text, branch=branch)

    def _drop_edges(self, state: State, branch: str) -> Any:
        starts = sorted({row["from"] for row in state[EDGE].values()})
        if not starts:
            return None
        start = self.random.choice(starts)
        state[EDGE] = {edge: row for edge, row in state[EDGE].items() if row["from"] != start}
        self.say(f"delete {EDGE} from {start} on {branch}")
        text = f'query q() {{ delete {self.known.shape(branch).of(EDGE).name} where from = "{start}" }}'
        return lambda: self.graph.mutate(text, branch=branch)

    # Schemas

    def change_schema(self) -> None:
        """Change the schema of `main` in one to three ways."""
        before = self.known.shape("main")
        edit = _Edit(before, deepcopy(self.known.state("main")), self.random)
        for _ in range(self.random.randrange(1, 4)):
            edit.change()
        if edit.shape.text() == before.text():
            return
        text = edit.shape.text(before)
        self.say(f"schema apply:\n{text}")
        if model.broken(edit.state, edit.shape):
            with pytest.raises(SchemaDataError):
                self.graph.schema.apply(text)
            self.say("  refused")
            self._check_branch("main")
            return
        receipt = self._commit("main", lambda: self.graph.schema.apply(text))
        assert receipt is None or receipt.applied
        self._record("main", edit.state, edit.shape, self.known.heads["main"])
        assert self.graph.schema.apply(text).applied is False
        self._check_branch("main")

    def update(self) -> None:
        """Bring the schema and the rows of the parent into a branch."""
        names = sorted(self.known.heads.keys() - {"main"})
        if not names:
            return
        name = self.random.choice(names)
        parents = {branch.name: branch.parent for branch in self.graph.branches}
        parent = parents[name] if parents[name] in parents else "main"
        assert parent is not None
        strategy = self.random.choice((None, None, None, "ours", "theirs"))
        level = self.random.choice((None, "row", "property"))
        if self.known.shape(name) == self.known.shape(parent):
            self._merge(parent, name, strategy, level, lambda **options: self.graph.branches.update(name, **options))
            return
        try:
            best, base = self.known.merge_base(name, parent, level)
        except MixedSchemasError:
            self._merge_mixed(lambda **options: self.graph.branches.update(name, **options), name, name, parent)
            return
        self.say(f"update {name} from {parent}, strategy {strategy}, level {level}, bases {best}")
        heads = self.known.heads[name], self.known.heads[parent]
        forward = self.known.is_up_to_date(name, parent)
        former = self.known.state(name), self.known.shape(name)
        if forward:  # the branch has nothing of its own
            base, best = model.Base(self.known.state(name)), [heads[0]]
        states = base, self._base_shape(best), self.known.state(name), self.known.shape(name)
        onto = self.known.state(parent), self.known.shape(parent)

        def run(**options: Any) -> Any:
            receipt = self.graph.branches.update(name, level=level, **options)
            outcome = "fast_forward" if self.known.is_up_to_date(name, parent) else "merged"
            assert (receipt.outcome, receipt.source) == (outcome, parent)
            if receipt.commit is not None:
                self._check_counts(receipt)
            return receipt

        if self.known.lacks_left_out(name, parent):
            self._refused(run, name, certain=True)
            return
        if forward:
            work = Work(name, model.Base(onto[0]), *(onto[0], *onto), heads, level, is_update=True, former=former)
        else:
            try:
                aligned = model.aligned(*states, *onto)
            except (DroppedTypeError, NarrowTypeError) as error:
                if self._refused(run, name, certain=error.certain):
                    return
                raise
            work = Work(name, *aligned, *onto, heads, level, is_update=True, former=former)
        self._act(run, work, strategy)

    def _check_counts(self, receipt: Any) -> None:
        """The counts of an update are those of a diff between the old and the new head of the branch."""
        counts = {key: tuple(one.to_json().values()) for key, one in receipt.changes.items()}
        diff = self.graph.diff(receipt.commit.parent, receipt.commit.id)
        assert counts == {key: (one.inserts, one.updates, one.deletes) for key, one in diff.stat().types}
        assert counts == {one.key: (one.inserted, one.updated, one.deleted) for one in receipt.commit.counts}

    def _base_shape(self, best: list[str]) -> Shape:
        return self.known.commits[best[0]].shape

    def _refused(self, run: Callable[..., Any], branch: str, *, certain: bool) -> bool:
        """Whether an operation is refused because of the schemas. Refusals that are not certain are allowed."""
        try:
            run(preview=True)
        except MergeSchemaError:
            with pytest.raises(MergeSchemaError):
                run()
            assert self.graph.branch(branch).head.id == self.known.heads[branch]
            self.say("  refused")
            return True
        assert not certain
        return True

    # Branches and tags

    def branch(self) -> None:
        free = [name for name in BRANCHES if name not in self.known.heads]
        if not free:
            return
        name = self.random.choice(free)
        what = self.random.random()
        if what < 0.6:
            source = self._any_branch()
            self.say(f"branch {name} from {source}")
            self._reference(
                BRANCH_CREATION_POINTS,
                lambda: self.graph.branches.create(name, source=source),
                lambda: name in self.graph.branches,
            )
            self.known.heads[name] = self.known.heads[source]
            return
        if what < 0.8 and self.known.tags:
            start = self.random.choice(sorted(self.known.tags))
            commit = self.known.tags[start]
        else:
            start = commit = self.random.choice(self._listed(self._any_branch()))
        self.say(f"branch {name} from commit {start}")
        try:
            self._reference(
                BRANCH_CREATION_POINTS,
                lambda: self.graph.branches.create(name, commit=start),
                lambda: name in self.graph.branches,
            )
        except VersionReclaimedError:
            assert self.cleaned
            assert start not in self.known.tags
            return
        self.known.heads[name] = commit

    def _reference(self, points: Sequence[Failpoint], run: Callable[[], Any], is_done: Callable[[], bool]) -> None:
        """Create or delete a reference. An interrupted operation is repeated, if it had no effect."""
        if not self.interrupted(points, run) or not is_done():
            run()

    def _listed(self, branch: str) -> list[str]:
        return [commit.id for commit in self.graph.branch(branch).commits]

    def delete(self) -> None:
        names = sorted(self.known.heads.keys() - {"main"})
        if not names:
            return
        name = self.random.choice(names)
        self.say(f"delete branch {name}")
        readable = self._readable()
        try:
            self._reference(
                BRANCH_DELETION_POINTS,
                lambda: self.graph.branches.delete(name),
                lambda: name not in self.graph.branches,
            )
        except ConflictError:
            self.done[-1] += ": refused"
            return
        del self.known.heads[name]
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        assert all(not self.gone(commit) for commit in self.known.needed() & readable)

    def tag(self) -> None:
        free = [name for name in TAGS if name not in self.known.tags]
        if not free:
            return
        branch, name = self._any_branch(), self.random.choice(free)
        commit = self.random.choice(self._listed(branch))
        self.say(f"tag {name} at {commit}")
        try:
            self._reference(
                TAG_POINTS,
                lambda: self.graph.tags.create(name, commit=commit),
                lambda: name in {tag.name for tag in self.graph.tags},
            )
        except VersionReclaimedError:
            assert self.cleaned
            return
        self.known.tags[name] = commit

    def untag(self) -> None:
        if self.known.tags:
            name = self.random.choice(sorted(self.known.tags))
            self.say(f"delete tag {name}")
            self._reference(
                TAG_POINTS,
                lambda: self.graph.tags.delete(name),
                lambda: name not in {tag.name for tag in self.graph.tags},
            )
            del self.known.tags[name]

    # Upkeep and time travel

    def optimize(self) -> None:
        branch = self._any_branch()
        self.say(f"optimize {branch}")
        self._commit(branch, lambda: self.graph.optimize(branch=branch, rows_per_fragment=4))
        self._record_if_new(branch, self.known.state(branch))

    def cleanup(self) -> None:
        keep = self.random.choice((0, 1, 5))
        self.say(f"cleanup keep={keep}")
        self.cleaned = True
        readable = self._readable()
        self.interrupted(CLEANUP_POINTS, lambda: self.graph.cleanup(keep=keep, orphans_older_than=timedelta(0)))
        self.graph.cleanup(keep=keep, orphans_older_than=timedelta(0))
        assert self._readable() == readable

    def travel(self) -> None:
        """Read a tag, or a commit of a branch. Cleanup may have removed the commit, but never the tag."""
        names = [*self.known.tags.items(), *((name, name) for name in self._listed(self._any_branch()))]
        name, commit = self.random.choice(names)
        try:
            found = self.read(commit=name)
        except (NotFoundError, VersionReclaimedError):
            assert self.cleaned
            assert name not in self.known.tags
            return
        assert found == self.known.commits[commit].state
        assert _plain(self.graph.schema.show(at=name)) == self.known.commits[commit].shape.text()

    def consume(self) -> None:
        """Let a consumer of a feed read some pages, or start a new one."""
        self.consumers = [one for one in self.consumers if one.branch in self.known.heads]
        if len(self.consumers) < 3 and self.random.random() < 0.5:
            self.consumers.append(Consumer.new(self, self._any_branch()))
        if self.consumers:
            self.random.choice(self.consumers).read_some(self)

    # Merging

    def merge(self) -> None:
        if len(self.known.heads) < 2:
            return
        source, target = self.random.sample(sorted(self.known.heads), 2)
        level = self.random.choice((None, "row", "property"))
        self._merge(source, target, self.random.choice((None, None, None, "ours", "theirs")), level)

    def cross(self) -> None:
        """Merge two branches into each other. Each gets the state of the other before its merge."""
        if len(self.known.heads) < 2 or CROSSING in self.known.heads:
            return
        one, other = self.random.sample(sorted(self.known.heads), 2)
        self.say(f"cross {one} and {other}")
        self.graph.branches.create(CROSSING, source=one)
        self.known.heads[CROSSING] = self.known.heads[one]
        self._merge(other, one, self.random.choice((None, "ours", "theirs")))
        self._merge(CROSSING, other, self.random.choice((None, "ours", "theirs")))
        self.graph.branches.delete(CROSSING)
        del self.known.heads[CROSSING]

    def _merge(
        self,
        source: str,
        target: str,
        strategy: str | None,
        level: str | None = None,
        call: Callable[..., Any] | None = None,
    ) -> None:
        if call is None:

            def call(**options: Any) -> Any:
                return self.graph.merge(source, target, **options)

        try:
            best, base = self.known.merge_base(source, target, level)
        except MixedSchemasError:
            self._merge_mixed(call, target, source, target)
            return
        self.say(f"merge {source} into {target}, strategy {strategy}, level {level}, bases {best}")
        if self.known.is_up_to_date(source, target):
            receipt = call(strategy=strategy, level=level)
            assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
            return
        parents = self.known.heads[target], self.known.heads[source]
        states = base, self._base_shape(best), self.known.state(source), self.known.shape(source)
        onto = self.known.state(target), self.known.shape(target)

        def run(**options: Any) -> Any:
            receipt = call(level=level, **options)
            assert list(receipt.base_commits) == best
            assert receipt.outcome == ("fast_forward" if self.known.is_forward(source, target) else "merged")
            left_out = _left_out(*states, onto[1])
            assert left_out[0] <= set(receipt.left_out) <= left_out[1]
            return receipt

        if self.known.lacks_left_out(source, target):
            self._refused(run, target, certain=True)
            return
        try:
            work = Work(target, *model.aligned(*states, *onto), *onto, parents, level)
        except (DroppedTypeError, NarrowTypeError) as error:
            self._refused(run, target, certain=error.certain)
            return
        self._act(run, work, strategy)

    def _merge_mixed(self, run: Callable[..., Any], changed: str, source: str, target: str) -> None:
        """Merge two branches whose common ancestors have different schemas.

        Args:
            run: merges.
            changed: the branch that gets the result.
            source: the branch whose rows are merged.
            target: the branch with the rows and the schema that they are merged into.
        """
        best = self.known.best([self.known.heads[source]], [self.known.heads[target]])
        self.say(f"merge {source} into {target} for {changed}, bases {best} with different schemas")
        if self.known.is_up_to_date(source, target) or self.known.is_forward(source, target):
            return
        try:
            preview = run(preview=True)
        except MergeSchemaError:
            self.say("  refused")
            return
        assert not self.known.lacks_left_out(source, target)
        if preview.conflicts:
            with pytest.raises(MergeConflictsError):
                run()
            assert self.graph.branch(changed).head.id == self.known.heads[changed]
            return
        parents = self.known.heads[changed], self.known.heads[target if changed == source else source]
        shape = self.known.shape(target)
        self._commit(changed, run)
        found = stored(self.graph.snapshot(branch=changed), shape)
        old: State = {}
        for commit in best:
            for name, rows in self.known.commits[commit].state.items():
                old.setdefault(name, {}).update(rows)
        sides = self.known.state(source), self.known.shape(source), self.known.state(target), shape
        model.keeps_both_sides(found, *sides, old)
        self._record(changed, found, shape, self.known.heads[changed], parents[1])
        self._check_branch(changed)

    def _act(self, run: Callable[..., Any], work: Work, strategy: str | None) -> None:
        """Run a merge, revert or cherry-pick: its preview, then itself, with choices if there are conflicts."""
        invalid = model.invalid(work.source, work.shape)
        if invalid and strategy == ("theirs" if work.is_update else "ours"):
            strategy = None  # the model does not resolve values that the schema does not allow
        wanted = work.merged({}, strategy)
        preview = run(preview=True, strategy=strategy)
        self._same(preview, wanted, work)
        self._check_values(preview.conflicts, work)
        if not wanted.conflicts:
            self._done(run, work, wanted, strategy=strategy)
            return
        with pytest.raises(MergeConflictsError) as caught:
            run(strategy=strategy)
        assert caught.value.conflicts == preview.conflicts
        assert self.graph.branch(work.target).head.id == self.known.heads[work.target]
        if not invalid:
            self._resolve(run, work, preview.conflicts, strategy)

    def _resolve(
        self, run: Callable[..., Any], work: Work, conflicts: tuple[Conflict, ...], strategy: str | None
    ) -> None:
        """Choose a side for each resolvable conflict, or for some of them, in random order."""
        chosen = [conflict for conflict in conflicts if conflict.kind.value in _SIDED]
        self.random.shuffle(chosen)
        if self.random.random() < 0.3:
            chosen = chosen[: self.random.randrange(len(chosen) + 1)]
        choices: Choice = {}
        resolutions: dict[Conflict | tuple[str, str], str] = {}
        for conflict in chosen:
            assert conflict.entity_id is not None
            entity = work.shape.named(conflict.type_name).id, conflict.entity_id
            choices[entity] = self.random.choice(("ours", "theirs"))
            named = conflict.type_name, conflict.entity_id
            resolutions[conflict if self.random.random() < 0.5 else named] = choices[entity]
        for conflict in chosen:  # an edge without both of its nodes is listed twice, and resolved once
            if conflict in resolutions:
                assert conflict.entity_id is not None
                resolutions[conflict] = choices[work.shape.named(conflict.type_name).id, conflict.entity_id]
        self.say(f"  resolve {choices}")
        wanted = work.merged(choices, strategy)
        preview = run(preview=True, strategy=strategy, resolutions=resolutions)
        self._same(preview, wanted, work)
        if wanted.conflicts:
            with pytest.raises(MergeConflictsError):
                run(strategy=strategy, resolutions=resolutions)
            assert self.graph.branch(work.target).head.id == self.known.heads[work.target]
        else:
            self._done(run, work, wanted, strategy=strategy, resolutions=resolutions)

    def _same(self, receipt: Any, wanted: model.Merged, work: Work) -> None:
        assert _found(receipt.conflicts, work.shape) == wanted.conflicts
        undecided = {
            (work.shape.named(c.type_name).id, c.entity_id)
            for c in receipt.conflicts
            if c.base_undecided and _is_torn(c)
        }
        assert undecided == wanted.undecided
        assert receipt.edges_kept == wanted.kept
        if work.is_pick:
            assert receipt.edges_omitted == wanted.omitted
        changes = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.changes.items()}
        if work.former is None:
            assert changes == model.counts(work.onto, wanted.written(work.onto), work.shape)
        elif not wanted.conflicts:
            counts, added = model.update_counts(*work.former, wanted.state, work.shape)
            for key, numbers in counts.items():
                inserted, updated, deleted = changes.pop(key, (0, 0, 0))
                assert (inserted, deleted) == (numbers[0], numbers[2])
                assert numbers[1] <= updated <= numbers[1] + added[key]
            assert changes == {}

    def _done(self, run: Callable[..., Any], work: Work, wanted: model.Merged, **options: Any) -> None:
        receipt = self._commit(work.target, lambda: run(**options))
        if work.is_pick and wanted.state == self.known.state(work.target):
            assert (receipt.commit, receipt.outcome) == (None, "nothing_to_do")
            assert self.graph.branch(work.target).head.id == self.known.heads[work.target]
            return
        head = self.graph.branch(work.target).head
        assert receipt is None or receipt.commit == head
        parents = self.known.heads[work.target], *work.parents[1:]
        assert (head.parent, head.merged_parent) == (*parents, None)[:2]
        self._record(work.target, wanted.state, work.shape, *parents)
        self._check_branch(work.target)

    # Undoing

    def revert(self) -> None:
        self._pick("revert", self._any_branch())

    def pick(self) -> None:
        self._pick("cherry_pick", self._any_branch())

    def _pick(self, verb: str, commits_of: str) -> None:
        """Revert or pick a commit of one branch on another, or on the same branch."""
        target = self._any_branch()
        commit = self.random.choice(self._listed(commits_of)[:8])
        parents = self.known.commits[commit].parents
        call = getattr(self.graph, verb)
        where = {"branch": target} if verb == "revert" else {"into": target}
        if not parents:
            with pytest.raises((InputError, VersionReclaimedError) if self.gone(commit) else InputError):
                call(commit, **where)
            return
        number = self.random.randrange(len(parents)) + 1 if len(parents) > 1 else None
        if number is not None:
            with pytest.raises((InputError, VersionReclaimedError)):
                call(commit, **where)
        parent = parents[(number or 1) - 1]
        strategy, level = self.random.choice((None, None, "ours", "theirs")), self.random.choice((None, "property"))
        self.say(f"{verb} {commit} relative to {parent} on {target}, strategy {strategy}, level {level}")
        after, before = (self.known.commits[name] for name in (commit, parent))
        gone = self.gone(commit) or self.gone(parent)
        if gone or after.shape != before.shape or self.made[commit].writer == "SchemaApply":
            assert self.cleaned or not gone
            with pytest.raises((VersionReclaimedError, MergeSchemaError) if gone else MergeSchemaError):
                call(commit, parent=number, **where)
            return
        base, source = (after, before) if verb == "revert" else (before, after)
        onto = self.known.state(target), self.known.shape(target)

        def run(**options: Any) -> Any:
            return getattr(self.graph, verb)(commit, parent=number, level=level, **where, **options)

        try:
            states = model.aligned(model.Base(base.state), base.shape, source.state, source.shape, *onto)
        except (DroppedTypeError, NarrowTypeError) as error:
            self._refused(run, target, certain=error.certain)
            return
        heads = (self.known.heads[target],)
        work = Work(target, *states, *onto, heads, level, is_pick=True, restoring=verb == "revert")
        self._act(run, work, strategy)

    def reset(self) -> None:
        names = sorted(self.known.heads.keys() - {"main"})
        if not names:
            return
        name, old = self.random.choice(names), self._any_branch()
        commit = self.random.choice(self._listed(old)[:8])
        self.say(f"reset {name} to {commit}")
        head, readable = self.known.heads[name], self._readable()

        def run() -> Any:
            return self.graph.branches.reset(name, commit)

        try:
            done = None
            if not self.interrupted(BRANCH_RESET_POINTS, run) or self.graph.branch(name).head.id == head:
                done = run()
        except VersionReclaimedError:
            assert self.cleaned
            return
        if done is not None:
            assert (done.head, done.previous_head) == (commit, head)
            assert done.commits_removed == len(self.known.ancestors(head) - self.known.ancestors(commit))
            assert (done.tag is None) is (commit == head)
        self.known.heads[name] = commit
        if commit != head:
            (tag,) = {tag.name: tag for tag in self.graph.tags}.keys() - self.known.tags.keys()
            self.known.tags[tag] = head
            self.incarnations[name] = self.incarnations.get(name, 0) + 1
        assert all(not self.gone(commit) for commit in self.known.needed() & readable)
        assert self.read(branch=name) == self.known.state(name)

    def restore(self) -> None:
        branch, name = self._any_branch(), self.random.choice((*NODES, EDGE))
        commit = self.random.choice(self._listed(self._any_branch())[:8])
        now, shape, old = self.known.state(branch), self.known.shape(branch), self.known.commits[commit]
        try:
            kept = replace(old.shape, types=tuple(one for one in old.shape.types if shape.find(one.id) is not None))
            _, before = model.aligned(model.Base(now), shape, old.state, kept, now, shape)
        except NarrowTypeError:
            return
        known = sorted(now[name].keys() | before[name].keys())
        if not known:
            return
        ids = self.random.sample(known, min(len(known), self.random.randrange(1, 4)))
        edges = name != EDGE and self.random.random() < 0.6
        self.say(f"restore {name} {ids} at {commit} on {branch}, edges {edges}")

        def run(**options: Any) -> Any:
            return self.graph.restore(shape.of(name).name, ids, commit, branch=branch, edges=edges, **options)

        if self.gone(commit):
            assert self.cleaned
            with pytest.raises(VersionReclaimedError):
                run()
            return
        wanted, omitted = model.restored(before, now, name, ids, edges=edges)
        if model.broken(wanted, shape):
            with pytest.raises(ConstraintError):
                run(preview=True)
            with pytest.raises(ConstraintError):
                run()
            return
        for receipt in (run(preview=True), self._commit(branch, run)):
            if receipt is None:
                continue
            changes = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.changes.items()}
            assert changes == model.counts(now, wanted, shape)
            assert receipt.edges_omitted == omitted
        if wanted != now:
            self._record(branch, wanted, shape, self.known.heads[branch])
        assert self.graph.branch(branch).head.id == self.known.heads[branch]
        assert self.read(branch=branch) == wanted

    def _check_values(self, conflicts: tuple[Conflict, ...], work: Work) -> None:
        """Check that conflicts have the values of the conflicting properties."""
        sides = (work.onto, work.source) if not work.is_update else (work.source, work.onto)
        for one in conflicts:
            if not _is_torn(one):
                continue
            assert one.entity_id is not None
            declared, entity = work.shape.named(one.type_name), one.entity_id
            name = declared.id
            columns = {"from": "src", "to": "dst", **{column.id: column.name for column in declared.columns}}
            shown = {column.id: column.shown for column in declared.columns}
            for values, state in ((one.base, work.base.state), (one.ours, sides[0]), (one.theirs, sides[1])):
                row = state.get(name, {}).get(entity)
                if (values is one.base and one.base_undecided) or row is None:
                    assert values is None
                else:
                    assert values
                    stored = {columns.get(p, p): shown[p](value) if p in shown else value for p, value in row.items()}
                    assert values.items() <= stored.items()
            rows = [state.get(name, {}).get(entity) for state in (work.base.state, work.source, work.onto)]
            if work.in_parts(name) and None not in rows and not one.base_undecided:
                named = {columns[prop] for prop in model.torn(name, *rows)}  # type: ignore[arg-type]
                assert one.ours is not None
                assert one.ours.keys() == named

    # Reading

    def read(self, *, branch: str | None = None, commit: str | None = None) -> State:
        view = self.graph.snapshot(branch=branch) if commit is None else self.graph.snapshot(commit=commit)
        return stored(view, self.known.commits[view.commit.id].shape)


def stored(view: Snapshot, shape: Shape) -> State:
    """The rows of a state of the graph."""
    found: State = {}
    assert set(view.manifest.tables) == {one.key for one in shape.types}
    for one in shape.types:
        names = {column.name: column for column in one.columns}
        rows = found[one.id] = {}
        for row in view.scan(one.key).to_pylist():
            entity = row.pop("id")
            assert entity not in rows
            if one.id == EDGE:
                kept = {"id": entity, "from": row.pop("src"), "to": row.pop("dst")}
            else:
                kept = {"k": row.pop("k")}
            assert row.keys() == names.keys()
            rows[entity] = kept | {names[name].id: names[name].known(value) for name, value in row.items()}
    return found


def tables(rows: State, shape: Shape) -> dict[str, pa.Table]:
    """Rows as the input of a load."""
    found = {}
    for name, some in rows.items():
        if some:
            columns = [Column(prop, prop, "String") for prop in (("id", "from", "to") if name == EDGE else ("k",))]
            columns += shape.of(name).columns
            found[shape.of(name).name] = pa.table(
                {c.name: pa.array([c.shown(row[c.id]) for row in some.values()], ARROW[c.kind]) for c in columns}
            )
    return found


def _plain(text: str) -> str:
    """The text of a schema without the hints of its last change."""
    return re.sub(r' @rename_from\("\w+"\)', "", text)


def _left_out(
    base: model.Base, base_shape: Shape, source: State, source_shape: Shape, shape: Shape
) -> tuple[set[str], set[str]]:
    """The properties and newer types that a target lacks: those that the source certainly changed, and all of them."""
    certain: set[str] = set()
    every: set[str] = set()
    for one in source_shape.types:
        target = shape.find(one.id)
        if target is None:
            names = {one.name} if one.number >= shape.created else set()
        else:
            used = {column.name for column in target.columns}
            names = {
                f"{one.name}.{column.name}{' (another property has this name now)' if column.name in used else ''}"
                for column in one.columns
                if not target.has(column.id)
            }
        every |= names
        before = base_shape.find(one.id)
        is_known = before is not None and not base.is_unknown(one.id) and before.columns == one.columns
        if is_known and source[one.id] != base.state[one.id]:
            certain |= names
    return certain, every


class _Edit:
    """A random change of the schema, and of the rows."""

    def __init__(self, before: Shape, state: State, random: Random) -> None:
        self.before = before
        self.shape = before
        self.state = state
        self._random = random
        self._touched: set[tuple[str, str]] = set()

    def change(self) -> None:
        acts = (self._add, self._add, self._rename, self._rename_type, self._drop, self._add_type, self._drop_type)
        changes = (self._widen, self._change_enum, self._require, self._allow_null, self._limit, self._make_unique)
        self._random.choice((*acts, *changes))()

    def _replace(self, old: Type, new: Type) -> None:
        self.shape = replace(self.shape, types=tuple(new if one is old else one for one in self.shape.types))

    def _number(self) -> int:
        number = self.shape.created
        self.shape = replace(self.shape, created=number + 1)
        return number

    def _free(self, names: Sequence[str], taken: set[str], fresh: str) -> str:
        """A name that no type or property has before the change. Older names are used again."""
        free = [name for name in names if name not in taken]
        return self._random.choice([*free, fresh])

    def _one(self) -> Type:
        return self._random.choice(self.shape.types)

    def _add(self) -> None:
        one = self._one()
        number = self._number()
        one = self.shape.of(one.id)
        kind, default = self._random.choice((("I32", None), ("String", None), ("I64", 7), ("enum", None)))
        name = self._free(_PROPERTIES, self._property_names(one), f"p{number}")
        values = ((f"a{number}", f"a{number}"), (f"b{number}", f"b{number}")) if kind == "enum" else ()
        required = default is not None
        column = Column(f"p{number}", name, kind, default, required=required, values=values, filled=default)
        self._touched.add((one.id, column.id))
        self._replace(one, replace(one, columns=(*one.columns, column)))
        for row in self.state[one.id].values():
            row[column.id] = default

    def _property_names(self, one: Type) -> set[str]:
        before = self.before.find(one.id)
        return {column.name for some in (one, before) if some is not None for column in some.columns}

    def _untouched(self, one: Type) -> list[Column]:
        before = self.before.find(one.id)
        found = [] if before is None else [column for column in one.columns if before.has(column.id)]
        return [column for column in found if (one.id, column.id) not in self._touched]

    def _rename(self) -> None:
        one = self._one()
        if columns := self._untouched(one):
            column = self._random.choice(columns)
            name = self._free(_PROPERTIES, self._property_names(one), f"r{self._number()}")
            self._touched.add((one.id, column.id))
            renamed = tuple(replace(c, name=name) if c is column else c for c in one.columns)
            self._replace(one, replace(one, columns=renamed))

    def _any(self, fits: Callable[[Type, Column], bool]) -> tuple[Type, Column] | None:
        found = [(one, column) for one in self.shape.types for column in one.columns if fits(one, column)]
        found = [(one, column) for one, column in found if column.id != "mail" and self._is_old(one, column)]
        return self._random.choice(found) if found else None

    def _is_old(self, one: Type, column: Column) -> bool:
        before = self.before.find(one.id)
        return before is not None and before.has(column.id)

    def _alter(self, fits: Callable[[Type, Column], bool], **changes: Any) -> None:
        """Change some property, if there is one that fits."""
        if found := self._any(fits):
            one, column = found
            altered = tuple(replace(c, **changes) if c is column else c for c in one.columns)
            self._replace(one, replace(one, columns=altered))

    def _widen(self) -> None:
        self._alter(lambda _, column: column.kind == "I32", kind="I64")

    def _require(self) -> None:
        """Forbid null. Rows that have no value stop the change."""
        self._alter(lambda _, column: not column.required, required=True)

    def _allow_null(self) -> None:
        self._alter(lambda _, column: column.required, required=False)

    def _limit(self) -> None:
        """Add, change or remove a range. Rows with other values stop the change."""
        most = self._random.choice((2, 3, None))
        numbers = ("I32", "I64")
        self._alter(lambda _, c: c.kind in numbers and not c.unique and c.default is None and c.most != most, most=most)

    def _make_unique(self) -> None:
        """Add or remove `@unique`. Rows with equal values stop the change."""

        def fits(one: Type, column: Column) -> bool:
            other = any(c.unique for c in one.columns)
            return one.id != EDGE and not other and column.kind != "enum" and column.default is column.most is None

        if self._random.random() < 0.3:
            self._alter(lambda _, column: column.unique, unique=False)
        else:
            self._alter(fits, unique=True)

    def _change_enum(self) -> None:
        """Add, rename or remove a value. Rows with a removed value stop the change."""
        found = self._any(lambda _, column: column.kind == "enum")
        if found is None:
            return
        one, column = found
        name, values = f"w{self._number()}", list(column.values)
        one = self.shape.of(one.id)
        chosen = self._random.randrange(len(values))
        act = self._random.choice(("add", "rename", "rename", "remove"))
        if act == "add":
            values.append((name, name))
        elif act == "rename":
            values[chosen] = values[chosen][0], name
        elif len(values) > 1:
            del values[chosen]
        altered = tuple(replace(c, values=tuple(values)) if c is column else c for c in one.columns)
        self._replace(one, replace(one, columns=altered))

    def _type_names(self) -> set[str]:
        return {one.name for shape in (self.before, self.shape) for one in shape.types}

    def _rename_type(self) -> None:
        one = self._one()
        if self.before.find(one.id) is not None and (one.id, "") not in self._touched:
            self._touched.add((one.id, ""))
            name = self._free(_TYPES, self._type_names(), f"R{self._number()}")
            self._replace(one, replace(one, name=name))

    def _drop(self) -> None:
        one = self._one()
        if columns := [column for column in self._untouched(one) if column.id != "mail"]:
            column = self._random.choice(columns)
            self._replace(one, replace(one, columns=tuple(c for c in one.columns if c is not column)))
            for row in self.state[one.id].values():
                del row[column.id]

    def _add_type(self) -> None:
        number = self._number()
        name = self._free(_TYPES, self._type_names(), f"T{number}")
        self._number()
        new = Type(f"T{number}", name, (Column("n", "n"),), number)
        self.shape = replace(self.shape, types=(*self.shape.types, new))
        self.state[new.id] = {}

    def _drop_type(self) -> None:
        found = [one for one in self.shape.types if one.id.startswith("T") and self.before.find(one.id) == one]
        if found:
            one = self._random.choice(found)
            self.shape = replace(self.shape, types=tuple(other for other in self.shape.types if other is not one))
            del self.state[one.id]


_PROPERTIES = ("n", "mail", "x", "y")
_TYPES = ("A", "B", EDGE, "C", "D")

_OTHER = {"ours": "theirs", "theirs": "ours"}
_SIDED = ("divergent_insert", "divergent_update", "delete_vs_update", "orphan_edge")


def _is_torn(conflict: Conflict) -> bool:
    return conflict.kind.value in _SIDED[:3]


def _found(conflicts: tuple[Conflict, ...], shape: Shape) -> Found:
    found: Found = set()
    for one in conflicts:
        about = one.message.split("'")[1] if one.entity_id is None else one.entity_id
        found.add((one.kind.value, shape.named(one.type_name).id, about))
    return found


def _run(number: int, place: Path) -> None:
    random = Random(number)
    on_disk = number % ON_DISK == 0
    uri = str(place / f"g{number}") if on_disk else f"memory://machine/{uuid4().hex}"
    with ExitStack() as stack:
        if number % 3 == 1:
            # as if all branches had changed many rows
            stack.enter_context(thresholds(row_pairs, SCAN_ROWS=0, SCAN_RATIO=1_000_000))
            stack.enter_context(thresholds(row_changes, LOOKUP_LIMIT=0))
        shape = FIRST_SHAPE
        if number % 4 == 2:
            types = tuple(replace(one, by_property=one.id != "B") for one in shape.types)
            shape = replace(shape, types=types)
        machine = Machine(omnigraph.init(uri, shape.text()), random, on_disk, shape)
        try:
            machine.begin()
            for _ in range(STEPS):
                machine.step()
            machine.check()
        except BaseException as error:
            error.add_note(f"history {number}:\n" + "\n".join(machine.done))
            raise
        finally:
            machine.graph.close()


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number == FIRST else pytest.mark.slow) for number in HISTORIES]
)
def test_random_histories_agree_with_the_model(number: int, place: Path) -> None:
    _run(number, place)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 2_100, 100))
def test_more_random_histories_agree_with_the_model(first: int, place: Path) -> None:
    for number in range(first, first + 100):
        _run(number, place)

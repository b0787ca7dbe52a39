"""Random histories of a whole graph agree with a model of plain dictionaries.

Branches of branches, writes with cascades, merges in every direction with strategies and resolutions and by property,
reverts, cherry-picks, resets, restores of single entities, deleted and recreated names, tags, branches from commits and
tags, optimize, cleanup and time travel. `make soak` runs 2,000 more histories. `OMNIGRAPH_HISTORIES` sets how many run,
`OMNIGRAPH_HISTORIES_FROM` the number of the first one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.merge import repository_model as model
from tests.merge.repository_model import EDGE, ENDS, NODES, Choice, Found, Known, Repository, State

import omnigraph
from omnigraph.commit.manifest import Commit
from omnigraph.errors import (
    Conflict,
    ConflictError,
    ConstraintError,
    InputError,
    MergeConflictsError,
    NotFoundError,
    VersionReclaimedError,
)
from omnigraph.graph import Graph
from omnigraph.storage import row_changes, row_pairs
from omnigraph.testing import thresholds

SCHEMA = """
node A { k: String @key  n: I64?  mail: String?  @unique(mail) }
node B { k: String @key  n: I64? }
edge AB: A -> B @card(0..3) { n: I64? }
"""
FIRST = int(os.environ.get("OMNIGRAPH_HISTORIES_FROM", "0"))
HISTORIES = range(FIRST, FIRST + int(os.environ.get("OMNIGRAPH_HISTORIES", "100")))
STEPS = 30
ON_DISK = 5
"""One of this many histories is stored in files, where cleanup can remove versions."""

BRANCHES = ("dev", "release", "hotfix", "topic")
CROSSING = "crossing"
TAGS = ("v1", "v2")
COLUMNS = {
    "A": {"k": pa.utf8(), "n": pa.int64(), "mail": pa.utf8()},
    "B": {"k": pa.utf8(), "n": pa.int64()},
    EDGE: {"id": pa.utf8(), "from": pa.utf8(), "to": pa.utf8(), "n": pa.int64()},
}


@dataclass(frozen=True, slots=True)
class Work:
    """A merge, a revert or a cherry-pick.

    Attributes:
        target: the branch that gets the commit.
        base: the base.
        source: the state that is merged.
        parents: the parents of the commit.
        level: the level of merging.
        is_pick: whether it is a revert or a cherry-pick.
        restoring: whether it is a revert.
    """

    target: str
    base: model.Base
    source: State
    parents: tuple[str, ...]
    level: str | None
    is_pick: bool = False
    restoring: bool = False

    def merged(self, choices: Choice, strategy: str | None, target: State) -> model.Merged:
        return model.merged(
            self.base, self.source, target, choices, strategy, level=self.level, restoring=self.restoring
        )


@dataclass(slots=True)
class Machine:
    """A graph and its model."""

    graph: Graph
    random: Random
    on_disk: bool
    known: Repository = field(default_factory=Repository)
    cleaned: bool = False
    made: dict[str, Commit] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Insert some rows, and usually create some branches."""
        self._record("main", model.empty())
        self.known.lost = self._lost
        state = model.empty()
        for name in NODES:
            state[name] = {entity: self._node(name, entity) for entity in "01234"}
        for entity, row in state["A"].items():
            row["mail"] = f"m{entity}"
        ends = [(start, end) for start in "01234" for end in "01234" if (int(start) + int(end)) % 2]
        for i, (start, end) in enumerate(self.random.sample(ends, 8)):
            state[EDGE][f"e{i}"] = {"id": f"e{i}", "from": start, "to": end, "n": None}
        self.graph.load(_tables(state), mode="merge")
        self._record("main", state, self.known.heads["main"])
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
        ]
        act = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])[0]
        act()

    def check(self) -> None:
        """Check that every branch agrees with the model and violates no constraint."""
        for branch in sorted(self.known.heads):
            assert self._read(branch=branch) == self.known.state(branch), branch
        assert self.graph.verify(branch=self.random.choice(sorted(self.known.heads))).ok

    def _say(self, what: str) -> None:
        self.done.append(what)

    def _record(self, branch: str, state: State, *parents: str) -> None:
        head = self.graph.branch(branch).head
        self.made[head.id] = head
        self.known.commits[head.id] = Known(parents, state)
        self.known.heads[branch] = head.id

    def _lost(self, commit: str) -> set[str]:
        """The types of a commit that cleanup has removed. Bases of merges of heads are kept, see `cleanup`."""
        return self._gone(commit) if self.cleaned else set()

    def _gone(self, commit: str) -> set[str]:
        store = self.graph.session.store
        try:
            tables = store.manifest_of(self.made[commit]).tables
        except VersionReclaimedError:
            return set(model.empty())
        return {key.partition(":")[2] for key, pin in tables.items() if not store.tables.at(pin.ref).exists()}

    def _readable(self) -> set[str]:
        """The readable commits that a merge may need as a base."""
        return {commit for commit in self.known.needed() if not self._gone(commit)}

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
        if do is None or model.broken(state):
            return
        head = self.known.heads[branch]
        do()
        if self.graph.branch(branch).head.id != head:
            self._record(branch, state, head)
        assert self._read(branch=branch) == state

    def _put(self, state: State, branch: str) -> Any:
        random, rows = self.random, {}
        for name in random.sample(NODES, random.randrange(1, 3)):
            chosen = {str(random.randrange(5)) for _ in range(random.randrange(1, 3))}
            rows[name] = {entity: self._node(name, entity) for entity in sorted(chosen)}
            state[name] |= rows[name]
        if random.random() < 0.6 and state["A"] and state["B"]:
            chosen = {f"e{random.randrange(8)}" for _ in range(random.randrange(1, 3))}
            rows[EDGE] = {entity: self._edge(state, entity) for entity in sorted(chosen)}
            state[EDGE] |= rows[EDGE]
        self._say(f"put {rows} on {branch}")
        return lambda: self.graph.load(_tables(rows), mode="merge", branch=branch)

    def _node(self, name: str, entity: str) -> model.Row:
        row = {"k": entity, "n": self.random.choice((None, 1, 2, 3))}
        return row if name == "B" else {**row, "mail": self.random.choice((None, None, "m", f"m{entity}"))}

    def _edge(self, state: State, entity: str) -> model.Row:
        start, end = self.random.choice(sorted(state["A"])), self.random.choice(sorted(state["B"]))
        return {"id": entity, "from": start, "to": end, "n": self.random.choice((None, 1, 2))}

    def _drop_node(self, state: State, branch: str) -> Any:
        name = self.random.choice(NODES)
        if not state[name]:
            return None
        entity = self.random.choice(sorted(state[name]))
        del state[name][entity]
        end = next(end for end, node in ENDS.items() if node == name)
        state[EDGE] = {edge: row for edge, row in state[EDGE].items() if row[end] != entity}
        self._say(f"delete {name} {entity} on {branch}")
        return lambda: self.graph.mutate(f'query q() {{ delete {name} where k = "{entity}" }}', branch=branch)

    def _drop_edges(self, state: State, branch: str) -> Any:
        starts = sorted({row["from"] for row in state[EDGE].values()})
        if not starts:
            return None
        start = self.random.choice(starts)
        state[EDGE] = {edge: row for edge, row in state[EDGE].items() if row["from"] != start}
        self._say(f"delete {EDGE} from {start} on {branch}")
        return lambda: self.graph.mutate(f'query q() {{ delete {EDGE} where from = "{start}" }}', branch=branch)

    # Branches and tags

    def branch(self) -> None:
        free = [name for name in BRANCHES if name not in self.known.heads]
        if not free:
            return
        name = self.random.choice(free)
        what = self.random.random()
        if what < 0.6:
            source = self._any_branch()
            self._say(f"branch {name} from {source}")
            self.graph.branches.create(name, source=source)
            self.known.heads[name] = self.known.heads[source]
            return
        if what < 0.8 and self.known.tags:
            start = self.random.choice(sorted(self.known.tags))
            commit = self.known.tags[start]
        else:
            start = commit = self.random.choice(self._listed(self._any_branch()))
        self._say(f"branch {name} from commit {start}")
        try:
            self.graph.branches.create(name, commit=start)
        except VersionReclaimedError:
            assert self.cleaned
            assert start not in self.known.tags
            return
        self.known.heads[name] = commit

    def _listed(self, branch: str) -> list[str]:
        return [commit.id for commit in self.graph.branch(branch).commits]

    def delete(self) -> None:
        names = sorted(self.known.heads.keys() - {"main"})
        if not names:
            return
        name = self.random.choice(names)
        self._say(f"delete branch {name}")
        readable = self._readable()
        try:
            self.graph.branches.delete(name)
        except ConflictError:
            self.done[-1] += ": refused"
            return
        del self.known.heads[name]
        assert all(not self._gone(commit) for commit in self.known.needed() & readable)

    def tag(self) -> None:
        free = [name for name in TAGS if name not in self.known.tags]
        if not free:
            return
        branch, name = self._any_branch(), self.random.choice(free)
        commit = self.random.choice(self._listed(branch))
        self._say(f"tag {name} at {commit}")
        try:
            self.graph.tags.create(name, commit=commit)
        except VersionReclaimedError:
            assert self.cleaned
            return
        self.known.tags[name] = commit

    def untag(self) -> None:
        if self.known.tags:
            name = self.random.choice(sorted(self.known.tags))
            self._say(f"delete tag {name}")
            self.graph.tags.delete(name)
            del self.known.tags[name]

    # Upkeep and time travel

    def optimize(self) -> None:
        self._say("optimize")
        head = self.known.heads["main"]
        self.graph.optimize(rows_per_fragment=4)
        if self.graph.branch("main").head.id != head:
            self._record("main", self.known.state("main"), head)

    def cleanup(self) -> None:
        keep = self.random.choice((0, 1, 5))
        self._say(f"cleanup keep={keep}")
        self.cleaned = True
        readable = self._readable()
        self.graph.cleanup(keep=keep, orphans_older_than=timedelta(0))
        assert self._readable() == readable

    def travel(self) -> None:
        """Read a tag, or a commit of a branch. Cleanup may have removed the commit, but never the tag."""
        names = [*self.known.tags.items(), *((name, name) for name in self._listed(self._any_branch()))]
        name, commit = self.random.choice(names)
        try:
            found = self._read(commit=name)
        except (NotFoundError, VersionReclaimedError):
            assert self.cleaned
            assert name not in self.known.tags
            return
        assert found == self.known.commits[commit].state

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
        self._say(f"cross {one} and {other}")
        self.graph.branches.create(CROSSING, source=one)
        self.known.heads[CROSSING] = self.known.heads[one]
        self._merge(other, one, self.random.choice((None, "ours", "theirs")))
        self._merge(CROSSING, other, self.random.choice((None, "ours", "theirs")))
        self.graph.branches.delete(CROSSING)
        del self.known.heads[CROSSING]

    def _merge(self, source: str, target: str, strategy: str | None, level: str | None = None) -> None:
        best, base = self.known.merge_base(source, target, level)
        self._say(f"merge {source} into {target}, strategy {strategy}, level {level}, bases {best}")
        if self.known.is_up_to_date(source, target):
            receipt = self.graph.merge(source, target, strategy=strategy, level=level)
            assert (receipt.outcome, receipt.commit) == ("already_up_to_date", None)
            return
        parents = self.known.heads[target], self.known.heads[source]
        work = Work(target, base, self.known.state(source), parents, level)
        outcome = "fast_forward" if self.known.is_forward(source, target) else "merged"

        def run(**options: Any) -> Any:
            receipt = self.graph.merge(source, target, level=level, **options)
            assert list(receipt.base_commits) == best
            assert receipt.outcome == outcome
            return receipt

        self._act(run, work, strategy)

    def _act(self, run: Callable[..., Any], work: Work, strategy: str | None) -> None:
        """Run a merge, revert or cherry-pick: its preview, then itself, with choices if there are conflicts."""
        wanted = work.merged({}, strategy, self.known.state(work.target))
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
            entity = conflict.type_name, conflict.entity_id
            choices[entity] = self.random.choice(("ours", "theirs"))
            resolutions[conflict if self.random.random() < 0.5 else entity] = choices[entity]
        for conflict in chosen:  # an edge without both of its nodes is listed twice, and resolved once
            if conflict in resolutions:
                assert conflict.entity_id is not None
                resolutions[conflict] = choices[conflict.type_name, conflict.entity_id]
        self._say(f"  resolve {choices}")
        wanted = work.merged(choices, strategy, self.known.state(work.target))
        preview = run(preview=True, strategy=strategy, resolutions=resolutions)
        self._same(preview, wanted, work)
        if wanted.conflicts:
            with pytest.raises(MergeConflictsError):
                run(strategy=strategy, resolutions=resolutions)
            assert self.graph.branch(work.target).head.id == self.known.heads[work.target]
        else:
            self._done(run, work, wanted, strategy=strategy, resolutions=resolutions)

    def _same(self, receipt: Any, wanted: model.Merged, work: Work) -> None:
        assert _found(receipt.conflicts) == wanted.conflicts
        undecided = {(c.type_name, c.entity_id) for c in receipt.conflicts if c.base_undecided and _is_torn(c)}
        assert undecided == wanted.undecided
        assert receipt.edges_kept == wanted.kept
        if work.is_pick:
            assert receipt.edges_omitted == wanted.omitted
        changes = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.changes.items()}
        assert changes == model.counts(self.known.state(work.target), wanted.state)

    def _done(self, run: Callable[..., Any], work: Work, wanted: model.Merged, **options: Any) -> None:
        receipt = run(**options)
        if work.is_pick and wanted.state == self.known.state(work.target):
            assert (receipt.commit, receipt.outcome) == (None, "nothing_to_do")
            assert self.graph.branch(work.target).head.id == self.known.heads[work.target]
            return
        assert receipt.commit is not None
        assert (receipt.commit.parent, receipt.commit.merged_parent) == (*work.parents, None)[:2]
        self._record(work.target, wanted.state, *work.parents)
        assert self._read(branch=work.target) == wanted.state

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
            with pytest.raises(InputError, match="is the first of the graph"):
                call(commit, **where)
            return
        number = self.random.randrange(len(parents)) + 1 if len(parents) > 1 else None
        if number is not None:
            with pytest.raises((InputError, VersionReclaimedError)):
                call(commit, **where)
        parent = parents[(number or 1) - 1]
        strategy, level = self.random.choice((None, None, "ours", "theirs")), self.random.choice((None, "property"))
        self._say(f"{verb} {commit} relative to {parent} on {target}, strategy {strategy}, level {level}")
        if self._gone(commit) or self._gone(parent):
            assert self.cleaned
            with pytest.raises(VersionReclaimedError):
                call(commit, parent=number, **where)
            return
        after, before = (self.known.commits[name].state for name in (commit, parent))
        base, source = (after, before) if verb == "revert" else (before, after)
        heads = (self.known.heads[target],)
        work = Work(target, model.Base(base), source, heads, level, is_pick=True, restoring=verb == "revert")
        self._act(lambda **options: call(commit, parent=number, level=level, **where, **options), work, strategy)

    def reset(self) -> None:
        names = sorted(self.known.heads.keys() - {"main"})
        if not names:
            return
        name, old = self.random.choice(names), self._any_branch()
        commit = self.random.choice(self._listed(old)[:8])
        self._say(f"reset {name} to {commit}")
        head, readable = self.known.heads[name], self._readable()
        try:
            done = self.graph.branches.reset(name, commit)
        except VersionReclaimedError:
            assert self.cleaned
            return
        assert (done.head, done.previous_head) == (commit, head)
        assert done.commits_removed == len(self.known.ancestors(head) - self.known.ancestors(commit))
        assert (done.tag is None) is (commit == head)
        self.known.heads[name] = commit
        if done.tag is not None:
            self.known.tags[done.tag] = head
        assert all(not self._gone(commit) for commit in self.known.needed() & readable)
        assert self._read(branch=name) == self.known.state(name)

    def restore(self) -> None:
        branch, name = self._any_branch(), self.random.choice((*NODES, EDGE))
        commit = self.random.choice(self._listed(self._any_branch())[:8])
        now, before = self.known.state(branch), self.known.commits[commit].state
        known = sorted(now[name].keys() | before[name].keys())
        if not known:
            return
        ids = self.random.sample(known, min(len(known), self.random.randrange(1, 4)))
        edges = name != EDGE and self.random.random() < 0.6
        self._say(f"restore {name} {ids} at {commit} on {branch}, edges {edges}")

        def run(**options: Any) -> Any:
            return self.graph.restore(name, ids, commit, branch=branch, edges=edges, **options)

        if self._gone(commit):
            assert self.cleaned
            with pytest.raises(VersionReclaimedError):
                run()
            return
        wanted, omitted = model.restored(before, now, name, ids, edges=edges)
        if model.broken(wanted):
            with pytest.raises(ConstraintError):
                run(preview=True)
            with pytest.raises(ConstraintError):
                run()
            return
        for receipt in (run(preview=True), run()):
            changes = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.changes.items()}
            assert changes == model.counts(now, wanted)
            assert receipt.edges_omitted == omitted
        if wanted != now:
            self._record(branch, wanted, self.known.heads[branch])
        assert self.graph.branch(branch).head.id == self.known.heads[branch]
        assert self._read(branch=branch) == wanted

    def _check_values(self, conflicts: tuple[Conflict, ...], work: Work) -> None:
        """Check that conflicts have the values of the conflicting properties."""
        base, source, target = work.base, work.source, self.known.state(work.target)
        for one in conflicts:
            if not _is_torn(one):
                continue
            assert one.entity_id is not None
            name, entity = one.type_name, one.entity_id
            for values, state in ((one.base, base.state), (one.ours, target), (one.theirs, source)):
                row = state[name].get(entity)
                if (values is one.base and one.base_undecided) or row is None:
                    assert values is None
                else:
                    assert values is not None
                    stored = {"src" if c == "from" else "dst" if c == "to" else c: value for c, value in row.items()}
                    assert values
                    assert values.items() <= stored.items()
            rows = [state[name].get(entity) for state in (base.state, source, target)]
            if work.level == "property" and None not in rows and not one.base_undecided:
                named = {"src" if c == "from" else "dst" if c == "to" else c for c in model.torn(name, *rows)}  # type: ignore[arg-type]
                assert one.ours is not None
                assert one.ours.keys() == named

    # Reading

    def _read(self, **at: str) -> State:
        view = self.graph.snapshot(**at)  # type: ignore[arg-type]
        found = model.empty()
        for name in found:
            for row in view.scan(f"{'node' if name in NODES else 'edge'}:{name}").to_pylist():
                entity = row.pop("id")
                assert entity not in found[name]
                if name == EDGE:
                    row |= {"id": entity, "from": row.pop("src"), "to": row.pop("dst")}
                found[name][entity] = row
        return found


def _tables(rows: State) -> dict[str, pa.Table]:
    return {
        name: pa.table({c: pa.array([row[c] for row in some.values()], kind) for c, kind in COLUMNS[name].items()})
        for name, some in rows.items()
        if some
    }


_SIDED = ("divergent_insert", "divergent_update", "delete_vs_update", "orphan_edge")


def _is_torn(conflict: Conflict) -> bool:
    return conflict.kind.value in _SIDED[:3]


def _found(conflicts: tuple[Conflict, ...]) -> Found:
    found: Found = set()
    for one in conflicts:
        about = one.message.split("'")[1] if one.entity_id is None else one.entity_id
        found.add((one.kind.value, one.type_name, about))
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
        with omnigraph.init(uri, SCHEMA) as graph:
            machine = Machine(graph, random, on_disk)
            try:
                machine.begin()
                for _ in range(STEPS):
                    machine.step()
                machine.check()
            except BaseException as error:
                error.add_note(f"history {number}:\n" + "\n".join(machine.done))
                raise


@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number < FIRST + 2 else pytest.mark.slow) for number in HISTORIES]
)
def test_random_histories_agree_with_the_model(number: int, place: Path) -> None:
    _run(number, place)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 2_100, 100))
def test_more_random_histories_agree_with_the_model(first: int, place: Path) -> None:
    for number in range(first, first + 100):
        _run(number, place)

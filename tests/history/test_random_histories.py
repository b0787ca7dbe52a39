"""`log` and `blame` agree with a model that follows each value forward through a random history.

The model keeps for each commit the values of all entities by property identity, the commit that set each value, and
the commits that changed each entity. It reads every state, and uses no row versions and no recorded counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.commit.conftest import _no_fsync

from omnigraph.errors import MergeConflictsError, NotFoundError, OmnigraphError
from omnigraph.graph import Graph, init, open

__all__ = ["_no_fsync"]

NAMES = ("ann", "ben", "cas")
ENTITY = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """An expected entry of a log."""

    commit: str
    operation: str
    properties: frozenset[str]
    after: tuple[tuple[str, Any], ...] | None


@dataclass(frozen=True)
class Known:
    """The expected history at one commit. `columns` has the identity of each property by its name."""

    ancestors: frozenset[str]
    columns: dict[str, str]
    states: dict[str, ENTITY]
    origins: dict[str, dict[str, str]]
    logs: dict[str, list[Entry]]


def _named(known: Known, entity: ENTITY) -> dict[str, Any]:
    return {name: entity[identity] for name, identity in known.columns.items()}


@dataclass
class Model:
    """The expected history of all commits, and the heads of the branches."""

    graph: Graph
    at: dict[str, Known] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)

    def head(self, branch: str) -> Known:
        return self.at[self.heads[branch]]

    def advance(self, *, source: str | None = None, columns: dict[str, str] | None = None) -> None:
        """Learn the new commits of all branches.

        Args:
            source: the head of the branch that the commits have merged.
            columns: the columns after the commits, if they have changed the schema.
        """
        for branch in self.graph.branches.list():
            name = branch.name
            made = [one.id for one in self.graph.commits.list(branch=name).commits]
            known = self.heads.get(name)
            new = made[: next((i for i, one in enumerate(made) if one in self.at), len(made))]
            for commit in reversed(new):
                before = None if known is None else self.at[known]
                self.at[commit] = self._after(commit, before, None if source is None else self.at[source], columns)
                known = commit
            self.heads[name] = made[0]

    def _after(self, commit: str, before: Known | None, source: Known | None, columns: dict[str, str] | None) -> Known:
        columns = columns or (before.columns if before is not None else {"id": "id", "k": "k", "p0": "#0", "p1": "#1"})
        ancestors = {commit} | (before.ancestors if before else set()) | (source.ancestors if source else set())
        found = Known(frozenset(ancestors), columns, {}, {}, {})
        for name in NAMES:
            row = self.graph.entity("T", name, at=commit)
            old = None if before is None else before.states.get(name)
            log = [] if before is None else before.logs[name]
            theirs = None if source is None else source.states.get(name)
            if row is not None:
                assert set(row) == set(columns), commit
                new = {columns[key]: value for key, value in row.items()}
                found.states[name] = new
                found.origins[name] = {}
                for identity, value in new.items():
                    if old is not None and identity in old and old[identity] == value:
                        assert before is not None
                        found.origins[name][identity] = before.origins[name][identity]
                    elif theirs is not None and identity in theirs and theirs[identity] == value:
                        assert source is not None
                        found.origins[name][identity] = source.origins[name][identity]
                    else:
                        found.origins[name][identity] = commit
            entry = self._entry(commit, before, found, name)
            if entry is not None:
                seen = set() if before is None else before.ancestors
                merged = [] if source is None else [one for one in source.logs[name] if one.commit not in seen]
                log = [entry, *merged, *log]
            found.logs[name] = log
        return found

    def _entry(self, commit: str, before: Known | None, after: Known, name: str) -> Entry | None:
        old, new = (None if one is None else one.states.get(name) for one in (before, after))
        if old is None and new is None:
            return None
        columns = (dict(before.columns) if before is not None and old is not None else {}).items()
        names = {identity: key for key, identity in columns} | (
            {identity: key for key, identity in after.columns.items()} if new is not None else {}
        )
        changed = {key for identity, key in names.items() if (old or {}).get(identity) != (new or {}).get(identity)}
        if not changed and old is not None and new is not None:
            return None
        operation = "insert" if old is None else "delete" if new is None else "update"
        values = None if new is None else tuple(sorted(_named(after, new).items()))
        return Entry(commit, operation, frozenset(changed), values)

    def check(self, graph: Graph) -> None:
        """Compare everything with the graph."""
        for branch in self.heads:
            known = self.head(branch)
            for name in NAMES:
                if not known.logs[name]:
                    with pytest.raises(NotFoundError):
                        graph.log("T", name, branch=branch)
                    continue
                found = graph.log("T", name, branch=branch)
                assert (found.kept_from, found.incomplete_merges) == (None, ())
                assert [_logged(one) for one in found] == known.logs[name], (branch, name)
                if name in known.states:
                    blamed = {
                        one.property: (one.value, None if one.commit is None else one.commit.id)
                        for one in graph.blame("T", name, branch=branch)
                    }
                    wanted = {
                        key: (known.states[name][identity], known.origins[name][identity])
                        for key, identity in known.columns.items()
                    }
                    assert blamed == wanted, (branch, name)

    def _in_ranges(self, ranges: Sequence[tuple[str | None, str]]) -> set[str]:
        """The commits in the given ranges: ancestors of the second commit, but not of the first one."""
        none: frozenset[str] = frozenset()
        each = (
            self.at[until].ancestors - (none if after is None else self.at[after].ancestors) for after, until in ranges
        )
        return {commit for one in each for commit in one}

    def check_cleaned(self, graph: Graph) -> None:
        """After cleanup, named commits are right, and all others lie in a reported range."""
        for branch in self.heads:
            known = self.head(branch)
            for name in NAMES:
                wanted = {one.commit for one in known.logs[name]}
                listed, ranges = _listed(graph, name, branch)
                assert listed <= wanted, (branch, name)
                assert not wanted - listed - self._in_ranges(ranges), (branch, name)
                if name not in known.states:
                    continue
                for one in graph.blame("T", name, branch=branch):
                    origin = known.origins[name][known.columns[one.property]]
                    where = (branch, name, one.property)
                    if one.commit is not None:
                        assert one.commit.id == origin, where
                        continue
                    assert origin in self.at[one.until_commit].ancestors, where
                    assert one.after_commit is None or origin not in self.at[one.after_commit].ancestors, where


_RANGE = re.compile(r"after (\w{26}), in or before (\w{26})|in or before (\w{26})|since commit (\w{26})")


def _listed(graph: Graph, name: str, branch: str) -> tuple[set[str], list[tuple[str | None, str]]]:
    """The commits that a log names, and the ranges of removed commits that the log or the error names."""
    try:
        log = graph.log("T", name, branch=branch)
    except NotFoundError as error:
        found = _RANGE.findall(f"{error} {error.hint}")
        return set(), [(after or None, until or before or since) for after, until, before, since in found]
    ranges = [(one.after_commit, one.until_commit) for one in log if one.commit is None]
    ranges += [(None, one) for one in (log.kept_from, *log.incomplete_merges) if one is not None]
    return {one.commit.id for one in log if one.commit is not None}, [*ranges, *log.incomplete_ranges]


def _logged(change: Any) -> Entry:
    after = None if change.after is None else tuple(sorted(change.after.items()))
    return Entry(change.commit.id, change.operation.value, frozenset(change.properties), after)


@dataclass
class History:
    """Random writes."""

    graph: Graph
    model: Model
    chance: Random
    properties: list[tuple[str, str, int | None]]
    """The properties on main: identity, name, default."""
    branches: dict[str, str] = field(default_factory=lambda: {"main": ""})
    made: int = 2

    def schema(self, renamed: dict[str, str] | None = None) -> str:
        parts = []
        for _, name, default in self.properties:
            hint = f' @rename_from("{renamed[name]}")' if renamed and name in renamed else ""
            parts.append(f"{name}: I64{'?' if default is None else f' @default({default})'}{hint}")
        return f"node T {{ k: String @key  {'  '.join(parts)} }}"

    def put(self, branch: str) -> None:
        columns = [name for name in self.model.head(branch).columns if name not in ("id", "k")]
        names = self.chance.sample(NAMES, self.chance.randrange(1, 3))
        chosen = [name for name in columns if self.chance.random() < 0.6]
        values = {name: pa.array([self.chance.randrange(3) for _ in names], pa.int64()) for name in chosen}
        self.graph.load({"T": pa.table({"k": list(names), **values})}, mode="merge", branch=branch)
        self.model.advance()

    def delete(self, branch: str) -> None:
        name = self.chance.choice(NAMES)
        self.graph.mutate("query q($n: String) { delete T where k = $n }", {"n": name}, branch=branch)
        self.model.advance()

    def create(self, branch: str) -> None:
        if len(self.branches) < 4:
            name = f"b{len(self.branches)}"
            self.graph.branches.create(name, source=branch)
            self.branches[name] = branch
            self.model.advance()

    def merge(self, branch: str) -> None:
        into = self.chance.choice([one for one in self.branches if one != branch] or ["main"])
        if into == branch:
            return
        source = self.model.heads[branch]
        with suppress(MergeConflictsError):
            strategy = self.chance.choice(["ours", "theirs", None])
            level = self.chance.choice(["row", "property"])
            self.graph.merge(branch, into=into, strategy=strategy, level=level)
        self.model.advance(source=source)

    def update(self, branch: str) -> None:
        if branch == "main":
            return
        parent = self.branches[branch]
        source = self.model.heads[parent]
        with suppress(MergeConflictsError):
            strategy = self.chance.choice(["ours", "theirs", None])
            level = self.chance.choice(["row", "property"])
            self.graph.branches.update(branch, strategy=strategy, level=level)
        self.model.advance(source=source, columns=self.model.at[source].columns)

    def revert(self, branch: str) -> None:
        commits = self.graph.commits.list(branch=branch).commits
        with suppress(OmnigraphError):
            self.graph.revert(self.chance.choice(commits).id, branch=branch, parent=1, strategy="theirs")
        with suppress(OmnigraphError):
            self.graph.revert(self.chance.choice(commits).id, branch=branch, strategy="theirs")
        self.model.advance()

    def restore(self, branch: str) -> None:
        commits = self.graph.commits.list(branch=branch).commits
        with suppress(OmnigraphError):
            self.graph.restore("T", self.chance.choice(NAMES), at=self.chance.choice(commits).id, branch=branch)
        self.model.advance()

    def optimize(self, branch: str) -> None:
        self.graph.optimize()
        self.model.advance()

    def reset(self, branch: str) -> None:
        if branch != "main":
            commits = self.graph.commits.list(branch=branch).commits
            self.graph.branches.reset(branch, self.chance.choice(commits[:3]).id)
            self.model.advance()

    def change_schema(self, branch: str) -> None:
        act, renamed = self.chance.randrange(4), {}
        free = [name for name in ("p0", "p1", "p2", "p3") if name not in [one[1] for one in self.properties]]
        if act in (0, 1) and free:
            name = self.chance.choice(free)
            self.properties.append((f"#{self.made}", name, None if act == 0 else self.chance.randrange(3)))
            self.made += 1
        elif act == 2 and free and self.properties:
            place = self.chance.randrange(len(self.properties))
            identity, old, default = self.properties[place]
            renamed = {free[0]: old}
            self.properties[place] = (identity, free[0], default)
        elif self.properties:
            self.properties.pop(self.chance.randrange(len(self.properties)))
        columns = {"id": "id", "k": "k"} | {name: identity for identity, name, _ in self.properties}
        self.graph.schema.apply(self.schema(renamed))
        self.model.advance(columns=columns)


ACTS: tuple[str, ...] = ("put",) * 8 + ("delete",) * 2 + ("create",) * 2 + ("merge",) * 4 + ("update",) * 3
ACTS += ("revert", "restore", "optimize", "reset") + ("change_schema",) * 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(6), 20, 24, 29])  # 20, 24, 29: removed commits insert and delete an entity
def test_log_and_blame_follow_values_through_schema_changes_merges_and_updates(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 26)


def run(path: Path, seed: int, steps: int) -> None:
    chance = Random(seed)
    with init(path / "g", "node T { k: String @key  p0: I64?  p1: I64? }", actor="kim") as graph:
        model = Model(graph)
        model.advance()
        history = History(graph, model, chance, [("#0", "p0", None), ("#1", "p1", None)])
        for _ in range(steps):
            getattr(history, chance.choice(ACTS))(chance.choice(list(history.branches)))
        model.check(graph)
        commits = graph.commits.list().commits
        for i, commit in enumerate([chance.choice(commits), chance.choice((commits[-1], *commits))]):
            graph.tags.create(f"kept{i}", commit=commit.id)
        graph.cleanup(keep=chance.randrange(1, 4), orphans_older_than=timedelta(0))
    with open(path / "g") as fresh:
        model.check_cleaned(fresh)

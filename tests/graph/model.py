"""A model of a graph in plain dictionaries: branches, their commits, and the content of each commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from tests.commit.graphs import Operation

from omnigraph.commit.table_writes import Append, DeleteWhere, Insert, Overwrite, TableWrite, Upsert

SCHEMA = """\
node Person { name: String @key }
node City { name: String @key }
edge Lives: Person -> City { since: String }
"""

TABLES = ("edge:Lives", "node:City", "node:Person")

Rows = Mapping[str, str]
"""The entities of a table: id to the one property."""

Content = Mapping[str, Rows]
"""The whole graph: table to rows."""

_OF_ROWS: dict[Operation, type[Append | Insert | Upsert | Overwrite]] = {
    Operation.APPEND: Append,
    Operation.INSERT: Insert,
    Operation.UPSERT: Upsert,
    Operation.OVERWRITE: Overwrite,
}

EMPTY: Content = {table: {} for table in TABLES}


@dataclass(frozen=True)
class Step:
    """One operation on one table. A `delete` gets the ids to delete; their values are ignored."""

    table: str
    operation: Operation
    rows: Rows

    def changes(self, before: Rows) -> bool:
        """Whether the write changes a table with these rows."""
        if self.operation is Operation.DELETE:
            return bool(self.rows.keys() & before.keys())
        return bool(self.rows) or (self.operation is Operation.OVERWRITE and bool(before))

    def conflicts(self, before: Rows) -> bool:
        return self.operation is Operation.INSERT and bool(self.rows.keys() & before.keys())

    def apply(self, before: Rows) -> Rows:
        if self.operation is Operation.DELETE:
            return {key: value for key, value in before.items() if key not in self.rows}
        return dict(self.rows) if self.operation is Operation.OVERWRITE else {**before, **self.rows}

    def write(self) -> TableWrite:
        """The same operation for the graph."""
        if self.operation is Operation.DELETE:
            return DeleteWhere(self.table, pc.field("id").isin(pa.array(self.rows, pa.utf8())))
        ids, values = list(self.rows), list(self.rows.values())
        columns = {"id": pa.array(ids, pa.utf8())}
        if self.table.startswith("edge:"):
            columns |= {"src": columns["id"], "dst": columns["id"], "since": pa.array(values, pa.utf8())}
        else:
            columns["name"] = pa.array(values, pa.utf8())
        return _OF_ROWS[self.operation](self.table, pa.table(columns))


@dataclass(frozen=True)
class Plan:
    """A write to several tables."""

    steps: tuple[Step, ...]

    def moved(self, before: Content) -> list[str]:
        """The tables that it changes, in the order in which they are committed."""
        return sorted(step.table for step in self.steps if step.changes(before[step.table]))

    def conflicts(self, before: Content) -> bool:
        return any(step.conflicts(before[step.table]) for step in self.steps)

    def apply(self, before: Content) -> Content:
        return {**before, **{step.table: step.apply(before[step.table]) for step in self.steps}}

    def writes(self) -> list[TableWrite]:
        return [step.write() for step in self.steps]

    def looks_at(self, other: Plan, before: Content) -> bool:
        """Whether it depends on rows that another plan changes."""
        changed = {step.table: step for step in other.steps if step.changes(before[step.table])}
        mine = [(step, changed[step.table]) for step in self.steps if step.table in changed]
        return any(
            step.operation is Operation.OVERWRITE
            or (step.operation is not Operation.APPEND and step.rows.keys() & theirs.rows.keys())
            for step, theirs in mine
        )


def three_way(base: Content, source: Content, target: Content) -> Content | None:
    """The state of a branch after the commit of a transaction from `base` with state `source`; None on a conflict."""
    merged: dict[str, Rows] = {}
    taken: dict[str, set[str]] = {}
    for table in TABLES:
        was, mine, there = base[table], source[table], target[table]
        rows = dict(there)
        taken[table] = {key for key in was.keys() | mine.keys() if was.get(key) != mine.get(key)}
        for key in taken[table]:
            if there.get(key) != was.get(key):
                return None  # also if both made the same change
            if key in mine:
                rows[key] = mine[key]
            else:
                rows.pop(key)
        merged[table] = rows
    ends = ("node:Person", "node:City")
    for key in merged["edge:Lives"]:
        missing = [end for end in ends if key not in merged[end]]
        if missing and (key in taken["edge:Lives"] or any(key in target[end] for end in missing)):
            return None  # an orphan edge: the transaction inserted the edge or deleted its node
    return merged


@dataclass(frozen=True)
class Commit:
    """One commit, and the content of the graph after it."""

    id: str
    branch: str
    version: int
    created_at: int
    content: Content


@dataclass
class Branch:
    """A branch: its whole history, oldest first, and its source.

    Attributes:
        first_version: the manifest version at its creation.
    """

    parent: str | None
    first_version: int
    history: list[Commit]

    @property
    def head(self) -> Commit:
        return self.history[-1]


@dataclass
class Graph:
    """All branches and tags."""

    branches: dict[str, Branch] = field(default_factory=dict)
    tags: dict[str, Commit] = field(default_factory=dict)

    def commits(self) -> list[Commit]:
        """Every commit that can be reached, each once."""
        found = {commit.id: commit for branch in self.branches.values() for commit in branch.history}
        return list(found.values())

    def children(self, name: str) -> list[str]:
        return [other for other, branch in self.branches.items() if branch.parent == name]

    def tagged_on(self, name: str) -> list[str]:
        return [tag for tag, commit in self.tags.items() if commit.branch == name]

    def clash(self, name: str) -> bool:
        """Whether a branch of this name cannot be created."""
        return any(o == name or o.startswith(f"{name}/") or name.startswith(f"{o}/") for o in self.branches)

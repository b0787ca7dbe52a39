"""Loading: rows from files or tables become one commit, checked as a whole before anything moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.writer import Operation, TableWrite
from omnigraph.errors import ConstraintError, KeyConflictError, Violation
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.write.changes import TableChange, column
from omnigraph.write.problems import Problems
from omnigraph.write.rows import RawRows, RowBuilder
from omnigraph.write.validate import validate

_NONE = pa.array([], pa.utf8())


class LoadMode(StrEnum):
    """What happens to entities that exist."""

    APPEND = "append"
    """Every id must be new."""
    MERGE = "merge"
    """An entity that exists is replaced, as a whole."""
    OVERWRITE = "overwrite"
    """Every type that the input mentions is replaced by what the input holds of it."""


_OPERATIONS = {
    LoadMode.APPEND: Operation.INSERT,
    LoadMode.MERGE: Operation.UPSERT,
    LoadMode.OVERWRITE: Operation.OVERWRITE,
}


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """What a load did.

    Attributes:
        nodes: entities loaded, by node type in name order.
        edges: the same by edge type.
        commit: the commit; None when the input was empty.
    """

    branch: str
    mode: LoadMode
    nodes: tuple[tuple[str, int], ...]
    edges: tuple[tuple[str, int], ...]
    commit: Commit | None

    @property
    def total(self) -> int:
        return sum(count for _, count in (*self.nodes, *self.edges))


class Load:
    """The rows of one load: built once, checked against whatever state the commit is prepared on.

    Args:
        accepted: the schema in force.
        mode: what happens to entities that exist.
    """

    def __init__(self, accepted: AcceptedSchema, mode: LoadMode) -> None:
        self.accepted = accepted
        self.mode = mode
        self._now = time.time_ns() // 1_000_000
        self._parts: dict[tuple[TypeKind, str], list[pa.Table]] = {}

    def read(self, source: Callable[[Problems], Iterable[RawRows]]) -> None:
        """Build the rows of a source.

        Raises:
            BadRowsError: some records cannot become rows.
        """
        problems = Problems()
        for raw in source(problems):
            builder = RowBuilder(self.accepted, raw.kind, raw.name, self._now, problems)
            self._parts.setdefault((raw.kind, raw.name), []).append(builder.build(raw.columns, raw.origin, raw.absent))
        problems.check()

    def changes(self) -> dict[str, TableChange]:
        """The change of each type, one row per id.

        Raises:
            ConstraintError: two records have the same key.
            KeyConflictError: two records have the same id, where each must be new.
        """
        changes = {}
        for (kind, name), parts in sorted(self._parts.items()):
            rows = self._distinct(kind, name, pa.concat_tables(parts))
            change = TableChange(kind, name, rows, _NONE, replaced=self.mode is LoadMode.OVERWRITE)
            changes[change.key] = change
        return changes

    def _distinct(self, kind: TypeKind, name: str, rows: pa.Table) -> pa.Table:
        counts = pc.value_counts(column(rows, "id"))
        if len(counts) == rows.num_rows:
            return rows
        twice = min(counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist())
        declared = (self.accepted.catalog.nodes if kind is TypeKind.NODE else self.accepted.catalog.edges)[name]
        if declared.key is not None:
            subject = f"{name}.{declared.key[0]}" if len(declared.key) == 1 else f"{name}.({', '.join(declared.key)})"
            raise ConstraintError((Violation("unique", subject, twice, "two records have this key"),), 1)
        if self.mode is not LoadMode.MERGE:
            raise KeyConflictError(f"{kind.value}:{name}", twice)
        # The last record of an id wins.
        numbered = rows.append_column("#", pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by("id").aggregate([("#", "max")])["#_max"]
        return rows.take(last.combine_chunks().sort())

    def prepare(self, snapshot: Snapshot, changes: dict[str, TableChange]) -> Sequence[TableWrite]:
        """The writes, after every constraint holds against a state.

        Raises:
            ConstraintError: a constraint does not hold.
        """
        validate(self.accepted, changes, snapshot)
        return [TableWrite(key, _OPERATIONS[self.mode], change.rows) for key, change in changes.items()]

    def receipt(self, branch: str, changes: dict[str, TableChange], commit: Commit | None) -> LoadReceipt:
        def counts(kind: TypeKind) -> tuple[tuple[str, int], ...]:
            return tuple((c.name, c.rows.num_rows) for c in changes.values() if c.kind is kind)

        return LoadReceipt(branch, self.mode, counts(TypeKind.NODE), counts(TypeKind.EDGE), commit)

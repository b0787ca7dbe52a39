"""Columns that came under names: which of them a type has, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from omnigraph.errors import Problem
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.convert import Report
from omnigraph.write.envelopes import key_members, unknown_property
from omnigraph.write.problems import SHOWN, Leniency, Problems
from omnigraph.write.rows import Origin, RawRows
from omnigraph.write.values import without_gaps, without_ids

Read = Callable[[pa.Array, ValueType, Report], pa.Array]
"""Makes a column of a type; tells a report about the rows that do not fit."""

_ID = ValueType(Scalar.STRING, nullable=True)
_END = ValueType(Scalar.STRING)


class Columns:
    """The columns of one type.

    Args:
        accepted: the schema in force.
        kind: node or edge.
        name: the type.
        problems: collects what is wrong. When it counts coercions, what does not fit becomes null where it may.
    """

    def __init__(self, accepted: AcceptedSchema, kind: TypeKind, name: str, problems: Problems) -> None:
        declared: NodeType | EdgeType
        declared = accepted.catalog.nodes[name] if kind is TypeKind.NODE else accepted.catalog.edges[name]
        self.kind = kind
        self.name = name
        self.problems = problems
        self.key = key_members(declared)
        self.members = {"id": _ID} | {p.name: p.type for p in declared.properties.values()}
        if kind is TypeKind.EDGE:
            self.members |= {"from": _END, "to": _END}

    def check_names(self, names: Iterable[str], position: int, place: str) -> None:
        """Report the columns that the type does not have, once each."""
        for name in names:
            if name in self.members:
                continue
            subject = f"{self.name}.{name}"
            if self.problems.coerced is not None:
                self.problems.coerced.add(Leniency.IGNORED_PROPERTY, subject, place)
                continue
            message = unknown_property(name, self.members)
            if self.kind is TypeKind.EDGE and name in ("src", "dst"):
                message = "the ends of an edge are the columns 'from' and 'to'"
            self.problems.add(Problem(position, place, subject, message))

    def rows(self, columns: Mapping[str, pa.Array], origin: Origin, read: Read | None = None) -> RawRows:
        """Rows with the columns that the type has.

        Args:
            columns: by name.
            origin: where each row stood.
            read: how columns are made of what came, if they are not left to the row builder.
        """
        mine = {name: values for name, values in columns.items() if name in self.members}
        if read is None:
            return RawRows(self.kind, self.name, mine, {}, origin)
        without_key: list[int] = []
        for name, values in mine.items():
            kind = self.members[name]
            refused: list[int] = []
            made = read(values, kind, self._report(name, kind, origin, values, refused))
            mine[name] = without_gaps(made, kind, refused)
            if name in self.key:
                without_key += refused
        if "id" in mine:
            mine["id"] = without_ids(mine["id"], without_key)
        return RawRows(self.kind, self.name, mine, {}, origin)

    def _report(self, name: str, kind: ValueType, origin: Origin, values: pa.Array, refused: list[int]) -> Report:
        """Tells `problems` about rows that do not fit, and notes them."""
        subject = f"{self.name}.{name}"
        coerced = self.problems.coerced if kind.nullable else None

        def report(mask: pa.Array, message: str) -> None:
            rows = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            if len(rows) == 0:
                return
            places = origin.records[rows[:SHOWN]].tolist()
            if coerced is not None:
                what = repr(values[int(rows[0])].as_py())[:40]
                coerced.add(Leniency.NULLED_VALUE, subject, f"{origin.place(places[0])}: {what}", len(rows))
                return
            refused.extend(rows.tolist())
            self.problems.add_all([Problem(p, origin.place(p), subject, message) for p in places], len(rows))

        return report

"""Finds all entities that take part in the violation of a constraint. The error message names only some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key
from omnigraph.write.rules.changes import Committed, TableChange, surviving
from omnigraph.write.rules.constraints import with_one_of, with_zeros, without_nulls

EntityIds = Iterator[tuple[str, pa.Array]]
"""Pairs of a type key and the ids of entities of that type."""


def violating_entities(
    accepted: AcceptedSchema,
    changes: Mapping[str, TableChange],
    committed: Committed,
    rows: pa.Table,
    violation: Violation,
) -> EntityIds:
    """All entities that take part in a violation of a constraint.

    Args:
        accepted: the schema.
        changes: the changes of each table, by type key.
        committed: the stored state before the change.
        rows: the rows that the validator found.
        violation: describes the violation by the first row.
    """
    name = violation.subject.partition(".")[0].partition(" ")[0]
    if violation.kind == "endpoint":
        end = violation.subject.rpartition(".")[2]
        edge = accepted.catalog.edges[name]
        yield edge_key(name), _array(rows["id"])
        yield node_key(edge.from_type if end == "src" else edge.to_type), _array(rows[end])
    elif violation.kind == "cardinality":
        change = changes[edge_key(name)]
        end = "dst" if violation.subject.endswith("@card_in") else "src"
        nodes = _array(rows["node"])
        unchanged = surviving(committed, change, change.key, [end], end, nodes)
        yield change.key, _array(unchanged["id"])
        yield change.key, _array(with_one_of(change.rows, end, nodes)["id"])
    else:
        # A node type and an edge type may have the same name. Both are searched for the ids.
        for key in (node_key(name), edge_key(name)):
            if key in changes and violation.kind == "unique":
                yield key, _sharing(changes[key], committed, rows, _fields(violation))
            elif key in changes:
                rows_of_change = changes[key].rows["id"]
                yield key, _array(rows_of_change.filter(pc.is_in(rows_of_change, value_set=rows["id"])))


def changed_entities(
    accepted: AcceptedSchema,
    changes: Mapping[str, TableChange],
    committed: Committed,
    rows: pa.Table,
    violation: Violation,
) -> EntityIds:
    """Like `violating_entities`. Of a node with too few or too many edges, also the edges that the change takes away.

    Entities that the change does not contain may be among them.
    """
    yield from violating_entities(accepted, changes, committed, rows, violation)
    if violation.kind == "cardinality":
        key = edge_key(violation.subject.partition(".")[0].partition(" ")[0])
        end = "dst" if violation.subject.endswith("@card_in") else "src"
        yield key, _array(committed.lookup(key, end, rows["node"], columns=["id"])["id"])


def _sharing(change: TableChange, committed: Committed, rows: pa.Table, fields: tuple[str, ...]) -> pa.Array:
    if not set(fields) <= set(change.rows.column_names):
        return pa.array([], pa.utf8())
    rows_of_change = without_nulls(change.rows.select(["id", *fields]), fields)
    others = surviving(committed, change, change.key, list(fields), fields[0], with_zeros(rows_of_change[fields[0]]))
    together = pa.concat_tables(
        [rows_of_change, without_nulls(others.select(rows_of_change.column_names), fields).cast(rows_of_change.schema)]
    )
    shared = with_one_of(together, "id", _array(rows["id"])).select(list(fields))
    return _array(together.join(shared, list(fields), join_type="left semi")["id"])


def _fields(violation: Violation) -> tuple[str, ...]:
    named = violation.subject.partition(".")[2]
    return tuple(named.removeprefix("(").removesuffix(")").split(", "))


def _array(ids: pa.ChunkedArray) -> pa.Array:
    return ids.combine_chunks()

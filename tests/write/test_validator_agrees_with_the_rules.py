"""The validator against a row-by-row check of the rules: the same violations for any change of a small graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ConstraintError
from omnigraph.lang.arrow import arrow_schema
from omnigraph.lang.schema import TypeKind, accept, compile_schema
from omnigraph.testing import thresholds
from omnigraph.write.rules import constraints as checks
from omnigraph.write.rules.changes import TableChange
from omnigraph.write.rules.constraints import MemoryLimit
from omnigraph.write.rules.validator import validate
from omnigraph.write.rules.verify import verify

SCHEMA = """
node Person {
    name: String @key
    city: String?
    mail: String? @unique
    level: I32?
    tags: [enum(a, b)]?
    @unique(city, level)
    @range(level, 1..3)
    @check(city, "^[xy]")
}
edge Knows: Person -> Person @card(1..2) @card_in(0..2) { weight: I32?  @unique(src, weight) }
"""

ACCEPTED = accept(compile_schema(SCHEMA), "0" * 26)
KINDS = {"node:Person": (TypeKind.NODE, "Person"), "edge:Knows": (TypeKind.EDGE, "Knows")}
Rows = dict[str, dict[str, Any]]

NAMES = st.sampled_from("pqrs")
PEOPLE = st.dictionaries(
    NAMES,
    st.fixed_dictionaries(
        {
            "city": st.sampled_from([None, "x", "y", "z"]),
            "mail": st.sampled_from([None, "m", "n"]),
            "level": st.sampled_from([None, 0, 1, 2]),
            "tags": st.sampled_from([None, [], ["a"], ["a", "c"]]),
        }
    ),
    max_size=4,
)
EDGES = st.dictionaries(
    st.sampled_from(["e1", "e2", "e3", "e4"]),
    st.fixed_dictionaries({"src": NAMES, "dst": NAMES, "weight": st.sampled_from([None, 1, 2])}),
    max_size=4,
)


@dataclass
class Stored:
    """The committed rows, behind the interface that the validator reads."""

    tables: dict[str, pa.Table]

    def scan(self, key: str, *, columns: Sequence[str] | None = None, filter: pc.Expression | None = None) -> pa.Table:
        return pd.dataset(self.tables[key]).to_table(columns=list(columns) if columns else None, filter=filter)

    def batches(self, key: str, *, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        rows = self.scan(key, columns=columns)
        return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=2))

    def lookup(self, key: str, by: str, values: pa.ChunkedArray, *, columns: Sequence[str]) -> pa.Table:
        return self.scan(key, columns=columns, filter=pc.field(by).isin(values.combine_chunks()))


@dataclass
class Write:
    rows: Rows = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    replaced: bool = False


def table(key: str, rows: Rows) -> pa.Table:
    schema = arrow_schema(ACCEPTED, *KINDS[key])
    records = [{"id": id_, **({"name": id_} if key == "node:Person" else {}), **row} for id_, row in rows.items()]
    return pa.Table.from_pylist(records, schema=schema)


def found(
    before: dict[str, Rows], write: dict[str, Write], memory: MemoryLimit | None = None
) -> set[tuple[str, str, str]]:
    changes = {
        key: TableChange(*KINDS[key], table(key, w.rows), pa.array(sorted(w.deleted), pa.utf8()), w.replaced)
        for key, w in write.items()
    }
    stored = Stored({key: table(key, rows) for key, rows in before.items()})
    try:
        validate(ACCEPTED, changes, stored, memory)
    except ConstraintError as error:
        caught = error
    else:
        return set()
    named = [(v.kind, v.subject, v.entity_id) for v in caught.violations]
    assert caught.total == len(named) == len(set(named))
    return set(named)


def after(before: Rows, write: Write) -> Rows:
    kept = {} if write.replaced else {id_: row for id_, row in before.items() if id_ not in write.deleted}
    return {**kept, **write.rows}


def expected(before: dict[str, Rows], write: dict[str, Write]) -> set[tuple[str, str, str]]:
    """The rules of the schema above, checked one row at a time."""
    nothing = Write()
    people, edges = write.get("node:Person", nothing), write.get("edge:Knows", nothing)
    persons = after(before["node:Person"], people)
    knows = after(before["edge:Knows"], edges)
    out: set[tuple[str, str, str]] = set()
    for id_, row in people.rows.items():
        if row["tags"] and set(row["tags"]) - {"a", "b"}:
            out.add(("value", "Person.tags", id_))
        if row["level"] is not None and not 1 <= row["level"] <= 3:
            out.add(("value", "Person.level", id_))
        if row["city"] is not None and not re.search("^[xy]", row["city"]):
            out.add(("value", "Person.city", id_))
    out |= shared("Person.mail", ("mail",), people.rows, persons)
    out |= shared("Person.(city, level)", ("city", "level"), people.rows, persons)
    out |= shared("Knows.(src, weight)", ("src", "weight"), edges.rows, knows)
    for id_, row in knows.items():
        for end in ("src", "dst"):
            if row[end] not in persons and (id_ in edges.rows or people.replaced):
                out.add(("endpoint", f"Knows.{end}", id_))
    gone = set(before["node:Person"]) - set(persons)
    old = before["edge:Knows"]
    changed = set(old) if edges.replaced else {i for i in old if i in edges.deleted or i in edges.rows}
    for end, subject, low, high in (("src", "Knows @card", 1, 2), ("dst", "Knows @card_in", 0, 2)):
        touched = {row[end] for row in edges.rows.values()} | {old[i][end] for i in changed}
        counts = Counter(row[end] for row in knows.values())
        out |= {
            ("cardinality", subject, node)
            for node in touched - gone
            if not low <= counts[node] <= high and "edge:Knows" in write
        }
    return out


def shared(subject: str, fields: tuple[str, ...], changed: Rows, all_: Rows) -> set[tuple[str, str, str]]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for id_, row in all_.items():
        values = tuple(row[name] for name in fields)
        if None not in values:
            groups.setdefault(values, []).append(id_)
    return {("unique", subject, max(ids)) for ids in groups.values() if len(ids) > 1 and any(i in changed for i in ids)}


def without_duplicates(rows: Rows, *groups: tuple[str, ...]) -> Rows:
    """The rows without those that have the same values in a group of properties as an earlier row."""
    kept: Rows = {}
    for id_, row in rows.items():
        more = {**kept, id_: row}
        if not any(shared("", fields, more, more) for fields in groups):
            kept = more
    return kept


@given(
    PEOPLE,
    EDGES,
    st.builds(Write, PEOPLE, st.just(set()), st.booleans()),
    st.builds(Write, EDGES, st.sets(st.sampled_from(["e1", "e2", "e3"])), st.booleans()),
    st.sets(st.sampled_from(["node:Person", "edge:Knows"]), min_size=1),
)
def test_the_validator_finds_the_violations_of_a_row_by_row_check(
    people: Rows, edges: Rows, people_write: Write, edges_write: Write, touched: set[str]
) -> None:
    # Stored rows satisfy the rules that the change cannot violate. A row that keeps its unique values is not searched.
    people = without_duplicates(people, ("mail",), ("city", "level"))
    stored_edges = {id_: row for id_, row in edges.items() if row["src"] in people and row["dst"] in people}
    stored_edges = without_duplicates(stored_edges, ("src", "weight"))
    edges_write.deleted -= set(edges_write.rows)
    before = {"node:Person": people, "edge:Knows": stored_edges}
    writes = {"node:Person": people_write, "edge:Knows": edges_write}
    write = {key: writes[key] for key in touched}
    assert found(before, write) == expected(before, write)
    # The same in parts, as with a small memory budget.
    with thresholds(checks, SMALL_JOIN_VALUES=0):
        assert found(before, write, MemoryLimit(256)) == expected(before, write)


def test_existing_violations_are_not_reported_for_a_change() -> None:
    person = {"city": "y", "mail": None, "level": 1, "tags": None}
    before: dict[str, Rows] = {"node:Person": {"p": person, "s": person}, "edge:Knows": {}}
    assert found(before, {"node:Person": Write({"q": {**person, "level": 2}})}) == set()
    assert found(before, {"node:Person": Write({"q": person})}) == {("unique", "Person.(city, level)", "s")}


@given(PEOPLE, EDGES)
def test_verify_applies_the_same_rules_to_the_whole_graph(people: Rows, edges: Rows) -> None:
    stored = {"node:Person": people, "edge:Knows": edges}
    report = verify(ACCEPTED, Stored({key: table(key, rows) for key, rows in stored.items()}))
    wanted = expected({"node:Person": {}, "edge:Knows": {}}, {key: Write(rows) for key, rows in stored.items()})
    # A write checks only nodes of its edges; here nodes without edges count, too.
    ends = {row["src"] for row in edges.values()}
    wanted |= {("cardinality", "Knows @card", node) for node in people if node not in ends}
    # An orphan edge does not count for the missing node.
    wanted -= {violation for violation in wanted if violation[0] == "cardinality" and violation[2] not in people}
    assert {(v.kind, v.subject, v.entity_id) for v in report.first} == wanted
    assert report.total == len(wanted)


def test_violations_are_in_the_order_of_the_rules() -> None:
    write = {
        "node:Person": Write({"q": {"city": "z", "mail": "m", "level": 9, "tags": ["c"]}}),
        "edge:Knows": Write({"e": {"src": "nobody", "dst": "q", "weight": None}}),
    }
    changes = {k: TableChange(*KINDS[k], table(k, w.rows), pa.array([], pa.utf8())) for k, w in write.items()}
    with pytest.raises(ConstraintError) as caught:
        validate(
            ACCEPTED, changes, Stored({"node:Person": table("node:Person", {}), "edge:Knows": table("edge:Knows", {})})
        )
    kinds = [violation.kind for violation in caught.value.violations]
    assert kinds == ["value", "value", "value", "endpoint"]
    assert str(caught.value).startswith("Person.tags: 'q': ['c'] is not one of a, b (and 3 more)")

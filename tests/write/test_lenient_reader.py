"""The lenient reader accepts input that the strict one refuses, and the receipt counts every change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.thresholds import Thresholds

import omnigraph
from omnigraph.errors import BadRowsError
from omnigraph.graph import Graph
from omnigraph.write.input import ndjson
from omnigraph.write.input.sources import LoadSource
from omnigraph.write.receipt import LoadReceipt
from omnigraph.write.rows.problems import Leniency

SCHEMA = """
node Person {
    name: String @key
    age: I32?
    big: I64
    tags: [String]?
    counts: [I64]?
    face: Vector(2)?
    born: Date?
    height: F32?
    mood: String? @default("calm")
}
node Day { day: Date @key  note: String? }
node Bed { garden: String  serial: I64  @key(garden, serial) }
node Note { text: String? }
edge On: Person -> Day
edge In: Person -> Bed
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        yield made


def load(graph: Graph, *lines: str) -> LoadReceipt:
    return graph.load("\n".join(lines).encode(), mode="append", lenient=True)


def counts(receipt: LoadReceipt) -> dict[tuple[str, str], int]:
    return {(c.kind.value, c.subject): c.count for c in receipt.coerced}


def person(**data: object) -> str:
    return json.dumps({"type": "Person", "data": {"name": "ann", "big": 1, **data}})


# ---- H20: values of a wrong type become null, and are reported


def test_a_wrong_type_is_refused_by_default(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"line 1: Person\.age: expected a whole number, found a text"):
        graph.load(person(age="31").encode(), mode="append")


def test_nulled_values_are_counted(graph: Graph) -> None:
    receipt = load(graph, person(age="31"), person(name="bob", age=3.5), person(name="cid", age=4))
    assert counts(receipt) == {("nulled_value", "Person.age"): 2}
    assert (receipt.coerced[0].example, receipt.coerced[0].found) == ("record 1", "'31'")
    ages = {row["id"]: row["age"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert ages == {"ann": None, "bob": None, "cid": 4}


def test_a_required_property_is_not_nulled(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"record 1: Person\.big: expected a whole number"):
        load(graph, person(big="1"))


def test_a_value_of_the_right_type_that_does_not_fit_is_an_error(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"Person\.age: out of range for I32"):
        load(graph, person(age=2**40))
    with pytest.raises(BadRowsError, match=r"Person\.face: a vector must have 2 numbers"):
        load(graph, person(face=[1]))


@pytest.mark.parametrize("face", [[1, None], [1, "x"], [1, [2]]])
def test_elements_of_vectors_are_never_nulled(graph: Graph, face: list[object]) -> None:
    with pytest.raises(BadRowsError, match=r"Person\.face"):
        load(graph, person(face=face))


def test_items_of_lists_become_null(graph: Graph) -> None:
    receipt = load(graph, person(tags=["a", None, 3, "b"], counts=[1, "2"]))
    assert counts(receipt) == {("null_item", "Person.tags"): 2, ("null_item", "Person.counts"): 1}
    ann = graph.entity("Person", "ann")
    assert ann is not None
    assert (ann["tags"], ann["counts"]) == (["a", None, None, "b"], [1, None])


def test_a_nulled_value_is_not_a_missing_one(graph: Graph) -> None:
    load(graph, person(mood=3), person(name="bob"))
    moods = {row["id"]: row["mood"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert moods == {"ann": None, "bob": "calm"}


def test_a_repeated_request_returns_the_same_coercions(graph: Graph) -> None:
    text = person(age="31").encode()
    first = graph.load(text, mode="append", lenient=True, idempotency_key="k")
    again = graph.load(text, mode="append", lenient=True, idempotency_key="k")
    assert again == first
    assert again.coerced == first.coerced != ()


def test_the_commit_contains_no_coerced_values(graph: Graph) -> None:
    secret = person(age="secret", tags=["secret", None], hat="secret")
    receipt = load(graph, secret)
    assert any("secret" in coercion.found for coercion in receipt.coerced)
    assert receipt.commit is not None
    assert "nulled_value" in dict(receipt.commit.labels)["load"]
    assert "secret" not in repr(receipt.commit)


# ---- the shape of records


def test_unknown_members_are_ignored_and_counted(graph: Graph) -> None:
    receipt = load(
        graph,
        '{"type": "Note", "edge": "On", "seq": 7, "data": {"id": "n", "text": "x", "txet": "y", "_tombstone": true}}',
        '{"type": "Note", "data": {"id": "m", "text": "first", "text": "last"}}',
        '{"type": "Note", "data": null}',
    )
    assert counts(receipt) == {
        ("ignored_member", "Note envelope.edge"): 1,
        ("ignored_member", "Note envelope.seq"): 1,
        ("ignored_property", "Note._tombstone"): 1,
        ("ignored_property", "Note.txet"): 1,
        ("duplicate_member", "Note.text"): 1,
        ("nulled_value", "Note envelope.data"): 1,
    }
    note = graph.entity("Note", "m")
    assert note is not None
    assert note["text"] == "last"
    assert receipt.total == 3


def test_endpoints_inside_the_data_are_ignored(graph: Graph) -> None:
    receipt = load(
        graph,
        person(),
        '{"type": "Day", "data": {"day": 1}}',
        '{"edge": "on", "from": "ann", "to": "1", "data": {"src": "bob", "to": "2", "id": "e"}}',
    )
    assert counts(receipt) == {("ignored_property", "On.src"): 1, ("ignored_property", "On.to"): 1}
    edge = graph.entity("On", "e")
    assert edge is not None
    assert (edge["src"], edge["dst"]) == ("ann", "1")


def test_json_values_may_have_any_layout(graph: Graph) -> None:
    text = (
        f"{person()} {person(name='bob')}\n\n{json.dumps(json.loads(person(name='cid')), indent=2)}{person(name='dee')}"
    )
    assert graph.load(text.encode(), mode="append", lenient=True).total == 4
    with pytest.raises(BadRowsError, match=r"record 2 \(line 4\): Person\.big: expected a whole number"):
        load(graph, person(name="eve"), "", "", person(name="fay", big="x"))
    with pytest.raises(BadRowsError, match=r"line 3: Person\.big: expected a whole number"):
        load(graph, person(name="eve") * 2, "", person(name="fay", big="x"))


def test_invalid_json_is_an_error(graph: Graph) -> None:
    for text in ("oops", '{"type": "Note"', '{"type": "Persom", "data": {}}', "[]"):
        with pytest.raises(BadRowsError, match="record 1"):
            load(graph, text)


# ---- ids that are other spellings of a key


def test_another_spelling_of_an_id_is_rewritten_in_edges_too(graph: Graph) -> None:
    receipt = load(
        graph,
        '{"edge": "On", "from": "ann", "to": "2019-05-02", "data": {"id": "e1"}}',
        '{"edge": "On", "from": "ann", "to": "18019", "data": {"id": "e2"}}',
        '{"edge": "In", "from": "ann", "to": "KEW", "data": {"id": "e3"}}',
        '{"edge": "In", "from": "ann", "to": "[\\"RBGE\\", 7]", "data": {"id": "e4"}}',
        person(id="ann"),
        '{"type": "Day", "data": {"id": "2019-05-02", "day": "2019-05-02"}}',
        '{"type": "Day", "data": {"id": "18019", "day": "2019-05-03"}}',
        '{"type": "Bed", "data": {"id": "KEW", "garden": "KEW", "serial": 1042}}',
        '{"type": "Bed", "data": {"id": "[\\"RBGE\\", 7]", "garden": "RBGE", "serial": 7}}',
    )
    assert counts(receipt) == {
        ("rewritten_id", "Day.id"): 1,
        ("rewritten_id", "Bed.id"): 2,
        ("rewritten_end", "On.to"): 1,
        ("rewritten_end", "In.to"): 2,
    }
    view = graph.snapshot()
    assert sorted(view.scan("node:Day")["id"].to_pylist()) == ["18018", "18019"]
    ends = {row["id"]: row["dst"] for key in ("edge:On", "edge:In") for row in view.scan(key).to_pylist()}
    assert ends == {"e1": "18018", "e2": "18019", "e3": '["KEW","1042"]', "e4": '["RBGE","7"]'}


def test_an_id_that_differs_from_the_key_is_refused(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"record 1: Day\.id: differs from the id derived from the key"):
        load(graph, '{"type": "Day", "data": {"id": "2019-05-03", "day": "2019-05-02"}}')
    with pytest.raises(BadRowsError, match=r"Person\.id: differs"):
        load(graph, person(id="Ann"))


@pytest.mark.parametrize(
    "other",
    [
        '{"type": "Bed", "data": {"id": "KEW", "garden": "KEW", "serial": 2}}',
        '{"type": "Bed", "data": {"id": "7", "garden": "RBGE", "serial": 7}}\n'
        '{"type": "Bed", "data": {"id": "7", "garden": "KEW", "serial": 7}}',
    ],
)
def test_an_ambiguous_id_is_refused(graph: Graph, other: str) -> None:
    first = '{"type": "Bed", "data": {"id": "KEW", "garden": "KEW", "serial": 1}}'
    with pytest.raises(BadRowsError, match=r"record [12]: Bed\.id: the id '(KEW|7)' stands for more than one entity"):
        load(graph, first, other)


def test_a_spelling_that_equals_another_id_is_refused(graph: Graph) -> None:
    with pytest.raises(BadRowsError, match=r"Day\.id: the id '1970-01-03' means|Bed\.id: the id"):
        load(
            graph,
            '{"type": "Bed", "data": {"id": "[\\"a\\",\\"1\\"]", "garden": "a", "serial": 1}}',
            '{"type": "Bed", "data": {"id": "[\\"a\\",\\"1\\"]", "garden": "[\\"a\\",\\"1\\"]", "serial": 2}}',
        )


def test_edges_before_their_nodes_are_rewritten(graph: Graph, thresholds: Thresholds) -> None:
    thresholds(ndjson, BLOCK_BYTES=500)
    edges = [f'{{"edge": "On", "from": "p{i}", "to": "1970-01-02"}}' for i in range(100)]
    nodes = [person(name=f"p{i}") for i in range(100)]
    receipt = load(graph, *edges, *nodes, '{"type": "Day", "data": {"id": "1970-01-02", "day": 1}}')
    assert counts(receipt) == {("rewritten_id", "Day.id"): 1, ("rewritten_end", "On.to"): 100}
    assert set(graph.snapshot().scan("edge:On")["dst"].to_pylist()) == {"1"}


# ---- columns


def test_columnar_files_are_read_leniently(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "Person.csv").write_text("name,big,age,shoe\nann,1,old,42\nbob,2,3,43\n")
    receipt = graph.load(tmp_path / "Person.csv", mode="append", lenient=True)
    assert counts(receipt) == {("nulled_value", "Person.age"): 1, ("ignored_property", "Person.shoe"): 1}
    pa.parquet.write_table(
        pa.table({"name": ["cid"], "big": [1], "age": ["x"], "hat": [1]}), tmp_path / "Person.parquet"
    )
    receipt = graph.load(tmp_path / "Person.parquet", mode="append", lenient=True)
    assert counts(receipt) == {("nulled_value", "Person.age"): 1, ("ignored_property", "Person.hat"): 1}


SAME = (
    ("tags", [["a", None, "b"]], ("null_item", 1)),
    ("counts", [[1, None, 3]], ("null_item", 1)),
    ("counts", [["1", None]], ("null_item", 2)),
    ("counts", ["x"], ("nulled_value", 1)),
    ("age", ["31"], ("nulled_value", 1)),
    ("age", [2.5], ("nulled_value", 1)),
    ("face", ["x"], ("nulled_value", 1)),
    ("age", [2**31], "out of range for I32"),
    ("counts", [[2**63]], "out of range for I64"),
    ("born", ["2020-02-30"], "there is no day 2020-02-30"),
    ("born", [10**7], "outside the years 1 to 9999"),
    ("face", [[1.0]], "a vector must have 2 numbers"),
    ("face", [[1.0, None]], "every element of a vector must be a finite number"),
    ("height", [1e300], "the number is not finite, or too large"),
)
"""The given value of a property, and the expected coercion or error, for records and tables alike."""


@pytest.mark.parametrize(("name", "values", "said"), SAME)
@pytest.mark.parametrize("given", ["records", "table", "csv"])
def test_tables_are_coerced_as_records_are(
    graph: Graph, tmp_path: Path, given: str, name: str, values: list[Any], said: tuple[str, int] | str
) -> None:
    source: LoadSource
    if given == "records":
        source = person(**{name: values[0]}).encode()
    elif given == "table":
        kind = pa.list_(pa.uint64()) if values == [[2**63]] else None
        source = {"Person": pa.table({"name": ["ann"], "big": [1], name: pa.array(values, kind)})}
    else:
        cell = values[0] if isinstance(values[0], str) else json.dumps(values[0])
        quoted = cell.replace('"', '""')
        (tmp_path / "Person.csv").write_text(f'name,big,{name}\nann,1,"{quoted}"\n')
        source = tmp_path / "Person.csv"
        if (name, values) in (("age", ["31"]), ("born", [10**7])):
            return  # in CSV the first is a number, and a number is not a date
    if isinstance(said, str):
        with pytest.raises(BadRowsError, match=rf"Person\.{name}: .*{said}"):
            graph.load(source, mode="append", lenient=True)
        return
    receipt = graph.load(source, mode="append", lenient=True)
    assert counts(receipt) == {(said[0], f"Person.{name}"): said[1]}
    stored = graph.snapshot().scan("node:Person")[name].to_pylist()
    if said[0] == "null_item":
        assert stored == [[item if name == "tags" or isinstance(item, int) else None for item in values[0]]]
    else:
        assert stored == [None]


def test_non_finite_numbers_are_refused(graph: Graph) -> None:
    for number in (float("nan"), float("inf")):
        table = pa.table({"name": ["ann"], "big": [1], "height": [number]})
        with pytest.raises(BadRowsError, match=r"Person\.height: the number is not finite"):
            graph.load({"Person": table}, mode="append", lenient=True)


def test_null_items_are_counted_on_the_fast_path(graph: Graph) -> None:
    """Records without other coercions are parsed in blocks."""
    receipt = load(graph, *(person(name=f"p{i}", tags=["a", None]) for i in range(500)))
    assert counts(receipt) == {("null_item", "Person.tags"): 500}


@pytest.mark.parametrize("format", ["ndjson", "parquet", "arrow"])
def test_an_export_with_null_items_loads_back_leniently(graph: Graph, tmp_path: Path, format: str) -> None:
    load(graph, person(tags=["a", None], counts=[None, 1]))
    target = tmp_path / ("all.ndjson" if format == "ndjson" else "all")
    graph.export(target, format=format)
    with omnigraph.init(tmp_path / "copy", SCHEMA) as copy:
        with pytest.raises(BadRowsError, match="null is not allowed"):
            copy.load(target, mode="append")
        copy.load(target, mode="append", lenient=True)
        assert b"".join(copy.export()) == b"".join(graph.export())


def test_valid_input_reports_no_coercions(graph: Graph) -> None:
    assert load(graph, person(id="ann", age=3, tags=["a"])).coerced == ()


def test_every_kind_of_coercion_is_tested() -> None:
    """Every kind of coercion must occur in a test of this file."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in Leniency if f'("{kind.value}"' not in text] == []

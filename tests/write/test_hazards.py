"""Known hazards of writes in similar databases. Each test has the number of its hazard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.embed import Purpose
from omnigraph.errors import (
    BadRowsError,
    CompileError,
    ConstraintError,
    EmbeddingError,
    ParameterError,
    TypeCheckError,
)
from omnigraph.graph import Graph

Make = Callable[..., Graph]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Create a graph from a schema."""
    with ExitStack() as stack:
        yield lambda schema, **options: stack.enter_context(omnigraph.init(tmp_path / "graph", schema, **options))


class Letters:
    """An embedder that counts letters, and fails on request."""

    name = "letters"

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.broken = False

    def embed(self, texts: Sequence[str], dimension: int, *, purpose: Purpose) -> np.ndarray:
        if self.broken:
            raise EmbeddingError("no answer")
        assert purpose is Purpose.DOCUMENT
        self.calls.append(list(texts))
        return np.array([[1 + text.count(chr(97 + i)) for i in range(dimension)] for text in texts], np.float32)


def direction(text: str, dimension: int = 3) -> object:
    """The model's vector of a text, normalised to length 1."""
    (vector,) = Letters().embed([text], dimension, purpose=Purpose.DOCUMENT)
    return pytest.approx(list(vector / np.linalg.norm(vector)), abs=1e-6)


def values(graph: Graph, key: str, name: str) -> dict[str, object]:
    rows = graph.snapshot().scan(key, columns=["id", name]).to_pylist()
    return {row["id"]: row[name] for row in sorted(rows, key=lambda row: str(row["id"]))}


PEOPLE = """
node Person { name: String @key  age: I32?  score: F64 @default(0.5)  rate: F32?  seen: DateTime?  at: DateTime? }
edge Knows: Person -> Person { weight: I32?  @key(src, dst) }
"""


def test_h1_a_missing_required_parameter_is_an_error(make: Make) -> None:
    """The hazard: the condition is dropped, and the delete matches everything."""
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "ann" } insert Person { name: "bob" } }')
    head = graph.snapshot().commit
    for text in (
        "query q($name: String) { delete Person where name = $name }",
        "query q($name: String) { update Person set { age: 1 } where name = $name }",
        'query q($age: I32) { insert Person { name: "cid", age: $age } }',
    ):
        with pytest.raises(ParameterError, match="not given"):
            graph.mutate(text)
    assert graph.snapshot().commit == head
    # An omitted nullable parameter is null, and no comparison with null is true.
    assert graph.mutate("query q($name: String?) { delete Person where name = $name }").affected_nodes == 0


def test_h3_now_is_one_time_for_the_whole_request(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "ann", seen: now() } insert Person { name: "bob", seen: now() } }')
    first = values(graph, "node:Person", "seen")
    assert first["ann"] == first["bob"]
    text = """
    query q() {
        update Person set { seen: now() } where seen <= now()
        update Person set { at: now() } where seen = now()
    }
    """
    assert graph.mutate(text).affected_nodes == 4
    assert values(graph, "node:Person", "at") == values(graph, "node:Person", "seen")


def test_h9_a_where_on_an_edge_compares_exactly(make: Make) -> None:
    """The hazard: 2.7 is truncated to 2 before it is compared with an integer."""
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "a" } insert Knows { from: "a", to: "a", weight: 2 } }')
    assert graph.mutate("query q() { delete Knows where weight = 2.7 }").affected_edges == 0
    assert graph.mutate("query q() { update Knows set { weight: 3 } where weight < 2.7 }").affected_edges == 1
    assert graph.mutate("query q($w: F64) { delete Knows where weight = $w }", {"w": 3.0}).affected_edges == 1


def test_h10_a_whole_number_becomes_a_float(make: Make) -> None:
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "ann", score: 2, rate: -3 } insert Person { name: "bob" } }')
    graph.mutate('query q($n: I64) { update Person set { score: $n, rate: 4 } where name = "bob" }', {"n": 7})
    graph.mutate('query q($n: U32) { merge Person { name: "cid", score: $n } }', {"n": 8})
    assert values(graph, "node:Person", "score") == {"ann": 2.0, "bob": 7.0, "cid": 8.0}
    assert values(graph, "node:Person", "rate") == {"ann": -3.0, "bob": 4.0, "cid": None}


DOCS = """
node Doc {
    slug: String @key
    title: String?
    body: String
    body_vec: Vector(3) @embed("body")
    title_vec: Vector(4)? @embed("title")
}
"""


def test_h11_a_vector_is_computed_when_its_text_is_written(make: Make) -> None:
    model = Letters()
    graph = make(DOCS, embedder=model)
    graph.mutate(
        """
        query q($body: String) {
            insert Doc { slug: "a", body: $body, title: "cab" }
            insert Doc { slug: "b", body: "b" }
            create Doc { slug: "c", body: "aab" }
            merge Doc { slug: "d", body: "b", body_vec: [1, 2, 3] }
        }
        """,
        {"body": "aab"},
    )
    assert values(graph, "node:Doc", "body_vec") == {
        "a": direction("aab"),
        "b": direction("b"),
        "c": direction("aab"),
        "d": [1.0, 2.0, 3.0],
    }
    assert values(graph, "node:Doc", "title_vec") == {"a": direction("cab", 4), "b": None, "c": None, "d": None}
    assert sorted(map(sorted, model.calls)) == [["aab", "b"], ["cab"]]  # one call per property, no duplicate texts


def test_h11_a_vector_is_updated_with_its_text(make: Make) -> None:
    graph = make(DOCS, embedder=Letters())
    graph.mutate('query q() { insert Doc { slug: "a", body: "a", title: "a" } insert Doc { slug: "b", body: "b" } }')
    graph.mutate('query q() { update Doc set { body: "c" } where slug = "a" }')
    assert values(graph, "node:Doc", "body_vec") == {"a": direction("c"), "b": direction("b")}
    graph.mutate('query q() { update Doc set { title: null } where slug = "a" }')
    graph.mutate('query q() { merge Doc { slug: "b", title: "b" } }')
    assert values(graph, "node:Doc", "title_vec") == {"a": None, "b": direction("b", 4)}
    assert values(graph, "node:Doc", "body_vec") == {"a": direction("c"), "b": direction("b")}


def test_h11_a_vector_is_computed_from_a_default_text(make: Make) -> None:
    schema = 'node Doc { slug: String @key  body: String @default("aab")  vec: Vector(3)? @embed("body")  n: I32? }'
    graph = make(schema, embedder=Letters())
    graph.mutate('query q() { insert Doc { slug: "a" } merge Doc { slug: "b" } insert Doc { slug: "c", vec: null } }')
    graph.mutate('query q() { merge Doc { slug: "c", n: 1 } }')
    assert values(graph, "node:Doc", "vec") == {"a": direction("aab"), "b": direction("aab"), "c": None}


def test_h11_a_vector_that_cannot_be_computed_fails_the_write(make: Make) -> None:
    model = Letters()
    graph = make(DOCS, embedder=model)
    head = graph.snapshot().commit
    with pytest.raises(TypeCheckError, match="Doc needs body"):
        graph.mutate('query q() { insert Doc { slug: "a" } }')
    with pytest.raises(BadRowsError, match=r"Doc\.body_vec: is required, and there is no text in 'body'"):
        graph.mutate('query q() { insert Doc { slug: "a", body: " " } }')
    with pytest.raises(BadRowsError, match=r"Doc\.body: is required"):
        graph.mutate('query q($b: String?) { insert Doc { slug: "a", body: $b } }')
    model.broken = True
    with pytest.raises(EmbeddingError, match=r"Doc\.body_vec: no answer"):
        graph.mutate('query q() { insert Doc { slug: "a", body: "x" } }')
    assert graph.snapshot().commit == head


def test_h12_only_the_latest_version_of_an_entity_is_matched(make: Make) -> None:
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "ann", age: 1 } }')
    receipt = graph.mutate(
        """
        query q() {
            update Person set { age: 2 } where name = "ann"
            update Person set { score: 9 } where age = 1
            insert Person { name: "bob", age: 5 }
            insert Person { name: "bob", age: 6 }
            update Person set { score: 9 } where age = 5
        }
        """
    )
    assert receipt.affected_nodes == 3
    assert values(graph, "node:Person", "score") == {"ann": 0.5, "bob": 0.5}


def test_h14_duplicate_query_names_are_an_error(make: Make) -> None:
    graph = make(PEOPLE)
    text = 'query q() { insert Person { name: "a" } } query q() { insert Person { name: "b" } }'
    with pytest.raises(CompileError):
        graph.mutate(text, name="q")
    with pytest.raises(CompileError):
        graph.mutate("query q($n: String, $n: String) { insert Person { name: $n } }", {"n": "a"})


def test_h17_an_edge_that_shares_its_name_with_a_node_can_be_written(make: Make) -> None:
    graph = make("node Likes { name: String @key } edge Likes: Likes -> Likes { how: String?  @key(src, dst) }")
    graph.mutate(
        """
        query q() {
            insert Likes { name: "a" }
            insert node Likes { name: "b" }
            insert edge Likes { from: "a", to: "b" }
        }
        """
    )
    assert graph.mutate('query q() { update edge Likes set { how: "much" } where from = "a" }').affected_edges == 1
    assert values(graph, "edge:Likes", "how") == {'["a","b"]': "much"}
    receipt = graph.mutate('query q() { delete edge Likes where to = "b" }')
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)
    assert list(values(graph, "node:Likes", "name")) == ["a", "b"]


@pytest.mark.parametrize(
    "body",
    [
        'k: String @key  @check(k, "(")',
        "k: String @key  n: I32  @range(n, 5..1)",
        "k: String @key  tags: [String]?  @unique(k, tags)",
        "k: String @key  vec: Vector(2)?  @unique(k, vec)",
        "id: String @key",
        "k: String @key } edge E: N -> N { src: String",
        "k: String @key } edge E: N -> N { to: String",
    ],
)
def test_h18_schemas_that_no_write_could_satisfy_do_not_compile(body: str, make: Make, tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        make(f"node N {{ {body} }}")
    assert not (tmp_path / "graph").exists()


def test_h19_violations_have_a_fixed_order(make: Make) -> None:
    graph = make(
        """
        node B { k: String @key  a: I32?  b: I32?  @unique(a) @unique(b) @range(b, 0..9) }
        node A { k: String @key  a: I32?  @unique(a) }
        edge E: A -> B
        """
    )
    statements = ['insert E { from: "x", to: "y" }']
    statements += [f'insert B {{ k: "{k}", a: 1, b: 1 }} insert A {{ k: "{k}", a: 1 }}' for k in "pq"]
    for ordered in (statements, statements[::-1]):
        with pytest.raises(ConstraintError) as caught:
            graph.mutate(f"query q() {{ {' '.join(ordered)} }}")
        found = [(violation.kind, violation.subject) for violation in caught.value.violations]
        assert found == [
            ("unique", "A.a"),
            ("unique", "B.a"),
            ("unique", "B.b"),
            ("endpoint", "E.src"),
            ("endpoint", "E.dst"),
        ]
    wrong = statements[1].replace("b: 1", "b: 10")
    with pytest.raises(ConstraintError, match=r"B\.b: 'p': 10 is outside 0..9"):
        graph.mutate(f"query q() {{ {statements[2]} {wrong} }}")


def test_h21_edges_with_a_key_are_not_duplicated(make: Make, tmp_path: Path) -> None:
    graph = make("node P { k: String @key } edge Free: P -> P edge Tied: P -> P { n: I32?  @key(src, dst) }")
    lines = [{"type": "P", "data": {"k": "a"}}, *({"edge": e, "from": "a", "to": "a"} for e in ("Free", "Tied"))]
    file = tmp_path / "edges.ndjson"
    file.write_text("\n".join(map(json.dumps, lines)))
    for _ in range(2):
        graph.load(file, mode="merge")
        graph.mutate('query q() { insert Tied { from: "a", to: "a", n: 1 } }')
    assert values(graph, "edge:Tied", "n") == {'["a","a"]': 1}
    # Without a key, and without ids in the file, every load adds edges, as the guide says.
    assert graph.snapshot().pin("edge:Free").row_count == 2


def test_h22_a_minimum_cardinality_applies_to_nodes_that_had_an_edge(make: Make) -> None:
    graph = make("node A { k: String @key } node B { k: String @key } edge E: A -> B @card(1..2)")
    graph.mutate('query q() { insert A { k: "lonely" } insert A { k: "a" } insert B { k: "b" } }')
    graph.mutate('query q() { insert E { from: "a", to: "b" } }')
    with pytest.raises(ConstraintError, match="E @card: 'a'"):
        graph.mutate('query q() { delete E where from = "a" }')
    # `verify` finds the others.
    assert [str(violation) for violation in graph.verify().violations] == [
        "E @card: 'lonely': has 0 edges, allowed are 1..2"
    ]


def test_h18_a_node_may_have_properties_named_like_edge_endpoints(make: Make) -> None:
    graph = make("node Leg { src: I32  to: String  from: String?  dst: Bool?  @key(src, to) }")
    graph.mutate('query q() { insert Leg { src: 1, to: "b", from: "a" } merge Leg { src: 1, to: "b", dst: true } }')
    graph.mutate('query q() { update Leg set { from: "c" } where to = "b" and src = 1 and from = "a" }')
    rows = graph.snapshot().scan("node:Leg").to_pylist()
    assert rows == [{"id": '["1","b"]', "dst": True, "from": "c", "src": 1, "to": "b"}]


@pytest.mark.parametrize(
    "statement",
    [
        "insert Person { name: $x }",
        'insert Person { name: "ann", score: $x }',
        'create Person { name: "new", score: $x }',
        'merge Person { name: "ann", score: $x }',
        'update Person set { score: $x } where name = "ann"',
        'insert Knows { from: $x, to: "ann" }',
    ],
)
def test_h23_null_for_a_required_property_is_refused_by_name(statement: str, make: Make) -> None:
    """The default does not apply either, because the caller passes null."""
    graph = make(PEOPLE)
    graph.mutate('query q() { insert Person { name: "ann" } }')
    head = graph.snapshot().commit
    of = "String" if "name: $x" in statement or "from: $x" in statement else "F64"
    with pytest.raises(BadRowsError, match=r"^(Person\.name|Person\.score|Knows\.from): is required"):
        graph.mutate(f"query q($x: {of}?) {{ {statement} }}", {"x": None})
    assert graph.snapshot().commit == head


def test_h24_an_update_of_a_key_is_a_compile_error(make: Make) -> None:
    graph = make(
        "node P { a: String  b: String  c: String?  @key(a, b) } edge E: P -> P { d: Date  @key(src, dst, d) }"
    )
    for statement in (
        'update P set { a: "x" } where c is null',
        'update P set { b: "x", c: "y" } where c is null',
        'update E set { d: date("2020-01-01") } where from = "x"',
        'update E set { to: "x" } where from = "x"',
    ):
        with pytest.raises(TypeCheckError) as caught:
            graph.mutate(f"query q() {{ {statement} }}")
        assert caught.value.diagnostic == "T16"


def test_loads_and_mutations_store_the_same_values(make: Make, tmp_path: Path) -> None:
    """There is one definition of conversion: loads and mutations store a value in the same way."""
    schema = PEOPLE + "node Other { k: F32 @key  d: Date?  t: [I64]? }"
    graph = make(schema)
    graph.mutate(
        """
        query q($k: F32, $d: Date, $t: [I64]) {
            insert Other { k: $k, d: $d, t: $t }
            insert Person { name: "ann", seen: datetime("2020-01-01T00:00:00.001Z") }
        }
        """,
        {"k": 0.1, "d": "2020-02-29", "t": [1, 2]},
    )
    with omnigraph.init(tmp_path / "loaded", schema) as loaded:
        loaded.load(
            {
                "Other": pa.table({"k": [0.1], "d": ["2020-02-29"], "t": [[1, 2]]}),
                "Person": pa.table({"name": ["ann"], "seen": ["2020-01-01T00:00:00.001Z"]}),
            },
            mode="append",
        )
        for key in ("node:Other", "node:Person"):
            assert graph.snapshot().scan(key).equals(loaded.snapshot().scan(key))

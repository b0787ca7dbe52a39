"""The shape and its hash never change for an existing schema, also after extensions of the language."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from tests.lang.strategies_schema import valid_schemas

from omnigraph.lang.schema import compile_schema, format_schema, shape, shape_hash

SPEC = Path(__file__).resolve().parents[2] / "fixtures/spec"
GARDEN = (SPEC / "garden.pg").read_text(encoding="utf-8")


def test_the_garden_shape_equals_the_hand_written_one() -> None:
    expected = json.loads((SPEC / "garden.shape.json").read_text(encoding="utf-8"))
    compact = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
    actual = shape(compile_schema(GARDEN))
    # As text, because the order of members is part of the shape.
    assert json.dumps(actual, separators=(",", ":"), ensure_ascii=False) == compact
    assert shape_hash(compile_schema(GARDEN)) == "sha256:" + hashlib.sha256(compact.encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{"interfaces":[],"nodes":[],"edges":[]}'),
        (
            "node A {}",
            '{"interfaces":[],"nodes":[{"name":"A","annotations":[],"implements":[],"properties":[],"constraints":[]}],'
            '"edges":[]}',
        ),
        (
            'node A @z @a("é") @a("b", k=1.50) {}',
            '{"interfaces":[],"nodes":[{"name":"A","annotations":[{"name":"a","value":"b","kwargs":{"k":"1.50"}},'
            '{"name":"a","value":"é"},{"name":"z","value":null}],"implements":[],"properties":[],"constraints":[]}],'
            '"edges":[]}',
        ),
        (
            "node A { n: I32 @range(n, -1..) @range(n, ..2.5) }",
            '{"interfaces":[],"nodes":[{"name":"A","annotations":[],"implements":[],"properties":[{"name":"n",'
            '"prop_type":{"scalar":"I32","nullable":false,"list":false,"enum_values":null},"annotations":[],'
            '"property_constraints":[],"embed_source":null,"declared_directly":true,'
            '"satisfies_interface_properties":[]}],"constraints":[{"Range":{"property":"n",'
            '"min":{"Integer":-1},"max":null}},{"Range":{"property":"n","min":null,"max":{"Float":2.5}}}]}],"edges":[]}',
        ),
    ],
)
def test_small_shapes_have_the_expected_hash(text: str, expected: str) -> None:
    assert shape_hash(compile_schema(text)) == "sha256:" + hashlib.sha256(expected.encode()).hexdigest()


def test_extensions_appear_only_where_they_are_used() -> None:
    catalog = compile_schema(
        """
        node A @allow(L210, "r") {
            s: String @default("x")  t: DateTime @default(now())  u: [enum(b, a)] @allow(L212, "q")
            @index(s, kind="fts", stem=true)
        }
        edge E: A -> A @card_in(0..2) { w: F32  @key(src, dst)  @range(w, 0..1) }
        """
    )
    written = json.loads(json.dumps(shape(catalog)))
    node, edge = written["nodes"][0], written["edges"][0]
    assert list(node) == ["name", "annotations", "implements", "properties", "constraints", "allows"]
    assert node["allows"] == [{"code": "L210", "reason": "r"}]
    s, t, u = node["properties"]
    assert s["default"] == {"value": "x"}
    assert t["default"] == {"now": True}
    assert "default" not in u
    assert u["allows"] == [{"code": "L212", "reason": "q"}]
    assert u["prop_type"] == {"scalar": "String", "nullable": False, "list": True, "enum_values": ["a", "b"]}
    assert node["constraints"] == [{"Index": ["s"], "options": {"kind": "fts", "stem": "true"}}]
    assert edge["cardinality_in"] == {"min": 0, "max": 2}
    assert edge["constraints"][0] == {"Key": ["dst", "src"]}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("node A {}\nnode B {}", "/* order */ node B {} node A {} // and comments"),
        ("node A { a: enum(x, y) b: I32 }", "node A { b: I32 a: enum(y, x) }"),
        (
            "node A { a: String b: String @unique(a, b) }",
            "node A { a: String b: String @unique(b, a, b) @unique(a, b) }",
        ),
        ("node A {}\nedge E: A -> A", "node A {}\nedge E: A -> A @card(0..) @card_in(0..) {}"),
        ("node A { a: String }", 'node A @rename_from("B") { a: String @rename_from("b") }'),
        ("node A { a: enum(x, y) }", 'node A { a: enum(x, y @rename_from("z")) }'),
        ("node A { t: String v: Vector(3) @embed(t) }", 'node A { t: String v: Vector(3) @embed("t") }'),
    ],
)
def test_texts_with_the_same_meaning_have_the_same_hash(left: str, right: str) -> None:
    assert shape_hash(compile_schema(left)) == shape_hash(compile_schema(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("node A { a: String }", "node A { a: String? }"),
        ("node A { a: String @index }", "node A { a: String @index(a) }"),
        ("node A { a: String }", 'node A { a: String @description("x") }'),
        (
            "interface I { a: String } node A implements I {}",
            "interface I { a: String } node A implements I { a: String }",
        ),
        ("node A { a: I32 @range(a, 0..1) }", "node A { a: I32 @range(a, 0.0..1) }"),
    ],
)
def test_texts_with_another_meaning_have_another_hash(left: str, right: str) -> None:
    assert shape_hash(compile_schema(left)) != shape_hash(compile_schema(right))


@given(valid_schemas())
def test_formatting_does_not_change_the_hash(text: str) -> None:
    assert shape_hash(compile_schema(format_schema(text))) == shape_hash(compile_schema(text))

"""Valid schemas and their meaning; errors are complete and in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patience import at_most

from omnigraph.errors import CatalogError, ParseError
from omnigraph.lang.schema import check_schema, compile_schema
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Default,
    Embed,
    Index,
    IndexKind,
    Key,
    Range,
    Unique,
)
from omnigraph.lang.types import Scalar, ValueType

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
GARDEN = (FIXTURES / "spec/garden.pg").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((FIXTURES / "spec").glob("*.pg")), ids=lambda path: path.stem)
def test_the_specification_examples_compile(path: Path) -> None:
    assert check_schema(path.read_bytes(), path.name) == []


def test_the_garden_schema_has_the_expected_catalogue() -> None:
    garden = compile_schema(GARDEN)
    species = garden.nodes["Species"]
    assert list(species.properties) == ["frost_min", "label", "notes", "notes_vec", "rank", "taxon", "traits"]
    assert species.key == ("taxon",)
    assert species.constraints == (
        Check("taxon", "^[a-z]+(-[a-z]+)*$"),
        Index(("label",)),
        Index(("notes_vec",)),
        Index(("rank",)),
        Key(("taxon",)),
        Range("frost_min", -60.0, 30),
    )
    assert species.annotations == (Annotation("description", "A taxon we hold"),)
    assert species.properties["notes_vec"].embed == Embed("notes", "acme/embed-small")
    assert species.properties["rank"].type.enum_values == ("cultivar", "family", "genus", "species")
    assert species.properties["traits"].type == ValueType(Scalar.STRING, nullable=True, list=True)
    assert garden.interfaces["Labelled"].implementors == ("Species",)
    label = species.properties["label"]
    assert not label.declared_directly
    assert label.satisfies == (("Labelled", "label"),)
    assert label.property_constraints == ("index",)
    assert garden.nodes["Accession"].key == ("garden_code", "serial")
    assert garden.edges["IsA"].card == Cardinality(1, 1)
    assert garden.edges["DerivedFrom"].constraints == (Unique(("dst", "src")),)
    assert garden.edge_by_word("grownIn") is garden.edges["GrownIn"]


def test_extensions_are_in_the_catalogue() -> None:
    catalog = compile_schema(
        """
        node A {
            s: String @default("open")
            e: enum(x, y) @default(y)
            f: F32 @default(2)
            d: Date @default("2026-02-03T23:00:00-05:00")
            t: DateTime @default(now())
            tags: [enum(b, a)]
            v: Vector(3)
            @index(v, metric="cosine", partitions=4)
            @index(s, kind="btree")
            @index(s, kind="fts", stem=true)
        }
        edge E: A -> A @card(0..1) @card_in(2..3) {
            since: Date
            w: F64
            @key(since, dst, src)
            @range(w, 0..1)
        }
        """
    )
    node, edge = catalog.nodes["A"], catalog.edges["E"]
    assert node.properties["s"].default == Default("open")
    assert node.properties["e"].default == Default("y")
    assert node.properties["f"].default == Default(2.0)
    assert node.properties["d"].default == Default("2026-02-04")
    assert node.properties["t"].default == Default(now=True)
    assert node.properties["tags"].type == ValueType(Scalar.STRING, list=True, enum_values=("a", "b"))
    assert Index(("v",), IndexKind.AUTO, (("metric", "cosine"), ("partitions", "4"))) in node.constraints
    assert Index(("s",), IndexKind.FTS, (("stem", "true"),)) in node.constraints
    assert Index(("s",), IndexKind.BTREE) in node.constraints
    assert edge.key == ("dst", "since", "src")
    assert edge.card == Cardinality(0, 1)
    assert edge.card_in == Cardinality(2, 3)
    assert Range("w", 0, 1) in edge.constraints


def test_interface_properties_are_added_to_their_node_types() -> None:
    catalog = compile_schema(
        """
        interface I { a: String @index @description("from I")  b: I32? }
        interface J { b: I32? }
        node Own implements I { a: String @description("own") }
        node Both implements J, I, J {}
        """
    )
    own, both = catalog.nodes["Own"], catalog.nodes["Both"]
    assert own.properties["a"].annotations == (Annotation("description", "own"),)
    assert own.properties["a"].declared_directly
    assert own.properties["a"].satisfies == (("I", "a"),)
    assert own.constraints == ()
    assert both.implements == ("I", "J")
    assert both.properties["b"].satisfies == (("I", "b"), ("J", "b"))
    assert both.constraints == (Index(("a",)),)
    assert catalog.interfaces["I"].implementors == ("Both", "Own")


def test_property_form_and_body_form_are_the_same_constraint() -> None:
    form = compile_schema("node A { a: String @unique }").nodes["A"]
    body = compile_schema("node A { a: String @unique(a) }").nodes["A"]
    assert form.constraints == body.constraints == (Unique(("a",)),)
    assert form.properties["a"].property_constraints == ("unique",)
    assert body.properties["a"].property_constraints == ()


def test_an_interface_without_implementations_is_not_checked() -> None:
    assert check_schema('interface I { id: String? @key v: Vector(3) @embed("nothing") @instruction("x") }') == []


def test_the_first_error_is_the_first_in_the_text() -> None:
    text = "edge E: A -> Nowhere\nnode A { id: String }\nnode A {}"
    with pytest.raises(CatalogError) as raised:
        compile_schema(text, "x.pg")
    assert raised.value.diagnostic == "OG-SC-004"
    assert [error.diagnostic for error in check_schema(text)] == ["OG-SC-004", "OG-SC-003", "OG-SC-001"]


def test_all_errors_are_reported_once() -> None:
    text = "interface I { a: String? @key }\n" + "\n".join(f"node N{i} implements I {{}}" for i in range(50))
    assert [error.diagnostic for error in check_schema(text)] == ["OG-SC-017"]


def test_a_text_that_does_not_parse_has_one_error() -> None:
    errors = check_schema("node a { id: String")
    assert len(errors) == 1
    assert isinstance(errors[0], ParseError)


def test_the_order_of_declarations_does_not_matter() -> None:
    parts = GARDEN.split("\n\n")
    assert compile_schema("\n\n".join(reversed(parts))) == compile_schema(GARDEN)


def test_large_schemas_compile_quickly() -> None:
    lines = ["interface L { label: String @index }"]
    for i in range(2_000):
        lines.append(f'node N{i} implements L {{ k: String @key a: I32? e: enum(x, y) @check(k, "^n") }}')
        lines.append(f"edge E{i}: N{i} -> N{i * 7 % 2_000} @card(0..1)")
    with at_most(700):
        compile_schema("\n".join(lines))


def test_many_errors_are_reported_quickly() -> None:
    lines = [f"node N{i} {{}}" for i in range(2_000)] + [f"edge E{i}: N{i} -> Missing{i}" for i in range(2_000)]
    with at_most(1_400):
        assert len(check_schema("\n".join(lines))) == 100


@pytest.mark.parametrize(
    "indexes",
    [
        '@index(v, metric="cosine")  @index(v, kind="vector", metric="dot")',
        '@index(v, kind="vector")  @index(v, kind="vector", metric="cosine")',
        '@index(t, stem=false)  @index(t, kind="fts", stem=true)',
    ],
)
def test_conflicting_declarations_of_an_index_are_refused(indexes: str) -> None:
    """The default kind is that of the property type."""
    (error,) = check_schema(f"node A {{ v: Vector(4)  t: String  {indexes} }}")
    assert error.diagnostic == "OG-SC-020"


def test_an_index_of_an_interface_can_be_refined() -> None:
    """So a node type can refine an index of its interface."""
    interface = "interface Named { name: String @index }"
    assert not check_schema(f'{interface} node A implements Named {{ @index(name, kind="fts", language="german") }}')

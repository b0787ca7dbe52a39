"""The operation descriptor: the information about a query before it runs."""

from __future__ import annotations

import pytest
from tests.lang.fixtures import nursery
from tests.lang.query.checking import compiled

from omnigraph.lang.query import Operation, describe


def operation(body: str, params: str = "") -> Operation:
    return describe(compiled(body, params), nursery())


def names(refs: object) -> list[str]:
    assert isinstance(refs, list)
    return [f"{ref['kind']} {ref['type_name']}" for ref in refs]


def test_the_descriptor_has_the_documented_form() -> None:
    described = operation(
        "match { $s: Species } return { $s.taxon, $s.traits, $s.notes_vec, count($s) as n }".replace(
            "$s.notes_vec, count($s) as n", "$s.notes_vec"
        )
    ).to_json()
    assert described == {
        "result": [
            {"name": "s.taxon", "kind": "string", "nullable": False},
            {"name": "s.traits", "kind": "list", "item_kind": "string", "nullable": True},
            {"name": "s.notes_vec", "kind": "vector", "vector_dim": 3, "nullable": True},
        ],
        "reads": [{"kind": "node", "type_name": "Species"}],
        "writes": [],
    }


@pytest.mark.parametrize(
    ("expression", "kind", "nullable"),
    [
        ("$a.garden_code", "string", False),
        ("$a", "string", False),
        ("$s.rank", "string", False),
        ("$a.alive", "bool", False),
        ("$a.grams", "int", True),
        ("$a.serial", "bigint", False),
        ("$s.frost_min", "float", True),
        ("$a.price", "float", True),
        ("$a.collected", "date", True),
        ("now()", "datetime", False),
        ("12", "bigint", False),
        ('nearest($s.notes_vec, "x")', "float", True),
        ("type($a)", "string", False),
        # aggregates are nullable for every argument
        ("count($a)", "bigint", True),
        ("count(*)", "bigint", True),
        ("sum($a.price)", "float", True),
        ("sum($a.grams)", "bigint", True),
        ("avg($a.grams)", "float", True),
        ("min($a.grams)", "int", True),
        ("max($a.collected)", "date", True),
        ("min($s.taxon)", "string", True),
    ],
)
def test_result_fields_have_their_kind(expression: str, kind: str, nullable: bool) -> None:
    (field,) = operation(f"match {{ $a isA $s }} return {{ {expression} as x }}").result
    assert (field.name, field.kind.value, field.nullable) == ("x", kind, nullable)
    assert field.item_kind is None
    assert field.vector_dim is None


@pytest.mark.parametrize(
    ("expression", "item"), [("$s.heights", "int"), ("collect($a.collected)", "date"), ("[1.5]", "float")]
)
def test_list_fields_have_an_item_kind(expression: str, item: str) -> None:
    (field,) = operation(f"match {{ $a isA $s }} return {{ {expression} as x }}").result
    assert field.kind.value == "list"
    assert field.item_kind is not None
    assert field.item_kind.value == item


def test_optional_columns_are_nullable() -> None:
    (field,) = operation("match { $a: Accession  optional { $a isA $s } } return { $s.taxon }").result
    assert field.nullable


def test_parameters_keep_their_type() -> None:
    first, second = operation("match { $s: Species } return { $p, $v }", "$p: Date?, $v: Vector(7)").result
    assert (first.kind.value, first.nullable) == ("date", True)
    assert (second.kind.value, second.vector_dim) == ("vector", 7)


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("$s: Species", ["node Species"]),
        ("$a isA $s", ["node Accession", "node Species", "edge IsA"]),
        ("$s: Species  $g: Garden", ["node Garden", "node Species"]),
        ("$g: Garden  not { $c curates $g }", ["node Curator", "node Garden", "edge Curates"]),
        (
            "$g: Garden  not { $c curates $g  not { $c knows{1,} $_ } }  optional { $a grownIn $g }",
            ["node Accession", "node Curator", "node Garden", "edge Curates", "edge GrownIn", "edge Knows"],
        ),
        ("$x: Labelled", ["node Garden", "node Poster", "node Species"]),
        ("$c: Curator  $c (*) $_", ["node Curator", "node Garden", "edge Curates", "edge Knows", "edge Visit"]),
        ("$a $e:(derivedFrom | graftedOn) $b", ["node Accession", "edge DerivedFrom", "edge GraftedOn"]),
        ("$x: Planned", []),
    ],
)
def test_a_read_lists_the_types_that_it_reads(clauses: str, expected: list[str]) -> None:
    described = operation(f"match {{ {clauses} }} return {{ now() }}").to_json()
    assert names(described["reads"]) == expected
    assert described["writes"] == []


@pytest.mark.parametrize(
    ("statements", "reads", "writes"),
    [
        ("insert Garden { code: $p, name: $p, label: $p }", ["node Garden"], ["node Garden"]),
        ("merge Garden { code: $p }", ["node Garden"], ["node Garden"]),
        ("insert Curates { from: $p, to: $p }", ["node Curator", "node Garden", "edge Curates"], ["edge Curates"]),
        ("update Garden set { name: $p } where code = $p", ["node Garden"], ["node Garden"]),
        ("update Knows set { since: null } where from = $p", ["edge Knows"], ["edge Knows"]),
        ("delete Curates where to = $p", ["edge Curates"], ["edge Curates"]),
        (
            "delete Curator where badge = $p",
            ["node Curator", "edge Curates", "edge Knows", "edge Visit"],
            ["node Curator", "edge Curates", "edge Knows", "edge Visit"],
        ),
        (
            'insert edge Visit { from: $p, to: $p, day: date("2026-03-14") }  insert Visit { day: date("2026-03-14") }',
            ["node Curator", "node Garden", "node Visit", "edge Visit"],
            ["node Visit", "edge Visit"],
        ),
        (
            "delete Knows where from = $p  delete Knows where to = $p  delete Note where text = $p",
            ["node Note", "edge Knows", "edge Mentions"],
            ["node Note", "edge Knows", "edge Mentions"],
        ),
    ],
)
def test_a_mutation_lists_the_types_that_it_reads_and_writes(
    statements: str, reads: list[str], writes: list[str]
) -> None:
    described = operation(statements, "$p: String").to_json()
    assert described["result"] == []
    assert names(described["reads"]) == reads
    assert names(described["writes"]) == writes

"""Accepted schemas: ids are allocated in order, kept through renames and never reused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from tests.lang.strategies_schema import valid_schemas

from omnigraph.errors import CatalogError, PlanError
from omnigraph.lang.schema import (
    AcceptedSchema,
    TypeKind,
    accept,
    check_contract,
    compile_schema,
    creation_notes,
    dump_ir,
    dump_state,
    evolve,
    ir_hash,
    load_ir,
    load_state,
    resolve,
    schema_state,
    shape_hash,
)
from omnigraph.lang.schema.ir import to_json
from omnigraph.lang.schema.ir_reader import from_json

DOMAIN = "01J00000000000000000000000"
NODE, EDGE, INTERFACE = TypeKind.NODE, TypeKind.EDGE, TypeKind.INTERFACE


def accepted(text: str) -> AcceptedSchema:
    return accept(compile_schema(text), DOMAIN)


def evolved(before: AcceptedSchema, text: str) -> AcceptedSchema:
    return evolve(before, compile_schema(text))


def test_ids_are_allocated_in_a_fixed_order() -> None:
    graph = accepted(
        "edge E: B -> A { w: F32 }\nnode B { y: String  x: String }\nnode A implements I {}\ninterface I { l: String }"
    )
    assert graph.identity(INTERFACE, "I").type_id == 1
    assert graph.identity(NODE, "A").type_id == 2
    assert graph.identity(NODE, "B").type_id == 3
    assert graph.identity(EDGE, "E").type_id == 4
    assert graph.identity(INTERFACE, "I").properties == {"l": 5}
    assert graph.identity(NODE, "A").properties == {"l": 6}
    assert graph.identity(NODE, "B").properties == {"x": 7, "y": 8}
    assert graph.identity(EDGE, "E").properties == {"w": 9}
    assert [graph.identity(NODE, "A").incarnation, graph.identity(NODE, "B").incarnation] == [10, 11]
    assert graph.identity(EDGE, "E").incarnation == 12
    assert graph.identity(INTERFACE, "I").incarnation is None
    assert graph.next_id == 13


def test_table_paths_contain_only_numbers() -> None:
    graph = accepted("node A {}\nedge E: A -> A")
    assert graph.table_path(NODE, "A") == "nodes/0000000000000001-0000000000000003"
    assert graph.table_path(EDGE, "E") == "edges/0000000000000002-0000000000000004"
    with pytest.raises(ValueError, match="no table"):
        accepted("interface I {}").table_path(INTERFACE, "I")


def test_new_types_and_properties_get_new_ids() -> None:
    before = accepted("node A { a: String }\nnode B { b: String }")
    after = evolved(before, "node A { a: String  z: I32? }\nnode B { b: String  y: I32? }\nnode C { c: String }")
    assert after.identity(NODE, "C").type_id == before.next_id
    assert after.identity(NODE, "A").properties == {"a": 3, "z": 8}
    assert after.identity(NODE, "B").properties == {"b": 4, "y": 9}
    assert after.identity(NODE, "C").properties == {"c": 10}
    assert after.identity(NODE, "C").incarnation == 11


def test_renames_keep_ids_and_table_paths() -> None:
    before = accepted("node A { a: String @key }\nedge E: A -> A { w: F32 }")
    after = evolved(
        before,
        'node B @rename_from("A") { b: String @key @rename_from("a") }\n'
        'edge F: B -> B @rename_from("E") { v: F32 @rename_from("w") }',
    )
    assert after.table_path(NODE, "B") == before.table_path(NODE, "A")
    assert after.table_path(EDGE, "F") == before.table_path(EDGE, "E")
    assert after.identity(NODE, "B").properties == {"b": before.identity(NODE, "A").properties["a"]}
    assert after.next_id == before.next_id


def test_a_type_that_is_dropped_and_added_again_has_a_new_id() -> None:
    before = accepted("node A { a: String }\nnode B {}")
    again = evolved(evolved(before, "node B {}"), "node A { a: String }\nnode B {}")
    assert again.identity(NODE, "A").type_id != before.identity(NODE, "A").type_id
    assert again.table_path(NODE, "A") != before.table_path(NODE, "A")
    assert again.identity(NODE, "B") == before.identity(NODE, "B")


def test_renames_keep_the_order_of_a_composite_key() -> None:
    before = accepted("node A { a: String  b: String  @key(a, b) }")
    assert before.key_order(NODE, "A") == ("a", "b")
    after = evolved(before, 'node A { z: String @rename_from("a")  c: String @rename_from("b")  @key(c, z) }')
    assert after.key_order(NODE, "A") == ("z", "c")
    assert after.catalog.nodes["A"].key == ("c", "z")


def test_rename_hints_between_existing_names_are_ignored() -> None:
    before = accepted("node A { a: String  b: String }")
    swap = compile_schema('node A { a: String @rename_from("b")  b: String @rename_from("a") }')
    assert evolve(before, swap).identities == before.identities
    assert len(resolve(before.catalog, swap).notes) == 2


def test_swapping_two_names_takes_two_migrations() -> None:
    before = accepted("node A { a: String  b: String }")
    halfway = evolved(before, 'node A { c: String @rename_from("a")  d: String @rename_from("b") }')
    after = evolved(halfway, 'node A { b: String @rename_from("c")  a: String @rename_from("d") }')
    numbers, old = after.identity(NODE, "A").properties, before.identity(NODE, "A").properties
    assert (numbers["a"], numbers["b"]) == (old["b"], old["a"])


def test_edge_keys_begin_with_both_endpoints() -> None:
    graph = accepted("node A {}\nedge E: A -> A { b: String  a: String  @key(a, b, dst, src) }")
    assert graph.key_order(EDGE, "E") == ("src", "dst", "a", "b")
    assert accepted("node A {}").key_order(NODE, "A") is None


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("node A {}", 'node B @rename_from("X") {}', "OG-NM-101"),
        ("node A { a: I32 }", 'node A { b: I32 @rename_from("x") }', "OG-NM-101"),
        ("node A {}\nedge E: A -> A", 'node A {}\nnode B @rename_from("E") {}', "OG-NM-102"),
        ("node A {}", 'node B @rename_from("A") {}\nnode C @rename_from("A") {}', "OG-NM-103"),
        ("node A {}", 'node A {}\nnode C @rename_from("A") {}', "OG-NM-103"),
        ("node A { a: I32 }", 'node A { a: I32  b: I32? @rename_from("a") }', "OG-NM-103"),
        ("node A { a: I32 }\nnode B {}", 'node A { a: I32 }\nnode B { b: I32? @rename_from("a") }', "OG-OW-101"),
        ("node A { a: I32 }", 'node A { a: I32 }\nnode B { b: I32? @rename_from("a") }', "OG-OW-102"),
    ],
)
def test_impossible_rename_hints_are_refused(before: str, after: str, code: str) -> None:
    with pytest.raises(PlanError) as raised:
        evolved(accepted(before), after)
    assert raised.value.diagnostic == code
    assert raised.value.hint


def test_rename_hints_of_a_new_graph_have_no_effect_and_are_noted() -> None:
    catalog = compile_schema('node A @rename_from("B") { a: I32 @rename_from("b") }')
    assert len(creation_notes(catalog)) == 2
    assert accept(catalog, DOMAIN).catalog == compile_schema("node A { a: I32 }")


@given(valid_schemas())
def test_stored_schemas_round_trip(text: str) -> None:
    graph = accepted(text)
    assert load_ir(dump_ir(graph)) == graph
    assert from_json(json.loads(json.dumps(to_json(graph)))) == graph
    assert shape_hash(graph.catalog) == shape_hash(compile_schema(text))


@given(valid_schemas())
def test_unchanged_declarations_keep_their_ids(text: str) -> None:
    graph = accepted(text)
    again = evolve(graph, compile_schema(text))
    assert again == graph
    assert ir_hash(again) == ir_hash(graph)


@given(valid_schemas(), valid_schemas())
def test_ids_are_kept_and_never_reused(first: str, second: str) -> None:
    before = accepted(first)
    desired = compile_schema(second)
    resolution = resolve(before.catalog, desired)
    if resolution.problems:
        with pytest.raises(PlanError):
            evolve(before, desired)
        return
    after = evolve(before, desired)
    assert load_ir(dump_ir(after)) == after
    for key, identity in after.identities.items():
        former = resolution.types.get(key)
        if former is None:
            assert identity.type_id >= before.next_id
            continue
        old = before.identities[key[0], former]
        assert (identity.type_id, identity.incarnation) == (old.type_id, old.incarnation)
        for name, number in identity.properties.items():
            was = resolution.properties[key].get(name)
            assert number == old.properties[was] if was is not None else number >= before.next_id


def test_the_stored_form_is_as_documented() -> None:
    graph = accepted(
        "interface I { l: String }\n"
        'node A implements I { t: String  v: Vector(2) @embed(t, model="m") @key(t) }\n'
        "edge E: A -> A @card(0..1) { @unique(src, dst) }"
    )
    ir = json.loads(dump_ir(graph))
    assert list(ir) == ["ir_version", "schema_identity_domain", "next_identity_id", "interfaces", "nodes", "edges"]
    assert (ir["ir_version"], ir["schema_identity_domain"], ir["next_identity_id"]) == (2, DOMAIN, 10)
    node, edge = ir["nodes"][0], ir["edges"][0]
    assert node["implements"] == [{"type_id": 1, "type_name": "I"}]
    label, text, vector = node["properties"]
    assert label["satisfies_interface_properties"] == [
        {"owner_type_id": 1, "owner_type_name": "I", "property_id": 4, "property_name": "l"}
    ]
    reference = {"owner_type_id": 2, "owner_type_name": "A", "property_id": text["property_id"], "property_name": "t"}
    assert vector["embed_source"] == {"source": reference, "model": "m"}
    assert vector["prop_type"]["scalar"] == {"Vector": 2}
    assert node["constraints"] == [{"kind": "key", "fields": [{"kind": "property", **reference}]}]
    assert edge["cardinality"] == {"min": 0, "max": 1}
    assert edge["constraints"][0]["fields"][0] == {
        "kind": "system",
        "stable_table_id": 3,
        "table_type_name": "E",
        "table_incarnation_id": 9,
        "role": "dst",
    }


@pytest.mark.parametrize(
    "damage",
    [
        lambda ir: ir.pop("nodes"),
        lambda ir: ir.update(ir_version=1),
        lambda ir: ir.update(next_identity_id=2),
        lambda ir: ir.update(extra=1),
        lambda ir: ir["nodes"][0].update(type_id="1"),
        lambda ir: ir["nodes"][0]["properties"].reverse(),
        lambda ir: ir["nodes"][0]["properties"][0]["prop_type"].update(scalar="I33"),
        lambda ir: ir["edges"][0]["from_type"].update(type_id=99),
        lambda ir: ir["edges"][0]["to_type"].update(type_name="Z"),
        lambda ir: ir.update(nodes=[]),
        lambda ir: ir["nodes"].append(ir["nodes"][0]),
    ],
)
def test_a_damaged_stored_schema_is_refused(damage: object) -> None:
    ir = json.loads(dump_ir(accepted("node A { a: String  b: I32 }\nedge E: A -> A")))
    damage(ir)  # type: ignore[operator]
    with pytest.raises(CatalogError) as raised:
        from_json(ir)
    assert raised.value.diagnostic == "OG-SC-040"


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"ir_version": NaN}', "[" * 100_000])
def test_text_that_is_not_a_stored_schema_is_refused(text: str) -> None:
    with pytest.raises(CatalogError):
        load_ir(text)


SOURCE = "node A { a: String }\n"


def test_the_three_schema_files_must_match() -> None:
    graph = accepted(SOURCE)
    ir, state = dump_ir(graph), dump_state(schema_state(graph))
    assert load_state(state) == schema_state(graph)
    assert json.loads(state) == {
        "format_version": 2,
        "schema_shape_hash": shape_hash(graph.catalog),
        "schema_ir_hash": ir_hash(graph),
        "schema_identity_version": 2,
        "schema_identity_domain": DOMAIN,
    }
    assert check_contract("// a comment is fine\n" + SOURCE, ir, state) == graph
    other = accept(compile_schema(SOURCE), "01J00000000000000000000001")
    apart = [
        ("node A { a: String? }", ir, state),
        ("node A {", ir, state),
        (SOURCE, dump_ir(other), state),
        (SOURCE, dump_ir(accepted("node A {}")), state),
        (SOURCE, ir, dump_state(schema_state(other))),
        (SOURCE, ir, state.replace('"format_version": 2', '"format_version": 3')),
        (SOURCE, ir, "{}"),
    ]
    for files in apart:
        with pytest.raises(CatalogError) as raised:
            check_contract(*files)
        assert raised.value.diagnostic == "OG-SC-041"

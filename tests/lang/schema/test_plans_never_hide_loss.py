"""Schema changes: every step has a tier, no step that loses data is safe, and refusals have a hint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from tests.lang.strategies_schema import schema_pairs, valid_schemas

from omnigraph.errors import PlanError
from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.schema import AcceptedSchema, Catalog, TypeKind, accept, compile_schema, resolve, shape_hash
from omnigraph.lang.schema.identity import types_of
from omnigraph.lang.schema.migrate import DropMode, Plan, Tier, plan
from omnigraph.lang.schema.migrate.diff_property import WIDENINGS

DOMAIN = "01J00000000000000000000000"


def planned(before: str, after: str, *, allow_data_loss: bool = False) -> Plan:
    return plan(accept(compile_schema(before), DOMAIN), compile_schema(after), allow_data_loss=allow_data_loss)


def kinds(result: Plan) -> list[tuple[str, str]]:
    return [(step.kind, step.tier.value) for step in result.steps]


# ---- properties of all plans ----


@given(valid_schemas())
def test_equal_schemas_give_an_empty_plan(text: str) -> None:
    result = planned(text, text)
    assert result.steps == ()
    assert result.supported
    assert result.tier is Tier.SAFE


@given(schema_pairs())
def test_no_step_of_a_small_change_that_loses_data_is_safe(pair: tuple[str, str]) -> None:
    first, second = pair
    _never_hides_loss(first, second)
    _never_hides_loss(second, first)
    same = shape_hash(compile_schema(first)) == shape_hash(compile_schema(second))
    assert (not planned(first, second).steps) == same


@given(valid_schemas(), valid_schemas())
def test_no_step_that_loses_data_is_safe(first: str, second: str) -> None:
    _never_hides_loss(first, second)
    _never_hides_loss(second, first)


def _never_hides_loss(first: str, second: str) -> None:
    before, desired = accept(compile_schema(first), DOMAIN), compile_schema(second)
    result = plan(before, desired)
    if _loses_data(before, desired):
        assert not result.supported or result.tier is not Tier.SAFE
    if _drops(before, desired):
        assert not result.supported or result.tier is Tier.DESTRUCTIVE


def _drops(before: AcceptedSchema, desired: Catalog) -> bool:
    """Whether a table or a column is dropped."""
    resolution = resolve(before.catalog, desired)
    kept = {(kind, former): name for (kind, name), former in resolution.types.items()}
    for (kind, name), declaration in types_of(before.catalog):
        if kind is TypeKind.INTERFACE:
            continue
        if (kind, name) not in kept:
            return True
        properties = resolution.properties[kind, kept[kind, name]].values()
        if set(declaration.properties) - set(properties):
            return True
    return False


def _loses_data(before: AcceptedSchema, desired: Catalog) -> bool:
    """Whether data is lost: by a drop, or by a column that cannot hold its old values. The rules are independent."""
    if _drops(before, desired):
        return True
    resolution = resolve(before.catalog, desired)
    current = dict(types_of(desired))
    for key, former in resolution.types.items():
        if key[0] is TypeKind.INTERFACE:
            continue
        old_type = dict(types_of(before.catalog))[key[0], former]
        for name, former_name in resolution.properties[key].items():
            old, new = old_type.properties[former_name].type, current[key].properties[name].type
            same = (old.scalar, old.list, old.dim) == (new.scalar, new.list, new.dim)
            if not same and ((old.scalar, new.scalar) not in WIDENINGS or old.list != new.list):
                return True
            if new.enum_values is not None and not set(old.enum_values or ("",)) <= set(new.enum_values):
                return True
            if old.nullable and not new.nullable:
                return True
    return False


@given(valid_schemas(), valid_schemas())
def test_an_empty_plan_means_the_same_shape(first: str, second: str) -> None:
    result = planned(first, second)
    same = shape_hash(compile_schema(first)) == shape_hash(compile_schema(second))
    assert (not result.steps) == same
    assert "OG-BC-103" not in {step.code for step in result.steps}


@given(valid_schemas(), valid_schemas())
def test_every_step_can_be_shown(first: str, second: str) -> None:
    result = planned(first, second)
    lines = result.lines()
    assert len(lines) >= max(1, len(result.steps))
    document = json.loads(json.dumps(result.to_json()))
    assert document["supported"] == result.supported
    for step, entry in zip(result.steps, document["steps"], strict=True):
        assert entry["kind"] == step.kind
        assert entry["tier"] in ("safe", "validated", "destructive")
        assert step.code is None or not CODES[step.code].reserved
    for refusal in result.refusals:
        assert refusal.code in CODES
        assert refusal.reason
        assert refusal.hint


@given(valid_schemas(), valid_schemas())
def test_steps_are_ordered_by_kind_of_type(first: str, second: str) -> None:
    result = planned(first, second)
    order: list[object] = [kind.value for kind in TypeKind]
    positions = [order.index(entry["type_kind"]) for step in result.steps if "type_kind" in (entry := step.to_json())]
    assert positions == sorted(positions)


# ---- single changes ----

SAFE = [
    ("node A {}", "node A {}\nnode B { required: String }", ["add_type"]),
    ("node A {}", 'node B @rename_from("A") {}', ["rename_type"]),
    ("node A {}", "node A { a: String? }", ["add_property"]),
    ("node A {}", 'node A { a: String? @default("x") }', ["add_property"]),
    ("node A { a: I32 }", 'node A { b: I32 @rename_from("a") }', ["rename_property"]),
    ("node A { a: I32 }", 'node A { b: I64 @rename_from("a") }', ["rename_property", "widen_property"]),
    ("node A { a: String }", "node A { a: String? }", ["change_nullability"]),
    ("node A { a: U32 b: U32 c: F32 }", "node A { a: U64 b: I64 c: F64 }", ["widen_property"] * 3),
    ("node A { a: enum(x) }", "node A { a: enum(x, y) }", ["extend_enum"]),
    ("node A { a: String @unique }", "node A { a: String }", ["remove_constraint"]),
    ("node A { a: String @index }", "node A { a: String }", ["remove_constraint"]),
    ("node A { a: String }", "node A { a: String @index }", ["add_constraint"]),
    ("node A { a: String @unique }", "node A { a: String @unique(a) }", ["change_constraint_form"]),
    ("node A { a: String @key(a) }", "node A { a: String @key }", ["change_constraint_form"]),
    ("node A { a: I32 @range(a, 0..5) }", "node A { a: I32 @range(a, -1..) }", ["change_constraint"]),
    (
        'node A { v: Vector(3) @index(v, metric="l2") }',
        'node A { v: Vector(3) @index(v, metric="dot") }',
        ["change_constraint"],
    ),
    ("node A {}\nedge E: A -> A @card(1..2)", "node A {}\nedge E: A -> A @card(0..)", ["change_cardinality"]),
    ("node A {}", 'node A @description("x") @anything("y") {}', ["update_type_metadata"]),
    ("node A { a: I32 }", 'node A { a: I32 @note("x") }', ["update_property_metadata"]),
    ("node A { a: I32 @default(1) }", "node A { a: I32 @default(2) }", ["change_default"]),
    ("node A { a: I32 @default(1) }", "node A { a: I32 }", ["change_default"]),
    ("node A { t: String v: Vector(3)? }", "node A { t: String v: Vector(3)? @embed(t) }", ["change_embed"]),
    (
        "interface I { a: I32 }\nnode A { a: I32 }",
        "interface I { a: I32 }\nnode A implements I { a: I32 }",
        ["change_implements", "change_property_origin"],
    ),
    (
        "interface I { a: I32 }\nnode A implements I { a: I32 }",
        "interface I { a: I32 }\nnode A implements I {}",
        ["change_property_origin"],
    ),
    ("interface I { a: I32 }", "interface I { b: String }", ["add_property", "drop_property"]),
    ("interface I { a: I32 }", "interface I { a: [String] }", ["change_property_type"]),
    ("interface I {}", "", ["drop_type"]),
]


@pytest.mark.parametrize(("before", "after", "steps"), SAFE)
def test_safe_changes_have_safe_steps(before: str, after: str, steps: list[str]) -> None:
    assert kinds(planned(before, after)) == [(step, "safe") for step in steps]


VALIDATED = [
    ("node A {}", "node A { a: I32 @default(1) }", ["add_property"]),
    ("node A { a: String? }", "node A { a: String }", ["change_nullability"]),
    ("node A { a: String }", "node A { a: String @unique }", ["add_constraint"]),
    ("node A { a: String }", 'node A { a: String @check(a, "x") }', ["add_constraint"]),
    ("node A { a: I32 }", "node A { a: I32 @range(a, 0..) }", ["add_constraint"]),
    ("node A { a: I32 @range(a, 0..) }", "node A { a: I32 @range(a, 0..5) }", ["change_constraint"]),
    ('node A { a: String @check(a, "x") }', 'node A { a: String @check(a, "y") }', ["change_constraint"]),
    ("node A {}\nedge E: A -> A", "node A {}\nedge E: A -> A @card(0..1)", ["change_cardinality"]),
    ("node A {}\nedge E: A -> A", "node A {}\nedge E: A -> A @card_in(1..)", ["change_cardinality"]),
    ("node A { a: enum(x, y) }", "node A { a: enum(x) }", ["narrow_enum"]),
    ("node A { a: [enum(x, y)] }", "node A { a: [enum(x)] }", ["narrow_enum"]),
    ("node A { a: enum(x, y) }", 'node A { a: enum(x, z @rename_from("y")) }', ["rename_enum_value"]),
    ("node A { a: String }", "node A { a: enum(x) }", ["change_property_type"]),
    ("node A { a: enum(x) }", "node A { a: String }", ["change_property_type"]),
]


@pytest.mark.parametrize(("before", "after", "steps"), VALIDATED)
def test_validated_changes_have_validated_steps(before: str, after: str, steps: list[str]) -> None:
    assert kinds(planned(before, after)) == [(step, "validated") for step in steps]


REFUSED = [
    ("node A {}", "node A { a: I32 }", "OG-MF-103"),
    ("node A { a: I64 }", "node A { a: I32 }", "OG-MF-106"),
    ("node A { a: I32 }", "node A { a: F64 }", "OG-MF-106"),
    ("node A { a: String }", "node A { a: [String] }", "OG-MF-106"),
    ("node A { a: Vector(3) }", "node A { a: Vector(4) }", "OG-MF-106"),
    ("node A { a: enum(x) }", "node A { a: [enum(x)] }", "OG-MF-106"),
    ("node A { a: String }", "node A { a: String @key }", "OG-BC-101"),
    ("node A { a: String @key }", "node A { a: String }", "OG-BC-101"),
    ("node A { a: String @key b: I32 }", "node A { b: I32 }", "OG-BC-101"),
    ("node A { a: F32 @key }", "node A { a: F64 @key }", "OG-BC-102"),
    ("node A {}\nnode B {}\nedge E: A -> A", "node A {}\nnode B {}\nedge E: A -> B", "OG-ED-101"),
]


@pytest.mark.parametrize(("before", "after", "code"), REFUSED)
def test_refused_changes_have_their_code(before: str, after: str, code: str) -> None:
    result = planned(before, after)
    assert not result.supported
    assert [step.code for step in result.refusals] == [code]
    with pytest.raises(PlanError) as raised:
        result.raise_refusal()
    assert raised.value.diagnostic == code
    assert raised.value.hint


def test_the_first_refusal_tells_how_many_more_there_are() -> None:
    before = "node A { a: String @key  b: I32?  c: I32? }"
    for after, more in (
        ("node A { a: String @key  b: String?  c: I32? }", None),
        ("node A { a: String @key  b: String?  c: String? }", "1 more step is refused: see 'schema plan'"),
        ("node A { a: String @key  b: String?  c: String?  d: I32 }", "2 more steps are refused: see 'schema plan'"),
    ):
        with pytest.raises(PlanError) as raised:
            planned(before, after).raise_refusal()
        hint = raised.value.hint or ""
        assert "b" in raised.value.message
        assert hint.endswith(more) if more else "refused" not in hint


def test_dropping_a_property_drops_its_constraints() -> None:
    result = planned("node A { a: String @unique b: I32 @index(a, b) }", "node A { b: I32 }")
    assert result.supported
    assert [step.kind for step in result.steps] == ["drop_property", "remove_constraint", "remove_constraint"]


def test_drops_are_soft_unless_data_loss_is_allowed() -> None:
    before, after = "node A { a: I32 }\nnode B {}", "node A {}"
    soft, hard = planned(before, after), planned(before, after, allow_data_loss=True)
    assert [step.to_json()["mode"] for step in soft.steps] == [DropMode.SOFT] * 2
    assert [step.to_json()["mode"] for step in hard.steps] == [DropMode.HARD] * 2
    assert soft.tier is hard.tier is Tier.DESTRUCTIVE
    assert [step.code for step in soft.steps] == ["OG-DS-104", "OG-DS-102"]


def test_renamed_types_and_properties_keep_their_constraints() -> None:
    result = planned(
        "node A { a: String b: I32 @unique(a, b) @range(b, 0..1) }\nedge E: A -> A",
        'node N @rename_from("A") { x: String @rename_from("b_") y: I32 @rename_from("b") z: String @rename_from("a") '
        "@unique(y, z) @range(y, 0..1) }\nedge E: N -> N".replace('x: String @rename_from("b_") ', ""),
    )
    assert [step.kind for step in result.steps] == ["rename_type", "rename_property", "rename_property"]


def test_steps_of_a_type_have_a_fixed_order() -> None:
    result = planned(
        "node A { a: I32 b: I32 gone: I32 u: String @unique }\nnode Z {}\nedge E: A -> Z",
        'node N @rename_from("A") @description("d") { a2: I64 @rename_from("a") b: I32? u: String new: I32? @index }\n'
        "node Z {}\nedge E: N -> Z @card(0..1)",
    )
    assert [step.kind for step in result.steps] == [
        "rename_type",
        "update_type_metadata",
        "rename_property",
        "widen_property",
        "change_nullability",
        "add_property",
        "drop_property",
        "remove_constraint",
        "add_constraint",
        "change_cardinality",
    ]
    widen = result.steps[3].to_json()
    assert (widen["type_name"], widen["property_name"]) == ("N", "a2")


def test_allowed_codes_are_shown_with_their_reason() -> None:
    on_type = planned("node A { a: I32 }", 'node A @allow(OG-DS-104, "never used") {}')
    assert "(allowed: never used)" in on_type.lines()[1]
    assert on_type.steps[1].to_json()["allowed"] == "never used"
    on_property = planned("node A { a: I32? }", 'node A { a: I32 @allow(OG-MF-104, "all set") }')
    assert on_property.steps[0].allowed == "all set"


def test_steps_have_the_documented_json_members() -> None:
    result = planned(
        "node A { a: enum(x) gone: I32 }\nnode Drop {}",
        'node A @description("d") { a: enum(x, y) @index new: I32? }\nnode Add {}',
    )
    entries = [{**step.to_json()} for step in result.steps]
    assert entries == [
        {
            "kind": "update_type_metadata",
            "type_kind": "node",
            "name": "A",
            "annotations": [{"name": "description", "value": "d"}],
            "tier": "safe",
        },
        {
            "kind": "extend_enum",
            "type_kind": "node",
            "type_name": "A",
            "property_name": "a",
            "added_values": ["y"],
            "tier": "safe",
        },
        {
            "kind": "add_property",
            "type_kind": "node",
            "type_name": "A",
            "property_name": "new",
            "property_type": {"scalar": "I32", "nullable": True, "list": False, "enum_values": None},
            "tier": "safe",
        },
        {
            "kind": "drop_property",
            "type_kind": "node",
            "type_name": "A",
            "property_name": "gone",
            "mode": "soft",
            "tier": "destructive",
            "code": "OG-DS-104",
        },
        {
            "kind": "add_constraint",
            "type_kind": "node",
            "type_name": "A",
            "constraint": {"Index": ["a"]},
            "tier": "safe",
        },
        {"kind": "add_type", "type_kind": "node", "name": "Add", "tier": "safe"},
        {
            "kind": "drop_type",
            "type_kind": "node",
            "name": "Drop",
            "mode": "soft",
            "tier": "destructive",
            "code": "OG-DS-102",
        },
    ]
    assert result.lines()[-1] == "drop node 'Drop' (soft) [OG-DS-102, destructive]"
    assert planned("node A {}", "node A {}").lines() == ["no schema changes"]


def test_a_plan_with_notes_only_reports_no_changes() -> None:
    made = planned("node A { x: String }", 'node A { x: String @rename_from("y") }')
    assert made.steps == ()
    assert [line.partition(":")[0] for line in made.lines()] == ["no schema changes", "note"]

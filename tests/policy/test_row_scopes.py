"""The rows and properties of an actor: conditions, masks, and schemas in which types have other names."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.access import Action
from omnigraph.evaluate import Request, holds, table_rows
from omnigraph.lang.query import ir
from omnigraph.lang.query.walk import walk
from omnigraph.lang.schema import AcceptedSchema, accept, compile_schema, evolve
from omnigraph.policy import Policy
from omnigraph.restricted.row_scope import Rows, RowScope

SCHEMA = """
node Person {
    name: String @key
    owner: String?
    team: String?
    salary: I32?
    bio: String?
    vec: Vector(4)? @embed("bio")
}
node Company { name: String @key  owner: String? }
edge WorksAt: Person -> Company
edge Knows: Person -> Person
"""


def schema(text: str = SCHEMA) -> AcceptedSchema:
    return accept(compile_schema(text), "test")


def policy(*row_rules: dict[str, Any], masks: tuple[dict[str, Any], ...] = (), **allow: Any) -> Policy:
    everyone = {"actors": {"group": "all"}, "actions": ["read", "export", "change"]} | allow
    return Policy.read(
        {
            "version": 1,
            "groups": {"all": ["kim", "lee", "mia"], "crew": ["kim", "lee"], "red": ["kim"], "blue": ["lee"]},
            "rules": [{"id": "all", "allow": everyone}],
            "row_rules": list(row_rules),
            "masks": list(masks),
        }
    )


def rule(
    rule_id: str, group: str, type_name: str = "Person", *actions: str, where: str | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"id": rule_id, "type": type_name, "actions": list(actions or ("read",))}
    return made | {"actors": {"group": group}} | ({} if where is None else {"where": where})


def scope_of(
    found: Policy, actor: str, action: Action = Action.READ, accepted: AcceptedSchema | None = None, **more: Any
) -> RowScope:
    accepted = accepted or schema()
    return found.rows(actor, action, "main", accepted, more.get("reference", accepted))


def selected(scope: RowScope, rows: list[dict[str, Any]]) -> list[bool]:
    """The persons that a scope selects."""
    found = scope.types["node:Person"]
    if isinstance(found, Rows):
        return [found is Rows.ALL] * len(rows)
    fields = [pa.field(name, pa.utf8()) for name in ("id", "name", "owner", "team")] + [pa.field("salary", pa.int32())]
    table = pa.Table.from_pylist([row | {"id": row["name"]} for row in rows], schema=pa.schema(fields))
    kept: list[bool] = holds(found, table_rows(table), Request(scope.params, 0)).tolist()
    return kept


def random_rows(rng: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "name": f"p{number}",
            "owner": rng.choice(["kim", "lee", "mia", None]),
            "team": rng.choice(["red", "blue", "all", "none", None]),
            "salary": rng.choice([None, 1, 5, 9]),
        }
        for number in range(rng.randint(0, 12))
    ]


Expected = Callable[[dict[str, Any], str, tuple[str, ...]], bool]
RULES: dict[str, tuple[str, str | None, Expected]] = {
    "own": ("crew", "$.owner = $actor", lambda row, actor, groups: row["owner"] == actor),
    "team": ("all", "$.team in $groups", lambda row, actor, groups: row["team"] in groups),
    "low": ("red", "$.salary < 5", lambda row, actor, groups: row["salary"] is not None and row["salary"] < 5),
    "every": ("blue", None, lambda row, actor, groups: True),
    "named": ("red", '$.name = "p3" or $.id = "p4"', lambda row, actor, groups: row["name"] in ("p3", "p4")),
}


@pytest.mark.parametrize("cases", [150, pytest.param(5_000, marks=pytest.mark.soak)])
def test_rules_of_a_type_and_an_actor_are_alternatives(cases: int) -> None:
    rng = random.Random(cases)
    accepted, kept, total = schema(), 0, 0
    for _ in range(cases):
        names = rng.sample(list(RULES), rng.randint(0, len(RULES)))
        found = policy(*(rule(name, RULES[name][0], where=RULES[name][1]) for name in names))
        rows = random_rows(rng)
        for actor in ("kim", "lee", "mia"):
            groups = found.bundle.groups_of(actor)
            expected = [
                not names or any(RULES[name][2](row, actor, groups) for name in names if RULES[name][0] in groups)
                for row in rows
            ]
            assert selected(scope_of(found, actor, accepted=accepted), rows) == expected, (names, actor)
            kept, total = kept + sum(expected), total + len(rows)
    assert 0 < kept < total


def test_an_actor_without_a_rule_for_a_type_with_rules_sees_no_rows() -> None:
    found = policy(rule("own", "crew", where="$.owner = $actor"))
    assert scope_of(found, "mia").types["node:Person"] is Rows.HIDDEN
    assert scope_of(found, "mia").types["node:Company"] is Rows.ALL
    assert isinstance(scope_of(found, "kim").types["node:Person"], ir.Compare)


def test_edges_of_a_hidden_type_are_hidden() -> None:
    scope = scope_of(policy(rule("own", "crew", "Company")), "mia")
    assert scope.types == {
        "node:Person": Rows.ALL,
        "node:Company": Rows.HIDDEN,
        "edge:WorksAt": Rows.HIDDEN,
        "edge:Knows": Rows.ALL,
    }
    assert scope.rules["edge:WorksAt"] == ("own",)


def test_reading_and_changing_have_rules_of_their_own() -> None:
    found = policy(rule("see", "all"), rule("edit", "all", "Person", "change", where="$.owner = $actor"))
    assert scope_of(found, "kim").types["node:Person"] is Rows.ALL
    assert scope_of(found, "kim", Action.EXPORT).types["node:Person"] is Rows.ALL
    assert isinstance(scope_of(found, "kim", Action.CHANGE).types["node:Person"], ir.Compare)
    only_read = policy(rule("see", "crew"))
    assert scope_of(only_read, "mia", Action.EXPORT).types["node:Person"] is Rows.HIDDEN
    assert scope_of(only_read, "mia", Action.CHANGE).types["node:Person"] is Rows.ALL


def test_the_parameters_are_the_actor_and_its_groups() -> None:
    assert scope_of(policy(), "kim").params == {"actor": "kim", "groups": ("all", "crew", "red")}


def test_masks_of_several_groups_add_up() -> None:
    masks = (
        {"id": "pay", "type": "Person", "properties": ["salary"], "actors": {"group": "all"}},
        {"id": "life", "type": "Person", "properties": ["bio"], "actors": {"group": "red"}},
    )
    found = policy(masks=masks)
    assert scope_of(found, "lee").hidden_properties == {"node:Person": frozenset({"salary"})}
    # A vector that is computed from a masked text would show what the text is about.
    assert scope_of(found, "kim").hidden_properties == {"node:Person": frozenset({"salary", "bio", "vec"})}
    assert scope_of(found, "kim").limits_rows
    assert not scope_of(policy(), "kim").limits_rows


# ---- schemas of other branches and of old commits

RENAMED = """
node Human @rename_from("Person") {
    name: String @key
    boss: String? @rename_from("owner")
    team: String?
    pay: I32? @rename_from("salary")
    bio: String?
    vec: Vector(4)? @embed("bio")
}
node Company { name: String @key  owner: String? }
edge WorksAt: Human -> Company
edge Knows: Human -> Human
"""


def test_rules_apply_to_a_type_under_its_other_name() -> None:
    before = schema()
    after = evolve(before, compile_schema(RENAMED))
    found = policy(
        rule("team", "crew", where="$.team in $groups"),
        masks=({"id": "pay", "type": "Person", "properties": ["salary"], "actors": {"group": "all"}},),
    )
    scope = scope_of(found, "kim", accepted=after, reference=before)
    assert isinstance(scope.types["node:Human"], ir.InList)
    assert scope.hidden_properties == {"node:Human": frozenset({"pay"})}
    assert scope_of(found, "mia", accepted=after, reference=before).types["node:Human"] is Rows.HIDDEN


def test_a_condition_reads_a_property_under_its_other_name() -> None:
    before = schema()
    after = evolve(before, compile_schema(RENAMED))
    found = policy(rule("own", "crew", where='$.owner = $actor and not ($.salary > 3 or $.team in ["red", "blue"])'))
    condition = scope_of(found, "kim", accepted=after, reference=before).types["node:Human"]
    assert {one.name for one in walk(condition) if isinstance(one, ir.Prop)} == {"boss", "pay", "team"}
    same = scope_of(found, "kim", accepted=before, reference=before).types["node:Person"]
    assert str(condition) == str(same).replace("'owner'", "'boss'").replace("'salary'", "'pay'")


def test_a_condition_does_not_read_another_property_of_the_same_name() -> None:
    """The property was renamed, and a new one got its name. In old states, the name means the other property."""
    before = schema("node Person { name: String @key  owner: String? }")
    renamed = 'node Person { name: String @key  boss: String? @rename_from("owner") }'
    added = "node Person { name: String @key  boss: String?  owner: String? }"
    after = evolve(evolve(before, compile_schema(renamed)), compile_schema(added))
    found = policy(rule("own", "all", where="$.owner = $actor"))
    assert scope_of(found, "kim", accepted=before, reference=after).types["node:Person"] is Rows.HIDDEN


def test_types_of_a_rule_apply_to_a_type_under_its_other_name() -> None:
    before = schema()
    after = evolve(before, compile_schema(RENAMED))
    found = policy(types=["Person", "Knows"])
    scope = scope_of(found, "kim", accepted=after, reference=before)
    assert scope.visible(scope.types) == ["node:Human", "edge:Knows"]


def test_a_type_is_hidden_where_its_condition_does_not_fit_the_schema() -> None:
    before = schema("node Person { name: String @key }")
    after = evolve(before, compile_schema("node Person { name: String @key  owner: String? }"))
    found = policy(rule("own", "all", where="$.owner = $actor"))
    found.check(after)
    assert scope_of(found, "kim", accepted=before, reference=after).types["node:Person"] is Rows.HIDDEN


def test_a_new_type_is_not_part_of_a_rule_with_types() -> None:
    before = schema("node Person { name: String @key }")
    after = evolve(before, compile_schema("node Person { name: String @key } node Secret { name: String @key }"))
    scope = scope_of(policy(types=["Person"]), "kim", accepted=after, reference=before)
    assert scope.types == {"node:Person": Rows.ALL, "node:Secret": Rows.HIDDEN}

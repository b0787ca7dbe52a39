"""Merges of branches whose schemas differ: the rows are brought to the schema of the target."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph import Graph, InputError, MergeConflictsError, MergeSchemaError, NotFoundError, PickConflictsError

BEFORE = """
node Person {
    name: String @key
    age: I32?
    status: enum(open, closed)?
    nick: String?
}
node City {
    name: String @key
}
edge Lives: Person -> City {
    since: I32?
}
"""

AFTER = """
node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    status: enum(open, done @rename_from("closed"))?
    level: I32 @default(7)
    note: String?
}
node City {
    name: String @key
}
edge Lives: Human -> City {
    since: I32?
}
node Tag {
    name: String @key
}
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = omnigraph.init(tmp_path / "graph", BEFORE)
    made.load(
        [
            {"type": "Person", "data": {"name": "ann", "age": 30, "status": "closed", "nick": "a"}},
            {"type": "Person", "data": {"name": "bob", "age": 40, "status": "open"}},
            {"type": "City", "data": {"name": "rome"}},
            {"edge": "Lives", "from": "ann", "to": "rome", "data": {"since": 2000}},
        ],
        mode="append",
    )
    made.branches.create("side")
    return made


def people(graph: Graph, branch: str = "main", type_: str = "Human") -> dict[str, dict[str, Any]]:
    rows = graph.snapshot(branch=branch).scan(f"node:{type_}").to_pylist()
    return {row.pop("id"): {name: value for name, value in row.items() if name != "name"} for row in rows}


def write(graph: Graph, text: str, branch: str = "main") -> None:
    graph.mutate(f"query q() {{ {text} }}", branch=branch)


def test_rows_of_an_older_schema_are_converted(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd", age: 50, status: "closed" }', "side")
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { level: 9, note: "x" } where name = "bob"')
    write(graph, 'update Human set { note: "y" } where name = "ann"')
    receipt = graph.merge("side", level="property")
    assert receipt.is_clean
    assert people(graph) == {
        "ann": {"years": 30, "status": "done", "level": 7, "note": "y"},
        "bob": {"years": 41, "status": "open", "level": 9, "note": "x"},
        "cyd": {"years": 50, "status": "done", "level": 7, "note": None},
    }
    assert graph.verify().ok


def test_a_property_that_the_source_lacks_is_unchanged_there(graph: Graph) -> None:
    """The source has changed a row, and the target has set a property that the source does not know."""
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { note: "x" } where name = "bob"')
    assert graph.merge("side").is_clean
    assert people(graph)["bob"] == {"years": 41, "status": "open", "level": 7, "note": "x"}


def test_conflicts_show_values_of_the_target_schema(graph: Graph) -> None:
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { years: 42 } where name = "bob"')
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("side")
    (conflict,) = failed.value.conflicts
    assert (conflict.type_name, conflict.entity_id) == ("Human", "bob")
    assert (conflict.base, conflict.ours, conflict.theirs) == ({"years": 40}, {"years": 42}, {"years": 41})
    graph.merge("side", resolutions={("Human", "bob"): "theirs"})
    assert people(graph)["bob"]["years"] == 41


def test_a_merge_to_an_older_schema_and_back_loses_nothing(graph: Graph) -> None:
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { note: "x", level: 9, years: 43 } where name = "bob"')
    write(graph, 'insert Human { name: "dan", level: 3, note: "z" }')
    write(graph, 'insert Tag { name: "t" }')
    receipt = graph.merge("main", into="side")
    assert receipt.left_out == ("Human.level", "Human.note", "Tag")
    assert people(graph, "side", "Person") == {
        "ann": {"age": 30, "status": "closed", "nick": "a"},
        "bob": {"age": 43, "status": "open", "nick": None},
        "dan": {"age": None, "status": None, "nick": None},
    }
    write(graph, 'update Person set { age: 44 } where name = "bob"', "side")
    assert graph.merge("side").is_clean
    assert people(graph) == {
        "ann": {"years": 30, "status": "done", "level": 7, "note": None},
        "bob": {"years": 44, "status": "open", "level": 9, "note": "x"},
        "dan": {"years": None, "status": None, "level": 3, "note": "z"},
    }
    assert [row["id"] for row in graph.snapshot().scan("node:Tag").to_pylist()] == ["t"]


def test_a_required_property_without_a_value_is_a_conflict(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd" }', "side")
    graph.schema.apply(BEFORE.replace("age: I32?", "age: I32"), allow="validated")
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("side")
    (conflict,) = failed.value.conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("value_constraint_violation", "cyd")
    assert "Person.age" in conflict.message
    assert people(graph, type_="Person").keys() == {"ann", "bob"}


def test_an_enum_value_that_the_target_lacks_is_a_conflict(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd", status: "closed" }', "side")
    write(graph, 'update Person set { status: "open" } where name = "ann"')
    graph.schema.apply(BEFORE.replace("enum(open, closed)", "enum(open)"), allow="validated")
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("side")
    assert [(c.kind.value, c.entity_id) for c in failed.value.conflicts] == [("value_constraint_violation", "cyd")]


STRICT = BEFORE.replace("enum(open, closed)", "enum(open)").replace("age: I32?", "age: I32")


@pytest.fixture
def invalid(graph: Graph) -> Graph:
    """The branch `side` has an insert and two updates that the schema of `main` no longer allows."""
    write(graph, 'update Person set { status: "open" } where name = "ann"')
    write(graph, 'update Person set { status: "open", age: 30 } where name = "ann"', "side")
    write(graph, 'insert Person { name: "cyd", status: "open" }', "side")
    write(graph, 'update Person set { status: "closed", nick: "b" } where name = "bob"', "side")
    graph.load([{"edge": "Lives", "from": "cyd", "to": "rome", "data": {"id": "e"}}], mode="append", branch="side")
    graph.schema.apply(STRICT, allow="validated")
    return graph


VALID = {"age": 40, "status": "open", "nick": None}
WRONG = [("value_constraint_violation", "bob"), ("value_constraint_violation", "cyd")]


@pytest.mark.parametrize("by_name", [False, True], ids=["strategy", "resolutions"])
def test_a_merge_takes_the_valid_side_of_an_invalid_value(invalid: Graph, *, by_name: bool) -> None:
    def options(side: str) -> dict[str, Any]:
        ids = ("bob", "cyd")
        return {"resolutions": {("Person", name): side for name in ids}} if by_name else {"strategy": side}

    for chosen in ({}, options("theirs")):
        with pytest.raises(MergeConflictsError) as failed:
            invalid.merge("side", **chosen)
        assert [(c.kind.value, c.entity_id) for c in failed.value.conflicts] == WRONG
        assert "does not allow the values of 'theirs': choose 'ours'" in str(failed.value.hint)
    receipt = invalid.merge("side", **options("ours"))
    assert (receipt.total_conflicts, receipt.commit is not None) == (0, True)
    # Without the node, its edge is left out, too. This is a conflict of its own if a strategy decides it.
    assert receipt.resolved == (2 if by_name else 3)
    found = people(invalid, type_="Person")
    assert (set(found), found["bob"]) == ({"ann", "bob"}, dict(VALID))
    assert invalid.snapshot().scan("edge:Lives").num_rows == 1
    assert invalid.verify().ok


def test_a_merge_by_property_keeps_the_other_changes_of_a_row_with_an_invalid_value(invalid: Graph) -> None:
    receipt = invalid.merge("side", level="property", strategy="ours")
    assert receipt.changes["node:Person"].to_json() == {"inserted": 0, "updated": 1, "deleted": 0}
    assert people(invalid, type_="Person")["bob"] == VALID | {"nick": "b"}
    assert invalid.verify().ok


def test_an_update_takes_the_valid_side_of_an_invalid_value(invalid: Graph) -> None:
    with pytest.raises(MergeConflictsError) as failed:
        invalid.branches.update("side", strategy="ours")
    assert [(c.kind.value, c.entity_id) for c in failed.value.conflicts] == WRONG
    assert "does not allow the values of 'ours': choose 'theirs'" in str(failed.value.hint)
    receipt = invalid.branches.update("side", resolutions={("Person", "bob"): "theirs", ("Person", "cyd"): "theirs"})
    assert receipt.resolved == 2
    assert receipt.changes["node:Person"].to_json() == {"inserted": 0, "updated": 1, "deleted": 1}
    assert people(invalid, "side", "Person")["bob"] == VALID
    assert invalid.verify(branch="side").ok


def test_a_cherry_pick_takes_the_valid_side_of_an_invalid_value(invalid: Graph) -> None:
    write(invalid, 'update Person set { status: "closed", age: 5 } where name = "ann"', "side")
    commit = invalid.branch("side").head.id
    with pytest.raises(PickConflictsError, match="value_constraint_violation"):
        invalid.cherry_pick(commit, into="main", strategy="theirs")
    assert invalid.cherry_pick(commit, into="main", strategy="ours").resolved == 1
    assert people(invalid, type_="Person")["ann"]["age"] == 30


def test_an_invalid_node_that_another_choice_restores_stays_a_conflict(graph: Graph) -> None:
    """The choice for the edge restores its node, and the choice for the node leaves it out."""
    write(graph, 'insert Person { name: "cyd", status: "closed" }')
    graph.branches.create("other")
    write(graph, 'update Person set { status: "open" } where name = "ann"')
    write(graph, 'delete Person where name = "cyd"')
    graph.load([{"edge": "Lives", "from": "cyd", "to": "rome", "data": {"id": "e"}}], mode="append", branch="other")
    write(graph, 'update Person set { nick: "c" } where name = "cyd"', "other")
    graph.schema.apply(BEFORE.replace("enum(open, closed)", "enum(open)"), allow="validated")
    preview = graph.merge("other", preview=True, resolutions={("Person", "cyd"): "ours", ("Lives", "e"): "theirs"})
    assert [(c.kind.value, c.entity_id) for c in preview.conflicts] == [("value_constraint_violation", "cyd")]


def test_the_help_names_the_property_level_only_if_it_resolves_a_conflict(graph: Graph) -> None:
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    write(graph, 'update Person set { nick: "b" } where name = "bob"')
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("side")
    assert "--level property" in str(failed.value.hint)
    write(graph, 'update Person set { age: 42 } where name = "bob"')
    with pytest.raises(MergeConflictsError) as failed:
        graph.merge("side")
    assert "--level property" not in str(failed.value.hint)
    assert "--strategy" in str(failed.value.hint)


def test_a_property_that_was_dropped_and_added_again_is_named_as_another_one(graph: Graph) -> None:
    write(graph, 'update Person set { nick: "b" } where name = "bob"', "side")
    graph.schema.apply(BEFORE.replace("    nick: String?\n", ""))
    graph.schema.apply(BEFORE)
    assert graph.merge("side").left_out == ("Person.nick (another property has this name now)",)


def test_changes_of_a_dropped_type_are_refused(graph: Graph) -> None:
    write(graph, 'insert City { name: "oslo" }', "side")
    graph.schema.apply("node Person { name: String @key }", allow="drops")
    with pytest.raises(MergeSchemaError, match=r"City.*has dropped") as caught:
        graph.merge("side")
    assert caught.value.types == ("node:City",)


@pytest.mark.parametrize("how", ["undone", "optimized", "deleted"])
@pytest.mark.parametrize("update", [False, True])
def test_other_versions_with_the_same_rows_of_a_dropped_type_do_not_matter(
    graph: Graph, how: str, update: bool
) -> None:
    write(graph, 'insert City { name: "oslo" }', "side")
    if how == "undone":
        for year in (1, 2000):
            write(graph, f'update Lives set {{ since: {year} }} where id != ""', "side")
    write(graph, 'delete City where name = "oslo"', "side")
    if how == "optimized":
        graph.optimize(branch="side")
    if how == "deleted":
        write(graph, 'insert Person { name: "dan" }', "side")
        write(graph, 'delete City where name = "rome"', "side")
    write(graph, 'insert Person { name: "cyd", age: 5 }', "side")
    graph.schema.apply("node Person { name: String @key  age: I32? }", allow="drops")
    if update:
        graph.branches.update("side")
        assert people(graph, "side", "Person")["cyd"] == {"age": 5}
    graph.merge("side")
    assert people(graph, type_="Person")["cyd"] == {"age": 5}
    assert graph.verify().ok


def test_rows_of_a_dropped_type_that_differ_from_the_base_are_refused_after_an_optimize(graph: Graph) -> None:
    write(graph, 'update Lives set { since: 1 } where id != ""', "side")
    graph.optimize(branch="side")
    graph.schema.apply("node Person { name: String @key }\nnode City { name: String @key }", allow="drops")
    with pytest.raises(MergeSchemaError, match=r"Lives.*has dropped"):
        graph.merge("side")
    with pytest.raises(MergeSchemaError, match=r"Lives.*has dropped"):
        graph.branches.update("side")


def test_an_unchanged_dropped_type_does_not_matter(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd", age: 5 }', "side")
    graph.schema.apply("node Person { name: String @key }", allow="drops")
    receipt = graph.merge("side")
    assert receipt.left_out == ("Person.age", "Person.nick", "Person.status")
    assert people(graph, type_="Person").keys() == {"ann", "bob", "cyd"}


def test_a_value_that_does_not_fit_an_older_type_is_refused(graph: Graph) -> None:
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { years: 4000000000 } where name = "bob"')
    with pytest.raises(MergeSchemaError, match=r"Person\.age do not fit"):
        graph.merge("main", into="side")


def test_a_restored_node_and_its_edges_get_the_defaults_that_the_source_lacks(graph: Graph) -> None:
    """The target deleted the node, and the source changed it and wins. Its unchanged edges return with it."""
    write(graph, 'update Person set { age: 31 } where name = "ann"', "side")
    graph.schema.apply(AFTER.replace("since: I32?", "since: I32?  weight: I32 @default(5)"))
    write(graph, 'delete Human where name = "ann"')
    receipt = graph.merge("side", resolutions={("Human", "ann"): "theirs"})
    assert receipt.edges_kept == 1
    assert people(graph)["ann"] == {"years": 31, "status": "done", "level": 7, "note": None}
    (edge,) = graph.snapshot().scan("edge:Lives").to_pylist()
    assert (edge["since"], edge["weight"]) == (2000, 5)


def test_a_restored_edge_that_another_choice_leaves_out_is_not_counted(graph: Graph) -> None:
    """The node returns with its edges. The schema does not allow one of them, and the target wins there."""
    home = {"edge": "Lives", "from": "ann", "to": "rome", "data": {"id": "bare"}}
    graph.load([home], mode="append")
    graph.branches.create("other")
    write(graph, 'update Person set { age: 31 } where name = "ann"', "other")
    write(graph, 'delete Person where name = "ann"')
    graph.schema.apply(BEFORE.replace("since: I32?", "since: I32"), allow="validated")
    options: dict[str, Any] = {"strategy": "ours", "resolutions": {("Person", "ann"): "theirs"}}
    for receipt in (graph.merge("other", preview=True, **options), graph.merge("other", **options)):
        assert (receipt.edges_kept, receipt.resolved, receipt.total_conflicts) == (1, 2, 0)
        assert {key: counts.to_json() for key, counts in receipt.changes.items()} == {
            "node:Person": {"inserted": 1, "updated": 0, "deleted": 0},
            "edge:Lives": {"inserted": 1, "updated": 0, "deleted": 0},
        }
    assert [edge["since"] for edge in graph.snapshot().scan("edge:Lives").to_pylist()] == [2000]
    assert graph.verify().ok


def test_a_restored_edge_in_conflict_is_not_counted(graph: Graph) -> None:
    graph.load([{"edge": "Lives", "from": "ann", "to": "rome", "data": {"id": "bare"}}], mode="append")
    graph.branches.create("other")
    write(graph, 'update Person set { age: 31 } where name = "ann"', "other")
    write(graph, 'delete Person where name = "ann"')
    graph.schema.apply(BEFORE.replace("since: I32?", "since: I32"), allow="validated")
    preview = graph.merge("other", preview=True, strategy="theirs")
    assert [(c.kind.value, c.entity_id) for c in preview.conflicts] == [("value_constraint_violation", "bare")]
    assert (preview.edges_kept, preview.changes["edge:Lives"].inserted) == (1, 1)


def test_conflicts_show_the_values_that_a_merge_takes_for_properties_that_a_side_lacks(graph: Graph) -> None:
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    graph.schema.apply(AFTER)
    write(graph, 'delete Human where name = "bob"')
    (conflict,) = graph.merge("side", preview=True).conflicts
    assert conflict.ours is None
    assert conflict.theirs == {"years": 41}
    write(graph, 'insert Person { name: "eve", age: 5 }', "side")
    write(graph, 'insert Human { name: "eve", years: 6, level: 8, note: "n" }')
    (shown,) = (one for one in graph.merge("side", preview=True).conflicts if one.entity_id == "eve")
    assert (shown.ours, shown.theirs) == ({"years": 6}, {"years": 5})


def test_resolutions_name_types_as_the_target_does(graph: Graph) -> None:
    """The edge type has another name on `main`. The target is an older branch."""
    graph.load([{"edge": "Lives", "from": "bob", "to": "rome", "data": {"id": "e", "since": 1}}], mode="append")
    graph.branches.create("old")
    graph.branches.create("older", commit=graph.branch("old").head.id)
    graph.schema.apply(
        BEFORE.replace("edge Lives: Person -> City {", 'edge Homes: Person -> City @rename_from("Lives") {')
    )
    for branch, since in (("old", 2), ("older", 3)):
        rows = [{"edge": "Lives", "from": "bob", "to": "rome", "data": {"id": "e", "since": since}}]
        graph.load(rows, mode="merge", branch=branch)
    receipt = graph.merge("old", into="older", resolutions={("Lives", "e"): "theirs"})
    assert receipt.resolved == 1
    assert graph.branch("older").entity("Lives", "e")["since"] == 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "photo"),
    [
        (None, b"p0"),
        ({"name": "x", "n": 3, "photo": "base64:cDE="}, b"p1"),
        ("delete", b"p0"),
    ],
    ids=["unchanged", "changed", "deleted"],
)
def test_blobs_that_the_source_lacks_stay_or_return(tmp_path: Path, change: Any, photo: bytes) -> None:
    """`main` has dropped the only blob property, and its rows win."""
    text = "node P { name: String @key  n: I64?  photo: Blob? }"
    with omnigraph.init(tmp_path / "blobs", text) as graph:
        rows = [{"type": "P", "data": {"name": name, "n": 1, "photo": "base64:cDA="}} for name in ("w", "x", "y")]
        graph.load(rows, mode="append")
        graph.branches.create("dev")
        graph.schema.apply("node P { name: String @key  n: I64? }")
        write(graph, "update P set { n: 2 } where n = 1")
        write(graph, 'insert P { name: "new", n: 2 }')
        if change == "delete":
            write(graph, 'delete P where name = "x"', "dev")
        elif change is not None:
            graph.load([{"type": "P", "data": change}], mode="merge", branch="dev")
        graph.merge("main", into="dev", strategy="theirs")
        assert {row["n"] for row in people(graph, "dev", "P").values()} == {2}
        dev = graph.branch("dev")
        assert [dev.blob("P", name, "photo").read() for name in ("w", "x", "y")] == [b"p0", photo, b"p0"]
        with pytest.raises(NotFoundError):
            dev.blob("P", "new", "photo")


WIDE = """
node P {
    name: String @key
    n: I64?
    m: I64?
    note: String?
    tags: [String]?
    photo: Blob?
}
"""
NARROW = "node P { name: String @key  n: I64?  m: I64? }"


@pytest.fixture
def dropped(tmp_path: Path) -> Graph:
    """`main` has dropped three properties, which the branch `dev` still has. Both have changed the entities."""
    graph = omnigraph.init(tmp_path / "dropped", WIDE)
    first = {"n": 1, "m": 1, "note": "n0", "tags": ["t0"], "photo": "base64:cDA="}
    names = ("same", "unset", "changed", "gone", "equal", "apart")
    graph.load([{"type": "P", "data": {"name": name, **first}} for name in names], mode="append")
    graph.branches.create("dev")
    graph.schema.apply(NARROW)
    write(graph, "update P set { n: 2 } where n = 1")
    own = [
        {"name": "unset", "n": 3, "m": 3},
        {"name": "changed", "n": 3, "m": 3, "note": "n1", "tags": ["t1", "u1"], "photo": "base64:cDE="},
        {"name": "equal", "n": 2, "m": 1, "note": "n2", "tags": None, "photo": "base64:cDA="},
        {"name": "apart", "n": 1, "m": 1, "note": "n3", "tags": [], "photo": "base64:cDM="},
    ]
    graph.load([{"type": "P", "data": row} for row in own], mode="merge", branch="dev")
    write(graph, 'update P set { note: null, tags: null, photo: null } where name = "unset"', "dev")
    write(graph, 'delete P where name = "gone"', "dev")
    return graph


def dropped_values(graph: Graph, name: str) -> tuple[Any, ...]:
    dev = graph.branch("dev")
    row = people(graph, "dev", "P")[name]
    try:
        photo = dev.blob("P", name, "photo").read()
    except NotFoundError:
        photo = None
    return row["n"], row["m"], row["note"], row["tags"], photo


@pytest.mark.parametrize("how", ["strategy", "resolutions", "cherry-pick"])
@pytest.mark.parametrize("level", ["row", "property"])
def test_the_target_keeps_its_values_of_properties_that_the_winning_source_lacks(
    dropped: Graph, how: str, level: str
) -> None:
    preview = dropped.merge("main", into="dev", level=level, preview=True)
    # Both sides changed `equal` in the same way, and only the source changed what it knows of `apart`.
    assert {(one.entity_id, one.kind.value) for one in preview.conflicts} == {
        ("unset", "divergent_update"),
        ("changed", "divergent_update"),
        ("gone", "delete_vs_update"),
    }
    names = {"n", "m"} if level == "row" else {"n"}
    assert all(set(one.ours or ()) == names for one in preview.conflicts if one.entity_id != "gone")
    if how == "strategy":
        receipt: Any = dropped.merge("main", into="dev", level=level, strategy="theirs")
    elif how == "resolutions":
        chosen: dict[Any, str] = dict.fromkeys(preview.conflicts, "theirs")
        receipt = dropped.merge("main", into="dev", level=level, resolutions=chosen)
    else:
        commit = dropped.branch("main").head.id
        receipt = dropped.cherry_pick(commit, into="dev", level=level, strategy="theirs")
    assert receipt.resolved == 3
    m = 1 if level == "row" else 3
    assert {name: dropped_values(dropped, name) for name in people(dropped, "dev", "P")} == {
        "same": (2, 1, "n0", ["t0"], b"p0"),
        "unset": (2, m, None, None, None),
        "changed": (2, m, "n1", ["t1", "u1"], b"p1"),
        "gone": (2, 1, "n0", ["t0"], b"p0") if how != "cherry-pick" else (2, 1, None, None, None),
        "equal": (2, 1, "n2", None, b"p0"),
        "apart": (2, 1, "n3", [], b"p3"),
    }
    assert dropped.verify(branch="dev").ok


@pytest.mark.parametrize("how", ["merge", "update"])
@pytest.mark.parametrize("level", ["row", "property"])
def test_an_older_branch_that_wins_loses_no_value_of_a_property_that_it_lacks(
    graph: Graph, how: str, level: str
) -> None:
    """`main` -> older branch -> `main`: the base has the property that the source lacks."""
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { note: "x", level: 9, years: 43 } where name = "bob"')
    graph.merge("main", into="side")
    write(graph, 'update Person set { age: 44 } where name = "bob"', "side")
    write(graph, 'update Human set { note: "y", level: 10, years: 45 } where name = "bob"')
    if how == "merge":
        graph.merge("side", strategy="theirs", level=level)
    else:
        graph.branches.update("side", strategy="ours", level=level)
    branch = "main" if how == "merge" else "side"
    assert people(graph, branch)["bob"] == {"years": 44, "status": "open", "level": 10, "note": "y"}
    assert graph.verify(branch=branch).ok


VECTORS = """
node Doc {
    name: String @key
    text: String?
    vector: Vector(2)? @embed("text")
    n: I64?
}
"""


@pytest.mark.parametrize("level", ["row", "property"])
def test_a_vector_that_the_winning_source_lacks_stays_if_its_text_is_the_same(tmp_path: Path, level: str) -> None:
    graph = omnigraph.init(tmp_path / "vectors", VECTORS)
    rows = {name: {"text": "t0", "vector": [0.0, 0.0], "n": 1} for name in ("both", "theirs", "ours", "number")}
    graph.load([{"type": "Doc", "data": {"name": name, **row}} for name, row in rows.items()], mode="append")
    graph.branches.create("dev")
    graph.schema.apply("node Doc { name: String @key  text: String?  n: I64? }")
    for name in ("both", "theirs"):
        write(graph, f'update Doc set {{ text: "t1" }} where name = "{name}"')
    write(graph, "update Doc set { n: 2 } where n = 1")
    own = {
        "both": {"text": "t1", "vector": [1.0, 1.0], "n": 3},
        "theirs": {"text": "t0", "vector": [0.0, 0.0], "n": 3},
        "ours": {"text": "t2", "vector": [2.0, 2.0], "n": 3},
        "number": {"text": "t0", "vector": [3.0, 3.0], "n": 3},
    }
    changed = [{"type": "Doc", "data": {"name": name, **row}} for name, row in own.items()]
    graph.load(changed, mode="merge", branch="dev")
    graph.merge("main", into="dev", strategy="theirs", level=level)
    assert people(graph, "dev", "Doc") == {
        "both": {"text": "t1", "vector": [1.0, 1.0], "n": 2},
        "theirs": {"text": "t1", "vector": None, "n": 2},
        "ours": {"text": "t0", "vector": [0.0, 0.0], "n": 2}
        if level == "row"
        else {"text": "t2", "vector": [2.0, 2.0], "n": 2},
        "number": {"text": "t0", "vector": [3.0, 3.0], "n": 2},
    }


@pytest.fixture
def thirds(graph: Graph) -> Graph:
    """Two older branches that merged `main` after it had dropped a property. It is the base of both."""
    graph.branches.create("topic")
    graph.schema.apply(BEFORE.replace("    nick: String?\n", ""))
    for branch in ("side", "topic"):
        write(graph, f'insert City {{ name: "{branch}" }}', branch)
        graph.merge("main", into=branch)
    return graph


_ADDED = {
    "nullable": ("flag: String?", 'flag: "red"'),
    "default": ("level: I32 @default(7)", "level: 8"),
    "time": ("seen: DateTime @default(now())", 'seen: datetime("2020-01-01T00:00:00Z")'),
    "enum": ("mood: enum(calm, wild) @default(calm)", 'mood: "wild"'),
    "list": ("tags: [String]?", 'tags: ["x"]'),
}
"""New properties, and how the target changes them."""


@pytest.fixture(params=_ADDED)
def added(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Graph, str]:
    """A branch from before a new property, which deletes entities; and an assignment to the new property."""
    column, change = _ADDED[request.param]
    made = omnigraph.init(tmp_path / "graph", "node P { k: String @key  n: I64? }")
    made.load([{"type": "P", "data": {"k": key, "n": 1}} for key in ("a", "b", "c")], mode="append")
    made.branches.create("old")
    made.schema.apply(f"node P {{ k: String @key  n: I64?  {column} }}")
    for key in ("a", "b"):
        made.mutate(f'query q() {{ delete P where k = "{key}" }}', branch="old")
    return made, change


def _keys(graph: Graph) -> list[str]:
    return sorted(graph.query("query q() { match { $p: P } return { $p.k as k } }").to_arrow()["k"].to_pylist())


@pytest.mark.parametrize("level", ["row", "property"])
def test_a_delete_conflicts_with_a_change_of_a_property_that_the_source_lacks(
    added: tuple[Graph, str], level: str
) -> None:
    graph, change = added
    graph.mutate(f'query q() {{ update P set {{ {change} }} where k = "a" }}')
    found = graph.merge("old", preview=True, level=level)
    assert [(one.kind.value, one.entity_id) for one in found.conflicts] == [("delete_vs_update", "a")]
    assert found.changes["node:P"].deleted == 1, "only 'b'"
    with pytest.raises(MergeConflictsError):
        graph.branches.update("old", level=level)
    kept = graph.merge("old", strategy="ours", level=level)
    assert (kept.resolved, kept.changes["node:P"].deleted) == (1, 1)
    assert _keys(graph) == ["a", "c"]


def test_a_delete_does_not_conflict_with_the_filled_value_of_a_property_that_the_source_lacks(
    added: tuple[Graph, str],
) -> None:
    graph, _ = added
    graph.optimize()
    assert graph.merge("old").changes["node:P"].deleted == 2
    assert _keys(graph) == ["c"]


def test_a_delete_does_not_conflict_with_a_new_text_and_the_vectors_of_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    graph = omnigraph.init(tmp_path / "graph", "node P { k: String @key }")
    graph.load([{"type": "P", "data": {"k": key}} for key in ("a", "b")], mode="append")
    graph.branches.create("old")
    new = 'summary: String @default("none")  embedding: Vector(4)? @embed(summary)'
    graph.schema.apply(f"node P {{ k: String @key  {new} }}")
    graph.mutate('query q() { delete P where k = "a" }', branch="old")
    assert graph.merge("old").changes["node:P"].deleted == 1
    assert _keys(graph) == ["b"]


_FILLED = {
    "time": (["l: DateTime @default(now())"], 'l: datetime("2020-01-01T00:00:00Z")'),
    "other default": (["l: I64 @default(1)", "l: I64 @default(2)"], "l: 2"),
    "no default": (["l: I64 @default(1)", "l: I64"], "l: 2"),
    "null allowed": (["l: I64 @default(1)", "l: I64?"], "l: null"),
}
"""Schema changes that add and change a property, and a change of its value."""


@pytest.mark.parametrize("name", _FILLED)
def test_a_delete_of_an_entity_of_the_branch_conflicts_only_with_a_change(tmp_path: Path, name: str) -> None:
    columns, change = _FILLED[name]
    graph = omnigraph.init(tmp_path / "graph", "node P { k: String @key }")
    graph.load([{"type": "P", "data": {"k": "a"}}], mode="append")
    graph.branches.create("old")
    for column in columns:
        graph.schema.apply(f"node P {{ k: String @key  {column} }}")
    write(graph, 'insert P { k: "b" }', "old")
    graph.merge("old")
    filled = people(graph, type_="P")
    assert filled["b"]["l"] == filled["a"]["l"], "as if the branch had been there when the property was added"
    write(graph, 'delete P where k = "b"', "old")
    assert graph.merge("old", preview=True).changes["node:P"].deleted == 1
    write(graph, f'update P set {{ {change} }} where k = "b"')
    (conflict,) = graph.merge("old", preview=True).conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("delete_vs_update", "b")


def test_a_filled_value_that_is_no_longer_allowed_is_replaced_by_the_default(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", "node P { k: String @key }")
    graph.branches.create("old")
    graph.schema.apply("node P { k: String @key  e: enum(x, y) @default(x)  n: I64 @default(1) }")
    graph.schema.apply("node P { k: String @key  e: enum(y) @default(y)  n: I64 @default(2)\n@range(n, 2..9) }")
    write(graph, 'insert P { k: "b" }', "old")
    graph.merge("old")
    assert people(graph, type_="P") == {"b": {"k": "b", "e": "y", "n": 2}}
    write(graph, 'delete P where k = "b"', "old")
    assert [one.entity_id for one in graph.merge("old", preview=True).conflicts] == ["b"], "rather than a lost change"


def test_a_delete_is_undecided_if_the_filled_value_is_unknown(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", "node P { k: String @key }")
    graph.load([{"type": "P", "data": {"k": key}} for key in ("a", "b")], mode="append")
    graph.branches.create("old")
    graph.schema.apply("node P { k: String @key  seen: DateTime @default(now()) }")
    graph.mutate('query q() { delete P where k = "a" }', branch="old")
    graph.mutate('query q() { insert P { k: "c" } }')
    graph.cleanup(keep=1, older_than=timedelta(0))
    conflict = graph.merge("old", preview=True).conflicts[0]
    assert (conflict.entity_id, conflict.base_undecided) == ("a", True)
    assert graph.merge("old", strategy="theirs").resolved == 1
    assert _keys(graph) == ["b", "c"]


def test_a_revert_of_an_insert_conflicts_with_a_later_property(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "graph", "node P { k: String @key }")
    inserted = graph.mutate('query q() { insert P { k: "a" } }').commit
    assert inserted is not None
    graph.schema.apply("node P { k: String @key  flag: String? }")
    assert graph.revert(inserted.id, preview=True).changes["node:P"].deleted == 1
    graph.mutate('query q() { update P set { flag: "red" } where k = "a" }')
    with pytest.raises(PickConflictsError):
        graph.revert(inserted.id)


def test_changes_of_a_property_that_only_the_base_lacks_are_not_lost(thirds: Graph) -> None:
    """The base does not show which side changed the property. `null` is not its former value."""
    write(thirds, 'update Person set { nick: null } where name = "ann"', "side")
    for source, target in (("side", "topic"), ("topic", "side")):
        with pytest.raises(MergeConflictsError) as failed:
            thirds.merge(source, into=target)
        (conflict,) = failed.value.conflicts
        assert (conflict.entity_id, conflict.base_undecided, conflict.base) == ("ann", True, None)
    thirds.merge("side", into="topic", strategy="theirs")
    assert people(thirds, "topic", "Person")["ann"]["nick"] is None


def test_entities_with_equal_values_of_a_property_that_only_the_base_lacks_are_merged(thirds: Graph) -> None:
    write(thirds, 'update Person set { age: 31 } where name = "ann"', "side")
    write(thirds, 'update Person set { age: 41 } where name = "bob"', "topic")
    assert thirds.merge("side", into="topic").is_clean
    found = people(thirds, "topic", "Person")
    assert (found["ann"], found["bob"]["age"]) == ({"age": 31, "status": "closed", "nick": "a"}, 41)


def test_an_entity_is_not_deleted_if_a_property_that_only_the_base_lacks_may_have_changed(thirds: Graph) -> None:
    write(thirds, 'update Person set { nick: "new" } where name = "ann"', "topic")
    write(thirds, 'delete Person where name = "ann"', "side")
    with pytest.raises(MergeConflictsError) as failed:
        thirds.merge("side", into="topic")
    assert [(c.kind.value, c.entity_id) for c in failed.value.conflicts] == [("delete_vs_update", "ann")]


_ITEMS = "node Item { name: String @key  size: I32? }"


@pytest.mark.parametrize(
    "schemas",
    [
        [],
        [_ITEMS + " node Tag { name: String @key }"],
        ["node Item { name: String @key  size: I32?  colour: String? }"],
        ["node Item { name: String @key  weight: I32 @default(1) }"],
        ['node Item { name: String @key  length: I32? @rename_from("size") }'],
        ["node Item { name: String @key }", _ITEMS],
    ],
    ids=["same", "type", "nullable", "default", "rename", "again"],
)
@pytest.mark.parametrize("how", ["merge", "back", "update"])
def test_several_bases_before_a_schema_change_lose_nothing(tmp_path: Path, schemas: list[str], how: str) -> None:
    """Branches that merged each other have two bases. Rows that one side inserts later are no conflicts."""
    graph = omnigraph.init(tmp_path / "graph", _ITEMS)

    def insert(name: str, branch: str = "main") -> None:
        graph.mutate(f'query q() {{ insert Item {{ name: "{name}" }} }}', branch=branch)

    insert("first")
    graph.branches.create("side")
    insert("a")
    insert("b", "side")
    graph.branches.create("crossing")
    graph.merge("side")
    graph.merge("crossing", into="side")
    for schema in schemas:
        graph.schema.apply(schema)
    insert("c")
    insert("d", "side")
    calls: dict[str, Any] = {
        "merge": lambda **options: graph.merge("side", **options),
        "back": lambda **options: graph.merge("main", into="side", **options),
        "update": lambda **options: graph.branches.update("side", **options),
    }
    preview = calls[how](preview=True)
    assert (len(preview.base_commits), preview.conflicts) == (2, ())
    calls[how](strategy="ours")
    names = graph.query(
        "query q() { match { $i: Item } return { $i.name as n } }", branch="main" if how == "merge" else "side"
    )
    assert sorted(row["n"] for row in names.to_pylist()) == ["a", "b", "c", "d", "first"]


def test_a_base_with_a_former_schema_of_main_is_merged(tmp_path: Path) -> None:
    """One of two bases is a commit of `main` with a schema that neither branch has, and that `main` has replaced."""
    with omnigraph.init(tmp_path / "graph", _ITEMS) as graph:
        for branch in ("dev", "hotfix"):
            graph.branches.create(branch)
        write(graph, 'insert Item { name: "d" }', "dev")
        graph.branches.create("early", source="dev")
        graph.schema.apply("node Item { name: String @key  size: I32?  colour: String? }")
        write(graph, 'insert Item { name: "m", colour: "red" }')
        for branch in ("dev", "hotfix"):
            graph.merge("main", into=branch)
        graph.merge("early", into="hotfix")
        write(graph, 'update Item set { size: 1 } where name = "m"', "dev")
        graph.schema.apply("node Item { name: String @key  size: I32? }")
    with omnigraph.open(tmp_path / "graph") as graph:
        receipt = graph.merge("dev", into="hotfix")
        assert len(receipt.base_commits) == 2
        assert people(graph, "hotfix", "Item") == {"d": {"size": None}, "m": {"size": 1}}


def test_types_that_only_the_base_lacks_are_merged(graph: Graph) -> None:
    """The base is an older branch that merged `main` without its new type. Both heads have the type."""
    graph.schema.apply(BEFORE + "node Tag {\n    name: String @key\n    n: I32?\n}\n")
    write(graph, 'insert Tag { name: "t", n: 1 }')
    graph.merge("main", into="side")
    graph.branches.create("topic", source="side")
    for branch in ("side", "topic"):
        graph.branches.update(branch)
    write(graph, 'insert City { name: "oslo" }', "side")
    write(graph, 'insert Tag { name: "u", n: 2 }', "side")
    receipt = graph.merge("side", into="topic", strategy="theirs")
    assert receipt.is_clean
    rows = graph.snapshot(branch="topic").scan("node:Tag").to_pylist()
    assert {row["id"]: row["n"] for row in rows} == {"t": 1, "u": 2}


# Branch update


def test_an_updated_branch_has_the_schema_and_rows_of_its_parent_and_its_own_changes(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd", age: 50, status: "closed" }', "side")
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    write(graph, 'delete Person where name = "ann"', "side")
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'insert Human { name: "dan", level: 3 }')
    write(graph, 'insert Tag { name: "t" }')
    before = graph.branch("side").head
    receipt = graph.branches.update("side")
    assert (receipt.outcome.value, receipt.source, receipt.target) == ("merged", "main", "side")
    assert receipt.commit is not None
    assert (receipt.commit.parent, receipt.commit.merged_parent) == (before.id, graph.branch("main").head.id)
    assert people(graph, "side") == {
        "bob": {"years": 41, "status": "open", "level": 7, "note": None},
        "cyd": {"years": 50, "status": "done", "level": 7, "note": None},
        "dan": {"years": None, "status": None, "level": 3, "note": None},
    }
    assert graph.snapshot(branch="side").scan("edge:Lives").num_rows == 0
    assert people(graph).keys() == {"ann", "bob", "dan"}
    assert graph.verify(branch="side").ok
    # Old commits of the branch keep their schema.
    assert graph.snapshot(commit=before.id).scan("node:Person").num_rows == 2
    # The branch goes on, and merges back.
    write(graph, 'update Human set { note: "n" } where name = "cyd"', "side")
    assert graph.merge("side").is_clean
    assert people(graph) == people(graph, "side")
    assert graph.branches.update("side").outcome.value == "fast_forward"
    graph.cleanup(keep=1)
    assert people(graph, "side") == people(graph)
    assert graph.verify().ok


def test_a_branch_without_changes_is_fast_forwarded(graph: Graph) -> None:
    graph.schema.apply(AFTER, allow="drops")
    assert graph.branches.update("side").outcome.value == "fast_forward"
    assert people(graph, "side") == people(graph)
    write(graph, 'insert Human { name: "eve", level: 1 }', "side")
    assert people(graph).keys() == {"ann", "bob"}


def test_conflicts_of_an_update_show_the_branch_as_ours(graph: Graph) -> None:
    write(graph, 'update Person set { age: 41 } where name = "bob"', "side")
    graph.schema.apply(AFTER, allow="drops")
    write(graph, 'update Human set { years: 42 } where name = "bob"')
    preview = graph.branches.update("side", preview=True)
    (conflict,) = preview.conflicts
    assert (conflict.ours, conflict.theirs) == ({"years": 41}, {"years": 42})
    with pytest.raises(MergeConflictsError):
        graph.branches.update("side")
    assert people(graph, "side", "Person")["bob"]["age"] == 41
    graph.branches.update("side", strategy="ours")
    assert people(graph, "side")["bob"]["years"] == 41


def test_an_update_with_the_same_schema_is_a_merge_of_the_parent(graph: Graph) -> None:
    write(graph, 'insert Person { name: "cyd" }', "side")
    write(graph, 'insert Person { name: "dan" }')
    assert graph.branches.update("side").outcome.value == "merged"
    assert people(graph, "side", "Person").keys() == {"ann", "bob", "cyd", "dan"}


def test_main_cannot_be_updated(graph: Graph) -> None:
    with pytest.raises(InputError, match="no parent"):
        graph.branches.update("main")

"""Reverts, cherry-picks, restores and transactions of rows that were written with another schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.merge.test_differing_schemas import AFTER, BEFORE

import omnigraph
from omnigraph import ConstraintError, Graph, MergeSchemaError, NotFoundError

PHOTOS = AFTER.replace("    note: String?\n", "    note: String?\n    photo: Blob?\n")
DONE, FINAL = 'done @rename_from("closed")', 'final @rename_from("done")'
WITHOUT_CITY = """
node Human @rename_from("Person") { name: String @key  years: I64? @rename_from("age") }
"""


def _do(graph: Graph, text: str, branch: str = "main") -> str:
    commit = graph.mutate(f"query q() {{ {text} }}", branch=branch).commit
    assert commit is not None
    return commit.id


def _row(graph: Graph, name: str, branch: str = "main", type_name: str = "Human") -> dict[str, Any] | None:
    found = graph.branch(branch).entity(type_name, name)
    return None if found is None else {key: value for key, value in found.items() if key not in ("id", "name")}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Two commits that are older than the schema, and a branch that keeps the old schema."""
    made = omnigraph.init(tmp_path / "graph", BEFORE)
    rows: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": "ann", "age": 30, "status": "closed", "nick": "a"}},
        {"type": "Person", "data": {"name": "bob", "age": 40, "status": "open"}},
        {"type": "City", "data": {"name": "rome"}},
        {"edge": "Lives", "from": "ann", "to": "rome", "data": {"id": "e1", "since": 2000}},
    ]
    made.load(rows, mode="append")
    made.tags.create("loaded")
    _do(made, 'update Person set { age: 31, status: "open", nick: "b" } where name = "ann"')
    made.tags.create("changed")
    made.branches.create("side")
    made.schema.apply(AFTER)
    return made


def test_a_revert_follows_renames_and_keeps_new_properties(graph: Graph) -> None:
    _do(graph, 'update Human set { level: 9, note: "kept" } where name = "ann"')
    preview = graph.revert("changed", preview=True)
    assert preview.left_out == ("Person.nick",)
    [change] = preview.previewed
    assert (change.type_name, change.entity_id, change.op) == ("Human", "ann", "update")
    assert (set(change.changed), change.before, change.after) == (
        {"years", "status"},
        {"name": "ann", "years": 31, "status": "open", "level": 9, "note": "kept"},
        {"name": "ann", "years": 30, "status": "done", "level": 9, "note": "kept"},
    )
    done = graph.revert("changed")
    assert done.left_out == ("Person.nick",)
    assert _row(graph, "ann") == {"years": 30, "status": "done", "level": 9, "note": "kept"}
    assert _row(graph, "bob") == {"years": 40, "status": "open", "level": 7, "note": None}
    assert graph.verify().ok


def test_a_revert_of_a_load_deletes_rows_of_a_renamed_type(graph: Graph) -> None:
    graph.revert("changed")
    receipt = graph.revert("loaded")
    assert {key: one.deleted for key, one in receipt.changes.items()} == {
        "edge:Lives": 1,
        "node:City": 1,
        "node:Human": 2,
    }
    assert graph.snapshot().scan("node:Human").num_rows == 0


def test_a_cherry_pick_brings_old_rows_to_the_new_schema(graph: Graph) -> None:
    picked = _do(graph, 'insert Person { name: "cid", age: 50, status: "closed" }', "side")
    graph.cherry_pick(picked[:14])
    assert _row(graph, "cid") == {"years": 50, "status": "done", "level": 7, "note": None}
    assert graph.verify().ok


def test_a_cherry_pick_brings_new_rows_to_the_old_schema(graph: Graph) -> None:
    picked = _do(graph, 'insert Human { name: "cid", years: 50, status: "done", note: "lost" }')
    receipt = graph.cherry_pick(picked, into="side")
    assert set(receipt.left_out) == {"Human.level", "Human.note"}
    assert _row(graph, "cid", "side", "Person") == {"age": 50, "status": "closed", "nick": None}
    big = _do(graph, f'insert Human {{ name: "dan", years: {1 << 40} }}')
    with pytest.raises(MergeSchemaError, match="do not fit") as refused:
        graph.cherry_pick(big, into="side")
    assert "branch update" in (refused.value.hint or "")


def test_a_commit_of_a_dropped_type_is_refused(graph: Graph) -> None:
    picked = _do(graph, 'insert City { name: "oslo" }', "side")
    graph.schema.apply(WITHOUT_CITY)
    with pytest.raises(MergeSchemaError, match="entities of City, which 'main' has dropped") as refused:
        graph.cherry_pick(picked)
    assert "add the type again" in (refused.value.hint or "")


def test_a_branch_that_kept_rows_of_a_dropped_type_merges_unless_it_changed_them(graph: Graph) -> None:
    graph.schema.apply(WITHOUT_CITY)
    graph.merge("main", into="side")
    _do(graph, 'update Person set { age: 8 } where name = "bob"', "side")
    assert {"City", "Lives"} <= set(graph.merge("side").left_out)
    assert _row(graph, "bob") == {"years": 8}
    graph.merge("main", into="side")
    _do(graph, 'insert City { name: "oslo" }', "side")
    with pytest.raises(MergeSchemaError, match="entities of City, which 'main' has dropped"):
        graph.merge("side")


def test_a_schema_change_is_refused_with_the_command_that_helps(graph: Graph) -> None:
    change = graph.branch("main").head.id
    with pytest.raises(MergeSchemaError, match="changed the schema of 'main'") as refused:
        graph.revert(change[:16])
    assert "omnigraph schema show --snapshot" in (refused.value.hint or "")
    with pytest.raises(MergeSchemaError) as refused:
        graph.cherry_pick(change, into="side")
    assert "omnigraph branch update side" in (refused.value.hint or "")
    before = graph.branch("side").head.id
    _do(graph, 'update Person set { age: 33 } where name = "bob"', "side")
    updated = graph.branches.update("side").commit
    assert updated is not None
    with pytest.raises(MergeSchemaError, match="changed the schema of 'side'") as refused:
        graph.revert(updated.id, branch="side", parent=1)
    assert "omnigraph branch reset side --to" in (refused.value.hint or "")
    graph.branches.reset("side", before[:16])
    assert graph.schema.show(branch="side") == BEFORE


def test_a_restore_follows_renames_and_keeps_properties_that_the_old_state_lacks(graph: Graph) -> None:
    _do(graph, 'update Human set { level: 9, note: "kept", years: 99 } where name = "ann"')
    _do(graph, 'delete Human where name = "bob"')
    preview = graph.restore("Human", ["ann", "bob"], "loaded", preview=True)
    assert [(one.entity_id, one.op) for one in preview.previewed] == [("ann", "update"), ("bob", "insert")]
    assert preview.left_out == ("Human.nick",)
    graph.restore("Human", ["ann", "bob"], "loaded", edges=True)
    assert _row(graph, "ann") == {"years": 30, "status": "done", "level": 9, "note": "kept"}
    assert _row(graph, "bob") == {"years": 40, "status": "open", "level": 7, "note": None}
    assert graph.verify().ok
    with pytest.raises(NotFoundError) as unknown:
        graph.restore("Person", "ann", "loaded")
    assert "now named Human" in (unknown.value.hint or "")
    _do(graph, 'insert Tag { name: "t" }')
    with pytest.raises(MergeSchemaError, match="node:Tag does not exist"):
        graph.restore("Tag", "t", "loaded")


def test_a_restore_on_an_old_branch_takes_rows_of_the_new_schema(graph: Graph) -> None:
    _do(graph, 'update Human set { years: 77, status: "done" } where name = "bob"')
    receipt = graph.branch("side").restore("Person", "bob", graph.branch("main").head.id)
    assert set(receipt.left_out) == {"Person.level", "Person.note"}
    assert _row(graph, "bob", "side", "Person") == {"age": 77, "status": "closed", "nick": None}


def test_a_restore_keeps_blobs_of_a_later_property(graph: Graph) -> None:
    graph.schema.apply(PHOTOS)
    row = {"name": "ann", "years": 50, "status": "open", "level": 1, "photo": "base64:cDE="}
    graph.load([{"type": "Human", "data": row}], mode="merge")
    graph.restore("Human", "ann", "loaded")
    assert graph.blob("Human", "ann", "photo").read() == b"p1"
    found = _row(graph, "ann")
    assert found is not None
    assert (found["years"], found["status"], found["level"]) == (30, "done", 1)


@pytest.mark.parametrize("of_side", [False, True], ids=["unchanged", "changed"])
def test_a_merge_from_an_old_branch_keeps_blobs_of_a_later_property(graph: Graph, *, of_side: bool) -> None:
    graph.schema.apply(PHOTOS)
    for name, photo in (("ann", "base64:cDE="), ("bob", "base64:cDI=")):
        row = {"name": name, "years": 50, "status": "open", "level": 1, "photo": photo}
        if of_side or name == "bob":
            graph.load([{"type": "Human", "data": row}], mode="merge")
    _do(graph, 'update Person set { nick: "n" } where name = "ann"', "side")
    _do(graph, 'insert Person { name: "cid", age: 5 }', "side")
    graph.merge("side")
    assert graph.blob("Human", "bob", "photo").read() == b"p2"
    if of_side:
        assert graph.blob("Human", "ann", "photo").read() == b"p1"
    graph.merge("main", into="side")
    _do(graph, 'update Person set { age: 8 } where name = "ann"', "side")
    graph.merge("side")
    assert (_row(graph, "ann") or {})["years"] == 8
    if of_side:
        assert graph.blob("Human", "ann", "photo").read() == b"p1"
    assert graph.verify().ok


def test_a_restore_of_values_that_no_longer_fit_is_refused(graph: Graph) -> None:
    final = AFTER.replace(DONE, FINAL)
    graph.schema.apply(final)
    graph.restore("Human", "ann", "loaded")
    assert (_row(graph, "ann") or {})["status"] == "final"
    _do(graph, 'update Human set { status: "open" } where name = "ann"')
    final = final.replace(f", {FINAL}", "")
    graph.schema.apply(final)
    with pytest.raises(ConstraintError, match="closed"):
        graph.restore("Human", "ann", "loaded")
    empty = _do(graph, 'insert Human { name: "cid" }')
    for name in ("ann", "bob", "cid"):
        _do(graph, f'update Human set {{ note: "n" }} where name = "{name}"')
    graph.schema.apply(final.replace("note: String?", "note: String"))
    with pytest.raises(ConstraintError, match="required"):
        graph.restore("Human", "cid", empty)


def test_a_transaction_that_a_schema_change_overtakes_is_committed_with_the_new_schema(graph: Graph) -> None:
    """Its rows are brought to the schema that another process has applied, or the transaction is refused."""
    with omnigraph.open(graph.uri) as other:
        with graph.branch("main").transaction() as work:
            work.mutate('query q() { update Human set { years: 5 } where name = "bob" }')
            work.mutate('query q() { insert Human { name: "cid", years: 6 } }')
            other.schema.apply(PHOTOS.replace("note: String?", 'memo: String? @rename_from("note")'))
            photo = {"name": "ann", "years": 1, "level": 2, "memo": "m", "photo": "base64:cDE="}
            other.load([{"type": "Human", "data": photo}], mode="merge")
        graph.refresh()
        assert _row(graph, "bob") == {"years": 5, "status": "open", "level": 7, "memo": None, "photo": None}
        assert _row(graph, "cid") == {"years": 6, "status": None, "level": 7, "memo": None, "photo": None}
        assert graph.blob("Human", "ann", "photo").read() == b"p1"
        assert graph.verify().ok


def test_a_transaction_with_rows_of_a_type_that_was_dropped_is_refused(graph: Graph) -> None:
    with omnigraph.open(graph.uri) as other:

        def overtaken() -> None:
            with graph.branch("main").transaction() as work:
                work.mutate('query q() { insert City { name: "oslo" } }')
                other.schema.apply(WITHOUT_CITY)

        with pytest.raises(omnigraph.OmnigraphError, match=r"City|schema"):
            overtaken()


def test_names_of_types_are_those_of_the_branch(graph: Graph) -> None:
    """An edge type that is renamed on `main` is an edge type on the older branch, too."""
    graph.schema.apply(
        AFTER.replace("edge Lives:", "edge Home:").replace("{\n    since", '@rename_from("Lives") {\n    since')
    )
    side = graph.branch("side")
    assert [change.operation.value for change in side.log("Lives", "e1").changes] == ["insert"]
    assert {value.property for value in side.blame("Lives", "e1")} >= {"since"}
    _do(graph, 'update Lives set { since: 2001 } where from = "ann"', "side")
    side.restore("Lives", "e1", "loaded")
    assert (side.entity("Lives", "e1") or {})["since"] == 2000
    with side.transaction() as work:
        work.mutate('query q() { update Lives set { since: 2002 } where from = "ann" }')
        assert (work.entity("Lives", "e1") or {})["since"] == 2002
    _do(graph, 'update Home set { since: 2003 } where from = "ann"')
    graph.merge("main", into="side", resolutions={("Lives", "e1"): "theirs"})
    assert (side.entity("Lives", "e1") or {})["since"] == 2003
    _do(graph, 'update Lives set { since: 2004 } where from = "ann"', "side")
    _do(graph, 'update Home set { since: 2005 } where from = "ann"')
    graph.merge("side", resolutions={("Home", "e1"): "theirs"})
    assert (graph.entity("Home", "e1") or {})["since"] == 2004
    _do(graph, 'update Lives set { since: 2006 } where from = "ann"', "side")
    _do(graph, 'update Home set { since: 2007 } where from = "ann"')
    graph.branches.update("side", resolutions={("Home", "e1"): "ours"})
    assert (graph.branch("side").entity("Home", "e1") or {})["since"] == 2006

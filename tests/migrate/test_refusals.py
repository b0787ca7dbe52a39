"""Refused changes and rows that do not fit stop a schema change before it has any effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.garden import SCHEMA, content

from omnigraph import Cancellation
from omnigraph.errors import (
    CancelledError,
    CompileError,
    InputError,
    PlanError,
    PreconditionFailedError,
    ReadOnlyError,
    SchemaDataError,
)
from omnigraph.graph import Graph, open


def edited(*edits: tuple[str, str]) -> str:
    source = SCHEMA
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def files(graph: Graph) -> set[str]:
    """All files of tables and schemas."""
    root = Path(graph.uri)
    found = {path for folder in ("nodes", "edges", "__schemas", "__recovery") for path in (root / folder).rglob("*")}
    return {str(path) for path in [*found, *root.glob("_*schema*")] if path.is_file()}


REFUSED = {
    "required without a default": (("old: String?", "old: String?  fresh: String"), "OG-MF-103"),
    "narrower number": (("size: I64?", "size: I32?"), "OG-MF-106"),
    "signed to unsigned": (("height: I32? @index", "height: U32? @index"), "OG-MF-106"),
    "single value to list": (("old: String?", "old: [String]?"), "OG-MF-106"),
    "another vector dimension": (("Vector(4)", "Vector(5)"), "OG-MF-106"),
    "String to number": (("old: String?", "old: I64?"), "OG-MF-106"),
    "another key": (("code: String @key", "code: String"), "OG-BC-101"),
    "another end of an edge": (("In: Plant -> Bed", "In: Plant -> Plant"), "OG-ED-101"),
    "unknown former name": (("old: String?", 'new: String? @rename_from("ancient")'), "OG-NM-101"),
    "another value in the enum of a key": (
        ("enum(axe, hoe, rake)", 'enum(axe, hack @rename_from("hoe"), rake)'),
        "OG-BC-102",
    ),
    "former name of another kind": (("node Bed", 'node Pot @rename_from("In") { s: I64? }\nnode Bed'), "OG-NM-102"),
    "former name of a type that is kept": (("node Bed", 'node Pot @rename_from("Bed") {}\nnode Bed'), "OG-NM-103"),
    "former name of a property that is kept": (
        ("old: String?", 'old: String?  x: String? @rename_from("old")'),
        "OG-NM-103",
    ),
    "former name in a new type": (("node Bed", 'node Pot { s: I64? @rename_from("size") }\nnode Bed'), "OG-OW-102"),
    "another dimension of vectors that are computed": (("Vector(8)", "Vector(16)"), "OG-MF-106"),
    "key of an edge": (("note2: String?", "note2: String?\n@key(src, dst)"), "OG-BC-101"),
    "former property of another type": (("old: String?", 'old: String?  s: I64? @rename_from("size")'), "OG-OW-101"),
}


@pytest.mark.parametrize(("edit", "code"), REFUSED.values(), ids=REFUSED)
def test_a_refused_change_has_a_code_and_advice_and_no_effect(graph: Graph, edit: tuple[str, str], code: str) -> None:
    before, head, stored = content(graph), graph.snapshot().commit.id, files(graph)
    planned = graph.schema.plan(edited(edit))
    assert not planned.supported
    assert planned.costs == ()
    with pytest.raises(PlanError) as refused:
        graph.schema.apply(edited(edit), allow="data_loss")
    assert refused.value.diagnostic == code
    assert str(refused.value).startswith(f"plan error: {code}: ")
    assert str(refused.value).count(code) == refused.value.render().count(code) == 1
    assert refused.value.hint
    assert (content(graph), graph.snapshot().commit.id, files(graph)) == (before, head, stored)
    assert graph.schema.source == SCHEMA


MISFITS = {
    "null in a required property": (("height: I32? @index", "height: I32 @index"), "required", "Plant.height"),
    "no blob in a required property": (("picture: Blob?", "picture: Blob"), "required", "Plant.picture"),
    "no vector in a required property": (("vector: Vector(4)?", "vector: Vector(4)"), "required", "Plant.vector"),
    "no list in a required property": (("sizes: [I32]?", "sizes: [I32]"), "required", "Plant.sizes"),
    "value outside of a new range": (("@range(height, 0..1000)", "@range(height, 0..30)"), "value", "Plant.height"),
    "value outside of an added range": (
        ("@range(height", "@range(count, 0..100)\n@range(height"),
        "value",
        "Plant.count",
    ),
    "text that does not match": (('@check(note, "[a-z]")', '@check(note, "oak")'), "value", "Plant.note"),
    "duplicate value": (("@range(height", "@unique(label)\n@range(height"), "unique", "Plant.label"),
    "used enum value": (("enum(seed, grown, dead)", "enum(seed, grown)"), "value", "Plant.state"),
    "used enum value in a list": (("enum(happy, sad, odd)", "enum(sad, odd)"), "value", "Plant.moods"),
    "text that is no enum value": (("old: String?", "old: enum(young)?"), "value", "Plant.old"),
    "too many edges": (("@card(0..3)", "@card(0..1)"), "cardinality", "In @card"),
    "too few edges": (("@card(0..3)", "@card(1..3)"), "cardinality", "In @card"),
    "too many edges of a target": (("@card(0..3)", "@card(0..3) @card_in(0..1)"), "cardinality", "In @card_in"),
    "default that is not unique": (
        ("old: String?", 'old: String?  lot: String @default("one") @unique'),
        "unique",
        "Plant.lot",
    ),
}


def offending(graph: Graph, subject: str, edit: tuple[str, str]) -> set[str]:
    """The entities that do not fit, found by other means."""
    found = content(graph)
    plants, edges = found["Plant"], list(found["In"].values())
    ends: dict[str, list[str]] = {"from": [edge["from"] for edge in edges], "to": [edge["to"] for edge in edges]}
    new = edit[1]
    tests: dict[str, Callable[[dict[str, Any]], bool]] = {
        "Plant.height": lambda row: row["height"] is None if "..30" not in new else (row["height"] or 0) > 30,
        "Plant.picture": lambda row: row["picture"] is None,
        "Plant.vector": lambda row: row["vector"] is None,
        "Plant.sizes": lambda row: row["sizes"] is None,
        "Plant.count": lambda row: (row["count"] or 0) > 100,
        "Plant.note": lambda row: row["note"] is not None and "oak" not in row["note"],
        "Plant.state": lambda row: row["state"] == "dead",
        "Plant.moods": lambda row: "happy" in (row["moods"] or []),
        "Plant.old": lambda row: True,
    }
    if subject in tests:
        return {id for id, row in plants.items() if tests[subject](row)}
    if subject == "In @card_in":
        return {id for id in found["Bed"] if ends["to"].count(id) > 1}
    if "1..3" in new:
        return {id for id in plants if ends["from"].count(id) < 1}
    return {id for id in plants if ends["from"].count(id) > 1}


@pytest.mark.parametrize(("edit", "kind", "subject"), MISFITS.values(), ids=MISFITS)
def test_rows_that_do_not_fit_are_named_and_counted(
    graph: Graph, edit: tuple[str, str], kind: str, subject: str
) -> None:
    before, head, stored = content(graph), graph.snapshot().commit.id, files(graph)
    with pytest.raises(SchemaDataError) as refused:
        graph.schema.apply(edited(edit))
    error = refused.value
    assert {(violation.kind, violation.subject) for violation in error.violations} == {(kind, subject)}
    if kind != "unique":
        ids = offending(graph, subject, edit)
        assert error.total == len(ids)
        assert [violation.entity_id for violation in error.violations] == sorted(ids)[:100]
    else:  # one violation per value, with two of its entities
        values = [row["label"] if subject == "Plant.label" else "one" for row in content(graph)["Plant"].values()]
        assert error.total == len({value for value in values if values.count(value) > 1})
    assert "unchanged" in (error.hint or "")
    assert (content(graph), graph.snapshot().commit.id, files(graph)) == (before, head, stored)
    assert_whole(graph)


def test_rows_are_checked_with_the_names_and_values_that_they_get(graph: Graph) -> None:
    """Renamed values and properties are checked after the rename, and null counts in a widened column."""
    new = edited(
        ("enum(seed, grown, dead)", 'enum(seed, adult @rename_from("grown"), gone @rename_from("dead"))'),
        ("height: I32? @index", 'tall: I64 @index @rename_from("height")'),
        ("@range(height, 0..1000)", "@range(tall, 0..30)"),
    )
    with pytest.raises(SchemaDataError) as refused:
        graph.schema.apply(new)
    nulls = {id for id, row in content(graph)["Plant"].items() if row["height"] is None}
    found = refused.value.violations
    assert {violation.entity_id for violation in found if violation.kind == "required"} == nulls
    assert {violation.subject for violation in found} == {"Plant.tall"}


LEVELS = {
    "safe": ("old: String?  fresh: I64?", {"safe", "validated", "drops", "data_loss"}),
    "validated": ("old: String", {"validated", "drops", "data_loss"}),
    "destructive": ("", {"drops", "data_loss"}),
}


@pytest.mark.parametrize("allow", ["safe", "validated", "drops", "data_loss"])
@pytest.mark.parametrize("tier", LEVELS)
def test_a_plan_is_applied_only_if_its_most_severe_step_is_allowed(graph: Graph, tier: str, allow: str) -> None:
    new, allowed = LEVELS[tier]
    if allow in allowed:
        assert graph.schema.apply(edited(("old: String?", new)), allow=allow).applied
        return
    with pytest.raises(PlanError, match=f"only '{allow}' is allowed") as refused:
        graph.schema.apply(edited(("old: String?", new)), allow=allow)
    assert "--allow" in (refused.value.hint or "")
    assert graph.schema.source == SCHEMA


def test_a_schema_is_not_applied_to_another_branch(graph: Graph, place: Path) -> None:
    new, before = edited(("old: String?", "")), graph.branch("busy").head.id
    with pytest.raises(InputError, match="schemas change on 'main'") as refused:
        graph.schema.apply(new, branch="busy")
    assert "omnigraph branch update busy" in (refused.value.hint or "")
    with open(place, branch="busy") as on_branch, pytest.raises(InputError, match="schemas change on 'main'"):
        on_branch.schema.apply(new)
    assert (graph.schema.source, graph.schema.show(branch="busy")) == (SCHEMA, SCHEMA)
    assert graph.branch("busy").head.id == before
    with pytest.raises(PreconditionFailedError):  # also if there is nothing to do
        graph.schema.apply(SCHEMA, expect_head=before)


def test_bad_requests_are_refused(graph: Graph, place: Path) -> None:
    with pytest.raises(InputError, match="not a permission"):
        graph.schema.apply(SCHEMA, allow="everything")
    with pytest.raises(CompileError):
        graph.schema.apply("node A {")
    for empty in ("\n", "// no types yet\n"):
        with pytest.raises(InputError, match="would drop all types"):
            graph.schema.apply(empty)
    for wrong in (3, ["node A { }"]):
        with pytest.raises(InputError, match="is not a schema"):
            graph.schema.apply(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot read"):
        graph.schema.apply(Path("nowhere.pg"))
    with pytest.raises(PreconditionFailedError):
        graph.schema.apply(edited(("old: String?", "")), expect_head="01JD0000000000000000000000")
    with open(place, read_only=True) as reader:
        assert reader.schema.plan(edited(("old: String?", ""))).supported
        with pytest.raises(ReadOnlyError):
            reader.schema.apply(edited(("old: String?", "")))
    assert graph.schema.source == SCHEMA


@pytest.mark.parametrize("new", ["old: String", 'old: String?  soil: String @default("clay")'], ids=["check", "write"])
def test_a_cancelled_change_has_no_effect(graph: Graph, new: str) -> None:
    head = graph.snapshot().commit.id
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError):
        graph.schema.apply(edited(("old: String?", new)), cancel=cancel)
    assert graph.snapshot().commit.id == head
    assert graph.schema.source == SCHEMA
    assert_whole(graph)

"""Branches with different schemas are compared by tasks as in one process, and receipts name the engine that did it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.in_process import InProcess

import omnigraph
from omnigraph.engine.engines import SparkOptions
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import Session
from omnigraph.storage.table_ref import manifest_name

OLD = """
node Pot { name: String @key  size: I32?  glaze: enum(red, blue)?  note: String?  photo: Blob? }
edge Beside: Pot -> Pot { since: I32? }
"""
RENAMED = OLD.replace("red, blue", 'crimson @rename_from("red"), blue').replace(
    "note: String?", 'text: String? @rename_from("note")  shelf: I64 @default(7)'
)
WIDER = RENAMED.replace("size: I32?", "size: I64?")
COUNT = 40


def _pots(names: range, size: int, glaze: str = "red") -> dict[str, pa.Table]:
    listed = list(names)
    columns = {
        "name": [f"p{i:02d}" for i in listed],
        "size": [size + i for i in listed],
        "glaze": [glaze if i % 2 else "blue" for i in listed],
        "photo": [None if i % 3 else f"photo {size} {i}".encode() for i in listed],
    }
    return {"Pot": pa.table(columns)}


@dataclass(frozen=True)
class Place:
    """A graph whose branch `old` has the first schema, and a copy of it."""

    uri: str
    kept: Path
    early: str
    late: str

    def fresh(self) -> Graph:
        """The graph as it was. A graph with branches cannot be moved, so the copy replaces it."""
        shutil.rmtree(self.uri)
        shutil.copytree(self.kept, self.uri)
        return omnigraph.open(self.uri)


def _place(place: Path, schema: str) -> Place:
    with omnigraph.init(place / "graph", OLD) as graph:
        graph.load(_pots(range(COUNT), 0), mode="append")
        graph.load({"Beside": pa.table({"from": ["p01", "p02"], "to": ["p02", "p03"], "since": [1, 2]})}, mode="append")
        graph.branches.create("old")
        early = graph.load(_pots(range(5, 12), 100), mode="merge").commit
        graph.schema.apply(schema)
        graph.mutate('query q() { update Pot set { size: 900, text: "new", shelf: 1 } where name = "p20" }')
        graph.mutate('query q() { update Pot set { shelf: 2 } where name = "p13" }')
        graph.mutate('query q() { update Pot set { shelf: 3 } where name = "p36" }')
        graph.mutate('query q() { delete Pot where name = "p30" }')
        late = graph.load(_pots(range(13, 17), 500, "red"), mode="merge", branch="old").commit
        graph.load(_pots(range(COUNT, COUNT + 4), 600), mode="append", branch="old")
        graph.mutate('query q() { update Pot set { note: "mine" } where name = "p20" }', branch="old")
        graph.mutate('query q() { update Pot set { note: "kept" } where name = "p30" }', branch="old")
        graph.mutate('query q() { delete Pot where name in ["p35", "p36"] }', branch="old")
        graph.mutate("query q() { update Beside set { since: 9 } where since = 1 }", branch="old")
        uri = graph.uri
    assert early is not None
    assert late is not None
    shutil.copytree(uri, place / "kept")
    return Place(uri, place / "kept", early.id, late.id)


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return _place(tmp_path_factory.mktemp("renamed"), RENAMED)


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return _place(tmp_path_factory.mktemp("wider"), WIDER)


Verb = Callable[[Graph, Place, dict[str, Any]], Any]
VERBS: dict[str, Verb] = {
    "merge": lambda graph, place, how: graph.merge("old", "main", strategy="theirs", **how),
    "merge by property": lambda graph, place, how: graph.merge("old", "main", strategy="ours", level="property", **how),
    "conflicts": lambda graph, place, how: graph.merge("old", "main", preview=True, **how),
    "into the old branch": lambda graph, place, how: graph.merge("main", "old", strategy="theirs", **how),
    "update": lambda graph, place, how: graph.branches.update("old", strategy="ours", **how),
    "preview of an update": lambda graph, place, how: graph.branches.update("old", preview=True, **how),
    "revert": lambda graph, place, how: graph.revert(place.early, **how),
    "cherry-pick": lambda graph, place, how: graph.cherry_pick(place.late, "main", **how),
}


def _done(place: Place, verb: Verb, **how: Any) -> tuple[Any, dict[str, list[str]], str]:
    """The receipt without its commit and engine, the rows of both branches, and the engine."""
    with place.fresh() as graph:
        receipt = verb(graph, place, how)
        rows = {name: sorted(b"".join(graph.export(branch=name)).decode().splitlines()) for name in ("main", "old")}
        assert graph.verify().ok
        assert graph.verify(branch="old").ok
        assert not list(Path(graph.uri).glob("__staging/*"))
    return replace(receipt, commit=None, engine=""), rows, receipt.engine


def _agree(place: Place, verb: Verb, options: SparkOptions) -> str:
    local, rows, engine = _done(place, verb, engine="local")
    assert engine == "local"
    receipt, by_tasks, engine = _done(place, verb, engine="spark", spark=options)
    assert receipt == local
    assert by_tasks == rows
    assert receipt.total_conflicts or receipt.changes
    return engine


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_gives_the_same_graph_by_tasks(renamed: Place, verb: str) -> None:
    options = SparkOptions(InProcess(), tasks=3, merge_threshold="1 B")
    assert _agree(renamed, VERBS[verb], options) == "spark"


@pytest.mark.parametrize(
    ("verb", "engine"), [("merge", "spark"), ("cherry-pick", "spark"), ("into the old branch", "local")]
)
def test_values_that_may_not_fit_are_compared_in_this_process_and_the_receipt_says_so(
    wider: Place, verb: str, engine: str
) -> None:
    assert _agree(wider, VERBS[verb], SparkOptions(InProcess(), tasks=3)) == engine


def test_a_property_that_only_the_target_has_is_compared_with_the_value_that_was_filled_in(renamed: Place) -> None:
    with renamed.fresh() as graph:
        done = graph.merge("old", preview=True, engine="spark", spark=SparkOptions(InProcess(), tasks=2))
    conflicts = {one.entity_id: one.kind.value for one in done.conflicts}
    assert conflicts == {"p20": "divergent_update", "p30": "delete_vs_update", "p36": "delete_vs_update"}


def test_tasks_fill_and_convert_the_values_of_the_older_schema(renamed: Place) -> None:
    with renamed.fresh() as graph:
        graph.merge("old", strategy="theirs", engine="spark", spark=SparkOptions(InProcess(), tasks=2))
        names = ("size", "glaze", "text", "shelf")
        found = {one: graph.entity("Pot", one) for one in ("p13", "p14", "p20", "p41", "p30", "p35")}
        values = {name: None if row is None else tuple(row[key] for key in names) for name, row in found.items()}
    assert values == {
        "p13": (513, "crimson", None, 2),  # the old branch does not have `shelf`, so the value of main stays
        "p14": (514, "blue", None, 7),
        "p20": (20, "blue", "mine", 1),
        "p41": (641, "crimson", None, 7),  # new, so it gets the default
        "p30": (30, "blue", "kept", 7),
        "p35": None,
    }


def test_tasks_find_undecided_conflicts_without_a_readable_base(renamed: Place) -> None:
    listed = []
    for how in ({"engine": "local"}, {"engine": "spark", "spark": SparkOptions(InProcess(), tasks=2)}):
        with renamed.fresh() as graph:
            commits = [one.id for one in graph.commits]
            base = graph.snapshot(commit=commits[commits.index(renamed.early) + 1]).pin("node:Pot").ref
        (Path(renamed.uri) / base.path / "_versions" / manifest_name(base.version)).unlink()
        with omnigraph.open(renamed.uri) as graph:
            done = graph.merge("old", preview=True, **how)
            listed.append({one.entity_id for one in done.conflicts if one.type_name == "Pot"})
            assert all(one.base_undecided for one in done.conflicts if one.type_name == "Pot")
            assert done.changes["edge:Beside"].updated == 1
    assert listed[0] == listed[1] >= {"p05", "p20", "p30", "p41"}


@pytest.mark.spark
@pytest.mark.slow
def test_branches_with_different_schemas_are_compared_on_spark(renamed: Place, session: Session) -> None:
    assert _agree(renamed, VERBS["merge"], SparkOptions(session, tasks=2)) == "spark"

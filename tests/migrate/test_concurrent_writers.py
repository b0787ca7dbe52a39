"""Schema changes beside other writers: no write that was prepared with the old schema reaches a changed table."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import assert_whole
from tests.migrate.garden import SCHEMA, content
from tests.patience import PATIENCE

from omnigraph.commit import attempts, failpoints
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.write_request import Prepared
from omnigraph.errors import (
    CompileError,
    ConstraintError,
    InputError,
    OmnigraphError,
    PlanError,
    ReadSetChangedError,
    SchemaDataError,
)
from omnigraph.graph import Graph, open
from omnigraph.migrate.migration import PrepareMigration

RENAMED = SCHEMA.replace("old: String?", 'former: String? @rename_from("old")')
WIDENED = SCHEMA.replace("height: I32?", "height: I64?")
REQUIRED = SCHEMA.replace("old: String?", 'old: String?  soil: String @default("clay")')
TIGHTER = SCHEMA.replace("@range(height, 0..1000)", "@range(height, 0..500)")
DROPPED = SCHEMA.replace("    old: String?\n", "")


def at(monkeypatch: pytest.MonkeyPatch, point: Failpoint, do: Callable[[], object]) -> None:
    """Run something once when the next write of this thread reaches a failpoint."""
    mine = threading.get_ident()
    reach = failpoints.reach

    def reached(found: Failpoint) -> None:
        if found is point and threading.get_ident() == mine:
            monkeypatch.setattr(attempts, "reach", reach)
            other = threading.Thread(target=do)
            other.start()
            other.join(PATIENCE)
            assert not other.is_alive()
        reach(found)

    monkeypatch.setattr(attempts, "reach", reached)


@pytest.mark.parametrize("new", [RENAMED, WIDENED, REQUIRED, DROPPED], ids=["rename", "widen", "default", "drop"])
def test_a_mutation_that_a_schema_change_overtakes_runs_again_with_the_new_schema(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(new))
        graph.mutate('query add() { insert Plant { code: "new", state: "seed", height: 5 } }')
    row = content(graph)["Plant"]["new"]
    assert (row["state"], row["height"]) == ("seed", 5)
    assert row.get("soil", "clay") == "clay"
    assert set(row) == set(content(graph)["Plant"]["p01"])
    assert graph.verify().ok
    assert_whole(graph)


def test_a_mutation_that_no_longer_compiles_is_refused(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(graph)
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(DROPPED))
        with pytest.raises(CompileError, match="old"):
            graph.mutate('query add() { insert Plant { code: "new", state: "seed", old: "x" } }')
    assert set(content(graph)["Plant"]) == set(before["Plant"])
    assert_whole(graph)


LOADED = {"code": ["new"], "state": ["seed"], "old": ["x"]}


@pytest.mark.parametrize("new", [WIDENED, REQUIRED], ids=["widen", "default"])
def test_a_load_that_a_schema_change_overtakes_is_read_again_with_the_new_schema(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(new))
        graph.load({"Plant": pa.table(LOADED)}, mode="append")
    row = content(graph)["Plant"]["new"]
    assert (row["state"], row["old"], row.get("soil", "clay")) == ("seed", "x", "clay")
    assert set(row) == set(content(graph)["Plant"]["p01"])
    assert graph.verify().ok
    assert_whole(graph)


@pytest.mark.parametrize("new", [RENAMED, DROPPED], ids=["rename", "drop"])
def test_a_load_whose_columns_a_schema_change_removes_is_refused(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(new))
        with pytest.raises(InputError, match="old"):
            graph.load({"Plant": pa.table(LOADED)}, mode="append")
    assert "new" not in content(graph)["Plant"]
    assert_whole(graph)


@pytest.mark.parametrize("new", [RENAMED, WIDENED, REQUIRED, DROPPED], ids=["rename", "widen", "default", "drop"])
def test_a_load_of_a_stream_that_a_schema_change_overtakes_is_refused(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, new: str
) -> None:
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(new))
        with pytest.raises(ReadSetChangedError) as refused:
            graph.load({"Plant": pa.table(LOADED).to_reader()}, mode="append")
    assert refused.value.member == "schema"
    assert "new" not in content(graph)["Plant"]
    assert_whole(graph)


def test_a_row_that_breaks_a_constraint_cannot_come_between_the_check_and_the_change(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was prepared before the change is checked by the new rule."""
    with open(place) as other:
        at(monkeypatch, Failpoint.CAPTURED, lambda: other.schema.apply(TIGHTER))
        with pytest.raises(ConstraintError, match=re.escape("outside 0..500")):
            graph.mutate('query add() { insert Plant { code: "new", state: "seed", height: 900 } }')
    assert graph.verify().ok
    assert "new" not in content(graph)["Plant"]


def test_rows_that_are_written_after_planning_are_checked(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer adds rows between the plan and the lease of the schema change: they get the default, too."""
    with open(place) as other:
        lease = attempts._Write._lease

        def late(self: attempts._Write, *args: object) -> object:
            monkeypatch.setattr(attempts._Write, "_lease", lease)
            other.mutate('query add() { insert Plant { code: "new", state: "seed" } }')
            return lease(self, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(attempts._Write, "_lease", late)
        assert graph.schema.apply(REQUIRED).applied
    assert content(graph)["Plant"]["new"]["soil"] == "clay"
    assert {row["soil"] for row in content(graph)["Plant"].values()} == {"clay"}


@pytest.mark.parametrize(
    ("text", "attempts_needed"),
    [('insert Bed { name: "east" }', 1), ('insert Plant { code: "new", state: "seed" }', 2)],
    ids=["another table", "the same table"],
)
def test_other_writers_go_on_while_rows_are_checked_and_columns_are_written(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, text: str, attempts_needed: int
) -> None:
    """The lease is free meanwhile. The work is repeated only if a table that it depends on has changed."""
    calls: list[str] = []
    prepare = PrepareMigration.__call__

    def counted(self: PrepareMigration, view: Manifest) -> Prepared:
        done = prepare(self, view)
        calls.append(view.head.id)
        if len(calls) == 1:
            with open(place) as other:
                other.mutate(f"query add() {{ {text} }}", timeout=60)
        return done

    monkeypatch.setattr(PrepareMigration, "__call__", counted)
    new = REQUIRED.replace("@range(height, 0..1000)", "@range(height, 0..500)")
    assert graph.schema.apply(new).applied
    assert len(calls) == attempts_needed
    found = content(graph)
    assert {row["soil"] for row in found["Plant"].values()} == {"clay"}
    assert "east" in found["Bed"] or "new" in found["Plant"]
    assert graph.verify().ok
    assert_whole(graph)


def test_a_row_that_does_not_fit_and_comes_during_the_check_is_found(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = PrepareMigration.__call__

    def late(self: PrepareMigration, view: Manifest) -> Prepared:
        done = prepare(self, view)
        monkeypatch.setattr(PrepareMigration, "__call__", prepare)
        with open(place) as other:
            other.mutate('query add() { insert Plant { code: "new", state: "seed", height: 900 } }', timeout=60)
        return done

    monkeypatch.setattr(PrepareMigration, "__call__", late)
    with pytest.raises(SchemaDataError) as refused:
        graph.schema.apply(TIGHTER)
    assert [violation.entity_id for violation in refused.value.violations] == ["new"]
    assert graph.schema.source == SCHEMA
    assert_whole(graph)


def test_the_second_of_two_equal_changes_finds_nothing_to_do(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(place) as other:
        lease = attempts._Write._lease

        def late(self: attempts._Write, *args: object) -> object:
            monkeypatch.setattr(attempts._Write, "_lease", lease)
            assert other.schema.apply(RENAMED).applied
            return lease(self, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(attempts._Write, "_lease", late)
        second = graph.schema.apply(RENAMED)
    assert (second.applied, second.commit) == (False, None)
    assert graph.schema.source == RENAMED


def test_the_second_of_two_different_changes_is_refused(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned again, it would undo the first change."""
    with open(place) as other:
        lease = attempts._Write._lease

        def late(self: attempts._Write, *args: object) -> object:
            monkeypatch.setattr(attempts._Write, "_lease", lease)
            other.schema.apply(REQUIRED)
            return lease(self, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(attempts._Write, "_lease", late)
        with pytest.raises(ReadSetChangedError, match="schema") as refused:
            graph.schema.apply(WIDENED, allow="data_loss")
        assert "plan the change again" in (refused.value.hint or "")
    assert graph.session.schemas.version_of(graph.session.store.capture("main"))[0] == REQUIRED
    with pytest.raises(PlanError):
        graph.schema.apply(WIDENED, allow="validated")
    assert_whole(graph)


def test_a_transaction_that_a_schema_change_overtakes_is_applied_or_refused(graph: Graph, place: Path) -> None:
    acknowledged = False
    with open(place) as other, suppress(OmnigraphError):
        with graph.branch("main").transaction() as work:
            work.mutate('query add() { insert Bed { name: "east" } }')
            other.schema.apply(WIDENED)
        acknowledged = True
    assert ("east" in content(graph)["Bed"]) is acknowledged
    assert graph.verify().ok
    assert_whole(graph)


@pytest.mark.slow
def test_many_writers_beside_schema_changes(graph: Graph, place: Path) -> None:
    """Threads insert plants while the schema changes several times: each acknowledged plant is there once."""
    done: list[str] = []
    stop = threading.Event()

    def insert(number: int) -> None:
        with open(place) as own:
            count = 0
            while not stop.is_set():
                name = f"w{number}-{count}"
                own.mutate(f'query add() {{ insert Plant {{ code: "{name}", state: "seed", height: {count} }} }}')
                done.append(name)
                count += 1

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        wide = RENAMED.replace("height: I32?", "height: I64?")
        for new in (RENAMED, wide, wide.replace("picture: Blob?", 'soil: String @default("clay")')):
            assert graph.schema.apply(new, timeout=PATIENCE).applied
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    found = content(graph)["Plant"]
    assert sorted(name for name in found if name.startswith("w")) == sorted(done)
    assert {row["soil"] for row in found.values()} == {"clay"}
    assert graph.verify().ok
    assert_whole(graph)

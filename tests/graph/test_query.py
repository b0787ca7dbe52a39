"""Queries through a handle: visible states, parameters, budgets and cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.patience import PATIENCE

import omnigraph
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.write_request import SchemaChange, WriteRequest
from omnigraph.errors import (
    BranchNotFoundError,
    BudgetExceededError,
    CancelledError,
    CompileError,
    InputError,
    NotFoundError,
    ParameterError,
    PreconditionFailedError,
)
from omnigraph.graph import Graph
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import Catalog, compile_schema, evolve, ir_hash
from omnigraph.read.budget import Budget, Cancellation
from omnigraph.read.context.views import KEPT
from omnigraph.read.result.result import Result

SCHEMA = """\
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date?  @key(src, dst) }
edge Lives: Person -> City { @key(src, dst) }
"""
PEOPLE = "query people() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
OLDER = "query older($than: I32) { match { $p: Person  $p.age > $than } return { $p.name as name } order { name } }"
FRIENDS = """
query friends($name: String) {
    match { $p: Person { name: $name }  $p knows $f }
    return { $f.name as name }
    order { name }
}
"""
ADD = "query add($name: String) { insert Person { name: $name } }"
EVERYTHING = "query all() { match { $a: Person  $b: Person  $c: Person } return { $a.name, $b.name, $c.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA) as made:
        made.load(
            {
                "Person": pa.table({"name": ["ann", "bob", "cid"], "age": pa.array([41, 27, None], pa.int32())}),
                "City": pa.table({"name": ["Ulm"]}),
                "Knows": [{"from": "ann", "to": "bob"}, {"from": "ann", "to": "cid"}, {"from": "bob", "to": "ann"}],
                "Lives": [{"from": "ann", "to": "Ulm"}],
            },
            mode="append",
        )
        yield made


def names(result: Result) -> list[str]:
    return [row["name"] for row in result]


def add(graph: Graph, *people: str, branch: str | None = None) -> str:
    """A commit that adds people; returns its id."""
    done = graph.load({"Person": pa.table({"name": list(people)})}, mode="append", branch=branch)
    assert done.commit is not None
    return done.commit.id


# ---- queries and parameters


def test_a_result_has_the_columns_in_the_order_of_the_query(graph: Graph) -> None:
    result = graph.query(PEOPLE)
    assert (result.query_name, result.columns, result.row_count) == ("people", ("name", "age"), 3)
    assert result.to_pylist() == [{"name": "ann", "age": 41}, {"name": "bob", "age": 27}, {"name": "cid", "age": None}]


def test_parameters_are_not_parsed_as_query_text(graph: Graph) -> None:
    assert names(graph.query(OLDER, {"than": 30})) == ["ann"]
    assert names(graph.query(FRIENDS, {"name": "ann"})) == ["bob", "cid"]
    assert names(graph.query(FRIENDS, {"name": 'ann" }'})) == []


def test_a_text_with_several_queries_needs_a_name(graph: Graph) -> None:
    text = OLDER + FRIENDS
    assert names(graph.query(text, {"than": 20}, name="older")) == ["ann", "bob"]
    with pytest.raises(InputError, match="the text has 2 queries, and no query name is given"):
        graph.query(text, {"than": 20})
    with pytest.raises(NotFoundError, match="olders"):
        graph.query(text, name="olders")


def test_query_refuses_a_mutation(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    with pytest.raises(InputError, match="'add' is a query that writes") as caught:
        graph.query(ADD, {"name": "dan"})
    assert "mutate" in caught.value.render()
    assert graph.snapshot().commit.id == head


def test_a_parameter_that_is_missing_or_wrong_is_named(graph: Graph) -> None:
    with pytest.raises(ParameterError, match=r"\$than: not given"):
        graph.query(OLDER)
    with pytest.raises(ParameterError, match=r"\$than: expected a whole number"):
        graph.query(OLDER, {"than": True})


def test_an_undeclared_parameter_is_reported(graph: Graph) -> None:
    result = graph.query(OLDER, {"than": 30, "then": 3})
    assert result.warnings == ("the query has no parameter $then",)
    assert graph.query(OLDER, {"than": 30}).warnings == ()


def test_a_cross_product_gives_a_warning(graph: Graph) -> None:
    (warning,) = graph.query("query two() { match { $a: Person  $b: City } return { $a.name, $b.name } }").warnings
    assert warning == "{$a} and {$b} are not connected, so the result is a cross product"


def test_a_compile_error_shows_its_location(graph: Graph) -> None:
    with pytest.raises(CompileError, match="there is no node type Persn"):
        graph.query("query q() { match { $p: Persn } return { $p.name } }")


def test_now_is_constant_within_a_query(graph: Graph) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    result = graph.query("query q() { match { $p: Person } return { $p.name, now() as a, now() as b } }")
    moments = {moment for row in result for moment in (row["a"], row["b"])}
    assert len(moments) == 1
    assert before <= moments.pop() <= datetime.now(UTC)


def test_a_query_is_compiled_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def noted(text: str, catalog: Catalog, name: str | None) -> ir.Query:
        compiled.append(text)
        return compile_query(text, catalog, name)

    monkeypatch.setattr("omnigraph.engine.compiled_queries.compile_query", noted)
    for name in ("ann", "bob", "cid"):
        graph.query(FRIENDS, {"name": name})
    add(graph, "dan")
    graph.query(FRIENDS, {"name": "dan"})
    assert compiled == [FRIENDS]


# ---- visible states


def test_the_newest_state_of_a_branch_is_read(graph: Graph, tmp_path: Path) -> None:
    graph.branches.create("dev")
    add(graph, "dan", branch="dev")
    with omnigraph.open(tmp_path / "graph") as other:
        add(other, "eva")
    assert names(graph.query(PEOPLE)) == ["ann", "bob", "cid", "eva"]
    assert names(graph.query(PEOPLE, branch="dev")) == ["ann", "bob", "cid", "dan"]
    assert names(graph.branch("dev").query(PEOPLE)) == ["ann", "bob", "cid", "dan"]
    with pytest.raises(BranchNotFoundError):
        graph.query(PEOPLE, branch="nowhere")


def test_a_query_can_read_any_commit_tag_or_time(graph: Graph) -> None:
    before = graph.snapshot()
    graph.tags.create("start")
    add(graph, "dan")
    for at in (before, before.commit.id, "start", before.manifest_version):
        result = graph.query(PEOPLE, at=at)
        assert names(result) == ["ann", "bob", "cid"]
        assert (result.branch, result.snapshot) == (None, before.commit.id)
        assert result.graph_commit_id == before.commit.id
    then = datetime.fromtimestamp(before.commit.created_at / 1_000_000, UTC)
    assert names(graph.query(PEOPLE, at=then)) == ["ann", "bob", "cid"]
    assert names(graph.branch("main").query(PEOPLE, at=before.manifest_version)) == ["ann", "bob", "cid"]
    with pytest.raises(NotFoundError):
        graph.query(PEOPLE, at="no such commit")


def test_a_snapshot_with_a_branch_or_of_another_graph_is_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give 'at' or 'branch', not both"):
        graph.query(PEOPLE, branch="main", at=graph.snapshot())
    with (
        omnigraph.init(tmp_path / "other", SCHEMA) as other,
        pytest.raises(InputError, match="belongs to another graph"),
    ):
        graph.query(PEOPLE, at=other.snapshot())


def test_a_result_names_the_commit_that_it_read(graph: Graph) -> None:
    result = graph.query(PEOPLE)
    assert (result.branch, result.snapshot) == ("main", None)
    assert result.graph_commit_id == graph.snapshot().commit.id
    graph.mutate(ADD, {"name": "dan"}, expect_head=result.graph_commit_id)
    with pytest.raises(PreconditionFailedError):
        graph.mutate(ADD, {"name": "eva"}, expect_head=result.graph_commit_id)


def test_a_query_in_a_transaction_sees_its_writes(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    with graph.branch().transaction() as work:
        assert work.query(PEOPLE).graph_commit_id == head
        work.mutate(ADD, {"name": "dan"})
        inside = work.query(PEOPLE)
        assert names(inside) == ["ann", "bob", "cid", "dan"]
        assert (inside.branch, inside.snapshot, inside.graph_commit_id) == ("main", None, None)
        assert names(graph.query(PEOPLE)) == ["ann", "bob", "cid"]
    assert names(graph.query(PEOPLE)) == ["ann", "bob", "cid", "dan"]


def test_a_past_state_is_read_with_the_schema_of_its_time(graph: Graph) -> None:
    before = graph.snapshot().commit.id
    source = SCHEMA + "node Boat { name: String @key }"
    change = SchemaChange(source, evolve(graph.accepted_schema, compile_schema(source)), ir_hash(graph.accepted_schema))
    graph.write_tables(WriteRequest(kind=WriterKind.SCHEMA_APPLY, schema=change), lambda _: [])
    graph.refresh()
    boats = "query boats() { match { $b: Boat } return { $b.name as name } }"
    assert names(graph.query(boats)) == []
    with pytest.raises(CompileError, match="there is no node type Boat"):
        graph.query(boats, at=before)
    assert names(graph.query(PEOPLE, at=before)) == ["ann", "bob", "cid"]


# ---- caches and threads


def test_caches_of_unchanged_tables_survive_a_commit(graph: Graph) -> None:
    graph.query(FRIENDS, {"name": "ann"})
    before = graph.session.views.of(graph.snapshot(), graph.accepted_schema)
    cities = before.tables.nodes("City")
    add(graph, "dan")
    after = graph.session.views.of(graph.snapshot(), graph.accepted_schema)
    assert after.tables.edges("Knows") is before.tables.edges("Knows")
    assert after.tables.nodes("City") is cities
    assert after.tables.nodes("Person") is not before.tables.nodes("Person")
    assert graph.session.views.of(graph.snapshot(), graph.accepted_schema) is after


def test_the_number_of_cached_states_is_limited(graph: Graph) -> None:
    for number in range(KEPT + 3):
        add(graph, f"p{number}")
        graph.query(PEOPLE)
    assert len(graph.session.views._views) == KEPT
    assert len(graph.query(PEOPLE)) == KEPT + 6
    graph.close()
    assert len(graph.session.views._views) == 0
    with pytest.raises(InputError, match="closed"):
        graph.query(PEOPLE)


def test_many_threads_get_the_same_answers(graph: Graph) -> None:
    for person in ("dan", "eva"):
        add(graph, person)
    states = [commit.id for commit in graph.commits][:3]

    def ask(number: int) -> tuple[int, list[str], list[str]]:
        at = states[number % 3]
        return number % 3, names(graph.query(PEOPLE, at=at)), names(graph.query(FRIENDS, {"name": "ann"}, at=at))

    everybody = ["ann", "bob", "cid", "dan", "eva"]
    with ThreadPoolExecutor(8) as pool:
        for state, people, friends in pool.map(ask, range(60)):
            assert people == everybody[: 5 - state]
            assert friends == ["bob", "cid"]


def test_a_file_of_queries_is_given_as_a_path(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "people.gq"
    path.write_text(PEOPLE)
    assert graph.query(path).to_pylist() == graph.query(PEOPLE).to_pylist()
    assert str(graph.explain(path)) == str(graph.explain(PEOPLE))
    path.write_text(ADD)
    assert graph.mutate(path, {"name": "dan"}).affected_nodes == 1
    with pytest.raises(InputError, match="looks like the name of a file"):
        graph.query(str(path))
    with pytest.raises(InputError, match=r"cannot read .*nowhere\.gq: No such file"):
        graph.query(tmp_path / "nowhere.gq")
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        graph.query(path)


# ---- budgets and cancellation


def test_a_query_ends_at_its_time_budget(graph: Graph) -> None:
    with pytest.raises(BudgetExceededError, match="seconds") as caught:
        graph.query(PEOPLE, budget=Budget(seconds=0))
    assert caught.value.resource == "seconds"


def test_intermediate_rows_count_toward_the_row_budget(graph: Graph) -> None:
    assert len(graph.query(EVERYTHING, budget=Budget(rows=39))) == 27
    with pytest.raises(BudgetExceededError, match="the query needs at least 39 rows, but its budget is 38"):
        graph.query(EVERYTHING, budget=Budget(rows=38))


def test_a_budget_error_hints_at_a_cross_product(graph: Graph) -> None:
    with pytest.raises(BudgetExceededError) as caught:
        graph.query(EVERYTHING, budget=Budget(rows=38))
    said = "{$a} and {$b} and {$c} are not connected, so the result is a cross product"
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(said)
    assert caught.value.__notes__ == [f"help: {caught.value.hint}"]
    assert (caught.value.resource, caught.value.limit, caught.value.actual) == ("rows", 38, 39)
    with pytest.raises(BudgetExceededError, match="are not connected"):
        graph.explain(EVERYTHING, budget=Budget(rows=38), analyze=True)


def test_a_memory_budget_error_shows_small_amounts_in_bytes(graph: Graph) -> None:
    with pytest.raises(
        BudgetExceededError, match=r"at least [\d,]+ bytes of memory, but its budget is 1 byte of memory"
    ):
        graph.query(PEOPLE, budget=Budget(memory=1))


def test_returned_rows_have_a_budget(graph: Graph) -> None:
    assert len(graph.query(PEOPLE, budget=Budget(returned=3))) == 3
    with pytest.raises(BudgetExceededError, match="3 rows of result") as caught:
        graph.query(PEOPLE, budget=Budget(returned=2))
    assert caught.value.hint == "add a limit"


@pytest.mark.slow
def test_a_result_that_exceeds_memory_is_refused_before_it_is_built(graph: Graph) -> None:
    """Materialising all combinations would exhaust the memory of this process."""
    add(graph, *(f"p{number}" for number in range(5_000)))
    unlimited = Budget(seconds=None, rows=None, returned=None)
    with pytest.raises(BudgetExceededError, match="MiB of memory") as caught:
        graph.query(EVERYTHING, budget=unlimited)
    assert caught.value.resource == "bytes"
    assert caught.value.actual > 10**12


@pytest.mark.slow
def test_the_default_budget_stops_a_large_cross_product(graph: Graph) -> None:
    add(graph, *(f"p{number}" for number in range(5_000)))
    with pytest.raises(BudgetExceededError):
        graph.query(EVERYTHING)


def test_a_query_that_is_already_cancelled_does_nothing(graph: Graph) -> None:
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(CancelledError, match="cancelled"):
        graph.query(PEOPLE, cancel=cancel)


class Halfway(Cancellation):
    """A cancellation that another thread requests while the query runs. The query waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.requested = threading.Event()

    def cancel(self) -> None:
        super().cancel()
        self.requested.set()

    @property
    def cancelled(self) -> bool:
        self.reached.set()
        self.requested.wait(PATIENCE)
        return super().cancelled


def test_another_thread_can_cancel_a_query(graph: Graph) -> None:
    cancel = Halfway()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(graph.query, PEOPLE, cancel=cancel)
        assert cancel.reached.wait(PATIENCE)
        assert not asked.done()
        cancel.cancel()
        with pytest.raises(CancelledError):
            asked.result(PATIENCE)
    assert len(graph.query(PEOPLE)) == 3


# ---- asyncio


def test_a_query_can_be_awaited(graph: Graph) -> None:
    async def ask() -> tuple[Result, Result]:
        return await asyncio.gather(graph.async_query(PEOPLE), graph.branch().async_query(FRIENDS, {"name": "ann"}))

    people, friends = asyncio.run(ask())
    assert (names(people), names(friends)) == (["ann", "bob", "cid"], ["bob", "cid"])


def test_an_awaited_query_raises_its_error(graph: Graph) -> None:
    with pytest.raises(ParameterError):
        asyncio.run(graph.async_query(OLDER))


def test_cancelling_the_task_stops_the_query(graph: Graph) -> None:
    cancel = Halfway()

    async def ask() -> None:
        task = asyncio.create_task(graph.async_query(PEOPLE, cancel=cancel))
        assert await asyncio.to_thread(cancel.reached.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert cancel.requested.is_set()


# ---- explain


def test_explain_shows_the_steps_in_order(graph: Graph) -> None:
    found = graph.explain(FRIENDS, {"name": "ann"})
    assert [(step.action, step.rows) for step in found.steps] == [
        ("lookup", 1),
        ("scan", None),
        ("expand", None),
        ("sort", None),
        ("project", None),
    ]
    assert not found.analyzed
    assert "expand $p to $f by Person -Knows-> Person" in str(found)
    assert found.to_json()["ir"]["name"] == "friends"


def test_explain_analyze_shows_actual_and_estimated_rows(graph: Graph) -> None:
    found = graph.explain(FRIENDS, {"name": "ann"}, analyze=True)
    plan = graph.explain(FRIENDS, {"name": "ann"})
    assert [step.text for step in found.steps] == [step.text for step in plan.steps]
    assert [step.estimate for step in found.steps] == [step.estimate for step in plan.steps]
    assert [step.rows for step in found.steps] == [1, 1, 2, 2, 2]
    assert found.returned == 2
    assert all(step.seconds is not None for step in found.steps)
    assert "2 rows in" in str(found)


def test_explain_nests_the_steps_of_blocks(graph: Graph) -> None:
    text = """query q() {
        match { $p: Person  optional { $p knows $f  $f.age > $p.age }  not { $p lives $c  $c: City { name: "Ulm" } } }
        return { $p.name, $f.name }
    }"""
    found = graph.explain(text, analyze=True)
    inside = {step.action: [inner.action for inner in step.steps] for step in found.steps if step.steps}
    assert inside == {"exclude": ["count"], "left join": ["expand"]}
    assert [step.rows for step in found.steps] == [2, 2, 2, 2, 2]


def test_explain_checks_parameters_and_refuses_mutations(graph: Graph) -> None:
    with pytest.raises(ParameterError):
        graph.explain(FRIENDS)
    with pytest.raises(InputError, match="writes"):
        graph.explain(ADD, {"name": "x"})

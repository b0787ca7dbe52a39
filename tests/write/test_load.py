"""A load is one commit of valid rows, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import omnigraph
from omnigraph.errors import (
    BadRowsError,
    BranchNotFoundError,
    ConstraintError,
    InputError,
    KeyConflictError,
    PreconditionFailedError,
    ReadOnlyError,
)
from omnigraph.graph import Graph
from papers import generate
from papers.output import write_ndjson, write_parquet

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique }
node Note { text: String }
edge Knows: Person -> Person @card(0..2) { since: Date?  @key(src, dst) }
edge Wrote: Person -> Note
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with omnigraph.init(tmp_path / "graph", SCHEMA, actor="act-kim") as made:
        yield made


def people(*names: str, **columns: list[object]) -> dict[str, pa.Table]:
    return {"Person": pa.table({"name": list(names), **columns})}


def names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:Person", columns=["id"])["id"].to_pylist())


def state(graph: Graph) -> object:
    """The state that a failed load must not change."""
    view = graph.snapshot()
    return view.commit, {key: (pin.ref, view.scan(key).to_pylist()) for key, pin in view.tables.items()}


def test_a_load_is_one_commit(graph: Graph) -> None:
    receipt = graph.load(
        {
            "Person": pa.table({"name": ["ann", "bob"]}),
            "Knows": pa.table({"from": ["ann"], "to": ["bob"], "since": ["2020-01-31"]}),
        },
        mode="append",
        message="the first two",
    )
    assert receipt.nodes == (("Person", 2),)
    assert receipt.edges == (("Knows", 1),)
    assert receipt.total == 3
    assert receipt.commit is not None
    assert (receipt.commit.actor, receipt.commit.message, receipt.commit.writer) == ("act-kim", "the first two", "Load")
    assert len(list(graph.commits)) == 2
    edge = graph.entity("Knows", '["ann","bob"]')
    assert edge is not None
    assert (edge["src"], edge["dst"], str(edge["since"])) == ("ann", "bob", "2020-01-31")


def test_append_refuses_existing_ids(graph: Graph) -> None:
    graph.load(people("ann"), mode="append")
    before = state(graph)
    with pytest.raises(KeyConflictError, match="'ann'"):
        graph.load(people("bob", "ann"), mode="append")
    assert state(graph) == before


def test_merge_replaces_whole_entities(graph: Graph) -> None:
    graph.load(people("ann", "bob", age=[30, 40]), mode="append")
    graph.load(people("ann", "cid"), mode="merge")
    ages = {row["id"]: row["age"] for row in graph.snapshot().scan("node:Person").to_pylist()}
    assert ages == {"ann": None, "bob": 40, "cid": None}


def test_loading_keyed_edges_twice_makes_no_duplicate(graph: Graph) -> None:
    edges = {"Knows": pa.table({"from": ["ann"], "to": ["ann"]})}
    graph.load(people("ann") | edges, mode="merge")
    graph.load(edges, mode="merge")
    assert graph.snapshot().pin("edge:Knows").row_count == 1


def test_overwrite_replaces_only_the_types_of_the_input(graph: Graph) -> None:
    graph.load(people("ann", "bob") | {"Note": pa.table({"text": ["x"]})}, mode="append")
    graph.load(people("cid"), mode="overwrite")
    assert names(graph) == ["cid"]
    assert graph.snapshot().pin("node:Note").row_count == 1


def test_overwrite_refuses_to_orphan_an_edge(graph: Graph) -> None:
    graph.load(people("ann") | {"Knows": pa.table({"from": ["ann"], "to": ["ann"]})}, mode="append")
    before = state(graph)
    with pytest.raises(ConstraintError, match="not found in Person"):
        graph.load(people("bob"), mode="overwrite")
    assert state(graph) == before


@pytest.mark.parametrize(
    ("tables", "error"),
    [
        ({"Person": pa.table({"name": ["a", "a"]})}, ConstraintError),
        ({"Person": pa.table({"name": ["a", "b"], "mail": ["m", "m"]})}, ConstraintError),
        ({"Knows": pa.table({"from": ["nobody"], "to": ["nobody"]})}, ConstraintError),
        ({"Person": pa.table({"name": ["a"], "age": ["old"]})}, BadRowsError),
        ({"Person": pa.table({"nom": ["a"]})}, BadRowsError),
        ({"Note": pa.table({"id": ["n", "n"], "text": ["x", "y"]})}, KeyConflictError),
        ({"Persn": pa.table({"name": ["a"]})}, InputError),
    ],
    ids=["same key", "not unique", "no such node", "wrong type", "no such property", "same id", "no such type"],
)
def test_wrong_input_changes_nothing(graph: Graph, tables: dict[str, pa.Table], error: type[Exception]) -> None:
    graph.load(people("ann", mail=["mine"]), mode="append")
    before = state(graph)
    with pytest.raises(error):
        graph.load(tables, mode="append")
    assert state(graph) == before


def test_uniqueness_is_checked_against_stored_rows(graph: Graph) -> None:
    graph.load(people("ann", mail=["m"]), mode="append")
    with pytest.raises(ConstraintError, match=r"Person\.mail"):
        graph.load(people("bob", mail=["m"]), mode="append")
    graph.load(people("ann", "bob", mail=["n", "m"]), mode="merge")


def test_the_last_record_of_an_id_wins_in_a_merge(graph: Graph) -> None:
    graph.load({"Note": pa.table({"id": ["n", "m", "n"], "text": ["1", "2", "3"]})}, mode="merge")
    rows = graph.snapshot().scan("node:Note").to_pylist()
    assert {row["id"]: row["text"] for row in rows} == {"n": "3", "m": "2"}


def test_an_empty_load_makes_no_commit(graph: Graph) -> None:
    receipt = graph.load({"Person": pa.table({"name": pa.array([], pa.utf8())})}, mode="append")
    assert (receipt.total, receipt.commit) == (0, None)


def test_a_load_supports_branches_expected_heads_and_idempotency_keys(graph: Graph) -> None:
    head = graph.snapshot().commit.id
    graph.branches.create("dev")
    graph.load(people("ann"), mode="append", branch="dev")
    assert (names(graph), names(graph, "dev")) == ([], ["ann"])
    first = graph.load(people("bob"), mode="append", expect_head=head, idempotency_key="k").commit
    assert graph.load(people("bob"), mode="append", idempotency_key="k").commit == first
    with pytest.raises(PreconditionFailedError):
        graph.load(people("cid"), mode="append", expect_head=head)
    with pytest.raises(BranchNotFoundError):
        graph.load(people("cid"), mode="append", branch="nowhere")
    with pytest.raises(InputError, match="'replace' is not a load mode"):
        graph.load(people("cid"), mode="replace")


def test_a_read_only_handle_cannot_load(graph: Graph) -> None:
    with omnigraph.open(graph.uri, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.load(people("ann"), mode="append")


def test_files_of_every_format_load_the_same_rows(graph: Graph, tmp_path: Path) -> None:
    table = pa.table({"name": ["ann"], "age": [3]})
    pa.parquet.write_table(table, tmp_path / "Person.parquet")
    with pa.ipc.new_file(tmp_path / "Person.arrow", table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "any.ndjson").write_text(json.dumps({"type": "Person", "data": {"name": "ann", "age": 3}}))
    for name in ("Person.parquet", "Person.arrow", "any.ndjson"):
        graph.load(tmp_path / name, mode="overwrite")
        assert graph.entity("Person", "ann") == {"id": "ann", "age": 3, "mail": None, "name": "ann"}
    (tmp_path / "Person.parquet").rename(tmp_path / "export-7.parquet")
    with pytest.raises(InputError, match="no type 'export-7'"):
        graph.load(tmp_path / "export-7.parquet", mode="merge")
    graph.load(tmp_path / "export-7.parquet", mode="merge", type_name="Person")


@pytest.mark.parametrize("name", ["missing.parquet", "table.xlsx", "broken.parquet"])
def test_unreadable_files_are_refused(graph: Graph, tmp_path: Path, name: str) -> None:
    if name != "missing.parquet":
        (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(InputError):
        graph.load(tmp_path / name, mode="append", type_name="Person")


def test_the_example_loads_the_same_from_every_format(tmp_path: Path) -> None:
    schema = Path("examples/papers/schema.pg")
    contents = []
    for write in (write_ndjson, write_parquet):
        files = tmp_path / write.__name__
        files.mkdir()
        write(generate(200, 11), files)
        with omnigraph.init(tmp_path / f"{write.__name__}.graph", schema) as graph:
            receipt = graph.load(files, mode="append")
            assert receipt.commit is not None
            view = graph.snapshot()
            contents.append(
                {
                    key: sorted(
                        json.dumps({k: v for k, v in row.items() if k != "id"}, default=str)
                        for row in view.scan(key).to_pylist()
                    )
                    for key in view.tables
                }
            )
    assert contents[0] == contents[1]

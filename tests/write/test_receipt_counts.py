"""Receipts have the exact numbers of created, updated and deleted entities, and the command line prints them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import omnigraph
from omnigraph.cli.main import cli
from omnigraph.graph import Graph
from omnigraph.settings import FSYNC
from omnigraph.write.mutation import MutationReceipt
from omnigraph.write.receipt import LoadReceipt

SCHEMA = "node Person { name: String @key  age: I32? } edge Knows: Person -> Person { @key(src, dst) }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv(FSYNC.name, "0")
    return omnigraph.init(tmp_path / "g", SCHEMA)


def counts(receipt: LoadReceipt | MutationReceipt) -> tuple[int | None, int | None, int | None]:
    return receipt.created, receipt.updated, receipt.deleted


def people(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def test_loads_count_by_mode(graph: Graph) -> None:
    assert counts(graph.load({"Person": people("ann", "bob")}, mode="append")) == (2, 0, 0)
    assert counts(graph.load({"Person": people("ann", "bob", "cid")}, mode="merge")) == (1, 2, 0)
    assert counts(graph.load({"Person": people("dan")}, mode="overwrite")) == (1, 0, 3)
    nothing = graph.load({"Person": []}, mode="merge")
    assert (nothing.commit, counts(nothing)) == (None, (None, None, None))


def test_mutations_count_by_statement(graph: Graph) -> None:
    def run(body: str) -> MutationReceipt:
        return graph.mutate(f"query q() {{ {body} }}")

    assert counts(run('insert Person { name: "ann" } insert Person { name: "bob" }')) == (2, 0, 0)
    assert counts(run('insert Person { name: "ann", age: 3 } insert Person { name: "cid" }')) == (1, 1, 0)
    assert counts(run('update Person set { age: 5 } where name != "ann"')) == (0, 2, 0)
    assert counts(run('insert Knows { from: "ann", to: "bob" }')) == (1, 0, 0)
    assert counts(run('delete Person where name = "ann"')) == (0, 0, 2)
    assert run('delete Person where name = "zoe"').commit is None


def test_a_repeated_request_has_the_counts_of_the_first(graph: Graph) -> None:
    add = 'query q() { insert Person { name: "ann" } }'
    first = graph.mutate(add, idempotency_key="k")
    assert counts(graph.mutate(add, idempotency_key="k")) == counts(first) == (1, 0, 0)


def test_a_transaction_has_counts_when_it_is_committed(graph: Graph) -> None:
    with graph.branch("main").transaction() as tx:
        staged = tx.mutate('query q() { insert Person { name: "ann" } }')
        assert (staged.affected_nodes, counts(staged)) == (1, (None, None, None))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ('insert Person { name: "new" }', "1 node, 0 edges (1 created)"),
        ('insert Person { name: "ann" }', "1 node, 0 edges (1 replaced)"),
        ('insert Person { name: "ann" } insert Person { name: "new" }', "2 nodes, 0 edges (1 created, 1 replaced)"),
        ('merge Person { name: "ann", age: 2 }', "1 node, 0 edges (1 updated)"),
        ('update Person set { age: 5 } where name = "ann"', "1 node, 0 edges (1 updated)"),
        ('delete Person where name = "ann"', "1 node, 0 edges (1 deleted)"),
        ('delete Person where name = "zoe"', "0 nodes, 0 edges"),
    ],
)
def test_the_command_line_names_what_a_mutation_did(graph: Graph, body: str, shown: str) -> None:
    graph.load({"Person": people("ann", "bob")}, mode="append")
    ended = CliRunner().invoke(cli, ["mutate", "--uri", graph.uri, "-e", body], prog_name="omnigraph")
    assert ended.output == f"changed main via given: {shown}\n"


@pytest.mark.parametrize(
    ("mode", "shown"),
    [
        ("append", "across 1 node type and 0 edge types"),
        ("merge", "across 1 node type and 0 edge types (1 created, 2 updated)"),
        ("overwrite", "across 1 node type and 0 edge types (in place of 2 entities)"),
    ],
)
def test_the_command_line_names_what_a_load_did(graph: Graph, tmp_path: Path, mode: str, shown: str) -> None:
    graph.load({"Person": people("ann", "bob")}, mode="append")
    names = ["x", "y", "z"] if mode == "append" else ["ann", "bob", "cid"]
    (tmp_path / "Person.csv").write_text("\n".join(["name", *names]))
    args = ["load", graph.uri, "--data", str(tmp_path / "Person.csv"), "--mode", mode, "--quiet"]
    ended = CliRunner().invoke(cli, args, prog_name="omnigraph")
    assert ended.output == f"loaded {graph.uri} on branch main with {mode}: 3 entities {shown}\n"

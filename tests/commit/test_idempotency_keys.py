"""Idempotency keys are found however old their commits are, and a new key costs no read of the history."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.commit.together import together

import omnigraph
from omnigraph.commit.lineage import find_any_idempotent, find_idempotent
from omnigraph.graph import Graph
from omnigraph.storage.ledger import LedgerVersion
from omnigraph.write.mutation import MutationReceipt

PUT = "query put($name: String) { insert P { name: $name } }"
NAMES = ["a", "é", "\U0001f600", "ab", "", "~", "\uffff"]
"""Texts with characters whose order differs between encodings."""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")
    return omnigraph.init(tmp_path / "graph", "node P { name: String @key }")


def commit_of(receipt: MutationReceipt) -> str:
    assert receipt.commit is not None
    return receipt.commit.id


def write(graph: Graph, count: int, start: int = 0) -> dict[str, str]:
    """Make commits with keys. Returns the commit of each key."""
    made = {}
    for number in range(start, start + count):
        key = f"{NAMES[number % len(NAMES)]}{number:05d}"
        made[key] = commit_of(graph.mutate(PUT, {"name": f"p{number}"}, idempotency_key=key))
    return made


def test_keys_of_old_commits_are_found(graph: Graph) -> None:
    made = write(graph, 100)
    graph.branches.create("dev")
    view = graph.session.store.capture("main")
    assert len(view.ledger.parts) > 1, "the history has older parts"
    for key, commit in made.items():
        found = find_idempotent(view, key, None)
        assert found is not None
        assert found.id == commit
        assert find_idempotent(view, f"{key}x", None) is None
        assert find_idempotent(view, key, "another actor") is None
        assert find_any_idempotent(graph.session.store.capture("dev"), key) is None, "a branch inherits no keys"
    assert commit_of(graph.mutate(PUT, {"name": "p0"}, idempotency_key="a00000")) == made["a00000"]
    assert graph.session.store.capture("main").version == view.version


def test_keys_of_the_members_of_old_groups_are_found(graph: Graph) -> None:
    put = partial(graph.mutate, PUT)
    writes = [partial(put, {"name": f"g{number}"}, idempotency_key=f"g{number}") for number in range(4)]
    receipts = [one for one in together(graph, writes) if isinstance(one, MutationReceipt)]
    assert len(receipts) == 4
    assert len(set(map(commit_of, receipts))) == 1
    write(graph, 130)
    view = graph.session.store.capture("main")
    assert all(commit.id != commit_of(receipts[0]) for commit in view.recent)
    for number, receipt in enumerate(receipts):
        again = graph.mutate(PUT, {"name": f"g{number}"}, idempotency_key=f"g{number}")
        assert commit_of(again) == commit_of(receipt)


def test_a_new_key_reads_no_part_again(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    write(graph, 100)
    view = graph.session.store.capture("main")
    assert find_idempotent(view, "new", None) is None
    monkeypatch.setattr(LedgerVersion, "_rows", None)
    assert find_idempotent(view, "another", None) is None

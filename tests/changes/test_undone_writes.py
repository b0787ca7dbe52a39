"""A write that was visible and then undone is two commits of the feed, and no change between the states around them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.changes.histories import state_of
from tests.commit.test_failed_flush import Flushes

import omnigraph
from omnigraph.errors import WriteUndoneError
from omnigraph.settings import FSYNC


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_an_undone_write_is_in_the_feed_with_its_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, branch: str
) -> None:
    monkeypatch.setenv(FSYNC.name, "1")
    flushes = Flushes(tmp_path)
    monkeypatch.setattr(os, "fsync", flushes)
    with omnigraph.init(tmp_path / "g", "node P { k: String @key  n: I64? }") as graph:
        graph.load([{"type": "P", "data": {"k": name, "n": 1}} for name in "abc"], mode="append")
        graph.branches.create("dev")
        graph.load([{"type": "P", "data": {"k": "d", "n": 1}}], mode="append", branch=branch)
        before = graph.snapshot(branch=branch).commit.id
        rows = [{"type": "P", "data": {"k": name, "n": 2}} for name in "bx"]
        ledger = graph.snapshot(branch=branch).manifest.ledger.branch or "__manifest"
        with flushes.failing_in(f"{ledger}/_versions/"), pytest.raises(WriteUndoneError):
            graph.load(rows, mode="merge", branch=branch)
        graph.load([{"type": "P", "data": {"k": "c", "n": 3}}], mode="merge", branch=branch)
        page = graph.changes.poll(start=f"after:{before}", branch=branch)
        found = [[(change.op.value, change.id) for change in block.changes] for block in page.blocks]
        assert found == [
            [("update", "b"), ("insert", "x")],
            [("update", "b"), ("delete", "x")],
            [("update", "c")],
        ]
        undo = page.blocks[1].cause.commit.id
        assert graph.diff(before, undo).is_empty
        assert graph.diff(undo, before).is_empty
        assert graph.diff(before, branch)["P"].updated()["id"].to_pylist() == ["c"]
        assert state_of(graph.export(at=undo)) == state_of(graph.export(at=before))

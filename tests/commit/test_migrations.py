"""Opening a graph of an older format for writing migrates it exactly once, also with concurrent openers."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import lance
import pytest
from tests.commit.child import Children
from tests.commit.graphs import SEED, assert_whole, create, ids, put
from ulid_transform import ulid_now

from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.format_upgrade import read_format
from omnigraph.commit.format_version import CURRENT
from omnigraph.commit.lease import acquire
from omnigraph.commit.manifest import MAIN, STAMP, Change, Commit
from omnigraph.commit.manifest_rows import read_manifest
from omnigraph.commit.manifest_successor import successor
from omnigraph.commit.migrations import MIGRATIONS
from omnigraph.commit.store import Store, now_micros
from omnigraph.errors import BranchNotFoundError, FormatError, NotFoundError
from omnigraph.graph import Graph, open
from omnigraph.storage.staging import stage_append
from omnigraph.storage.uri import GraphUri

ROWS = {"main": [*SEED, "later"], "dev": [*SEED, "own"], "kid": [*SEED, "own", "deeper"]}


def _first_format(place: Path) -> None:
    """Make a graph in format 1: branches and tags are references of the Lance dataset."""
    with create(place) as graph:
        store = graph.session.store
        _branch(store, "dev", None, "own")
        _branch(store, "kid", "dev", "deeper")
        put(graph, ["later"])
        manifest = lance.dataset(str(place / "__manifest"))
        manifest.tags.create("v1", 2)
        manifest.tags.create("v2", ("dev", None))
        ledger = store.manifest.open()
        assert ledger is not None
        schema = ledger.schema.with_metadata({STAMP.encode(): b"1"})
        store.manifest.publish(ledger, range(len(ledger.parts)), [], schema=schema)


def _branch(store: Store, name: str, parent: str | None, row: str) -> None:
    """A branch with one commit in format 1: the Lance branch has the name of the branch."""
    begun = store.manifest.open(parent)
    assert begun is not None
    made = store.manifest.create_branch(name, begun)
    identifier = store.manifest.branches()[name].identifier
    view = read_manifest(name, identifier, made)
    pin = view.tables["node:A"]
    fork = store.tables.fork(pin.ref, f"{identifier}-{ulid_now().lower()}")
    rows = store.tables.at(pin.ref).scan().slice(0, 1).to_pylist()
    table = store.tables.at(pin.ref).scan().slice(0, 0)
    new = table.from_pylist([{**rows[0], "id": row, "k": row}], schema=table.schema)
    staged = stage_append(store.tables.at(fork), new)
    assert staged is not None
    moved = replace(pin, ref=store.tables.commit_staged(staged), row_count=pin.row_count + 1)
    head = Commit(ulid_now(), name, view.version + 1, view.head.id, None, None, now_micros(), ledger=name)
    next_ = successor(view, Change((moved,)), head, view.fence + 1)
    store.manifest.publish(view.ledger, next_.keep, next_.add)


def _check(graph: Graph) -> None:
    assert [branch.name for branch in graph.branches] == ["main", "dev", "kid"]
    assert {branch.name: branch.parent for branch in graph.branches} == {"main": None, "dev": "main", "kid": "dev"}
    for name, rows in ROWS.items():
        assert ids(graph, branch=name) == sorted(rows)
    assert [tag.name for tag in graph.tags] == ["v1", "v2"]
    with open(graph.uri, read_only=True) as reader:
        assert sorted(reader.snapshot(commit="v2").scan("node:A")["id"].to_pylist()) == sorted(ROWS["dev"])
    assert_whole(graph)


def test_a_graph_of_format_1_is_migrated_when_it_is_opened_for_writing(place: Path) -> None:
    _first_format(place)
    with pytest.raises(FormatError, match="format 1"):
        open(place, read_only=True)
    with open(place) as graph:
        ledger = graph.session.store.manifest.open()
        assert ledger is not None
        assert read_format(ledger) == CURRENT
        _check(graph)
        head = graph.snapshot(branch="kid").commit
        assert graph.snapshot(commit=head.id).commit == head
        for name in ROWS:
            put(graph, ["new"], branch=name)
        graph.branches.create("grandkid", source="kid")
        put(graph, ["newest"], branch="grandkid")
        graph.branches.delete("grandkid")
        graph.branches.delete("kid")
        graph.branches.create("kid")
        assert ids(graph, branch="kid") == sorted([*SEED, "later", "new"])
        graph.tags.delete("v1")
        graph.tags.delete("v2")
        with pytest.raises(NotFoundError):
            graph.snapshot(commit="v1")
        assert graph.verify(branch="dev").ok
    with open(place) as again:
        assert [branch.name for branch in again.branches] == ["main", "dev", "kid"]
        assert list(again.tags) == []


def test_a_graph_of_format_2_can_be_read_and_is_migrated_when_it_is_opened_for_writing(place: Path) -> None:
    with create(place) as graph:
        graph.branches.create("dev")
        put(graph, ["own"], branch="dev")
        store = graph.session.store
        ledger = store.manifest.open()
        assert ledger is not None
        schema = ledger.schema.with_metadata({**(ledger.schema.metadata or {}), STAMP.encode(): b"2"})
        store.manifest.publish(ledger, range(len(ledger.parts)), [], schema=schema)
    with open(place, read_only=True) as reader:
        assert reader.session.format == 2
        assert ids(reader) == sorted(SEED)
    with open(place) as writer:
        assert writer.session.format == CURRENT
        put(writer, ["new"])
        put(writer, ["new"], branch="dev")
        assert ids(writer, branch="dev") == sorted([*SEED, "own", "new"])
        assert writer.verify().ok
    with open(place, read_only=True) as reader:
        assert reader.session.format == CURRENT
        assert ids(reader) == sorted([*SEED, "new"])


@pytest.mark.parametrize("point", [f"{Failpoint.MIGRATION_REF_WRITTEN}#2", Failpoint.MIGRATION_STAMPED])
def test_a_killed_migration_is_repeated(children: Children, place: Path, point: str) -> None:
    _first_format(place)
    assert children.run("reopen", failpoint=f"{point}=kill", uri=str(place)).signal == signal.SIGKILL
    with open(place) as graph:
        _check(graph)


def test_several_processes_can_migrate_at_once(children: Children, place: Path) -> None:
    _first_format(place)
    started = [children.start("reopen", uri=str(place)) for _ in range(4)]
    for pid in started:
        children.wait(pid).ok()
    with open(place) as graph:
        _check(graph)


def test_a_late_migration_does_not_restore_deleted_branches_and_tags(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused in the middle. Meanwhile another process finishes it, and a branch and a tag are deleted."""
    _first_format(place)
    store = Store.at(GraphUri.parse(str(place)))
    branches, tags = store.manifest.branches(), store.manifest.tags()
    with open(place) as graph:
        graph.branches.delete("kid")
        graph.tags.delete("v1")
        # The late process uses the lists that it read before.
        monkeypatch.setattr(type(store.manifest), "branches", lambda self: branches)
        listed = iter([tags])
        real = type(store.manifest).tags
        monkeypatch.setattr(type(store.manifest), "tags", lambda self: next(listed, None) or real(self))
        MIGRATIONS[1](store)
        monkeypatch.undo()
        assert "kid" not in graph.branches
        with pytest.raises(BranchNotFoundError):
            graph.snapshot(branch="kid")
        assert [tag.name for tag in graph.tags] == ["v2"]
        graph.branches.create("kid")
        assert ids(graph, branch="kid") == ids(graph, branch=MAIN)


def test_migrating_a_copy_does_not_wait_for_leases_of_the_original(place: Path, tmp_path: Path) -> None:
    """A migration takes leases. The owner of a copied lease works on the original and never releases the copy."""
    _first_format(place)
    store = Store.at(GraphUri.parse(str(place)), durable=False)
    with acquire(store.leases, MAIN) as held:
        shutil.copytree(place, tmp_path / "copy")
        began = time.monotonic()
        with open(tmp_path / "copy") as graph:
            _check(graph)
        assert time.monotonic() - began < 15
        held.check()

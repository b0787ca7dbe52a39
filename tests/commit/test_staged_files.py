"""A write whose staged files were removed stages them again or fails. It is never acknowledged without them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commit.graphs import INDEXES, SEED, Operation, assert_whole, create, ids, put, rows
from tests.s3_server import S3Root

from omnigraph.commit import staged_writes
from omnigraph.commit.failpoints import Failpoint, reach
from omnigraph.commit.table_writes import AppendFragments
from omnigraph.commit.write_request import WriteRequest
from omnigraph.errors import ReadSetChangedError, StagedFilesRemovedError
from omnigraph.graph import Graph, init, open
from omnigraph.storage.staging import write_fragments

NOTHING_SPARED = timedelta(0)


def once_staged(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object], times: int = 1) -> list[int]:
    """Act whenever a write has staged its files and does not have the lease yet."""
    done: list[int] = []

    def reached(point: Failpoint) -> None:
        if point is Failpoint.STAGED and len(done) < times:
            done.append(1)
            do()
        reach(point)

    monkeypatch.setattr(staged_writes, "reach", reached)
    return done


def cleaned(place: str, options: dict[str, str] | None = None) -> None:
    with open(place, storage_options=options) as other:
        other.cleanup(keep=100, orphans_older_than=NOTHING_SPARED)


@pytest.mark.parametrize("operation", [Operation.APPEND, Operation.UPSERT, Operation.DELETE, Operation.CHANGE])
@pytest.mark.parametrize("branch", ["main", "dev"])
def test_removed_staged_files_are_staged_again(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch, operation: Operation, branch: str
) -> None:
    graph.branches.create("dev")
    put(graph, ["own"], branch=branch)
    done = once_staged(monkeypatch, lambda: cleaned(str(place)))
    put(graph, ["s3" if operation is Operation.DELETE else "new"], operation=operation, branch=branch)
    assert done
    with open(place) as reopened:
        found = ids(reopened, branch=branch)
        assert ("new" in found) != (operation is Operation.DELETE)
        assert ("s3" in found) == (operation is not Operation.DELETE)
        assert reopened.verify(branch=branch).ok
        assert_whole(reopened)


def test_a_removed_staged_index_is_built_again(graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = once_staged(monkeypatch, lambda: cleaned(str(place)))
    put(graph, [], operation=Operation.INDEX)
    assert done
    with open(place) as reopened:
        assert [part.covered for part in reopened.snapshot().table("node:A").index_coverage(INDEXES)] == [3, 3]
        assert ids(reopened) == sorted(SEED)
        assert_whole(reopened)


def test_a_removed_staged_blob_is_written_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(200_000)
    with init(place, "node P { k: String @key  photo: Blob? }") as graph:
        done = once_staged(monkeypatch, lambda: cleaned(str(place)))
        graph.load({"P": pa.table({"k": ["p"], "photo": [content]})}, mode="append")
        assert done
    with open(place) as reopened:
        assert reopened.blob("P", "p", "photo").read() == content


def test_a_write_fails_if_fragments_of_another_process_were_removed(
    graph: Graph, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails after a second check, and nothing changes."""
    ref = graph.snapshot().pin("node:A").ref
    fragments = write_fragments(graph.session.store.tables.at(ref), rows("node:A", ["new"]))
    cleaned(str(place))
    before = graph.snapshot()
    with pytest.raises(StagedFilesRemovedError, match="staged file nodes/") as caught:
        graph.write_tables(WriteRequest(), lambda _: [AppendFragments("node:A", fragments)])
    assert isinstance(caught.value, ReadSetChangedError)
    assert graph.snapshot().commit == before.commit
    put(graph, ["next"])
    assert ids(graph) == sorted([*SEED, "next"])
    assert_whole(graph)


@pytest.mark.slow
@pytest.mark.s3
def test_removed_staged_files_in_s3_are_staged_again(s3_root: S3Root, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(s3_root.uri, s3_root.options) as graph:
        done = once_staged(monkeypatch, lambda: cleaned(s3_root.uri, s3_root.options))
        put(graph, ["new"], ["node:A", "node:B"])
        assert done
        monkeypatch.undo()
        assert ids(graph) == ids(graph, "node:B") == sorted([*SEED, "new"])
        put(graph, [], operation=Operation.INDEX)
        assert_whole(graph)

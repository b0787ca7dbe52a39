"""The number of storage calls of an operation does not depend on the length of the history."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
import pytest
from lance import LanceDataset
from tests.commit.graphs import create, ids, put
from tests.commit.test_manifest import publish
from tests.storage.faults import FaultyStore

from omnigraph.commit import store as store_module
from omnigraph.commit.manifest_successor import TAIL_COMMITS
from omnigraph.graph import Graph, open
from omnigraph.storage import ledger, staging
from omnigraph.storage.objects import ObjectStore, open_store

SHORT, LONG = 10, 500


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count every call to storage, by the object store or by Lance."""
    calls: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            calls[name] += 1
            return function(*arguments, **more)

        return call

    class Counting(FaultyStore):
        def _pass(self, operation: str, path: str, call: Callable[[], object]) -> object:  # type: ignore[override]
            calls[f"objects.{operation}"] += 1
            return call()

    def counting_store(*arguments: object, **more: object) -> ObjectStore:
        return Counting(open_store(*arguments, **more))  # type: ignore[arg-type]

    latest = LanceDataset.__dict__["latest_version"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "open_store", counting_store)
        patch.setattr(lance, "dataset", counting("lance.dataset", lance.dataset))
        patch.setattr(LanceDataset, "commit", staticmethod(counting("lance.commit", LanceDataset.commit)))
        patch.setattr(LanceDataset, "latest_version", property(counting("lance.latest_version", latest.fget)))
        for name in ("create_branch", "get_fragments", "to_table", "merge_insert", "count_rows"):
            patch.setattr(LanceDataset, name, counting(f"lance.{name}", getattr(LanceDataset, name)))
        for module, name in ((staging, "lance_write_fragments"), (ledger, "write_fragments")):
            patch.setattr(module, name, counting("lance.write_fragments", getattr(module, name)))
        yield calls


def _commit(graph: Graph) -> None:
    put(graph, ["one more"])


def _read(graph: Graph) -> None:
    assert len(ids(graph)) == 3


def _branch(graph: Graph) -> None:
    graph.branches.create("dev")


def _branch_commit(graph: Graph) -> None:
    put(graph, ["one more"], branch="side")


def _keyed_commit(graph: Graph) -> None:
    put(graph, ["one more"], idempotency_key="never seen")


def _tag(graph: Graph) -> None:
    graph.tags.create("v1")


OPERATIONS = [_read, _commit, _keyed_commit, _branch, _branch_commit, _tag]
MOST = {"open": 22, "_read": 3, "_commit": 27, "_keyed_commit": 27, "_branch": 16, "_branch_commit": 33, "_tag": 10}
"""The maximum number of calls of each operation. Raising a number needs a reason.

A commit and a branch each read the removal list twice: before the first file, and after the sidecar or
the reference is written. A commit looks at the three schema files, and writes and flushes a record of checksums."""


def costs(place: Path, commits: int) -> dict[str, Counter[str]]:
    """The storage calls of each operation, in a graph with a history of this length.

    The fewest of three measurements: on a loaded machine, one of them sometimes lists a directory once more.
    """
    with create(place / "graph") as graph:
        while len(list(graph.commits)) < commits - 1:
            publish(graph.session.store)
        graph.branches.create("side")
    copies = [Path(shutil.copytree(place / "graph", place / str(i))) for i in range(3)]
    measured = [measure(copy) for copy in copies]
    return {name: min((each[name] for each in measured), key=Counter.total) for name in measured[0]}


def measure(place: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for operation in OPERATIONS:
        with counted() as calls:
            handle = open(place)
            found["open"] = Counter(calls)
            calls.clear()
            operation(handle)
            found[operation.__name__] = Counter(calls)
            handle.close()
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    directory = tmp_path_factory.mktemp("cost")
    return costs(directory / "short", SHORT), costs(directory / "long", LONG)


Measured = tuple[dict[str, Counter[str]], dict[str, Counter[str]]]


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["open", *(operation.__name__ for operation in OPERATIONS)])
def test_storage_calls_do_not_grow_with_history(measured: Measured, operation: str) -> None:
    short, long = measured
    assert short[operation] == long[operation]
    assert 0 < long[operation].total() <= MOST[operation], long[operation]


def test_the_measured_histories_are_shorter_and_longer_than_the_manifest_tail() -> None:
    assert SHORT < TAIL_COMMITS < LONG

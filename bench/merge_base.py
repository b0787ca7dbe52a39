"""Finding the best common ancestors of two branches, by the number of commits that lie between and before them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ulid_transform import ulid_now

import omnigraph
from harness import Benchmark
from omnigraph.commit import manifest_rows, manifest_successor
from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import Change, Commit, Manifest
from omnigraph.commit.manifest_successor import successor
from omnigraph.commit.store import Store
from omnigraph.graph import Graph

COMMITS = 10_000
LIMIT_MS = 50
SCHEMA = "node Person { name: String @key }"


def extend(store: Store, branch: str, count: int) -> Manifest:
    """Publish commits of a branch, many at once; the parts are those that as many publishes would leave."""
    view = store.capture(branch)
    done = 0
    while done < count:
        some = min(count - done, manifest_successor.TAIL_COMMITS)
        made: list[Commit] = []
        for _ in range(some):
            last = made[-1] if made else view.head
            made.append(
                replace(
                    last,
                    id=ulid_now(),
                    branch=branch,
                    manifest_version=last.manifest_version + 1,
                    parent=last.id,
                    merged_parent=None,
                    actor="act-bench",
                    labels=(("mutation", '{"inserted":{"node:Person":1}}'),),
                    generation=(last.generation or 0) + 1,
                )
            )
        staged = replace(view, recent=(*view.recent, *made[:-1]))
        next_ = successor(staged, Change(), made[-1], view.fence)
        view = next_.published(store.manifest.publish(view.ledger, next_.keep, next_.add))
        done += some
    store.forget(branch)
    return store.capture(branch)


@contextmanager
def diverged(source: int, target: int, before: int) -> Iterator[Graph]:
    """A graph with a branch `side`: so many commits on each side since they parted, and so many before that."""
    with tempfile.TemporaryDirectory() as place, omnigraph.init(Path(place) / "graph", SCHEMA) as graph:
        extend(graph.session.store, "main", before)
        graph.branches.create("side")
        extend(graph.session.store, "side", source)
        extend(graph.session.store, "main", target)
        yield graph


def opened(store: Store, branch: str) -> Manifest:
    """The newest manifest of a branch, with nothing of its history read."""
    ledger = store.manifest.open(store.capture(branch).ledger.branch)
    assert ledger is not None
    return manifest_rows.read_manifest(branch, "", ledger)


def search(store: Store, source: Manifest, target: Manifest) -> None:
    assert len(History(store, source, target).common().best) == 1


def main() -> None:
    bench = Benchmark("merge_base")
    count = COMMITS // 10 if bench.quick else COMMITS
    cases = {
        f"{count:,} commits on the source": (count, 10, 0),
        f"{count:,} commits on the target": (10, count, 0),
        f"{count // 2:,} commits on each": (count // 2, count // 2, 0),
        f"10 commits on each, {count:,} before": (10, 10, count),
    }
    for name, sizes in cases.items():
        with diverged(*sizes) as graph:
            store = graph.session.store
            views = opened(store, "side"), opened(store, "main")
            found = bench.compare(name, ours=partial(search, store, *views))
            bench.goal(name, found.ours.median * 1000, LIMIT_MS, "ms")
    bench.finish()


if __name__ == "__main__":
    main()

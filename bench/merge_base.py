"""What it costs to find the best common ancestors of two branches, by the number of commits between them.

Run with: python -m bench.merge_base [commits ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from ulid_transform import ulid_now

import omnigraph
from omnigraph.commit import manifest as manifests
from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import Change, Commit, Manifest, successor
from omnigraph.commit.store import Store
from omnigraph.graph import Graph

REPEATS = 9


def extend(store: Store, branch: str, count: int) -> Manifest:
    """Publish commits of a branch, many at once; the parts are those that as many publishes would leave."""
    view = store.capture(branch)
    done = 0
    while done < count:
        some = min(count - done, manifests.TAIL_COMMITS)
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
    """A graph with a branch `side`, so many commits from where it parted from `main`, itself so many away."""
    with TemporaryDirectory() as place, omnigraph.init(Path(place) / "g", "node Person { name: String @key }") as graph:
        extend(graph._store, "main", before)
        graph.branches.create("side")
        extend(graph._store, "side", source)
        extend(graph._store, "main", target)
        yield graph


def seconds(graph: Graph) -> float:
    """One search, with nothing read before."""
    store = graph._store
    views = []
    for branch in ("side", "main"):
        ledger = store.manifest.open(store.capture(branch).ledger.branch)
        assert ledger is not None
        views.append(manifests.read_manifest(branch, "", ledger))
    began = time.perf_counter()
    found = History(store, *views).common()
    took = time.perf_counter() - began
    assert len(found.best) == 1
    return took


def main(counts: list[int]) -> None:
    print(f"{'since parted: side':>18} {'main':>8} {'before':>9} {'median ms':>10} {'worst ms':>9}")
    cases = [(count, 10, 0) for count in counts] + [(10, count, 0) for count in counts]
    cases += [(count // 2, count // 2, 0) for count in counts] + [(10, 10, count) for count in counts]
    for source, target, before in cases:
        with diverged(source, target, before) as graph:
            took = [1000 * seconds(graph) for _ in range(REPEATS)]
        print(f"{source:>18,} {target:>8,} {before:>9,} {median(took):>10.1f} {max(took):>9.1f}")


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [100, 1_000, 10_000])

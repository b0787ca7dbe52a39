"""A graph with a file of every class, and its expected answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
from tests.commit.graphs import evolve_to

from omnigraph.commit import manifest_successor
from omnigraph.commit.ancestors import History
from omnigraph.commit.store import Store
from omnigraph.commit.work_records import Work, WorkKind
from omnigraph.graph import Graph, init, open
from omnigraph.storage.lance_manifest import version_of
from omnigraph.testing import thresholds
from omnigraph.upkeep import cleanup

SCHEMA = """
node Note {
    slug: String @key
    text: String?
    n: I64?
    picture: Blob?
    @index(text, kind="fts")
    @index(n, kind="btree")
}
edge Cites: Note -> Note
"""

LATER_SCHEMA = SCHEMA.replace('    @index(n, kind="btree")\n', "")

FIRST = range(40)
TAIL = 6
"""The number of commits in the state part of the manifest: few, so that a short history also has older parts."""
COMMITS = 16
WORDS = ("engine", "graph", "harbour", "lighthouse", "ferry")


def notes(numbers: range, mark: str = "") -> pa.Table:
    """Notes with words, numbers and a picture. The pictures are stored in a blob file."""
    return pa.table(
        {
            "slug": [f"note-{i:03d}" for i in numbers],
            "text": [f"{WORDS[i % 5]} and {WORDS[(i * 3 + 1) % 5]} {mark}" for i in numbers],
            "n": [i * 7 % 11 for i in numbers],
            "picture": pa.array(
                [bytes([i % 251]) * (70_000 if i % 20 == 0 else 10) for i in numbers], pa.large_binary()
            ),
        }
    )


class StoppedError(BaseException):
    """Simulates the crash of a process."""


@contextmanager
def stopping(owner: type, name: str) -> Iterator[None]:
    """Simulate a crash where a method is called."""
    with mock.patch.object(owner, name, side_effect=StoppedError):
        try:
            yield
        except StoppedError:
            return
    raise AssertionError(f"{name} was not called")


def create(place: Path) -> None:
    """Make the graph: rows, indexes, branches, tags, a long history with a merge, and files of crashed processes.

    Processes crashed in a write, which is recovered; in a merge into the branch `half`, which is not; in a cleanup; and
    in an export.
    """
    with thresholds(manifest_successor, TAIL_COMMITS=TAIL):
        _create_rows(place)
        with open(place) as graph:
            _create_history(graph)
        with open(place) as graph, stopping(Store, "publish"):
            graph.mutate('query half() { insert Note { slug: "half" } }')
        with open(place) as graph:
            assert len(graph.recovery.list()) == 1
            with stopping(cleanup._Plan, "remove_versions"):
                graph.cleanup(keep=2)
            Work(
                graph.session.store.objects, WorkKind.EXPORT, "01m7gddpw2k0htre3nn9sq12jj", [graph.snapshot().manifest]
            ).begin()
            with stopping(Store, "publish"):
                graph.merge("side", "half")


def _create_history(graph: Graph) -> None:
    """Make a merge whose rows are deleted later, and enough commits to move it into an older part of the history."""
    graph.merge("side")
    graph.mutate('query gone() { delete Note where slug = "note-101" }')
    graph.branches.create("half")
    graph.mutate('query own() { insert Note { slug: "only-half" } }', branch="half")
    for i in range(COMMITS):
        graph.mutate(f'query more() {{ update Note set {{ n: {i} }} where slug = "note-030" }}')
    graph.branch("side").load({"Note": notes(range(110, 112))}, mode="append")
    graph.branches.create("old")
    evolve_to(graph, LATER_SCHEMA, [])


def _create_rows(place: Path) -> None:
    with init(place, SCHEMA) as graph:
        graph.load({"Note": notes(FIRST)}, mode="append")
        cites = [{"from": f"note-{i:03d}", "to": f"note-{(i * 3 + 1) % 40:03d}"} for i in FIRST]
        graph.load({"Cites": cites}, mode="append")
        graph.ensure_indexes()
        graph.tags.create("first")
        graph.load({"Note": notes(range(5, 12), "again")}, mode="merge")
        graph.mutate('query gone() { delete Note where slug = "note-039" }')
        graph.branches.create("side")
        graph.branch("side").load({"Note": notes(range(100, 104))}, mode="append")


Probe = Callable[[Graph], object]


def _export(graph: Graph) -> object:
    return list(graph.export())


def _side(graph: Graph) -> object:
    return list(graph.export(branch="side"))


def _point(graph: Graph) -> object:
    return [
        graph.query(
            'query q() { match { $n: Note { slug: "note-007" } } return { $n.slug, $n.text, $n.n } }'
        ).to_pylist(),
        graph.query("query q() { match { $n: Note { n: 3 } } return { $n.slug } order { $n.slug } }").to_pylist(),
    ]


def _words(graph: Graph) -> object:
    return graph.query(
        'query q() { match { $n: Note search($n.text, "lighthouse") } return { $n.slug } order { $n.slug } }'
    ).to_pylist()


def _hops(graph: Graph) -> object:
    return graph.query(
        "query q() { match { $a: Note $a cites $b $b cites $c } return { $a.slug as a, $c.slug as c } "
        "order { $a.slug, $c.slug } }"
    ).to_pylist()


def _blob(graph: Graph) -> object:
    return graph.blob("Note", "note-020", "picture").read()


def _past(graph: Graph) -> object:
    return sorted(graph.snapshot(commit="first").scan("node:Note", columns=["id", "text", "n"]).to_pylist(), key=str)


def _verify(graph: Graph) -> object:
    report = graph.verify()
    return report.ok, dict(report.entities)


def _half(graph: Graph) -> object:
    return sorted(graph.snapshot(branch="half").scan("node:Note", columns=["id"])["id"].to_pylist())


def _old(graph: Graph) -> object:
    return sorted(map(str, graph.query("query q() { match { $n: Note } return { $n } }", branch="old").json_rows()))


def _base(graph: Graph) -> object:
    found = []
    for source, target in (("side", "main"), ("main", "side"), ("old", "half")):
        store = graph.session.store
        common = History(store, store.capture(source), store.capture(target)).common()
        found.append((common.best, sorted(common.source_only), common.is_certain))
    return found


def _commits(graph: Graph) -> object:
    return [[commit.id for commit in graph.commits.list(branch=name).commits] for name in ("main", "side", "old")]


def _recoveries(graph: Graph) -> object:
    return graph.recovery.list()


def _pending(graph: Graph) -> object:
    return graph.recovery.pending()


READS: dict[str, Probe] = {
    "base": _base,
    "commits": _commits,
    "recoveries": _recoveries,
    "pending": _pending,
    "half": _half,
    "old": _old,
    "export": _export,
    "branch": _side,
    "point": _point,
    "words": _words,
    "hops": _hops,
    "blob": _blob,
    "past": _past,
    "verify": _verify,
}


def answers(place: Path) -> dict[str, object]:
    """The right answers."""
    with open(place, read_only=True) as graph:
        return {name: probe(graph) for name, probe in READS.items()}


def file_class(path: str) -> str | None:
    """The class of a file, by its path below the root; None for files that are the store's own locks."""
    name = os.path.basename(path)
    if name.startswith(".og-"):
        return None
    top = path.split("/")[0]
    if top in ("nodes", "edges", "__manifest", "_graph_commit_recoveries.lance"):
        kind = {"__manifest": "manifest", "_graph_commit_recoveries.lance": "audit"}.get(top, "table")
        for part, what in (
            ("/_versions/", "hint" if version_of(name) is None else "version"),
            ("/_transactions/", "transaction"),
            ("/_deletions/", "deletions"),
            ("/_indices/", "index"),
            ("/_refs/", "reference"),
            (".blob", "blobs"),
            ("/data/", "data"),
        ):
            if part in path:
                return f"{kind} {what}"
    named = {
        "__cleanup/reserve": "other",
        "__graph.json": "location",
        "_schema.pg": "schema",
        "_schema.ir.json": "schema",
        "__schema_state.json": "schema",
    }
    folders = {
        "__checksums": "checksums",
        "__lease": "lease",
        "__schemas": "archived schema",
        "__recovery": "sidecar",
        "__refs": "reference",
        "__staging": "ancestors",
        "__work": "work record",
        "__cleanup": "removal list",
        "__tags": "reference",
    }
    return named.get(path) or folders.get(top) or "other"


def files(place: Path) -> dict[str, list[str]]:
    """All files of a graph by class."""
    found: dict[str, list[str]] = {}
    for directory, _, names in os.walk(place):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), place)
            kind = file_class(path)
            if kind is not None:
                found.setdefault(kind, []).append(path)
    return {kind: sorted(paths) for kind, paths in sorted(found.items())}

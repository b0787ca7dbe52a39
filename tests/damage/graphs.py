"""A graph with a file of every class, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from omnigraph.graph import Graph, init, open
from omnigraph.storage.lance_manifest import version_of

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

FIRST = range(40)
WORDS = ("engine", "graph", "harbour", "lighthouse", "ferry")


def notes(numbers: range, mark: str = "") -> pa.Table:
    """Notes with words, numbers, and a picture each that lies in a file of blobs."""
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


def create(place: Path) -> None:
    """Make the graph: two versions of rows, deletions, indexes, a tag, and a branch with rows of its own."""
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


READS: dict[str, Probe] = {
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
        "__graph.json": "place",
        "_schema.pg": "schema",
        "_schema.ir.json": "schema",
        "__schema_state.json": "schema",
    }
    folders = {
        "__checksums": "checksums",
        "__lease": "lease",
        "__schemas": "past schema",
        "__recovery": "sidecar",
        "__refs": "reference",
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

"""A graph with all kinds of files, all of its answers, and all operations on it, for tests that copy or move it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa

from omnigraph.graph import Graph, init

SCHEMA = """
node Person { name: String @key  age: I64? @index  text: String?  photo: Blob?  @index(text, kind="fts") }
node Town { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
QUERIES = """
query aged($age: I64) { match { $p: Person { age: $age } } return { $p.name as name } order { $p.name } }
query telling($word: String) {
    match { $p: Person  search($p.text, $word) } return { $p.name as name } order { $p.name }
}
query known($name: String) {
    match { $p: Person { name: $name }  $p knows $q } return { $q.name as name } order { $q.name }
}
query rename($name: String, $age: I64) { update Person set { age: $age } where name = $name }
query leave($name: String) { delete Person where name = $name }
"""
BRANCHES = ("main", "dev", "dev-child", "hotfix")
LARGE = 80_000
"""A blob of this size is stored in its own file."""


def people(start: int, count: int) -> pa.Table:
    at = range(start, start + count)
    photos = [Random(i).randbytes(LARGE if i % 20 == 0 else 100) if i % 10 == 0 else None for i in at]
    return pa.table(
        {
            "name": [f"p{i:04d}" for i in at],
            "age": [i % 7 for i in at],
            "text": [f"likes {'tea' if i % 3 else 'coffee'} number {i}" for i in at],
            "photo": pa.array(photos, pa.binary()),
        }
    )


def knows(pairs: list[tuple[int, int]]) -> pa.Table:
    return pa.table({"from": [f"p{a:04d}" for a, _ in pairs], "to": [f"p{b:04d}" for _, b in pairs]})


def make_graph(place: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Graph:
    """A graph with a branch of a branch, deletions, indexes, blobs of both kinds, and a tag."""
    graph = init(place, SCHEMA, storage_options=options)
    graph.load({"Person": people(0, 60), "Knows": knows([(i, i + 1) for i in range(50)])}, mode="append")
    graph.ensure_indexes()
    graph.tags.create("first")
    graph.branches.create("dev")
    graph.load({"Person": people(60, 20)}, mode="append", branch="dev")
    graph.mutate(QUERIES, name="leave", params={"name": "p0003"}, branch="dev")
    graph.mutate(QUERIES, name="rename", params={"name": "p0004", "age": 99}, branch="dev")
    graph.branches.create("dev-child", source="dev")
    graph.load({"Person": people(80, 10), "Knows": knows([(80, 0), (81, 62)])}, mode="append", branch="dev-child")
    graph.mutate(QUERIES, name="leave", params={"name": "p0061"}, branch="dev-child")
    graph.mutate(QUERIES, name="leave", params={"name": "p0010"})
    graph.branches.create("hotfix", commit="first")
    graph.mutate(QUERIES, name="rename", params={"name": "p0020", "age": 77}, branch="hotfix")
    graph.tags.create("on-dev", branch="dev")
    return graph


def told(graph: Graph) -> dict[str, object]:
    """All answers of the graph: every branch and tag, by scans and by indexes, and the bytes of its blobs."""
    said: dict[str, object] = {}
    for branch in graph.branches:
        said[branch.name] = (branch.head, b"".join(graph.export(branch=branch.name)))
        for name, params in (("aged", {"age": 4}), ("telling", {"word": "coffee"}), ("known", {"name": "p0005"})):
            rows = graph.query(QUERIES, name=name, params=params, branch=branch.name).to_pylist()
            said[f"{branch.name} {name}"] = rows
        said[f"{branch.name} blob"] = graph.blob("Person", "p0020", "photo", branch=branch.name).read()
        assert graph.verify(branch=branch.name).ok
    for tag in graph.tags:
        said[f"tag {tag.name}"] = b"".join(graph.export(at=tag.name))
    return said


def work(graph: Graph) -> None:
    """Write, merge, optimize, fork and clean up, and check the results."""
    graph.load({"Person": people(200, 5)}, mode="append", branch="dev-child")
    graph.mutate(QUERIES, name="leave", params={"name": "p0070"}, branch="dev-child")
    graph.merge("dev-child", into="dev")
    names = sorted(row["name"] for row in graph.query(EVERYONE, branch="dev").to_pylist())
    gone = {"p0003", "p0061", "p0070"}
    assert names == sorted({f"p{i:04d}" for i in (*range(90), *range(200, 205))} - gone)
    graph.branches.create("later", source="dev")
    graph.load({"Person": people(300, 2)}, mode="append", branch="later")
    graph.merge("later", into="main")
    gone |= {"p0010"}
    graph.merge("hotfix", into="main")
    names = sorted(row["name"] for row in graph.query(EVERYONE).to_pylist())
    assert names == sorted({f"p{i:04d}" for i in (*range(90), *range(200, 205), 300, 301)} - gone)
    assert [row["name"] for row in graph.query(QUERIES, name="aged", params={"age": 77}).to_pylist()] == ["p0020"]
    graph.optimize()
    graph.ensure_indexes(branch="dev")
    graph.ensure_indexes(branch="later")
    graph.branches.delete("later")
    report = graph.cleanup(keep=1, orphans_older_than=timedelta(0))
    assert not report.errors
    for branch in graph.branches:
        assert graph.verify(branch=branch.name).ok
    with graph.branch("dev").transaction() as tx:
        tx.mutate(QUERIES, name="rename", params={"name": "p0021", "age": 55})
    assert [r["name"] for r in graph.query(QUERIES, name="aged", params={"age": 55}, branch="dev").to_pylist()] == [
        "p0021"
    ]
    assert graph.blob("Person", "p0040", "photo").read() == Random(40).randbytes(LARGE)


EVERYONE = "query everyone() { match { $p: Person } return { $p.name as name } order { $p.name } }"


def poison(place: Path) -> dict[str, bytes]:
    """Fill every file of a directory with zeros, so that any read there fails. Returns the new content."""
    for file in place.rglob("*"):
        if file.is_file():
            file.write_bytes(bytes(max(1, file.stat().st_size)))
    return listing(place)


def listing(place: Path) -> dict[str, bytes]:
    """Every file of a directory and its content."""
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def copy(place: Path, to: Path) -> Path:
    """A copy as `cp -a` makes it."""
    shutil.copytree(place, to, symlinks=True)
    return to

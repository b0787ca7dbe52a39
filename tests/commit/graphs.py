"""A small graph, writes to it, and the invariants that tests check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.table_writes import (
    Append,
    BuildIndexes,
    Change,
    DeleteWhere,
    Insert,
    Overwrite,
    TableWrite,
    Upsert,
)
from omnigraph.commit.write_request import SchemaChange, WriteRequest
from omnigraph.graph import Graph, init
from omnigraph.lang.schema import compile_schema, evolve, ir_hash
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.indexes import IndexSpec

SCHEMA = """
node A { k: String @key n: I64? }
node B { k: String @key n: I64? }
node C { k: String @key n: I64? }
edge AB: A -> B
edge BC: B -> C
"""
NODES = ("node:A", "node:B", "node:C")
EDGES = ("edge:AB", "edge:BC")
TABLES = (*EDGES, *NODES)
SEED = ("s1", "s2", "s3")
"""The ids that every table begins with."""

INDEXES = (IndexSpec("id", IndexKind.BTREE), IndexSpec("id", IndexKind.FTS))


class Operation(StrEnum):
    """Table writes that need only ids. Parameters of tests and of jobs of child processes."""

    APPEND = "append"
    INSERT = "insert"
    UPSERT = "upsert"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    CHANGE = "change"
    INDEX = "index"


_OF_ROWS: dict[Operation, type[Append | Insert | Upsert | Overwrite]] = {
    Operation.APPEND: Append,
    Operation.INSERT: Insert,
    Operation.UPSERT: Upsert,
    Operation.OVERWRITE: Overwrite,
}


def rows(key: str, ids: Sequence[str], n: int = 0) -> pa.Table:
    """Rows for a table of the small graph."""
    names = pa.array(ids, pa.utf8())
    if key in EDGES:
        ends = pa.array(["s1"] * len(ids), pa.utf8())
        return pa.table({"id": names, "src": ends, "dst": ends})
    return pa.table({"id": names, "k": names, "n": pa.array([n] * len(ids), pa.int64())})


def table_write(key: str, operation: Operation, ids: Sequence[str], n: int = 0) -> TableWrite:
    """An operation that writes these ids, or deletes them if it is a delete. A change also deletes the second seed row.

    An index build writes no rows.
    """
    if operation is Operation.INDEX:
        return BuildIndexes(key, INDEXES, INDEXES)
    if operation is Operation.DELETE:
        return DeleteWhere(key, pc.field("id").isin(pa.array(ids, pa.utf8())))
    if operation is Operation.CHANGE:
        return Change(key, rows(key, ids, n), pa.array([SEED[1]], pa.utf8()))
    return _OF_ROWS[operation](key, rows(key, ids, n))


def put(
    graph: Graph,
    ids: Sequence[str],
    keys: Sequence[str] = ("node:A",),
    *,
    operation: Operation = Operation.APPEND,
    branch: str = MAIN,
    kind: WriterKind = WriterKind.LOAD,
    **said: object,
) -> Commit:
    """One commit with the same operation on each table."""
    request = WriteRequest(branch=branch, kind=kind, **said)  # type: ignore[arg-type]  # passed on as given
    commit = graph.write_tables(request, lambda view: [table_write(key, operation, ids) for key in keys])
    assert commit is not None
    return commit


def evolve_to(graph: Graph, source: str, ids: Sequence[str]) -> Commit | None:
    """Change the schema, and add rows to `node:A` in the same commit."""
    accepted = evolve(graph.accepted_schema, compile_schema(source))
    change = SchemaChange(source, accepted, ir_hash(graph.accepted_schema))
    request = WriteRequest(kind=WriterKind.SCHEMA_APPLY, actor="act-kim", schema=change)
    writes = [table_write("node:A", Operation.APPEND, ids)] if ids else []
    return graph.write_tables(request, lambda view: writes)


def create(place: Path | str, options: Mapping[str, str] | None = None) -> Graph:
    """The small graph, with a few rows in every table."""
    graph = init(place, SCHEMA, storage_options=options)
    put(graph, SEED, TABLES)
    return graph


def ids(graph: Graph, key: str = "node:A", branch: str = MAIN) -> list[str]:
    """The sorted ids of a table, including duplicates."""
    return sorted(graph.snapshot(branch=branch).scan(key, columns=["id"])["id"].to_pylist())


def contents(graph: Graph, branch: str = MAIN) -> dict[str, list[str]]:
    return {key: ids(graph, key, branch) for key in TABLES}


def sidecars(graph: Graph) -> list[str]:
    return [info.path for info in graph.session.store.objects.list("__recovery")]


def drift(view: Manifest, graph: Graph) -> dict[str, tuple[int, int | None]]:
    """The tables of a branch whose newest version differs from the version in the manifest."""
    found = {}
    for key, pin in view.tables.items():
        own = view.branch == MAIN or (pin.ref.branch or "").startswith(view.incarnation)
        head = graph.session.store.tables.head(pin.ref.path, pin.ref.branch)
        if own and head != pin.ref.version:
            found[key] = (pin.ref.version, head)
    return found


def assert_whole(graph: Graph) -> None:
    """Check the invariants without running writes: each table is at its manifest version, each history is a chain."""
    assert sidecars(graph) == []
    for branch in [found.name for found in graph.branches]:
        view = graph.session.store.capture(branch)
        assert drift(view, graph) == {}, branch
        for key, pin in view.tables.items():
            assert graph.session.store.tables.at(pin.ref).count() == pin.row_count, (branch, key)
        assert_chain(graph, branch)


def assert_chain(graph: Graph, branch: str = MAIN) -> list[Commit]:
    """Check that a history is a chain of commits: each has the previous one as parent, and the next version number."""
    history = list(graph.commits.list(branch=branch).commits)
    for commit, parent in pairwise(history):
        assert commit.parent == parent.id
        assert commit.created_at > parent.created_at
        if commit.branch == parent.branch:
            assert commit.manifest_version == parent.manifest_version + 1
    assert history[-1].parent is None
    assert len({commit.id for commit in history}) == len(history)
    return history

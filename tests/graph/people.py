"""A small graph, and writes to it."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.commit.manifest import Commit
from omnigraph.commit.table_writes import Append, TableWrite
from omnigraph.commit.write_request import WriteRequest
from omnigraph.graph import Graph

SCHEMA = """\
node Person { name: String @key }
node City { name: String @key }
edge Lives: Person -> City
"""


def people(*names: str) -> TableWrite:
    return Append("node:Person", pa.table({"id": list(names), "name": list(names)}))


def add(graph: Graph, *names: str, branch: str = "main", **about: str) -> Commit:
    """One commit that adds people."""
    made = graph.write_tables(WriteRequest(branch=branch, **about), lambda _: [people(*names)])  # type: ignore[arg-type]
    assert made is not None
    return made


def names(graph: Graph, branch: str = "main") -> list[str]:
    return sorted(graph.snapshot(branch=branch).scan("node:Person")["name"].to_pylist())

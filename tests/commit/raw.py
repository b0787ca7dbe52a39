"""What somebody does to the files of a graph behind its back."""

from __future__ import annotations

from pathlib import Path

import lance
from lance import LanceDataset
from lance.fragment import write_fragments
from tests.commit.graphs import rows

from omnigraph.commit.manifest import TablePin
from omnigraph.graph import Graph
from omnigraph.storage.tables import manifest_name, table_directory


def directory(graph: Graph, pin: TablePin) -> Path:
    return Path(graph.uri) / table_directory(pin.ref.path, pin.ref.branch)


def append(graph: Graph, key: str, ids: list[str], branch: str = "main") -> int:
    """Move a table without telling the graph. Returns the version that it is at now."""
    pin = graph.snapshot(branch=branch).pin(key)
    dataset = lance.dataset(str(directory(graph, pin)))
    transaction = write_fragments(rows(key, ids).cast(dataset.schema), dataset, return_transaction=True)
    return int(LanceDataset.commit(dataset, transaction).version)


def lose_newest_version(graph: Graph, key: str) -> None:
    """Take away the version of a table that the graph points at."""
    pin = graph.snapshot().pin(key)
    (directory(graph, pin) / "_versions" / manifest_name(pin.ref.version)).unlink()

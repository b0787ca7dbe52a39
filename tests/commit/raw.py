"""Changes to the files of a graph that bypass the engine."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import lance
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments
from tests.commit.child import Children
from tests.commit.graphs import put, rows

from omnigraph.commit.manifest import TablePin
from omnigraph.commit.sidecar import Sidecar
from omnigraph.graph import Graph
from omnigraph.storage.staging import stage_restore
from omnigraph.storage.table_ref import manifest_name, table_directory


def directory(graph: Graph, pin: TablePin) -> Path:
    return Path(graph.uri) / table_directory(pin.ref.path, pin.ref.branch)


def append(graph: Graph, key: str, ids: list[str], branch: str = "main") -> int:
    """Append to a table without a commit of the graph. Returns the new version."""
    pin = graph.snapshot(branch=branch).pin(key)
    dataset = lance.dataset(str(directory(graph, pin)))
    transaction = write_fragments(rows(key, ids).cast(dataset.schema), dataset, return_transaction=True)
    return int(LanceDataset.commit(dataset, transaction).version)


def lose_newest_version(graph: Graph, key: str) -> tuple[Path, bytes]:
    """Remove the version of a table that the manifest names. Returns the file and its content."""
    pin = graph.snapshot().pin(key)
    file = directory(graph, pin) / "_versions" / manifest_name(pin.ref.version)
    data = file.read_bytes()
    file.unlink()
    return file, data


def restore(graph: Graph, key: str, version: int) -> None:
    """Restore an earlier version of a table without a commit of the graph."""
    dataset = lance.dataset(str(directory(graph, graph.snapshot().pin(key))))
    LanceDataset.commit(dataset, LanceOperation.Restore(version), read_version=dataset.version)


def restore_late(graph: Graph, key: str, version: int) -> None:
    """Restore an earlier version of a table as the engine does, but never publish it."""
    tables, ref = graph.session.store.tables, graph.snapshot().pin(key).ref
    head = tables.head(ref.path, ref.branch)
    assert head is not None
    tables.commit_staged(stage_restore(tables.at(ref.at(head)), version))


def newest_manifest(graph: Graph) -> Path:
    """The newest manifest version file of `main`."""
    return Path(graph.uri) / "__manifest" / "_versions" / manifest_name(graph.snapshot().manifest_version)


def newest_version(graph: Graph, key: str = "node:A") -> Path:
    """The newest version file of a table."""
    pin = graph.snapshot().pin(key)
    head = graph.session.store.tables.head(pin.ref.path, pin.ref.branch)
    assert head is not None
    return directory(graph, pin) / "_versions" / manifest_name(head)


def tear(file: Path) -> bytes:
    """Fill a file with zeros. Returns its old content."""
    data = file.read_bytes()
    file.write_bytes(bytes(len(data)))
    return data


def damage_data(graph: Graph) -> Path:
    """Flip a bit in the file that holds the newest rows of a table."""
    put(graph, ["lost"])
    pin = graph.snapshot().pin("node:A")
    file = max((directory(graph, pin) / "data").glob("*.lance"), key=lambda file: file.stat().st_mtime_ns)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)
    return file


def stop_for_good(children: Children, graph: Graph) -> tuple[Path, bytes]:
    """Stop a write after it has moved only `node:A`, and remove a file that recovery needs.

    Returns the file and its content.
    """
    job = {"uri": graph.uri, "writes": [("node:A", "append", ["half"]), ("node:B", "append", ["half"])]}
    assert children.run("write", failpoint="table_committed=kill", **job).signal == signal.SIGKILL
    return lose_newest_version(graph, "node:B")


def undo_without_a_way_back(children: Children, graph: Graph) -> tuple[Path, Path, bytes]:
    """Publish a write that must be undone, and remove the version of `node:A` that it is based on.

    Returns the sidecar, the version file and its content.
    """
    before = newest_version(graph)
    data = before.read_bytes()
    job = {"uri": graph.uri, "writes": [("node:A", "append", ["seen"])]}
    assert children.run("write", failpoint="published=kill", **job).signal == signal.SIGKILL
    (sidecar,) = (Path(graph.uri) / "__recovery").glob("*.json")
    found = Sidecar.load(sidecar.name, sidecar.read_bytes())
    sidecar.write_bytes(replace(found, rollback_only=True).dump())
    before.unlink()
    return sidecar, before, data

"""The reachable files of a graph, computed with Lance only. An independent oracle for cleanup."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import lance

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.refs import list_branch_refs
from omnigraph.graph import Graph
from omnigraph.storage.table_ref import TableRef, manifest_name, table_directory


def listing(root: Path) -> dict[str, str]:
    """Every table file of a graph, and a digest of its content."""
    found = {}
    for kind in ("nodes", "edges"):
        for file in (root / kind).rglob("*"):
            if file.is_file() and not file.name.startswith(".og-"):
                found[str(file.relative_to(root))] = blake2b(file.read_bytes(), digest_size=12).hexdigest()
    return found


def views(graph: Graph, keep: int) -> list[Manifest]:
    """The states that cleanup must keep: heads, starts of branches, tags, and the newest commits of each branch."""
    store = graph.session.store
    found = []
    for name in store.branch_names():
        found.append(store.capture(name))
        for commit in list(graph.commits.list(branch=name).commits)[:keep]:
            found.append(store.manifest_of(commit))
    for ref in list_branch_refs(store.objects).values():
        begun = store.manifest_in(ref.parent_ledger, ref.parent, ref.parent_version)
        found += [] if begun is None else [begun]
    found += [store.manifest_of(graph.commits.get(tag.commit_id)) for tag in graph.tags]
    return found


def pins(graph: Graph, states: Iterable[Manifest]) -> set[TableRef]:
    """The table versions of states, and the versions at which their forks start."""
    found = {pin.ref for view in states for pin in view.tables.values()}
    for path in {ref.path for ref in found}:
        for fork, point in graph.session.store.tables.fork_points(path).items():
            if any((ref.path, ref.branch) == (path, fork) for ref in found):
                found |= {point, TableRef(path, fork, point.version)}
    return found


def reached(root: Path, refs: Iterable[TableRef]) -> set[str]:
    """The names of all files that table versions need. File names are unique."""
    names: set[str] = set()
    for ref in refs:
        directory = root / table_directory(ref.path, ref.branch)
        dataset = lance.dataset(str(directory), version=ref.version)
        for fragment in dataset.get_fragments():
            for file in fragment.metadata.files:
                names |= {file.path, file.path.removesuffix(".lance")}  # large blobs are in a directory beside it
            deletion = fragment.metadata.deletion_file
            if deletion is not None:
                names.add(Path(deletion.path(fragment.fragment_id)).name)
        names |= {str(part.uuid) for index in dataset.describe_indices() for part in index.segments}
    return names


def unreached(root: Path, refs: set[TableRef]) -> set[str]:
    """The table files that no such version needs, without bookkeeping files."""
    names = reached(root, refs)
    manifests = {f"{table_directory(r.path, r.branch)}/_versions/{manifest_name(r.version)}" for r in refs}
    left = set()
    for path in listing(root):
        parts = path.split("/")
        kind = next(part for part in parts[2:] if part.startswith("_") or part == "data")
        if kind in ("_refs", "_transactions") or path.endswith("latest_version_hint.json"):
            continue
        if kind == "_versions":
            left |= set() if path in manifests else {path}
        elif not names & set(parts):
            left.add(path)
    return left

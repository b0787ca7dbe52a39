"""Values that earlier merges have left out, because the schema of their target did not have the property or the type.

After such a merge, the target has the merged commit as an ancestor, but not its values. If another branch that has the
property then merges this target, it would get the ancestor, and count as having removed the values. Later merges would
undo them without a conflict. So such a merge is refused.
"""

# See docs/decisions/0195-a-merge-uses-the-schema-of-its-target.md

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.ancestors import History
from omnigraph.commit.manifest import MAIN, Commit, Manifest
from omnigraph.commit.manifest_rows import read_commits
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.store import Store
from omnigraph.errors import BranchNotFoundError, CorruptionError, MergeSchemaError, VersionReclaimedError
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.merge.receipt import adopts_tables, stored_merge
from omnigraph.merge.schema_alignment import Schemas

_Member = tuple[int, int | None, int | None]
"""The identity of a property: the numbers of its type, of its table, and its own; the last is None for the type."""


def check_left_out(store: Store, schemas: Schemas, history: History, new_commits: pa.Table) -> None:
    """Refuse a merge that would bring an ancestor without its values.

    Args:
        store: the graph.
        schemas: returns the schema of a state of the graph.
        history: the commits of the source and the target.
        new_commits: the rows of the commits that only the source has.

    Raises:
        MergeSchemaError: the source has merged a state that the target does not have, and has left out values of
            properties or types that the target has.
    """
    source, target = history.source, history.target
    if source.schema_hash == target.schema_hash:
        return
    lost = _members(schemas.of(target)).keys() - _members(schemas.version_at(Snapshot(store, source))[1]).keys()
    if not lost:
        return
    names = set(new_commits["object_id"].to_pylist())
    for merge, incomplete in _incomplete(new_commits):
        if incomplete not in names:
            continue  # the target has this state with all its values
        merged = history.commit(incomplete)
        missing = _missing(store, schemas, merge, merged, lost)
        if missing:
            raise _refused(source, target, merged, missing)


def _incomplete(rows: pa.Table) -> Iterator[tuple[Commit, str]]:
    """The merges that have left out something, each with the parent whose values it does not have."""
    for commit in read_commits(rows.filter(pc.match_substring(rows["metadata"], "left_out"))):
        stored = stored_merge(commit)
        if stored is not None and stored.get("left_out"):
            # A branch update takes the tables of the parent branch, and leaves out values of the branch itself.
            parent = commit.parent if adopts_tables(commit) else commit.merged_parent
            if parent is not None:
                yield commit, parent


def _missing(store: Store, schemas: Schemas, merge: Commit, merged: Commit, lost: set[_Member]) -> list[str]:
    """Those of the properties and types that a merge has left out that are in `lost`.

    If the schema of the merged state is no longer known, these are all of them.
    """
    stored = stored_merge(merge)
    assert stored is not None
    names = [name.partition(" ")[0] for name in stored["left_out"]]
    try:
        schema = schemas.version_at(Snapshot(store, store.manifest_of(merged)))[1]
    except (VersionReclaimedError, BranchNotFoundError, CorruptionError):
        return names
    found = {_members(schema)[member] for member in lost & _members(schema).keys()}
    return [name for name in names if name in found]


def _members(schema: AcceptedSchema) -> dict[_Member, str]:
    """The types and properties of a schema by their identities, with their names."""
    found: dict[_Member, str] = {}
    for (_, name), identity in schema.identities.items():
        if identity.incarnation is not None:
            table = identity.type_id, identity.incarnation
            found[*table, None] = name
            found |= {(*table, number): f"{name}.{column}" for column, number in identity.properties.items()}
    return found


def _refused(source: Manifest, target: Manifest, merged: Commit, missing: list[str]) -> MergeSchemaError:
    if merged.branch in (source.branch, target.branch):
        first = f"create a branch at commit {merged.id}, and merge it into '{target.branch}' first"
    else:
        first = f"merge '{merged.branch}', or a branch at that commit, into '{target.branch}' first"
    other = "" if MAIN in (source.branch, target.branch) else f"; or update '{source.branch}' with its parent"
    return MergeSchemaError(
        f"'{source.branch}' has merged commit {merged.id} of '{merged.branch}' without the values of "
        f"{', '.join(missing)}, which '{target.branch}' has: they would count as removed",
        hint=first + other,
    )

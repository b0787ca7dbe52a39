"""The next version of a manifest.

A publish replaces only the last part of the manifest, the state. So its cost does not depend on the length of the
history. When the state has many commits, they move to a new part, and small parts are merged into larger ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from omnigraph.commit.manifest import SCHEMA, Change, Commit, DroppedData, Manifest, TablePin
from omnigraph.commit.manifest_rows import lineage_rows, state_rows
from omnigraph.dataclass import dataclass
from omnigraph.storage.ledger import LedgerVersion

TAIL_COMMITS = 64
"""Maximum number of commits and ancestors in the state. If there are more, they move to a new part."""

MEMBERS_PER_COMMIT = 4
"""Number of members of a group that count as one more commit, because every publish writes the state again."""

FAN_IN = 4
"""Number of parts that are merged into one larger part."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The next manifest version, not published yet: parts to keep of the last version, rows to add, and its content."""

    keep: list[int]
    add: list[pa.Table]
    says: Manifest

    def published(self, ledger: LedgerVersion) -> Manifest:
        return replace(self.says, ledger=ledger)


def successor(manifest: Manifest, change: Change, commit: Commit, fence: int) -> Successor:
    """The manifest after a commit."""
    tables = dict(manifest.tables)
    dropped = list(manifest.dropped)
    for key in change.drops:
        pin = tables.pop(key)
        dropped.append((key, pin.id, pin.ref.version))
    # Two types may swap names, so remove all old names before adding new ones.
    renamed = [replace(tables.pop(old), key=new) for old, new in change.renames]
    tables |= {pin.key: pin for pin in renamed}
    tables |= {pin.key: pin for pin in change.pins}
    tables = dict(sorted(tables.items()))
    # If the commit that dropped a table is undone, the table is in the manifest again. Remove its tombstone.
    live = {pin.id for pin in tables.values()}
    dropped = [gone for gone in dropped if gone[1] not in live]
    commits = (*manifest.recent, commit)
    ancestors = manifest.ancestors
    if change.ancestors is not None:
        ancestors = pa.concat_tables([ancestors, change.ancestors])
    keep = list(range(len(manifest.ledger.parts) - 1))
    add: list[pa.Table] = []
    members = sum(len(one.members) // MEMBERS_PER_COMMIT for one in commits)
    if (rows := len(commits) + ancestors.num_rows) + members > TAIL_COMMITS:
        keep, folded = _fold(manifest.ledger, keep, rows)
        add.append(pa.concat_tables([*folded, ancestors, lineage_rows(commits)]))
        commits, ancestors = (), SCHEMA.empty_table()
    schema_hash = change.schema_hash or manifest.schema_hash
    hard = _dropped_data(manifest, change, commit, tables)
    state = state_rows(
        manifest.branch,
        schema_hash,
        tables.values(),
        dropped,
        commits,
        commit,
        fence,
        dropped_data=hard,
        genesis=manifest.genesis,
    )
    add.append(pa.concat_tables([state, ancestors]))
    says = replace(
        manifest,
        schema_hash=schema_hash,
        head=commit,
        fence=fence,
        tables=tables,
        dropped=tuple(dropped),
        recent=commits,
        ancestors=ancestors,
        dropped_data=hard,
    )
    return Successor(keep, add, says)


def _dropped_data(
    manifest: Manifest, change: Change, commit: Commit, tables: Mapping[str, TablePin]
) -> tuple[DroppedData, ...]:
    """The hard drops after a commit."""
    versions = {pin.id: pin.ref.version for pin in tables.values()}
    before = [manifest.tables[key] for key in change.hard]
    made = (DroppedData(commit.manifest_version, pin.key, pin.ref.path, versions.get(pin.id)) for pin in before)
    kept = (one for one in manifest.dropped_data if one.manifest_version != change.undone)
    return (*kept, *made)


def closing(manifest: Manifest, fence: int, successor: str | None = None, origin: str | None = None) -> Successor:
    """The last manifest version of an incarnation: the same state, marked as closed.

    Args:
        manifest: the newest version.
        fence: the fencing number of the lease.
        successor: the next incarnation of a branch that is reset; None for a branch that is deleted.
        origin: the origin of a branch that is reset.
    """
    keep = list(range(len(manifest.ledger.parts) - 1))
    says = replace(manifest, fence=fence, closed=True, successor=successor, origin=origin)
    state = state_rows(
        says.branch,
        says.schema_hash,
        says.tables.values(),
        says.dropped,
        says.recent,
        says.head,
        fence,
        closed=True,
        successor=successor,
        dropped_data=says.dropped_data,
        genesis=says.genesis,
        origin=origin,
    )
    return Successor(keep, [pa.concat_tables([state, says.ancestors])], says)


def _fold(ledger: LedgerVersion, keep: list[int], rows: int) -> tuple[list[int], list[pa.Table]]:
    """Choose the parts to merge into a new part that gets `rows` commits.

    Takes the newest `FAN_IN - 1` parts while none of them has more rows than the new part.

    Returns:
        The indexes of the parts to keep, and the rows of the parts to merge.
    """
    taken: list[int] = []
    while len(keep) >= FAN_IN - 1 and all(ledger.parts[i] <= rows for i in keep[-(FAN_IN - 1) :]):
        newest = keep[-(FAN_IN - 1) :]
        taken = [*newest, *taken]
        keep = keep[: -(FAN_IN - 1)]
        rows += sum(ledger.parts[i] for i in newest)
    return keep, [ledger.read_part(i) for i in taken]

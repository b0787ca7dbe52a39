"""The first changes of a preview, with the values before and after, as a diff shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.dataclass import dataclass
from omnigraph.errors.values import plain_value
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.classify import compared
from omnigraph.merge.compare import Compared
from omnigraph.merge.conflicts import shown_rows
from omnigraph.merge.equality import identical
from omnigraph.merge.sides import Versions, lookup_rows
from omnigraph.storage.tables import TableStorage

MOST_CHANGES = 100
"""Maximum number of changes with values in a preview."""

_ENDS = {"src": "from", "dst": "to"}


@dataclass(frozen=True, slots=True)
class PreviewedChange:
    """A change of one entity that a merge, a revert, a cherry-pick or a restore would make.

    Attributes:
        entity_kind: `node` or `edge`.
        type_name: the type.
        entity_id: the entity.
        op: `insert`, `update` or `delete`.
        changed: the changed properties of an update.
        before: the present values; None for an insert. Long texts and lists are truncated. A blob is shown as a digest.
        after: the new values; None for a delete.
    """

    entity_kind: str
    type_name: str
    entity_id: str
    op: str
    changed: tuple[str, ...] = ()
    before: Mapping[str, Any] | None = field(default=None, compare=False)
    after: Mapping[str, Any] | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        members: dict[str, Any] = {
            "kind": self.entity_kind,
            "type_name": self.type_name,
            "id": self.entity_id,
            "op": self.op,
        }
        if self.op == "update":
            members["changed"] = list(self.changed)
        sides = {"before": self.before, "after": self.after}
        return members | {name: plain_value(values) for name, values in sides.items() if values is not None}


def previewed(
    tables: TableStorage, found: Mapping[str, Compared], target: Manifest, limit: int = MOST_CHANGES
) -> tuple[PreviewedChange, ...]:
    """The first changes of a comparison with their values: by type key and id.

    Args:
        tables: the table storage, aligned to the schema of the target.
        found: the changes of each table, by type key. Types whose rows are staged on Spark are left out.
        target: the state that changes.
        limit: the maximum number of changes.
    """
    changes: list[PreviewedChange] = []
    for key in sorted(found):
        one, left = found[key], limit - len(changes)
        if left > 0 and not one.is_empty and one.rows.column_names == one.versions.schema.names:
            changes += _of_type(tables, key, one, target, left)
    return tuple(changes)


def _of_type(tables: TableStorage, key: str, found: Compared, target: Manifest, limit: int) -> list[PreviewedChange]:
    kind, name = TypeKey.parse(key)
    ids = pa.concat_arrays([found.rows["id"].combine_chunks(), found.deleted]).sort().slice(0, limit)
    after = found.rows.filter(pc.is_in(found.rows["id"], value_set=ids))
    columns = found.versions.columns
    before = lookup_rows(tables, target.tables[key].ref, ids, columns).select(after.column_names)
    changed = _changed(before, after, found.versions)
    old, new = shown_rows(before), shown_rows(after)
    changes = []
    for entity in ids.to_pylist():
        op = "delete" if entity not in new else "update" if entity in old else "insert"
        sides = _named(old.get(entity)), _named(new.get(entity))
        names = tuple(_ENDS.get(each, each) for each in changed.get(entity, ()))
        changes.append(PreviewedChange(kind.value, name, entity, op, names, *sides))
    return changes


def _named(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Values with the public names of the ends of an edge."""
    return None if values is None else {_ENDS.get(name, name): value for name, value in values.items()}


def _changed(before: pa.Table, after: pa.Table, versions: Versions) -> dict[str, list[str]]:
    """The names of the properties that differ, by the id of each entity that exists before and after."""
    found = pc.index_in(after["id"].combine_chunks(), value_set=before["id"].combine_chunks())
    new = after.filter(found.is_valid()).combine_chunks()
    old = before.take(found.drop_null()).combine_chunks()
    changed: dict[str, list[str]] = {entity: [] for entity in new["id"].to_pylist()}
    ids = list(changed)
    for name in compared(versions.schema.empty_table()):
        one, other = (rows[name].combine_chunks() for rows in (old, new))
        for place in (~identical(one.cast(other.type), other)).nonzero()[0]:
            changed[ids[place]].append(name)
    return changed

"""Rows of the source with a value that the schema of the target does not allow, and the effect of choices on them.

This happens only if the schemas differ. The rows of the target are valid. If the target wins, its row stays, or its
deletion; of a type that is merged by property, only the violating property stays as it is in the target. If the source
wins, the conflict remains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest
from omnigraph.errors import Violation
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.changes import change_of
from omnigraph.merge.choices import Choices, Strategy
from omnigraph.merge.classify import compared as compared_columns
from omnigraph.merge.compare import Compared
from omnigraph.merge.equality import identical
from omnigraph.merge.restored_edges import Decisions
from omnigraph.merge.sides import lookup_rows
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rules.validator import missing_values, value_violations

_NONE = pa.array([], pa.utf8())


class InvalidValues:
    """Resolves violations of rules about single values.

    Args:
        storage: the table storage, aligned to the schema of the target.
        target: the branch that it is merged into.
        accepted: the schema of the target.
        choices: the choices for conflicts.
        decisions: the effects of the choices on nodes and edges so far. This class adds more.

    Attributes:
        resolved: number of resolved conflicts.
        named: by type key, the ids of entities with resolved conflicts for which the caller chose a side individually.
    """

    def __init__(
        self,
        storage: TableStorage,
        target: Manifest,
        accepted: AcceptedSchema,
        choices: Choices,
        decisions: Decisions,
    ) -> None:
        self._storage = storage
        self._target = target
        self._accepted = accepted
        self._choices = choices
        self._decisions = decisions
        self._done: dict[str, pa.Array] = {}
        self.resolved = 0
        self.named: dict[str, set[str]] = {}

    def resolve(self, tables: dict[str, Compared]) -> None:
        """Resolve the violations in the changes of all tables for which the target wins."""
        if not self._choices:
            return
        for key in list(tables):
            # A row whose violation was resolved before is back because of another choice. The conflict remains.
            earlier = self._done.get(key, _NONE)
            for rows, violation in list(self._violations(key, tables[key])):
                ours = self._choices.of(key).of(rows["id"], Strategy.OURS)
                ids = rows["id"].filter(pa.array(ours)).combine_chunks()
                ids = ids.filter(pc.invert(pc.is_in(ids, value_set=earlier)))
                if len(ids):
                    tables[key] = self._resolved(key, tables[key], ids, violation)

    def _violations(self, key: str, compared: Compared) -> Iterator[tuple[pa.Table, Violation]]:
        if compared.is_empty:
            return
        found = [
            *missing_values(self._accepted, key, compared.rows),
            *value_violations(self._accepted.catalog, {key: change_of(self._accepted, compared)}),
        ]
        for rows, describe in found:
            if rows.num_rows:
                yield rows, describe(rows.slice(0, 1).to_pylist()[0])

    def _resolved(self, key: str, compared: Compared, ids: pa.Array, violation: Violation) -> Compared:
        self.resolved += len(ids)
        self.named.setdefault(key, set()).update(self._choices.of(key).named(ids).to_pylist())
        self._done[key] = pa.concat_arrays([self._done.get(key, _NONE), ids]).unique()
        stored = self._storage.at(self._target.tables[key].ref).lookup("id", pa.chunked_array([ids]), columns=["id"])
        known = pc.is_in(ids, value_set=stored["id"])
        new = ids.filter(pc.invert(known))
        if compared.versions.groups is None:
            return self._without(key, compared, ids, new)
        compared = self._without(key, compared, new, new)
        prop = violation.subject.partition(".")[2]
        return self._with_target_values(compared, ids.filter(known), prop)

    def _without(self, key: str, compared: Compared, ids: pa.Array, new: pa.Array) -> Compared:
        """Leave out rows, so that the target stays as it is. `new` are the ids that the target does not have."""
        new = new.filter(pc.is_in(new, value_set=compared.rows["id"]))
        if TypeKey.parse(key).kind is TypeKind.EDGE:
            self._decisions.add(self._decisions.edges, key, ids)
        else:
            # Edges of the source at a node that the caller did not take are left out, too.
            self._decisions.add(self._decisions.deleted, key, self._choices.of(key).named(new))
        return compared.without_rows(ids, inserted=len(new))

    def _with_target_values(self, compared: Compared, ids: pa.Array, prop: str) -> Compared:
        """Take a property, and those that belong to it, from the target."""
        versions = compared.versions
        ids = ids.filter(pc.is_in(ids, value_set=compared.rows["id"]))
        if len(ids) == 0:
            return compared
        mask = pc.is_in(compared.rows["id"], value_set=ids)
        others, rows = compared.rows.filter(pc.invert(mask)), compared.rows.filter(mask).combine_chunks()
        stored = lookup_rows(self._storage, versions.target, ids, versions.columns)
        stored = stored.take(pc.index_in(rows["id"].combine_chunks(), value_set=stored["id"].combine_chunks()))
        group = next(one for one in versions.groups or () if prop in one)
        same = np.ones(rows.num_rows, bool)
        for name in compared_columns(rows):
            values = stored[name].combine_chunks().cast(rows.schema.field(name).type)
            if name in group:
                rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
            else:
                same &= identical(rows[name].combine_chunks(), values)
        rows = pa.concat_tables([others, rows.filter(pa.array(~same))])
        return compared.with_values(rows)

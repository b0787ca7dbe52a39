"""Duplicate ids among the records of one load. Local and Spark loads use the same rule.

Two records with the same key are refused. For a type without a key, two records may have the same given id: in mode
`merge` the last record counts, in other modes the duplicate is a key conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ConstraintError, KeyConflictError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.rules.constraints import ROW, C, Change, in_order, type_of
from omnigraph.write.rules.violations import Describe, Violations, describe_duplicate_key, unique_subject

_SHOWN_IDS = 100

ROWS = "rows"

RowNumbers = np.ndarray[tuple[int], np.dtype[np.int64]]


def duplicate_ids(rows: pa.Table) -> pa.Table:
    """The ids that more than one record has: one row per id, with the numbers of its records in the column `rows`.

    Args:
        rows: the columns `id` and `__row`, the row number. All records with an id have to be in this table.
    """
    groups = rows.group_by("id", use_threads=False).aggregate([(ROW, "list"), ([], "count_all")])
    several = groups.filter(pc.greater(groups["count_all"], 1))
    return pa.table({"id": several["id"], ROWS: several[f"{ROW}_list"]})


class DuplicateIds:
    """The duplicate ids of one load.

    Args:
        catalog: the types.
        last_wins: whether the last record with an id counts, as in mode `merge`; otherwise a duplicate is a conflict.

    Attributes:
        conflict: the error about the first duplicate id, if ids have to be new. The load raises it after all checks.
    """

    def __init__(self, catalog: Catalog, *, last_wins: bool) -> None:
        self._catalog = catalog
        self._last_wins = last_wins
        self._keys: dict[str, tuple[pa.Table, int]] = {}
        self.conflict: KeyConflictError | None = None

    def superseded(self, change: Change, found: pa.Table, total: int | None = None) -> RowNumbers | None:
        """The numbers of the rows that a later record replaces, in order; None if no row is dropped.

        Args:
            change: the change of the type.
            found: duplicate ids of the type, from `duplicate_ids`: all, or only the first ones if the type has a key.
            total: the number of duplicate ids, if `found` has only the first ones.
        """
        if found.num_rows == 0:
            return None
        if type_of(self._catalog, change).key is not None:
            self._keys[change.key] = found.sort_by("id"), found.num_rows if total is None else total
            return None
        if not self._last_wins and self.conflict is None:
            ids = tuple(found.sort_by("id")["id"][:_SHOWN_IDS].to_pylist())
            count = found.num_rows if total is None else total
            self.conflict = KeyConflictError(change.key, ids[0], ids=ids, total=count, repeated=True)
        groups = found[ROWS].combine_chunks()
        lengths, numbers = pc.list_value_length(groups).to_numpy(), groups.flatten().to_numpy()
        last = np.maximum.reduceat(numbers, np.concatenate(([0], np.cumsum(lengths)[:-1])))
        return np.sort(numbers[numbers != np.repeat(last, lengths)])

    def check(self, changes: Mapping[str, C], wrong_values: Iterable[tuple[pa.Table, Describe, int | None]]) -> None:
        """Refuse duplicate keys.

        Args:
            changes: the change of each type, by type key.
            wrong_values: rows that break a rule about single values. They are reported before duplicate keys.

        Raises:
            ConstraintError: two records have the same key.
        """
        if not self._keys:
            return
        found = Violations()
        for rows, describe, total in wrong_values:
            found.add(rows, describe, total)
        for change in in_order(changes):
            if change.key in self._keys:
                key = type_of(self._catalog, change).key
                assert key is not None
                rows, total = self._keys[change.key]
                found.add(rows, describe_duplicate_key(unique_subject(change.name, key)), total)
        raise ConstraintError(tuple(found.first), found.total)

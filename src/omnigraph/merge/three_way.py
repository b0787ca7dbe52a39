"""Compares all tables of three states, and collects the changes of each table of the target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.manifest import Manifest, TablePin
from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.type_key import TypeKey
from omnigraph.merge.choices import Choices
from omnigraph.merge.classify import compared
from omnigraph.merge.compare import Collected, Compared, Comparer
from omnigraph.merge.left_out_changes import changed_left_out
from omnigraph.merge.property_level import Levels, compare_rows
from omnigraph.merge.schema_alignment import Alignment
from omnigraph.merge.sides import Columns, Versions
from omnigraph.merge.states import State
from omnigraph.merge.touched import MAX_LOOKUP_IDS
from omnigraph.storage.column_changes import property_number
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.tables import TableStorage
from omnigraph.write.rules.constraints import unique_groups, value_rules
from omnigraph.write.spill import DEFAULT_BUDGET


@dataclass(frozen=True, slots=True)
class Tables:
    """The comparison of all tables.

    Attributes:
        compared: the tables that may change, by type key, nodes first.
        incompatible: type keys of tables that the source changed, and whose columns differ between the states.
        unknown: type keys of tables of the source whose rows are unknown.
    """

    compared: dict[str, Compared] = field(default_factory=dict)
    incompatible: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class ThreeWay:
    """Compares tables of a base, a source and a target.

    Args:
        tables: the table storage.
        comparer: compares stored rows.
        base: the state of the base.
        source: the state that is merged.
        target: the stored state that it is merged into.
        levels: the merge level (row or property) of each type; by default whole rows are merged.
        alignment: converts rows to the schema of the target; None if all versions have the same schema.
        complete: whether to list all conflicts, and all rows with all columns.
        exclusive: whether an entity that both sides changed is a conflict, even if they made the same change.
        budget: bytes of rows that stay in memory.
    """

    def __init__(
        self,
        tables: TableStorage,
        comparer: Comparer,
        base: State,
        source: State,
        target: Manifest,
        levels: Levels | None = None,
        alignment: Alignment | None = None,
        *,
        complete: bool = False,
        exclusive: bool = False,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        self._tables = tables
        self._comparer = comparer
        self._base = base
        self._source = source
        self._target = target
        self._levels = levels
        self._alignment = alignment
        self._complete = complete
        self._exclusive = exclusive
        self._budget = budget

    def compare(self, choices: Choices, accepted: AcceptedSchema) -> Tables:
        """Compare all tables.

        Args:
            choices: the choices for conflicts.
            accepted: the schema of the target.
        """
        found = Tables()
        for versions in self.versions(found):
            key = versions.key
            stored = versions.unknown or versions.is_unclear or not self._source_unchanged(key)
            one = Compared(versions, versions.schema.empty_table())
            if stored:
                one = self._comparer.compare(versions, choices.of(key), checked_columns(accepted, key))
            if len(versions.separate_ids):
                one = one.joined(self._compare_overlays(versions, choices))
            found.compared[key] = one
        return found

    def versions(self, found: Tables) -> Iterator[Versions]:
        """The tables to compare, nodes first. Adds tables that cannot be compared to `found`."""
        assert self._source.manifest is not None
        keys = sorted(self._source.manifest.tables, key=lambda key: (TypeKey.parse(key).kind is TypeKind.EDGE, key))
        for key in keys:
            versions = self._versions(key, found)
            if versions is not None:
                yield versions

    def _versions(self, key: str, found: Tables) -> Versions | None:
        pin, before = self._source.pin(key), self._base.pin(key)
        assert pin is not None
        if self._source.is_unknown(key):
            found.unknown.append(key)
            return None
        if before is not None and before.ref == pin.ref and self._is_plain(key):
            return None
        # This lookup adds the table to the read set, so it comes after the checks that skip tables.
        target = self._target.tables.get(key)
        if target is not None and pin.ref == target.ref and key not in self._source.overlays:
            return None
        unknown = self._base.is_unknown(key) or (before is not None and not self._is_readable(before.ref, pin, target))
        # The base is a state of a third branch, whose schema lacks the type.
        unknown = unknown or (self._alignment is not None and before is None)
        separate_ids = pa.concat_arrays(
            [self._source.overlay_ids(key), *([] if unknown else [self._base.overlay_ids(key)])]
        ).unique()
        is_unclear = before is not None and not unknown and self._is_unclear(before.ref, pin.ref)
        if not unknown and not is_unclear and self._source_unchanged(key) and len(separate_ids) == 0:
            return None
        pins = [one for one in ((None if unknown else before), pin, target) if one is not None and one.id == pin.id]
        schemas = [self._tables.at(one.ref).schema() for one in pins]
        complete = len(pins) == (2 if unknown else 3)
        if target is None or not complete or any(not _same_columns(schemas[0], schema) for schema in schemas):
            found.incompatible.append(key)
            return None
        columns = Columns.of(schemas[0])
        base = target.ref if unknown or before is None or self._same(target.ref, before.ref) else before.ref
        # If the target has not changed since the base, use the same version for both, so that it is read only once.
        schema = columns.schema(schemas[0])
        groups = None if self._levels is None else self._levels.groups(key, compared(schema.empty_table()))
        refs = base, pin.ref, target.ref
        versions = Versions(
            key, *refs, columns, schema, separate_ids, unknown, self._complete, groups, exclusive=self._exclusive
        )
        if self._alignment is None:
            return versions
        if before is not None and not unknown and self._alignment.lacking(before.ref, *refs[1:])[0]:
            # The target may have the same files as the base, but it has other columns.
            refs = before.ref, *refs[1:]
        lacking = self._alignment.lacking(*refs)
        versions = replace(versions, base=refs[0], lacking=lacking, fill=self._alignment.fill(key))
        return versions if unknown or before is None else self._with_left_out(versions, before, pin)

    def _with_left_out(self, versions: Versions, before: TablePin, pin: TablePin) -> Versions:
        """Add the entities that the target has deleted, and the source has changed in columns that the target lacks."""
        assert self._alignment is not None
        assert self._base.manifest is not None
        assert self._source.manifest is not None
        base, source = (self._base.manifest, before), (self._source.manifest, pin)
        changed = changed_left_out(self._alignment, base, source, versions.target)
        if self._alignment.left_out_columns(pin.ref):
            # An overlay does not have the columns that the target lacks, so its rows may have changed in them.
            changed = pa.concat_arrays([changed, versions.separate_ids]).unique()
        if len(changed) == 0:
            return versions
        separate_ids = pa.concat_arrays([versions.separate_ids, changed]).unique()
        return replace(versions, separate_ids=separate_ids, changed_left_out=changed)

    def _is_unclear(self, base: TableRef, source: TableRef) -> bool:
        """Whether the source has columns of the target that the base lacks, so that the base does not show changes."""
        if self._alignment is None:
            return False
        lacking = self._alignment.lacking(base, source, source)
        return bool(lacking[0] - lacking[1])

    def _is_plain(self, key: str) -> bool:
        """Whether the source and the base both know the rows of the table, and neither has an overlay for it."""
        return not self._base.is_unknown(key) and key not in self._source.overlays and key not in self._base.overlays

    def _is_readable(self, ref: TableRef, pin: TablePin, target: TablePin | None) -> bool:
        """Whether a version of the base can be read. Versions of the source and the target can always be read."""
        return ref == pin.ref or (target is not None and ref == target.ref) or self._tables.at(ref).exists()

    def _source_unchanged(self, key: str) -> bool:
        """Whether the source has the same stored rows as the base."""
        pin, before = self._source.pin(key), self._base.pin(key)
        return pin is not None and before is not None and self._same(pin.ref, before.ref)

    def _same(self, one: TableRef, other: TableRef) -> bool:
        return one == other or (
            one.path == other.path and self._tables.at(one).fingerprint() == self._tables.at(other).fingerprint()
        )

    def _compare_overlays(self, versions: Versions, choices: Choices) -> Compared:
        """Compare the rows of overlays. Looks up these rows in the base, the source and the target, in chunks."""
        key, columns = versions.key, versions.columns
        collected = Collected(versions, self._budget)
        choice = choices.of(key)
        before = self._base.pin(key)
        undecided = self._base.undecided(key)
        # Rows that are undecided in the source stay undecided: there is no value to compare.
        source_undecided = self._source.undecided(key)
        ids = versions.separate_ids.filter(pc.invert(pc.is_in(versions.separate_ids, value_set=source_undecided)))
        for first in range(0, len(ids), MAX_LOOKUP_IDS):
            some = ids.slice(first, MAX_LOOKUP_IDS)
            source = self._source.rows(self._tables, key, versions.source, some, columns)
            target = State(self._target).rows(self._tables, key, versions.target, some, columns)
            base = target
            if not versions.unknown:
                assert before is not None
                base = self._base.rows(self._tables, key, before.ref, some, columns)
            base, source, target = versions.completed(base, source, target)
            unclear = versions.undecided(base, source, target)
            if len(unclear):
                base = base.filter(pc.invert(pc.is_in(base["id"], value_set=unclear)))
            both = pa.concat_arrays([undecided, unclear])
            rows, unknown = (base, source, target), versions.unknown
            taken, exclusive = versions.taken(source, target), versions.exclusive
            found = compare_rows(
                *rows, choice, versions.groups, both, unknown=unknown, taken=taken, exclusive=exclusive
            )
            collected.add(found)
        return collected.compared()


def checked_columns(accepted: AcceptedSchema, key: str) -> list[str]:
    """The columns of a type that are needed to check constraints."""
    kind, name = TypeKey.parse(key)
    declared = accepted.catalog.declared(kind, name)
    ends = ("src", "dst") if kind is TypeKind.EDGE else ()
    unique = (field for group in unique_groups(declared) for field in group)
    return list(dict.fromkeys(["id", *ends, *unique, *(rule.property for rule in value_rules(declared))]))


def _same_columns(left: pa.Schema, right: pa.Schema) -> bool:
    """Whether two tables have the same columns. Also compares the stable ids of properties, as names can be reused."""
    return [(f.name, f.type, f.nullable, property_number(f)) for f in left] == [
        (f.name, f.type, f.nullable, property_number(f)) for f in right
    ]

"""Layouts: the same rows of a table in other files, with other segments of indexes, until they become its next version.

Packing and building are described by values that any process can carry out. What they make is a version that only its
makers know of, and is committed as one staged write.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import Index

from omnigraph.storage.indexes import (
    IndexSpec,
    build_segment,
    distinct,
    others,
    scattered,
    segment_ids,
    superseded,
    unbuilt,
)
from omnigraph.storage.lance_failures import reporting
from omnigraph.storage.packing import (
    Pack,
    Packed,
    carry_out,
    fragments_of,
    has_room,
    is_intact,
    plan,
    rewrite,
)
from omnigraph.storage.tables import Staged, TableRef, TableStorage, table_directory


@dataclass(frozen=True, slots=True)
class Layout:
    """A version of a table in other files, which only its makers know of: to build indexes on, and to stage.

    Attributes:
        base: the version that has the same rows.
        ref: that version itself.
        removed: how many fragments go.
        added: how many come for them.
        manifests: the files that make it a version, below the root. They can go when no index is built on it any more.
    """

    base: TableRef
    ref: TableRef
    removed: int
    added: int
    manifests: tuple[str, ...]
    _dropped: tuple[Index, ...]
    _packed: tuple[Packed, ...]
    _operation: LanceOperation.Rewrite | None

    @property
    def dropped(self) -> frozenset[str]:
        """What names the segments of indexes that it does without."""
        return frozenset(segment.uuid for segment in self._dropped)

    @property
    def come(self) -> set[int]:
        """The numbers of the fragments that come."""
        groups = () if self._operation is None else self._operation.groups
        return {fragment.id for group in groups for fragment in group.new_fragments}

    @classmethod
    def as_it_is(cls, base: TableRef) -> Layout:
        """That of a version itself."""
        return cls(base, base, 0, 0, (), (), (), None)


class Layouts:
    """Makes layouts of tables.

    Args:
        tables: the tables.
    """

    def __init__(self, tables: TableStorage) -> None:
        self._tables = tables
        self._root = tables._root

    def unbuilt(self, ref: TableRef, spec: IndexSpec) -> list[int]:
        """The parts of a version that an index has to be built for, in order."""
        with reporting(self._root, ref.path):
            return unbuilt(self._tables._intact(ref), spec)

    def build_segment(self, ref: TableRef, spec: IndexSpec, numbers: Sequence[int]) -> bytes:
        """Build an index for some parts of a version, in whatever process. Returns what `stage` takes.

        Args:
            ref: the version, or a `Layout`'s.
            spec: the index.
            numbers: the parts, none of which it covers.
        """
        dataset = self._tables._load(ref)  # a handle of its own: Lance refuses to build with one that others use
        with reporting(self._root, ref.path, write=True):
            return pickle.dumps(build_segment(dataset, spec, numbers))

    def merge_segments(self, ref: TableRef, segments: Sequence[bytes]) -> bytes:
        """One segment of several that were built for the same index."""
        if len(segments) == 1:
            return segments[0]
        dataset = self._tables._load(ref)
        with reporting(self._root, ref.path, write=True):
            whole = dataset.merge_existing_index_segments([pickle.loads(each) for each in segments])
        return pickle.dumps(whole)

    def plan(self, ref: TableRef, rows_per_fragment: int, laid_out: Layout | None = None) -> list[Pack]:
        """What there is to pack in a version; or in a layout, beside what was packed for that already."""
        done = set() if laid_out is None else laid_out.come
        with reporting(self._root, ref.path):
            found = plan(self._tables._intact(ref if laid_out is None else laid_out.ref), rows_per_fragment)
        return [pack for pack in found if not fragments_of(pack) & done]

    def pack(self, ref: TableRef, each: Pack) -> Packed:
        """Pack some fragments of a version, in whatever process."""
        dataset = self._tables._load(ref)
        with reporting(self._root, ref.path, write=True):
            return carry_out(dataset, each)

    def intact(self, ref: TableRef, packed: Sequence[Packed]) -> list[Packed]:
        """Those results of packing that hold for a later version, too: nobody has changed what they were made from."""
        with reporting(self._root, ref.path):
            dataset = self._tables._open(ref)
            return [each for each in packed if is_intact(dataset, each)]

    def trim(self, base: TableRef, specs: Sequence[IndexSpec]) -> Layout | None:
        """A version without the segments of indexes that should become one; None when there are none."""
        with reporting(self._root, base.path):
            dropped = scattered(self._tables._intact(base), specs)
        if not dropped:
            return None
        ref, manifest = self._detached(base, LanceOperation.CreateIndex([], dropped))
        return Layout(base, ref, 0, 0, (manifest,), tuple(dropped), (), None)

    def lay_out(self, base: TableRef, trimmed: Layout | None, packed: Sequence[Packed]) -> Layout:
        """The version that packing makes of another, or of that as it was trimmed. HEAD stays where it is."""
        begun = trimmed or Layout.as_it_is(base)
        with reporting(self._root, base.path):
            operation = rewrite(self._tables._intact(begun.ref), packed)
        ref, manifest = self._detached(begun.ref, operation)
        removed, added = sum(each.removed for each in packed), sum(each.added for each in packed)
        manifests = (*begun.manifests, manifest)
        return Layout(base, ref, removed, added, manifests, begun._dropped, tuple(packed), operation)

    def _detached(self, base: TableRef, operation: Any) -> tuple[TableRef, str]:
        """A version that only its makers know of, and the file that makes it one."""
        with reporting(self._root, base.path, write=True):
            dataset = self._tables._intact(base)
            made = LanceDataset.commit(dataset, Transaction(base.version, operation), detached=True)
        ref = base.at(int(made.version))
        return ref, f"{table_directory(base.path, base.branch)}/_versions/d{ref.version}.manifest"

    def stage(
        self, base: TableRef, layout: Layout | None, segments: Sequence[bytes], *, kept: Sequence[IndexSpec]
    ) -> Staged | None:
        """Another layout of a table, with further indexes. Nothing when there is nothing to do.

        Args:
            base: the version.
            layout: how its rows are packed, and which segments went for that; None leaves them.
            segments: what `build_segment` returned, on the layout if there is one.
            kept: the indexes that the table may have; all others go.
        """
        begun = layout or Layout.as_it_is(base)
        with reporting(self._root, base.path):
            dataset = self._tables._intact(begun.ref)
            built: list[Index] = [pickle.loads(each) for each in segments]
            gone = distinct([*others(dataset, kept), *superseded(dataset, built)])
        return self._staged(base, begun, begun._operation, built, gone)

    def _staged(
        self,
        base: TableRef,
        layout: Layout,
        operation: LanceOperation.Rewrite | None,
        built: Sequence[Index],
        gone: Sequence[Index],
    ) -> Staged | None:
        dropped, version = list(layout._dropped), base.version
        transactions = []
        if operation is not None:
            if dropped:  # what packs fragments together that they cover apart would be refused
                transactions.append(Transaction(version, LanceOperation.CreateIndex([], dropped)))
            transactions.append(Transaction(version + len(transactions), operation))
            dropped, version = [], version + len(transactions)
        made = [replace(index, dataset_version=version) for index in built]
        going = distinct([*dropped, *gone])
        if made or going:
            transactions.append(Transaction(version, LanceOperation.CreateIndex(made, going)))
        staged: Staged | None = None
        for transaction in reversed(transactions):
            step = self._tables._staged(base.at(transaction.read_version), transaction)
            staged = replace(step, then=staged)
        if staged is None:
            return None
        return replace(staged, _again=lambda later: self._moved(base, later, layout, operation, built, gone))

    def _moved(
        self,
        base: TableRef,
        later: TableRef,
        layout: Layout,
        operation: LanceOperation.Rewrite | None,
        built: Sequence[Index],
        gone: Sequence[Index],
    ) -> Staged | None:
        """The same layout for a later version, with the files that were written before.

        None when fragments that were packed or indexed have changed since, or indexes have.
        """
        with reporting(self._root, base.path):
            dataset = self._tables._open(later)
            if segment_ids(dataset) != segment_ids(self._tables._open(base)):
                return None
            if not all(is_intact(dataset, each) for each in layout._packed):
                return None
            if operation is not None and not has_room(dataset, operation):
                return None
            present = {fragment.fragment_id for fragment in dataset.get_fragments()}
        covered = {number for index in built for number in index.fragment_ids}
        if not covered - layout.come <= present:
            return None
        return self._staged(later, layout, operation, built, gone)

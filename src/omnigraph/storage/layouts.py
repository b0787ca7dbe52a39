"""Layouts: the same rows of a table version in other files and with other index segments.

A detached version is not part of the table's version chain, so no reader finds it. Compaction and index builds work on
detached versions, and any process can run them. `stage_layout` stages their results as one write.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import Index

from omnigraph.dataclass import dataclass
from omnigraph.storage.compaction import (
    CompactedGroup,
    CompactionGroup,
    compact_group,
    fragments_of,
    has_free_numbers,
    is_intact,
    plan,
    rewrite,
)
from omnigraph.storage.indexes import (
    IndexSpec,
    build_segment,
    distinct_segments,
    fragments_to_build,
    segment_ids,
    segments_to_merge,
    superseded,
    undeclared_segments,
)
from omnigraph.storage.lance_failures import reporting
from omnigraph.storage.staged import Staged, staged
from omnigraph.storage.table_ref import TableRef
from omnigraph.storage.table_view import TableView


@dataclass(frozen=True, slots=True)
class Layout:
    """A detached version of a table with the same rows in other files. It can be indexed and staged.

    Attributes:
        base: the version that it was made from.
        ref: the detached version.
        removed: the number of fragments that it replaces.
        added: the number of new fragments.
        manifests: its manifest files, below the root. They can be removed when all indexes are built.
        segments_dropped: the index segments that it does not have.
        compacted: the compacted groups of fragments.
        operation: the operation that replaces the fragments.
    """

    base: TableRef
    ref: TableRef
    removed: int
    added: int
    manifests: tuple[str, ...]
    segments_dropped: tuple[Index, ...]
    compacted: tuple[CompactedGroup, ...]
    operation: LanceOperation.Rewrite | None

    @property
    def dropped(self) -> frozenset[str]:
        """Ids of the index segments that it does not have."""
        return frozenset(segment.uuid for segment in self.segments_dropped)

    @property
    def new_fragments(self) -> set[int]:
        """Numbers of the new fragments."""
        groups = () if self.operation is None else self.operation.groups
        return {fragment.id for group in groups for fragment in group.new_fragments}

    @classmethod
    def unchanged(cls, base: TableRef) -> Layout:
        """The current layout of a version, without changes."""
        return cls(base, base, 0, 0, (), (), (), None)


# Index segments


def unbuilt_fragments(table: TableView, spec: IndexSpec) -> list[int]:
    """The fragments that an index has to be built for, in order."""
    with reporting(table.datasets.root, table.ref.path):
        return fragments_to_build(table.datasets.open_with_indexes(table.ref), spec)


def build_index_segment(table: TableView, spec: IndexSpec, numbers: Sequence[int]) -> bytes:
    """Build an index for some fragments, in any process. Returns the input of `stage_layout`.

    Args:
        table: the table version, or the detached version of a `Layout`.
        spec: the index.
        numbers: the fragments. The index covers none of them yet.
    """
    dataset = table.datasets.open_uncached(table.ref)  # Lance cannot build with a handle that other threads use
    with reporting(table.datasets.root, table.ref.path, write=True):
        return pickle.dumps(build_segment(dataset, spec, numbers))


def merge_index_segments(table: TableView, segments: Sequence[bytes]) -> bytes:
    """Merge segments of the same index into one."""
    if len(segments) == 1:
        return segments[0]
    dataset = table.datasets.open_uncached(table.ref)
    with reporting(table.datasets.root, table.ref.path, write=True):
        whole = dataset.merge_existing_index_segments([pickle.loads(each) for each in segments])
    return pickle.dumps(whole)


# Compaction


def plan_compaction(table: TableView, rows_per_fragment: int, laid_out: Layout | None = None) -> list[CompactionGroup]:
    """The fragments of a version to compact. With `laid_out`, those that this layout has not compacted yet."""
    done = set() if laid_out is None else laid_out.new_fragments
    with reporting(table.datasets.root, table.ref.path):
        dataset = table.datasets.open_with_indexes(table.ref if laid_out is None else laid_out.ref)
        found = plan(dataset, rows_per_fragment)
    return [group for group in found if not fragments_of(group) & done]


def compact(table: TableView, group: CompactionGroup) -> CompactedGroup:
    """Compact a group of fragments, in any process."""
    dataset = table.datasets.open_uncached(table.ref)
    with reporting(table.datasets.root, table.ref.path, write=True):
        return compact_group(dataset, group)


def still_valid(table: TableView, compacted: Sequence[CompactedGroup]) -> list[CompactedGroup]:
    """The compacted groups whose original fragments are unchanged in a later version."""
    with reporting(table.datasets.root, table.ref.path):
        dataset = table.dataset
        return [each for each in compacted if is_intact(dataset, each)]


def without_scattered_segments(table: TableView, specs: Sequence[IndexSpec]) -> Layout | None:
    """A layout without the index segments that should be merged into one; None if there are none."""
    with reporting(table.datasets.root, table.ref.path):
        dropped = segments_to_merge(table.datasets.open_with_indexes(table.ref), specs)
    if not dropped:
        return None
    ref, manifest = _detached(table, LanceOperation.CreateIndex([], dropped))
    return Layout(table.ref, ref, 0, 0, (manifest,), tuple(dropped), (), None)


def lay_out(table: TableView, trimmed: Layout | None, compacted: Sequence[CompactedGroup]) -> Layout:
    """The layout of a version after compaction. The newest version of the table stays the same.

    Args:
        table: the version.
        trimmed: the result of `without_scattered_segments`.
        compacted: the compacted groups.
    """
    begun = trimmed or Layout.unchanged(table.ref)
    begun_table = TableView(table.datasets, begun.ref)
    with reporting(table.datasets.root, table.ref.path):
        operation = rewrite(table.datasets.open_with_indexes(begun.ref), compacted)
    ref, manifest = _detached(begun_table, operation)
    removed, added = sum(each.removed for each in compacted), sum(each.added for each in compacted)
    manifests = (*begun.manifests, manifest)
    return Layout(table.ref, ref, removed, added, manifests, begun.segments_dropped, tuple(compacted), operation)


def _detached(table: TableView, operation: Any) -> tuple[TableRef, str]:
    """Commit a detached version. Returns it, and the path of its manifest file."""
    base = table.ref
    with reporting(table.datasets.root, base.path, write=True):
        dataset = table.datasets.open_with_indexes(base)
        made = LanceDataset.commit(dataset, Transaction(base.version, operation), detached=True)
    ref = base.at(int(made.version))
    return ref, f"{base.directory}/_versions/d{ref.version}.manifest"


# Staging


def stage_layout(
    table: TableView, layout: Layout | None, segments: Sequence[bytes], *, allowed: Sequence[IndexSpec]
) -> Staged | None:
    """Stage another layout of a table, with more index segments. None if nothing changes.

    Args:
        table: the version to change.
        layout: the new layout of its rows; None if the rows stay in their files.
        segments: results of `build_index_segment`. If there is a layout, they were built on it.
        allowed: the indexes that the table may have; all others are dropped.
    """
    begun = layout or Layout.unchanged(table.ref)
    with reporting(table.datasets.root, table.ref.path):
        dataset = table.datasets.open_with_indexes(begun.ref)
        built: list[Index] = [pickle.loads(each) for each in segments]
        gone = distinct_segments([*undeclared_segments(dataset, allowed), *superseded(dataset, built)])
    return _Staging(table, begun, built, gone).stage(table.ref)


@dataclass(frozen=True, slots=True)
class _Staging:
    """A layout with its index segments, to be staged against the version that it was made from or a later one."""

    table: TableView
    layout: Layout
    built: Sequence[Index]
    gone: Sequence[Index]

    def stage(self, base: TableRef) -> Staged | None:
        dropped, version, operation = list(self.layout.segments_dropped), base.version, self.layout.operation
        transactions = []
        if operation is not None:
            if dropped:  # Lance refuses to compact fragments that different segments cover
                transactions.append(Transaction(version, LanceOperation.CreateIndex([], dropped)))
            transactions.append(Transaction(version + len(transactions), operation))
            dropped, version = [], version + len(transactions)
        added = [replace(index, dataset_version=version) for index in self.built]
        removed = distinct_segments([*dropped, *self.gone])
        if added or removed:
            transactions.append(Transaction(version, LanceOperation.CreateIndex(added, removed)))
        write: Staged | None = None
        for transaction in reversed(transactions):
            step = staged(self.table.datasets.root, base.at(transaction.read_version), transaction)
            write = replace(step, then=write)
        return None if write is None else replace(write, restage=self._restage)

    def _restage(self, later: TableRef) -> Staged | None:
        """Stage the same files against a later version.

        Returns:
            None if the indexes have changed since, or a fragment that was compacted or indexed has changed.
        """
        datasets, operation = self.table.datasets, self.layout.operation
        with reporting(datasets.root, later.path):
            dataset = datasets.open(later)
            if segment_ids(dataset) != segment_ids(self.table.dataset):
                return None
            if not all(is_intact(dataset, each) for each in self.layout.compacted):
                return None
            if operation is not None and not has_free_numbers(dataset, operation):
                return None
            present = {fragment.fragment_id for fragment in dataset.get_fragments()}
        covered = {number for index in self.built for number in index.fragment_ids}
        if not covered - self.layout.new_fragments <= present:
            return None
        return replace(self, table=TableView(datasets, later)).stage(later)

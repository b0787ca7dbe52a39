"""Compaction: rewrite the rows of a table into fewer fragments.

Any process can compact a planned group of fragments. The results of all groups are committed together. Lance's own
commit of a compaction would create two versions without `ENGINE_MARK`, the property that identifies writes of this
engine. So the operation is built here and staged like any other write. The row ids and the recorded version of each row
stay the same, so the change feed shows no changes.
"""

# See docs/decisions/0104-packing-is-a-staged-write.md

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError
from omnigraph.storage.lance_manifest import fields

_MAX_FRAGMENT = 11
"""Field number in a Lance manifest: the highest fragment number that the table ever had."""

RESERVED_NUMBERS = 4096
"""Fragment numbers that are left free for writers that append during the compaction. There are 2**32 numbers."""


@dataclass(frozen=True, slots=True)
class CompactionGroup:
    """Fragments to merge into fewer fragments. Any process can merge them.

    Attributes:
        fragments: the number of fragments.
        rows: the number of rows.
        size: bytes of their files.
    """

    fragments: int
    rows: int
    size: int
    _task: bytes


@dataclass(frozen=True, slots=True)
class CompactedGroup:
    """The new fragments of a group. No reader sees them yet.

    Attributes:
        removed: the number of fragments that they replace.
        added: the number of new fragments.
    """

    removed: int
    added: int
    _result: bytes


def plan(dataset: LanceDataset, rows_per_fragment: int) -> list[CompactionGroup]:
    """Find the fragments to compact: small neighbours, and fragments with many deleted rows."""
    found = Compaction.plan(dataset, {"target_rows_per_fragment": rows_per_fragment})
    return [_group(task) for task in found.tasks]


def _group(task: CompactionTask) -> CompactionGroup:
    size = sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)
    rows = sum(fragment.num_rows for fragment in task.fragments)
    return CompactionGroup(len(task.fragments), rows, size, pickle.dumps(task))


def compact_group(dataset: LanceDataset, group: CompactionGroup) -> CompactedGroup:
    """Write the new fragments of a group."""
    task: CompactionTask = pickle.loads(group._task)
    result = task.execute(dataset)
    metrics = result.metrics
    return CompactedGroup(metrics.fragments_removed, metrics.fragments_added, pickle.dumps(result))


def fragments_of(group: CompactionGroup) -> set[int]:
    """Numbers of the fragments in a group."""
    task: CompactionTask = pickle.loads(group._task)
    return {fragment.id for fragment in task.fragments}


def originals(compacted: CompactedGroup) -> list[FragmentMetadata]:
    """The fragments that a compacted group replaces."""
    result: RewriteResult = pickle.loads(compacted._result)
    return list(result.original_fragments)  # type: ignore[attr-defined]  # declared under another name


def is_intact(dataset: LanceDataset, compacted: CompactedGroup) -> bool:
    """Whether a version still has the original fragments of a compacted group, unchanged."""
    present = {fragment.fragment_id: _content(fragment.metadata) for fragment in dataset.get_fragments()}
    return all(present.get(fragment.id) == _content(fragment) for fragment in originals(compacted))


def _content(fragment: FragmentMetadata) -> tuple[tuple[str, ...], str]:
    return tuple(file.path for file in fragment.files), repr(fragment.deletion_file)


def has_free_numbers(dataset: LanceDataset, operation: LanceOperation.Rewrite) -> bool:
    """Whether the numbers of the new fragments were never used in the table."""
    highest = _highest_fragment(dataset)
    return all(fragment.id > highest for group in operation.groups for fragment in group.new_fragments)


def rewrite(dataset: LanceDataset, compacted: Sequence[CompactedGroup]) -> LanceOperation.Rewrite:
    """The operation that replaces the original fragments.

    The operation contains the numbers of the new fragments: indexes record the numbers of the fragments that they
    cover, and Lance updates these records from the operation. Indexes that are built before the commit find rows by
    these numbers, so the numbers must not change afterwards. `RESERVED_NUMBERS` numbers stay free for fragments that
    other writers append before the commit.
    """
    number = _highest_fragment(dataset) + 1 + RESERVED_NUMBERS
    groups = []
    for each in compacted:
        result: RewriteResult = pickle.loads(each._result)
        new = []
        for fragment in result.new_fragments:
            new.append(replace(fragment, id=number))
            number += 1
        groups.append(LanceOperation.RewriteGroup(originals(each), new))
    return LanceOperation.Rewrite(groups, [])


def _highest_fragment(dataset: LanceDataset) -> int:
    """The highest fragment number that the table ever had. Numbers are never reused."""
    content = bytes(dataset._ds.serialized_manifest())
    noted = next((value for number, value, _, _ in fields(content) if number == _MAX_FRAGMENT), None)
    present = max((fragment.fragment_id for fragment in dataset.get_fragments()), default=-1)
    if not isinstance(noted, int) or noted < present:
        raise CorruptionError(
            f"the table {dataset.uri} does not record its highest fragment number, so it cannot be compacted",
            hint="another program created or changed it: restore it from a backup",
        )
    return noted

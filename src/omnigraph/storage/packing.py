"""Packing the rows of a table into fewer files: planned here, carried out by any process, committed as one step.

Lance's own commit of a compaction makes two versions, neither of which says who made it. So the operation is put
together here, as a staged write like any other. Row ids stay, and so do the versions at which rows were written: a
change feed sees nothing.
"""

# See docs/decisions/0104-packing-is-a-staged-write.md

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata
from lance.optimize import Compaction, CompactionTask, RewriteResult

from omnigraph.errors import CorruptionError
from omnigraph.storage.lance_manifest import fields

_MAX_FRAGMENT = 11
"""The field of a Lance manifest that has the highest number that a fragment of the table ever had."""

LEFT_OUT = 4096
"""How many fragments others may add to a table while it is packed. There are 2**32 numbers."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Fragments to make fewer ones of. Any process can do it.

    Attributes:
        fragments: how many there are.
        rows: how many rows they have.
        size: how many bytes their files have.
    """

    fragments: int
    rows: int
    size: int
    _task: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """What came of it. Nobody sees it yet.

    Attributes:
        removed: how many fragments go.
        added: how many come for them.
    """

    removed: int
    added: int
    _result: bytes


def plan(dataset: LanceDataset, rows_per_fragment: int) -> list[Pack]:
    """What there is to pack in a version: small fragments beside each other, and those with many deleted rows."""
    found = Compaction.plan(dataset, {"target_rows_per_fragment": rows_per_fragment})
    return [_pack(task) for task in found.tasks]


def _pack(task: CompactionTask) -> Pack:
    size = sum(file.file_size_bytes or 0 for fragment in task.fragments for file in fragment.files)
    rows = sum(fragment.num_rows for fragment in task.fragments)
    return Pack(len(task.fragments), rows, size, pickle.dumps(task))


def carry_out(dataset: LanceDataset, pack: Pack) -> Packed:
    """Write the new fragments."""
    task: CompactionTask = pickle.loads(pack._task)
    result = task.execute(dataset)
    metrics = result.metrics
    return Packed(metrics.fragments_removed, metrics.fragments_added, pickle.dumps(result))


def fragments_of(pack: Pack) -> set[int]:
    """The numbers of the fragments that a pack takes in."""
    task: CompactionTask = pickle.loads(pack._task)
    return {fragment.id for fragment in task.fragments}


def originals(packed: Packed) -> list[FragmentMetadata]:
    """The fragments that go."""
    result: RewriteResult = pickle.loads(packed._result)
    return list(result.original_fragments)  # type: ignore[attr-defined]  # declared under another name


def is_intact(dataset: LanceDataset, packed: Packed) -> bool:
    """Whether a version has the fragments that were packed just as they were then, so that the result holds for it."""
    present = {fragment.fragment_id: _content(fragment.metadata) for fragment in dataset.get_fragments()}
    return all(present.get(fragment.id) == _content(fragment) for fragment in originals(packed))


def _content(fragment: FragmentMetadata) -> tuple[tuple[str, ...], str]:
    return tuple(file.path for file in fragment.files), repr(fragment.deletion_file)


def has_room(dataset: LanceDataset, operation: LanceOperation.Rewrite) -> bool:
    """Whether no fragment of a version has ever had one of the numbers of the fragments that come."""
    highest = _highest_fragment(dataset)
    return all(fragment.id > highest for group in operation.groups for fragment in group.new_fragments)


def rewrite(dataset: LanceDataset, packed: Sequence[Packed]) -> LanceOperation.Rewrite:
    """The operation that puts new fragments in the place of old ones.

    The new ones are numbered here. Indexes note which fragments they cover, and Lance brings that up to date from the
    numbers that it finds in the operation. Some numbers are left out, for the fragments that others may add before the
    operation is committed: an index that was built on it finds rows by the numbers of their fragments, so those must
    not change any more.
    """
    number = _highest_fragment(dataset) + 1 + LEFT_OUT
    groups = []
    for each in packed:
        result: RewriteResult = pickle.loads(each._result)
        new = []
        for fragment in result.new_fragments:
            new.append(replace(fragment, id=number))
            number += 1
        groups.append(LanceOperation.RewriteGroup(originals(each), new))
    return LanceOperation.Rewrite(groups, [])


def _highest_fragment(dataset: LanceDataset) -> int:
    """The highest number of any fragment, also of those that are gone: no number is used twice."""
    content = bytes(dataset._ds.serialized_manifest())
    noted = next((value for number, value, _, _ in fields(content) if number == _MAX_FRAGMENT), None)
    present = max((fragment.fragment_id for fragment in dataset.get_fragments()), default=-1)
    if not isinstance(noted, int) or noted < present:
        raise CorruptionError("a table does not say how its fragments are numbered", hint="it was made by other hands")
    return noted

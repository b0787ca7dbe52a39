"""Assumptions of the store about packing and index segments. If a release changes them, the store must change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError

from omnigraph.storage.compaction import (
    RESERVED_NUMBERS,
    CompactedGroup,
    _highest_fragment,
    compact_group,
    plan,
    rewrite,
)

KINDS = {"id": "BTREE", "m": "BITMAP", "text": "NGRAM", "words": "INVERTED"}


def rows(numbers: range, m: int = 0) -> pa.Table:
    names = [f"r{i}" for i in numbers]
    return pa.table({"id": names, "m": [m] * len(names), "text": names, "words": names})


def segments(dataset: LanceDataset, fragments: list[int]) -> list[Any]:
    built = []
    for column, kind in KINDS.items():
        index = dataset.create_index_uncommitted(column, kind, name=column, fragment_ids=fragments, replace=True)
        built.append(dataset.merge_existing_index_segments([index]) if kind == "INVERTED" else index)
    return built


def covered(dataset: LanceDataset) -> dict[str, list[set[int]]]:
    return {index.name: [set(s.fragment_ids) for s in index.segments] for index in dataset.describe_indices()}


@pytest.fixture
def indexed(tmp_path: Path) -> LanceDataset:
    """Three fragments; one segment of each index covers them."""
    for i in range(3):
        mode = "append" if i else "create"
        made = lance.write_dataset(rows(range(i * 9, i * 9 + 9)), tmp_path / "t", mode=mode, enable_stable_row_ids=True)
    operation = LanceOperation.CreateIndex(segments(made, [0, 1, 2]), [])
    return LanceDataset.commit(made, Transaction(made.version, operation))


def packed(dataset: LanceDataset) -> list[CompactedGroup]:
    return [compact_group(dataset, pack) for pack in plan(dataset, 1 << 20)]


def test_a_rewrite_updates_the_coverage_of_indexes(indexed: LanceDataset) -> None:
    """Except for a B-tree, which identifies rows by their address."""
    staged = Transaction(indexed.version, rewrite(indexed, packed(indexed)))
    done = LanceDataset.commit(indexed, staged, max_retries=0)
    assert done.version == indexed.version + 1
    number = 3 + RESERVED_NUMBERS
    assert [fragment.fragment_id for fragment in done.get_fragments()] == [number]
    assert covered(done) == {"id": [set()], "m": [{number}], "text": [{number}], "words": [{number}]}
    assert done.to_table(columns=["id", "_rowid"]).equals(indexed.to_table(columns=["id", "_rowid"]))
    made = done.read_transaction(done.version)
    assert made is not None
    assert made.uuid == staged.uuid


def test_the_manifest_records_the_highest_fragment_number(indexed: LanceDataset) -> None:
    assert _highest_fragment(indexed) == 2
    indexed.delete("id IN ('r18', 'r19', 'r20', 'r21', 'r22', 'r23', 'r24', 'r25', 'r26')")
    assert [fragment.fragment_id for fragment in indexed.get_fragments()] == [0, 1]
    assert _highest_fragment(indexed) == 2


def test_a_rewrite_is_refused_after_a_restore(indexed: LanceDataset) -> None:
    """The case of a writer that was paused while others restored the table."""
    staged = Transaction(indexed.version, rewrite(indexed, packed(indexed)))
    LanceDataset.commit(indexed, Transaction(indexed.version, LanceOperation.Restore(indexed.version)))
    with pytest.raises((CommitConflictError, OSError)):
        LanceDataset.commit(indexed, staged, max_retries=0)


def test_fragments_of_different_index_segments_are_not_packed_together(indexed: LanceDataset) -> None:
    more = lance.write_dataset(rows(range(27, 30)), indexed.uri, mode="append")
    more = LanceDataset.commit(more, Transaction(more.version, LanceOperation.CreateIndex(segments(more, [3]), [])))
    assert [pack.fragments for pack in plan(more, 1 << 20)] == [3]


def test_two_bitmap_segments_return_old_and_new_values_of_a_row(indexed: LanceDataset) -> None:
    """If this fails, a bitmap may have several segments, as other indexes do."""
    indexed.merge_insert("id").when_matched_update_all().execute(rows(range(1, 2), m=1))
    changed = lance.dataset(indexed.uri)
    (new,) = [f.fragment_id for f in changed.get_fragments() if f.fragment_id > 2]
    assert changed.count_rows("m = 0") == 26
    both = LanceDataset.commit(
        changed, Transaction(changed.version, LanceOperation.CreateIndex(segments(changed, [new]), []))
    )
    assert both.count_rows("m = 1") == 1
    assert both.count_rows("m = 0") == 27, "one too many"
    assert both.count_rows("id = 'r1'") == 1


def test_a_detached_version_can_be_planned_and_packed(indexed: LanceDataset) -> None:
    detached = LanceDataset.commit(
        indexed, LanceOperation.CreateIndex([], []), read_version=indexed.version, detached=True
    )
    assert lance.dataset(indexed.uri).version == indexed.version
    assert [each.added for each in packed(lance.dataset(indexed.uri, version=detached.version))] == [1]

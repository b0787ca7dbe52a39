"""How Lance builds indexes that are invisible until they are committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation
from lance.dataset import Index
from lance.query import MatchQuery

ROWS, DIMENSION = 600, 8
KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("n", "BTREE", {}),
    ("n", "BITMAP", {}),
    ("text", "NGRAM", {}),
    ("vec", "IVF_FLAT", {"metric": "cosine", "num_partitions": 2}),
    ("vec", "IVF_PQ", {"metric": "l2", "num_partitions": 1, "num_sub_vectors": 4}),
)


@pytest.fixture
def dataset(tmp_path: Path) -> LanceDataset:
    random = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(random.standard_normal(ROWS * DIMENSION), pa.float32()), DIMENSION
    )
    rows = {
        "n": pa.array([n % 50 for n in range(ROWS)]),
        "text": [f"word{n % 50} and more" for n in range(ROWS)],
        "vec": vectors,
        "none": pa.nulls(ROWS, vectors.type),
    }
    return lance.write_dataset(pa.table(rows), tmp_path / "t", enable_stable_row_ids=True)


def build(dataset: LanceDataset, column: str, kind: str, **parameters: Any) -> Index:
    return dataset.create_index_uncommitted(column, kind, name=f"{column}_{kind}", fragment_ids=[0], **parameters)


def commit(dataset: LanceDataset, built: list[Index], gone: list[Index]) -> LanceDataset:
    return LanceDataset.commit(dataset, LanceOperation.CreateIndex(built, gone), read_version=dataset.version)


@pytest.mark.parametrize(("column", "kind", "parameters"), KINDS)
def test_other_kinds_are_complete_without_merging(
    dataset: LanceDataset, column: str, kind: str, parameters: dict[str, Any]
) -> None:
    before = dataset.version
    built = build(dataset, column, kind, **parameters)
    assert lance.dataset(dataset.uri).version == before
    indexed = commit(dataset, [built], [])
    (index,) = indexed.describe_indices()
    assert index.num_rows_indexed == ROWS
    assert [set(segment.fragment_ids) for segment in index.segments] == [{0}]
    if column == "vec":
        assert index.details["metric_type"].lower() == parameters["metric"]
        nearest = {"column": "vec", "q": [1.0] * DIMENSION, "k": 5, "metric": parameters["metric"]}
        assert indexed.scanner(columns=["n", "_rowid"], nearest=nearest).to_table().num_rows == 5
    else:
        found = indexed.to_table(filter="n = 7" if column == "n" else "contains(text, 'word7 ')")
        assert found["n"].to_pylist() == [7] * (ROWS // 50)


def test_a_full_text_index_is_merged_in_place(dataset: LanceDataset) -> None:
    built = build(dataset, "text", "INVERTED", with_position=True)
    broken = commit(dataset, [built], []).scanner(columns=["n"], full_text_query=MatchQuery("word7", "text"))
    with pytest.raises((OSError, ValueError)):
        broken.to_table()
    merged = dataset.merge_existing_index_segments([built])
    assert merged.uuid == built.uuid


def test_segments_can_be_dropped_with_the_commit_that_builds_others(dataset: LanceDataset) -> None:
    indexed = commit(dataset, [build(dataset, "n", "BTREE")], [])
    (index,) = indexed.describe_indices()
    gone = [
        Index(s.uuid, index.name, index.fields, s.dataset_version_at_last_update, s.fragment_ids, s.index_version)
        for s in index.segments
    ]
    after = commit(indexed, [build(indexed, "n", "BITMAP")], gone)
    assert [found.name for found in after.describe_indices()] == ["n_BITMAP"]
    assert after.to_table(filter="n = 7").num_rows == ROWS // 50


def test_a_vector_index_needs_vectors(dataset: LanceDataset) -> None:
    with pytest.raises(RuntimeError, match="0 vectors"):
        build(dataset, "none", "IVF_FLAT", metric="l2", num_partitions=1)


def test_values_that_are_not_null_can_be_counted_by_fragment(dataset: LanceDataset) -> None:
    (fragment,) = dataset.get_fragments()
    assert fragment.count_rows("`vec` IS NOT NULL") == ROWS
    assert fragment.count_rows("`none` IS NOT NULL") == 0

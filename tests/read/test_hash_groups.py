"""Grouping by hashes gives the groups of equal keys, for any number of passes and slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import testing
from omnigraph.read.columns import hash_groups as module
from omnigraph.read.columns.hash_groups import distinct_share, hash_groups

KEYS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 2**62)), max_size=120)


@given(KEYS, st.sampled_from([0, 2]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 3, 1 << 15]), st.integers(0, 200))
def test_groups_are_those_of_equal_keys(keys: list[int], slots: int, passes: int, chunk: int, expected: int) -> None:
    numbers = np.array(keys, np.int64)
    with testing.thresholds(module, SLOTS_PER_KEY=slots, MAX_PASSES=passes, CHUNK_KEYS=chunk):
        rows, group = hash_groups(numbers, expected)
    assert numbers[rows][group].tolist() == keys
    assert len(rows) == len({*keys})


@pytest.mark.parametrize("distinct", [1, 1_000, 100_000])
def test_the_share_of_distinct_keys_is_near(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    keys = random.integers(0, 2**50, distinct)[random.integers(0, distinct, 400_000)]
    share = distinct_share(keys)
    true = len(np.unique(keys)) / len(keys)
    # One in 64 keys is sampled. If no key is in the sample, the share is 1.
    assert share == pytest.approx(true, rel=0.5) or (distinct < 64 and share == 1.0)

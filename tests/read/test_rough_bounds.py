"""Bounds of positions from a sample of the scores contain the exact positions, for any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.thresholds import Thresholds

from omnigraph.read.columns.numbers import Numbers
from omnigraph.read.search import rankings
from omnigraph.read.search.fusion import fused, fused_order
from omnigraph.read.search.rankings import ArmValues, Ranking
from omnigraph.read.search.scores import ApproximateScores, Scores

_NUMBERS = st.sampled_from([0.0, 1.0, 1.25, 2.0, 1e-30, -3.0, 1e30, np.nan])
_SCORES = st.lists(_NUMBERS, min_size=1, max_size=40) | st.lists(
    st.floats(-1, 1, width=32) | st.just(np.nan), min_size=1, max_size=40
)


def arm(scores: Scores, error: float = 0.0, *, weight: float = 1.0, seed: int = 0) -> ArmValues:
    """An arm whose approximate scores differ from the exact ones by up to `error`."""
    noise = np.random.default_rng(seed).uniform(-0.9, 0.9, len(scores)) * error
    values = (scores + noise).astype(np.float32)
    return ArmValues(lambda: ApproximateScores(values, error), scores.__getitem__, weight)


def exact_places(scores: Scores, ids: Numbers) -> Numbers:
    """The position of each entity, by sorting all; -1 without a score."""
    entities = np.flatnonzero(~np.isnan(scores))
    order = entities[np.lexsort((ids[entities], scores[entities]))]
    places = np.full(len(scores), -1)
    places[order] = np.arange(len(order))
    return places


@given(_SCORES, st.sampled_from([1, 2, 3, 16]), st.sampled_from([0, 48]), st.booleans())
def test_bounds_contain_the_exact_positions(given: list[float], ratio: int, counted: int, blurred: bool) -> None:
    scores = np.array(given, np.float32).astype(np.float64)
    ids = np.random.default_rng(1).permutation(len(scores))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rankings, "SAMPLE_RATIO", ratio)
        patch.setattr(rankings, "MAX_COUNTED_ENTITIES", counted)
        error = 0.01 if blurred and np.nanmax(np.abs(scores), initial=0) < 1e6 else 0.0
        ranking = Ranking(arm(scores, error), ids.__getitem__)
        places, every = exact_places(scores, ids), np.arange(len(scores))
        for count in (1, 3):
            ranking.first(count)
            tight = ranking.bounds(every)
            for first, last in (ranking.rough_bounds(every), tight):
                assert (first <= places).all()
                assert (places <= last).all()
            assert ranking.places(every, *tight).tolist() == places.tolist()


@given(
    st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=2, max_size=40),
    st.sampled_from([1, 2, 60]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 3, 16]),
)
def test_a_fusion_without_scores_has_the_order_of_one_with_scores(
    given: list[tuple[float, float]], k: int, count: int, ratio: int
) -> None:
    """Scores with many ties, very different sizes, and missing ones. The bounds alone do not show the order."""
    values = np.array(given, np.float32).astype(np.float64).T
    ids = np.random.default_rng(2).permutation(values.shape[1])
    arms = [arm(values[0]), arm(values[1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rankings, "SAMPLE_RATIO", ratio)
        patch.setattr(rankings, "SORTED_FACTOR", 1)
        ordered = fused_order(arms, k, ids.__getitem__, count)
    exact = fused(arms, k, ids.__getitem__)
    if ordered is None:
        assert count >= np.count_nonzero(exact.place >= 0)
        return
    top = np.flatnonzero((exact.place >= 0) & (exact.place < count))
    assert ordered.place[top].tolist() == exact.place[top].tolist()


def test_far_positions_are_counted_for_few_entities(monkeypatch: pytest.MonkeyPatch, thresholds: Thresholds) -> None:
    """A sample excludes most entities that are late in an arm, so that their positions are not counted."""
    random = np.random.default_rng(3)
    arms = [arm(random.random(20_000)), arm(random.random(20_000))]
    ids = np.arange(20_000)
    thresholds(rankings, SAMPLE_RATIO=16)
    counted: list[int] = []
    bounds = Ranking.bounds

    def watched(self: Ranking, chosen: Numbers) -> tuple[Numbers, Numbers]:
        counted.append(len(chosen))
        return bounds(self, chosen)

    monkeypatch.setattr(Ranking, "bounds", watched)
    ordered = fused_order(arms, 60, ids.__getitem__, 10)
    assert ordered is not None
    exact = fused(arms, 60, ids.__getitem__)
    top = np.argsort(np.where(exact.place < 0, len(ids), exact.place))[:10]
    assert ordered.place[top].tolist() == list(range(10))
    assert max(counted[:2]) <= 40

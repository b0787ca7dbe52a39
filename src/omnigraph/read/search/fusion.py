"""Reciprocal rank fusion: entities ordered by their places in several orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph.read.search.scores import Scores
from omnigraph.read.space import NOTHING, Numbers


@dataclass(frozen=True, slots=True)
class Fused:
    """What a fusion gives to entities, or to the rows that hold them.

    Attributes:
        score: larger is better; NaN where no arm has a value.
        place: the place in the order of the fusion, from 0; `NOTHING` where there is no score.
    """

    score: Scores
    place: Numbers

    def take(self, rows: Numbers) -> Fused:
        return Fused(self.score[rows], self.place[rows])


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm: its value for each entity, smaller is better; NaN for none."""

    values: Scores
    weight: float


def fused(arms: Sequence[ArmValues], k: int, ties: Callable[[Numbers], Numbers]) -> Fused:
    """The fusion of some arms.

    Args:
        arms: the arms in the order in which they are written.
        k: what is added to each place.
        ties: gives numbers for some entities that put those with equal values in order.
    """
    places = [places_by(arm.values, ties) for arm in arms]
    parts = np.array(
        [
            np.where(place == NOTHING, 0.0, arm.weight / (k + place + 1.0))
            for arm, place in zip(arms, places, strict=True)
        ]
    )
    # From the smallest to the largest, so that a sum does not depend on which arm gave what.
    score = np.zeros(parts.shape[1])
    for part in np.sort(parts, axis=0):
        score += part
    found = np.any([place != NOTHING for place in places], axis=0)
    last = np.iinfo(np.int64).max
    keys = [np.where(place == NOTHING, last, place) for place in places]
    chosen = np.flatnonzero(found)
    order = chosen[np.lexsort((*(key[chosen] for key in reversed(keys)), -score[chosen]))]
    place = np.full(len(score), NOTHING, np.int64)
    place[order] = np.arange(len(order))
    return Fused(np.where(found, score, np.nan), place)


def places_by(values: Scores, ties: Callable[[Numbers], Numbers]) -> Numbers:
    """The place of each entity in the order of its value, from 0; `NOTHING` for those without one."""
    there = np.flatnonzero(~np.isnan(values))
    order = there[np.argsort(values[there], kind="stable")]
    sorted_values = values[order]
    equal = np.flatnonzero(np.diff(sorted_values) == 0)
    if len(equal):
        tied = np.union1d(equal, equal + 1)
        group = np.searchsorted(sorted_values, sorted_values[tied])
        order[tied] = order[tied][np.lexsort((ties(order[tied]), group))]
    place = np.full(len(values), NOTHING, np.int64)
    place[order] = np.arange(len(order))
    return place

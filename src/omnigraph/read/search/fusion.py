"""Reciprocal rank fusion: entities ordered by their places in several orders.

Places count all entities that are left, so a score depends on each of them. Still, who can be among the first is known
from places that are nearly right, and only what is close to those is looked at exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omnigraph.read.search.scores import Floats, Nearly, Scores
from omnigraph.read.space.space import NOTHING, Mask, Numbers

_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Fused:
    """What a fusion gives to entities, or to the rows that hold them.

    Attributes:
        score: larger is better; NaN where no arm has a value, and for what is certainly not among the first.
        place: the place in the order of the fusion, from 0; `NOTHING` where there is no score.
    """

    score: Scores
    place: Numbers

    def take(self, rows: Numbers) -> Fused:
        return Fused(self.score[rows], self.place[rows])


@dataclass(frozen=True, slots=True)
class ArmValues:
    """One arm.

    Attributes:
        nearly: about where each entity stands.
        exact: values by which some entities stand in order exactly, smaller ones first.
        weight: what its places are worth.
    """

    nearly: Nearly
    exact: Callable[[Numbers], Scores]
    weight: float


def fused(arms: Sequence[ArmValues], k: int, ties: Callable[[Numbers], Numbers], count: int | None = None) -> Fused:
    """The fusion of some arms.

    Args:
        arms: the arms in the order in which they are written.
        k: what is added to each place.
        ties: gives numbers for some entities that put those with equal values in order.
        count: how many of the first are wanted; None for all.
    """
    orders = [_Order(arm, ties) for arm in arms]
    found = np.any([order.there for order in orders], axis=0)
    if count is None or count >= int(found.sum()):
        chosen = np.flatnonzero(found)
        places = [order.all_places()[chosen] for order in orders]
    else:
        chosen = _contenders(orders, found, k, count)
        places = [order.places(chosen) for order in orders]
    score = _sums(orders, places, k)
    keys = [np.where(place == NOTHING, _LAST, place) for place in reversed(places)]
    best_first = chosen[np.lexsort((*keys, -score))]
    result = Fused(np.full(len(found), np.nan), np.full(len(found), NOTHING, np.int64))
    result.score[chosen] = score
    result.place[best_first] = np.arange(len(chosen))
    return result


def _contenders(orders: Sequence[_Order], found: Mask, k: int, count: int) -> Numbers:
    """The entities that may be among the first `count`."""
    if count == 0:
        return np.zeros(0, np.int64)
    # What the last of them has at least: as much as the last of the first `count` of an arm gets from it alone.
    least = max((order.weight / (k + count) for order in orders if int(order.there.sum()) >= count), default=0.0)
    chosen = np.flatnonzero(found)
    if least:
        # Who stands behind this place in all arms gets less than that.
        depth = int(sum(order.weight for order in orders) / least) - k + 1
        chosen = np.flatnonzero(np.any([order.nearly.contenders(depth) for order in orders], axis=0))
    bounds = [order.bounds(chosen) for order in orders]
    lowest = _sums(orders, [latest for _, latest in bounds], k)
    bound = np.partition(lowest, len(lowest) - count)[len(lowest) - count]
    # A little below, since sums of nearly equal numbers differ by how they are made.
    near: Mask = _sums(orders, [earliest for earliest, _ in bounds], k) >= bound * (1 - 1e-12)
    return chosen[near]


def _sums(orders: Sequence[_Order], places: Sequence[Numbers], k: int) -> Scores:
    """What places are worth together."""
    parts = [
        np.where(place == NOTHING, 0.0, order.weight / (k + place + 1.0))
        for order, place in zip(orders, places, strict=True)
    ]
    if len(parts) == 2:
        return parts[0] + parts[1]
    # From the smallest to the largest, so that a sum does not depend on which arm gave what.
    total: Scores = np.zeros(len(parts[0]))
    for part in np.sort(np.array(parts), axis=0):
        total += part
    return total


class _Order:
    """The places of entities in the order of one arm; `NOTHING` for entities that it has no value for."""

    def __init__(self, arm: ArmValues, ties: Callable[[Numbers], Numbers]) -> None:
        self._exact = arm.exact
        self._ties = ties
        self.weight = arm.weight
        self.nearly = arm.nearly
        self.there: Mask = ~np.isnan(arm.nearly.values)

    def all_places(self) -> Numbers:
        """The places of all entities."""
        entities = np.flatnonzero(self.there)
        places = np.full(len(self.there), NOTHING, np.int64)
        places[entities[self._in_order(entities)]] = np.arange(len(entities))
        return places

    @cached_property
    def _sorted(self) -> Floats:
        return np.sort(self.nearly.values[self.there])

    def bounds(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last place that some entities may have."""
        low, high = self._around(chosen)
        there = self.there[chosen]
        earliest = np.where(there, np.searchsorted(self._sorted, low, "left"), NOTHING)
        return earliest, np.where(there, np.searchsorted(self._sorted, high, "right") - 1, NOTHING)

    def _around(self, chosen: Numbers) -> tuple[Floats, Floats]:
        """Between which values everything lies whose order among some entities is in doubt."""
        values = self.nearly.values[chosen].astype(np.float64)
        return values - 2 * self.nearly.doubt, values + 2 * self.nearly.doubt

    def places(self, chosen: Numbers) -> Numbers:
        """The places of some entities."""
        places, latest = self.bounds(chosen)
        open_ = np.flatnonzero(latest > places)
        if len(open_) == 0:
            return places
        low, high = self._around(chosen[open_])
        values = self.nearly.values
        inside = np.searchsorted(np.sort(low), values, "right") > np.searchsorted(np.sort(high), values, "left")
        entities = np.flatnonzero(inside & self.there)
        place = np.empty(len(entities), np.int64)
        place[self._in_order(entities)] = np.arange(len(entities))
        # Places among these are counted from the first that may come after what is certainly before.
        before = np.searchsorted(np.sort(values[entities]), low, "left")
        places[open_] += place[np.searchsorted(entities, chosen[open_])] - before
        return places

    def _in_order(self, entities: Numbers) -> Numbers:
        """Some entities in their exact order."""
        values = self._exact(entities)
        order: Numbers = np.argsort(values)
        values = values[order]
        same = values[1:] == values[:-1]
        if same.any():
            group = np.concatenate([[0], np.cumsum(~same)])
            tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
            order[tied] = order[tied][np.lexsort((self._ties(entities[order[tied]]), group[tied]))]
        return order
